"""Ops that are built just in time, under PyTorch."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import LIBRARIES
from opsmith import jit

SOURCE = """
/// The sigmoid linear unit, scaled.
#[pointwise]
fn swish<S: Scalar>(x: S) -> S {
    x * x.sigmoid() * S::of(SCALE)
}
"""


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of the tests of the package, whose dependencies are compiled."""
    folder = LIBRARIES.parent / "tests" / "jit"
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(folder))
    return folder


def test_autograd_goes_through_an_op_that_was_built_now() -> None:
    library = jit.load_inline("jit_autograd", SOURCE.replace("SCALE", "1.0"))
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(library.swish(x), torch.nn.functional.silu(x))
    torch.testing.assert_close(torch.ops.jit_autograd.swish(x), torch.nn.functional.silu(x))
    assert torch.autograd.gradcheck(library.swish, (x,))
    assert torch.autograd.gradgradcheck(library.swish, (x,))
    compiled = torch.compile(library.swish, fullgraph=True)
    torch.testing.assert_close(compiled(x), torch.nn.functional.silu(x))


def test_a_changed_source_has_a_namespace_of_its_own() -> None:
    first = jit.load_inline("jit_changed", SOURCE.replace("SCALE", "1.0"))
    second = jit.load_inline("jit_changed", SOURCE.replace("SCALE", "2.0"))
    x = torch.randn(5, requires_grad=True)
    torch.testing.assert_close(second.swish(x), 2 * first.swish(x))
    torch.testing.assert_close(
        getattr(torch.ops, second.__name__).swish(x), 2 * torch.ops.jit_changed.swish(x)
    )
    (grad,) = torch.autograd.grad(second.swish(x).sum() - 2 * first.swish(x).sum(), x)
    torch.testing.assert_close(grad, torch.zeros(5))


def test_the_attribute_that_is_learnt_in_the_guide(capsys: pytest.CaptureFixture[str]) -> None:
    guide = Path(__file__).parents[3] / "docs" / "frameworks.md"
    section = guide.read_text(encoding="utf-8").split("\n## Learning an attribute\n")[1]
    exec(section.split("```python\n")[1].split("```")[0], {})
    assert float(capsys.readouterr().out) == pytest.approx(0.25, abs=1e-5)


CACHED = """
import sys
import threading
import torch
from opsmith import jit

library = jit.load_inline("jit_cached", sys.argv[1])
x = torch.tensor([0.5, 1.5], requires_grad=True)
library.curve(x)

def compiled():
    # What a patch has set is gone after it.
    with torch.compiler.config.patch(cache_key_tag="own"):
        torch.compile(library.curve, fullgraph=True)(x).sum().backward()
    print(*x.grad.tolist())

if sys.argv[2] == "thread":
    # Settings are those of a thread.
    thread = threading.Thread(target=compiled)
    thread.start()
    thread.join()
else:
    compiled()
"""


@pytest.mark.parametrize("where", ["here", "thread"])
def test_what_was_compiled_with_another_gradient_is_not_found_again(tmp_path: Path, where: str) -> None:
    """Of exp the gradient op takes the output, of a square the input: both take two tensors."""
    for formula, slope in [("x.exp()", math.exp), ("x * x", lambda x: 2 * x), ("x.exp()", math.exp)]:
        source = f"#[pointwise]\nfn curve<S: Scalar>(x: S) -> S {{ {formula} }}"
        command = [sys.executable, "-c", CACHED, source, where]
        environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = [float(number) for number in done.stdout.split()]
        assert found == pytest.approx([slope(0.5), slope(1.5)], rel=1e-6), formula
