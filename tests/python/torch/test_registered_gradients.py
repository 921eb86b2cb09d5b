"""Gradients that users register for ops which declare none."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import opsmith
import pytest
import registered
import torch

Given = list[Any]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test registers is gone after it."""
    with registered.forgotten():
        yield


@pytest.fixture(params=["function", "torch.ops"])
def squares(request: pytest.FixtureRequest, testops: opsmith.Library) -> Callable[..., Any]:
    """An op with a registered gradient, called either way."""
    opsmith.register_gradient(testops.squares)(registered.of_squares)
    return testops.squares if request.param == "function" else torch.ops.testops.squares


def test_two_orders(squares: Callable[..., Any]) -> None:
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(squares, x) and torch.autograd.gradgradcheck(squares, x)


def test_transforms(squares: Callable[..., Any]) -> None:
    x = torch.rand(3, 4, dtype=torch.float64)
    gradient = torch.func.grad(lambda x: squares(x).sum())
    torch.testing.assert_close(torch.func.vmap(gradient)(x), 2 * x)
    torch.testing.assert_close(torch.func.jacrev(squares)(x[0]), torch.diag(2 * x[0]))
    second = torch.func.jacrev(gradient)(x[0])
    torch.testing.assert_close(second, 2 * torch.eye(4, dtype=torch.float64))
    with pytest.raises(NotImplementedError, match="no forward-mode"):
        torch.func.jvp(squares, (x[0],), (x[0],))


def test_opcheck(testops: opsmith.Library) -> None:
    opsmith.register_gradient(testops.squares)(registered.of_squares)
    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    report = torch.library.opcheck(torch.ops.testops.squares.default, (x,))
    assert set(report.values()) == {"SUCCESS"}


@pytest.mark.parametrize("place", [0, 2])
def test_a_composition_of_standard_operators(
    testops: opsmith.Library, ops: opsmith.Library, place: int
) -> None:
    opsmith.register_gradient(testops.lambda_)(registered.of_zero_out(ops, torch.tensor))
    x, weights = torch.rand(2, 2, requires_grad=True), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    (testops.lambda_(x, place) * weights).sum().backward()
    expected = torch.zeros(4)
    expected[place] = place + 1.0
    assert torch.equal(x.grad, expected.reshape(2, 2))
    (default,) = torch.autograd.grad(testops.lambda_(x).sum(), x)
    assert torch.equal(default, torch.tensor([[0.0, 1.0], [0.0, 0.0]]))


def test_compiled_whole_for_all_sizes(testops: opsmith.Library, ops: opsmith.Library) -> None:
    opsmith.register_gradient(testops.lambda_)(registered.of_zero_out(ops, torch.tensor))
    opsmith.register_gradient(testops.squares)(registered.of_squares)

    def f(x: torch.Tensor) -> torch.Tensor:
        return testops.lambda_(x.exp(), 2).double().reshape(-1).sin() @ testops.squares(
            x.reshape(-1).double()
        )

    compiled = torch.compile(f, fullgraph=True, dynamic=True)
    for shape in ((2, 3), (4, 5), (3, 7)):
        x = torch.rand(shape, requires_grad=True)
        (expected,), (got,) = torch.autograd.grad(f(x), x), torch.autograd.grad(compiled(x), x)
        torch.testing.assert_close(got, expected)


def test_a_compiled_function_has_the_gradient_of_its_time(testops: opsmith.Library) -> None:
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    for factor in (2.0, 3.0):
        opsmith.register_gradient(testops.squares, replace=True)(
            lambda inputs, outputs, attributes, grads, factor=factor: [factor * inputs[0] * grads[0]]
        )
        torch._dynamo.reset()
        compiled = torch.compile(lambda x: testops.squares(x).sum(), fullgraph=True)
        torch.testing.assert_close(torch.autograd.grad(compiled(x), x)[0], factor * x)


def test_by_an_op_of_another_library(testops: opsmith.Library, distances: opsmith.Library) -> None:
    opsmith.register_gradient(testops.pairwise)(registered.of_pairwise(distances))
    x, y = torch.rand(3, 4, requires_grad=True), torch.rand(5, 4, requires_grad=True)
    weights = torch.rand(3, 5)
    got = torch.autograd.grad((testops.pairwise(x, y) * weights).sum(), (x, y))
    expected = torch.autograd.grad((torch.cdist(x, y, p=1) * weights).sum(), (x, y))
    torch.testing.assert_close(got, expected)
    (only_y,) = torch.autograd.grad((testops.pairwise(x.detach(), y) * weights).sum(), y)
    torch.testing.assert_close(only_y, expected[1])


def test_lists(testops: opsmith.Library) -> None:
    @opsmith.register_gradient(testops.double_all)
    def gradient(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        assert [len(group) for group in (inputs[0], outputs[0], grads[0])] == [3, 3, 3] and attributes == {}
        return [[2.0 * grads[0][0], None, 2.0 * grads[0][2]]]

    xs = [torch.rand(2, requires_grad=True) for _ in range(3)]
    first, _, third = testops.double_all(xs)
    # The gradient of the second and third output are zeros that nobody sent.
    found = torch.autograd.grad(first.sum(), xs, retain_graph=True, allow_unused=True)
    assert torch.equal(found[0], torch.full((2,), 2.0)) and found[1] is None
    assert torch.equal(found[2], torch.zeros(2))
    (third * testops.double_all([xs[0], xs[1], xs[2].detach()])[0]).sum().backward()
    assert xs[1].grad is None and torch.allclose(xs[2].grad, 4.0 * xs[0]) and xs[0].grad is not None


def test_a_list_of_several_dtypes(testops: opsmith.Library) -> None:
    seen = []

    @opsmith.register_gradient(testops.pass_all)
    def gradient(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        seen.append(grads)
        return [grads[0]] if len(seen) == 1 else [None]

    x, whole = torch.rand(2, requires_grad=True), torch.tensor([1, 2])
    ys, count = testops.pass_all([x, whole, x])
    assert not ys[1].requires_grad and not count.requires_grad
    assert torch.equal(torch.autograd.grad(ys[2].sum(), x, retain_graph=True)[0], torch.ones(2))
    assert torch.equal(seen[0][0][0], torch.zeros(2)) and seen[0][0][1] is None and seen[0][1] is None
    assert torch.autograd.grad(ys[2].sum(), x, allow_unused=True) == (None,)


@pytest.mark.parametrize("is_there", [True, False])
def test_an_optional_input(testops: opsmith.Library, is_there: bool) -> None:
    @opsmith.register_gradient(testops.add_optional)
    def gradient(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        assert (inputs[1] is not None) == is_there
        return [grads[0], grads[0] if is_there else None]

    x, bias = (torch.rand(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    testops.add_optional(x, *([bias] if is_there else [])).sum().backward()
    assert torch.equal(x.grad, torch.ones(3, dtype=torch.float64)) and (bias.grad is not None) == is_there


def test_outputs_that_are_not_wanted(testops: opsmith.Library) -> None:
    seen = []

    @opsmith.register_gradient(testops.extremes)
    def gradient(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        seen.append((outputs, grads))
        return [(inputs[0] == outputs[0]) * grads[0]]

    x = torch.tensor([3.0, 1.0, 2.0], requires_grad=True)
    torch.ops.testops.extremes(x, wanted=5)[0].backward()
    assert torch.equal(x.grad, torch.tensor([0.0, 1.0, 0.0]))
    (outputs, grads), at = seen[0], torch.tensor([1, 0])
    assert outputs[1] is None and torch.equal(outputs[2], at) and grads[1] is None and grads[2] is None


def test_attributes_are_values(testops: opsmith.Library) -> None:
    seen = []

    @opsmith.register_gradient(testops.add_constant)
    def gradient(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        seen.append(attributes)
        return [grads[0] * attributes["value"]]

    x = torch.rand(3, requires_grad=True)
    value = np.array([1.0, 2.0, 3.0], np.float32)
    (gradient_of_x,) = torch.autograd.grad(testops.add_constant(x, value=value).sum(), x)
    assert list(seen[0]) == ["value"] and torch.equal(gradient_of_x, torch.from_numpy(value))


@pytest.mark.parametrize("case", registered.MISFITS)
def test_a_result_that_does_not_fit(testops: opsmith.Library, case: str) -> None:
    make, message = registered.MISFITS[case]
    opsmith.register_gradient(testops.pairwise)(registered.misfit(make))
    z = testops.pairwise(torch.rand(3, 4, requires_grad=True), torch.rand(5, 4))
    with pytest.raises(opsmith.InvalidArgumentError, match=message):
        z.sum().backward()


@pytest.mark.parametrize(
    "result, message",
    [
        (
            [None, None, None],
            r"input `xs` must be a list of 2, one for each of its tensors, or None, got a list",
        ),
        ([torch.zeros(2), torch.zeros(2)], r"input `xs\[1\]` must be None, for the input is int64"),
        ([torch.zeros(2, dtype=torch.float64), None], r"input `xs\[0\]` must be float32 .*got float64"),
    ],
)
def test_lists_that_do_not_fit(testops: opsmith.Library, result: list[Any], message: str) -> None:
    opsmith.register_gradient(testops.pass_all)(lambda *_: [result])
    ys, _ = testops.pass_all([torch.rand(2, requires_grad=True), torch.tensor([1, 2])])
    with pytest.raises(opsmith.InvalidArgumentError, match=f"PassAll: the registered gradient of {message}"):
        ys[0].sum().backward()


def test_a_gradient_of_what_is_absent(testops: opsmith.Library) -> None:
    opsmith.register_gradient(testops.add_optional)(lambda i, o, a, grads: [grads[0], grads[0]])
    y = testops.add_optional(torch.rand(3, dtype=torch.float64, requires_grad=True))
    with pytest.raises(opsmith.InvalidArgumentError, match="`bias` must be None, for the input is absent"):
        y.sum().backward()


def test_an_exception_is_passed_on(testops: opsmith.Library) -> None:
    @opsmith.register_gradient(testops.squares)
    def gradient(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        raise ZeroDivisionError("mine")

    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    with pytest.raises(ZeroDivisionError, match="mine"):
        testops.squares(x).sum().backward()


def test_the_function_in_the_guide(testops: opsmith.Library) -> None:
    guide = Path(__file__).parents[3] / "docs" / "frameworks.md"
    section = guide.read_text(encoding="utf-8").split("\n## Gradients for ops that declare none\n")[1]
    exec(section.split("```python\n")[1].split("```")[0], {"opsmith": opsmith, "library": testops})
    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(testops.squares, x)


def test_before_torch_is_imported(testops: opsmith.Library) -> None:
    program = f"""
        import sys
        import opsmith

        testops = opsmith.load({testops.__file__!r})
        opsmith.register_gradient(testops.squares)(lambda i, o, a, grads: [2.0 * i[0] * grads[0]])
        assert not {{"torch", "tensorflow", "jax"}} & set(sys.modules)
        import torch

        x = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
        testops.squares(x).backward()
        print(x.grad.item())
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "6.0\n"
