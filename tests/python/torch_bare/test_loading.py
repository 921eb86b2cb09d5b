"""When and how often a library is opened; each case in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conftest import library

REGISTER = """
import ctypes

class Text(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("len", ctypes.c_size_t)]

class Failure(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("code", ctypes.c_int32)]
    _fields_ += [(name, ctypes.c_char_p) for name in ("op", "argument", "text")]

FUNCTIONS = "init describe find_op call infer_shapes error_free string_free register_framework".split()

class Library(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("abi_version", ctypes.c_uint32)]
    _fields_ += [("name", Text), ("version", Text)]
    _fields_ += [(name, ctypes.c_void_p) for name in FUNCTIONS]

def register(opened, framework=b"torch"):
    table = Library.in_dll(opened, "opsmith_library_v1")
    register = ctypes.CFUNCTYPE(ctypes.POINTER(Failure), Text)(table.register_framework)
    failure = register(Text(framework, len(framework)))
    return failure.contents.text.decode() if failure else None
"""


def run(code: str, *arguments: str) -> tuple[str, str]:
    command = [sys.executable, "-c", REGISTER + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_a_library_opened_before_pytorch_is_registered_later() -> None:
    code = """
import sys
opened = ctypes.CDLL(sys.argv[1])
print(register(opened))
import torch
print(register(opened), register(opened))
x = torch.randn(3, 2)
print(torch.equal(torch.ops.testops.echo(x), x))
"""
    out, err = run(code, library("opsmith_testops"))
    first, second, third = out.splitlines()
    assert "PyTorch is not in the process" in first
    assert second == "None None" and third == "True" and err == ""


def test_opening_and_registering_again_changes_nothing() -> None:
    code = """
import sys, torch
for _ in range(3):
    torch.ops.load_library(sys.argv[1])
    print(register(ctypes.CDLL(sys.argv[1])))
print(torch.ops.testops.counter().item(), torch.ops.testops.counter().item())
"""
    out, err = run(code, library("opsmith_testops"))
    assert out.splitlines() == ["None", "None", "None", "1 2"] and err == ""


def test_a_library_that_is_closed_stays() -> None:
    code = """
import sys, _ctypes, torch
opened = ctypes.CDLL(sys.argv[1])
for _ in range(3):
    _ctypes.dlclose(opened._handle)
print(torch.ops.testops.echo(torch.ones(1)).item())
"""
    out, _ = run(code, library("opsmith_testops"))
    assert out == "1.0\n"


def test_another_file_with_the_same_ops_is_refused_and_the_first_serves_on(tmp_path: Path) -> None:
    copy = tmp_path / "libcopy.so"
    copy.write_bytes(Path(library("opsmith_testops")).read_bytes())
    code = """
import sys, torch
torch.ops.load_library(sys.argv[1])
before = torch.ops.testops.counter().item()
torch.ops.load_library(sys.argv[2])
print(register(ctypes.CDLL(sys.argv[2])))
print(torch.ops.testops.counter().item() - before)
"""
    out, err = run(code, library("opsmith_testops"), str(copy))
    message, difference = out.splitlines()
    assert "Echo, Pairwise" in message and "PyTorch has an op of this name already" in message
    assert difference == "1"
    assert "library `testops` is not registered with PyTorch" in err


def test_a_host_that_does_not_exist() -> None:
    code = """
import sys
print(register(ctypes.CDLL(sys.argv[1]), b"fortran"))
"""
    out, _ = run(code, library("opsmith_testops"))
    assert "`fortran`" in out


def test_gradients_can_be_registered_once_the_host_makes_way() -> None:
    code = """
import sys, warnings, torch
warnings.simplefilter("error")
torch.ops.load_library(sys.argv[1])
print(register(ctypes.CDLL(sys.argv[1]), b"torch.gradients"))
torch.library.register_fake("testops::echo")(lambda x: torch.empty_like(x))
torch.library.register_autograd("testops::echo", lambda ctx, grad: 2 * grad)
x = torch.ones(3, requires_grad=True)
torch.ops.testops.echo(x).sum().backward()
print(x.grad.tolist())
warnings.simplefilter("default")
print(torch.library.opcheck(torch.ops.testops.echo.default, (x,)))
"""
    out, _ = run(code, library("opsmith_testops"))
    first, second, third = out.splitlines()
    assert first == "None" and second == "[2.0, 2.0, 2.0]"
    assert third.count("SUCCESS") == 4
