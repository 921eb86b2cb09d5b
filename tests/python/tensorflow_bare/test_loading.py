"""When and how often a library is opened; each case in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from conftest import library

HEAD = """
import ctypes, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

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

def register(opened, framework=b"tensorflow"):
    table = Library.in_dll(opened, "opsmith_library_v1")
    register = ctypes.CFUNCTYPE(ctypes.POINTER(Failure), Text)(table.register_framework)
    failure = register(Text(framework, len(framework)))
    return failure.contents.text.decode() if failure else None
"""


def run(code: str, *arguments: str) -> tuple[list[str], str]:
    command = [sys.executable, "-c", HEAD + textwrap.dedent(code), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def test_a_library_opened_before_tensorflow_is_registered_later() -> None:
    out, _ = run(
        """
        opened = ctypes.CDLL(sys.argv[1])
        print(register(opened))
        import tensorflow as tf
        print(register(opened), register(opened))
        from tensorflow.python.framework import op_def_registry
        print(op_def_registry.get("Testops>Echo").name)
        """,
        library("opsmith_testops"),
    )
    assert "TensorFlow is not in the process" in out[0]
    assert out[1:] == ["None None", "Testops>Echo"]


def test_opening_and_registering_again_changes_nothing() -> None:
    out, err = run(
        """
        import tensorflow as tf
        for _ in range(3):
            ops = tf.load_op_library(sys.argv[1])
            print(register(ctypes.CDLL(sys.argv[1])))
        print(ops.testops_counter().numpy(), ops.testops_counter().numpy())
        """,
        library("opsmith_testops"),
    )
    assert out == ["None", "None", "None", "1 2"] and "opsmith" not in err


def test_a_library_that_is_closed_stays() -> None:
    out, _ = run(
        """
        import _ctypes
        import tensorflow as tf
        ops = tf.load_op_library(sys.argv[1])
        opened = ctypes.CDLL(sys.argv[1])
        for _ in range(5):
            _ctypes.dlclose(opened._handle)
        print(ops.testops_echo(tf.ones(1)).numpy())
        """,
        library("opsmith_testops"),
    )
    assert out == ["[1.]"]


def test_another_file_with_the_same_ops_is_refused_and_the_first_serves_on(tmp_path: Path) -> None:
    copy = tmp_path / "libcopy.so"
    copy.write_bytes(Path(library("opsmith_testops")).read_bytes())
    out, err = run(
        """
        import tensorflow as tf
        first = tf.load_op_library(sys.argv[1])
        before = first.testops_counter().numpy()
        second = tf.load_op_library(sys.argv[2])
        print(hasattr(second, "testops_counter"))
        print(register(ctypes.CDLL(sys.argv[2])))
        print(first.testops_counter().numpy() - before)
        """,
        library("opsmith_testops"),
        str(copy),
    )
    assert out[0] == "False" and out[2] == "1"
    assert "Testops>Echo" in out[1] and "TensorFlow has an op of this name already" in out[1]
    assert "library `testops` is not registered with TensorFlow" in err


def test_an_op_that_is_refused_leaves_the_others() -> None:
    out, err = run(
        """
        import glob
        import tensorflow as tf
        framework = ctypes.CDLL(glob.glob(tf.sysconfig.get_lib() + "/libtensorflow_framework.so.*")[0])
        for function in (framework.TF_NewStatus, framework.TF_NewKernelBuilder):
            function.restype = ctypes.c_void_p
        compute = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: None)
        builder = framework.TF_NewKernelBuilder(b"Testops>Echo", b"CPU", None, compute, None)
        status = ctypes.c_void_p(framework.TF_NewStatus())
        framework.TF_RegisterKernelBuilder(b"Testops>Echo", ctypes.c_void_p(builder), status)
        module = tf.load_op_library(sys.argv[1])
        print(module.testops_counter().numpy() >= 0, hasattr(module, "testops_echo"))
        print(register(ctypes.CDLL(sys.argv[1])))
        """,
        library("opsmith_testops"),
    )
    told = "Testops>Echo: TensorFlow has an op of this name already; the other ops are registered"
    assert out == ["True False", told]
    assert f"library `testops` is not registered with TensorFlow: AlreadyExists: {told}" in err


def test_three_libraries_share_one_pool() -> None:
    out, _ = run(
        """
        os.environ["OPSMITH_NUM_THREADS"] = "4"
        import tensorflow as tf
        ops, distances, zero_out = map(tf.load_op_library, sys.argv[1:4])
        def ours():
            tasks = os.listdir("/proc/self/task")
            return sum(open(f"/proc/self/task/{task}/comm").read().startswith("opsmith") for task in tasks)
        ops.testops_squares(tf.range(1000, dtype=tf.float64))
        x = tf.ones([300, 300])
        distances.distances_pairwise_manhattan_distance(x, x)
        print(ours())
        """,
        library("opsmith_testops"),
        library("distances"),
        library("zero_out"),
    )
    assert out == ["3"]


def test_a_saved_model_runs_in_a_process_with_the_library_alone(tmp_path: Path) -> None:
    save = """
        import numpy as np
        import tensorflow as tf
        distances = tf.load_op_library(sys.argv[1])
        class Nearest(tf.Module):
            def __init__(self):
                self.centres = tf.Variable([[0.0, 0.0], [4.0, 4.0]])
            @tf.function(input_signature=[tf.TensorSpec([None, 2])])
            def __call__(self, x):
                return tf.argmin(distances.distances_pairwise_manhattan_distance(x, self.centres), 1)
        tf.saved_model.save(Nearest(), sys.argv[2])
    """
    load = """
        import tensorflow as tf
        tf.load_op_library(sys.argv[1])
        model = tf.saved_model.load(sys.argv[2])
        print(model(tf.constant([[1.0, 0.0], [3.0, 5.0], [0.0, 1.0]])).numpy().tolist())
    """
    run(save, library("distances"), str(tmp_path / "model"))
    out, _ = run(load, library("distances"), str(tmp_path / "model"))
    assert out == ["[0, 1, 0]"]
