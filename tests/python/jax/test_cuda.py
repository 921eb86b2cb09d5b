"""JAX on a card, as far as that goes without one: what is registered, what programs for a card are made of,
and what the handlers say where XLA has no card."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import opsmith
import pytest
from conftest import library_path
from jax.errors import JaxRuntimeError
from opsmith.jax import _targets

X = jnp.arange(6.0).reshape(2, 3)


def for_a_card(function: Callable[..., Any], *arguments: Any) -> str:
    """The program that a card would get."""
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()


@pytest.fixture
def registered(testops: opsmith.Library, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[Any, Any]]:
    """What a library registers with JAX, by target and platform."""
    found: dict[Any, Any] = {}

    def register(target: str, handler: Any, platform: str) -> None:
        found[target, platform] = handler

    loaded = testops._opsmith_loaded
    with monkeypatch.context() as patch:
        patch.setattr(_targets, "_registered", {})
        patch.setattr(jax.ffi, "register_ffi_target", register)
        _targets.register(loaded)
    yield found


def test_every_op_is_registered_for_both_platforms(
    testops: opsmith.Library, registered: dict[Any, Any]
) -> None:
    ops = testops._opsmith_loaded.definition.ops
    names = [f"testops.{op.snake_name}" for op in ops]
    assert registered.keys() == {(name, platform) for name in names for platform in ("cpu", "CUDA")}
    for op, name in zip(ops, names, strict=True):
        # An op without a CUDA kernel is asked when a program is compiled.
        assert isinstance(registered[name, "CUDA"], dict) != op.cuda
    assert {op.name for op in ops if op.cuda} >= {"Scaled", "ScaledGrad", "ProductLower"}


def test_a_program_for_a_card_calls_the_targets(testops: opsmith.Library) -> None:
    text = for_a_card(lambda x: testops.product_lower(x, x), X)
    assert "custom_call @testops.product_lower(%" in text
    text = for_a_card(jax.grad(lambda x: testops.scaled([2.0], x).sum()), X)
    assert "custom_call @testops.scaled_grad(%" in text


def test_a_number_for_cpu_memory_is_part_of_the_program(testops: opsmith.Library) -> None:
    text = for_a_card(lambda x: testops.scaled([2.5], x), X)
    call = next(line for line in text.splitlines() if "custom_call @testops.scaled" in line)
    assert 'factor = "{ dtype: float64 tensor_shape { dim { size: 1 } } double_val: [2.5] }"' in call
    assert call.count("tensor<2x3xf64>") == 2
    # What is an array stays one; the handler refuses it on a card.
    text = for_a_card(testops.scaled, jnp.ones(1), X)
    assert "factor" not in next(line for line in text.splitlines() if "custom_call @testops.scaled" in line)


@pytest.mark.parametrize("factor", [[2.5], np.float64(2.5), (2.5,)])
def test_such_a_program_computes_the_same(testops: opsmith.Library, factor: Any) -> None:
    factor = [factor] if np.ndim(factor) == 0 else factor
    expected = 2.5 * X
    call = lambda x: testops.scaled(factor, x)  # noqa: E731
    np.testing.assert_array_equal(call(X), expected)
    np.testing.assert_array_equal(jax.jit(call)(X), expected)
    np.testing.assert_array_equal(jax.vmap(call)(X), expected)
    np.testing.assert_array_equal(jax.grad(lambda x: call(x).sum())(X), jnp.full_like(X, 2.5))
    np.testing.assert_array_equal(jax.vmap(jax.grad(lambda x: call(x).sum()))(X), jnp.full_like(X, 2.5))
    np.testing.assert_array_equal(testops.scaled(jnp.array([2.5]), X), expected)
    np.testing.assert_array_equal(testops.scaled([3], X), 3 * X)


@pytest.mark.usefixtures("half")
def test_such_a_number_keeps_its_64_bits(testops: opsmith.Library) -> None:
    x = jnp.ones(2, jnp.float32)
    factor = 1 + 2.0**-40
    found = testops.scaled([factor], x)
    assert found.dtype == jnp.float32
    assert f"double_val: [{factor!r}]" in for_a_card(lambda x: testops.scaled([factor], x), x)


def test_what_cannot_be_such_a_number_says_so(testops: opsmith.Library) -> None:
    for wrong, why in [(["a"], "not an array"), (None, "missing"), ([None, "b"], "not an array")]:
        with pytest.raises(opsmith.InvalidArgumentError, match=f"Scaled: input `factor` is {why}"):
            testops.scaled(wrong, X)
    with pytest.raises(JaxRuntimeError, match=r"INVALID_ARGUMENT: Scaled: dim 0 of input `factor` must"):
        testops.scaled([1.0, 2.0], X)


def test_an_exported_program_for_a_card_has_it_too(testops: opsmith.Library) -> None:
    exported = jax.export.export(
        jax.jit(lambda x: testops.scaled([2.0], x)),
        platforms=["cpu", "cuda"],
        disabled_checks=opsmith.jax.export_checks(testops),
    )(X)
    assert exported.platforms == ("cpu", "cuda")
    np.testing.assert_array_equal(exported.call(X), 2 * X)


@pytest.fixture(scope="module")
def on_cuda() -> Callable[..., Any]:
    """An op's handler for cards, registered for the CPU: XLA there has the same functions, and no card."""
    library = ctypes.CDLL(str(library_path("opsmith_testops")))

    def call(op: str, *inputs: Any, stages: tuple[str, ...] = ("execute",), **attrs: Any) -> Any:
        target = f"on_cuda.{op}.{'.'.join(stages)}"
        handler = jax.ffi.pycapsule(getattr(library, f"{op}_jax_cuda"))
        jax.ffi.register_ffi_target(target, dict.fromkeys(stages, handler), platform="cpu")
        function = jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(X.shape, X.dtype), has_side_effect=True)
        return jax.jit(lambda *inputs: function(*inputs, **attrs)).lower(*inputs)

    return call


def test_an_op_without_a_cuda_kernel_is_refused_when_a_program_is_compiled(
    on_cuda: Callable[..., Any],
) -> None:
    lowered = on_cuda("pairwise", X, X, stages=("instantiate", "execute"))
    with pytest.raises(JaxRuntimeError, match="UNIMPLEMENTED: Pairwise: has no CUDA kernel"):
        lowered.compile()


def test_an_array_for_cpu_memory_says_what_to_do(on_cuda: Callable[..., Any]) -> None:
    with pytest.raises(
        JaxRuntimeError,
        match=r"INVALID_ARGUMENT: Scaled: input `factor` is read in host memory.*give it as a list",
    ):
        on_cuda("scaled", jnp.ones(1), X).compile()(jnp.ones(1), X)


def test_without_a_card_xla_has_no_stream(on_cuda: Callable[..., Any]) -> None:
    factor = "{ dtype: float64 tensor_shape { dim { size: 1 } } double_val: [2.5] }"
    with pytest.raises(
        JaxRuntimeError, match=r"Scaled: (XLA gives no (stream|card): \w+|this release of JAX does not tell)"
    ):
        on_cuda("scaled", X, factor=factor).compile()(X)


def test_a_shape_that_such_a_number_decides_is_known(ops: opsmith.Library) -> None:
    def pad(x: jax.Array) -> jax.Array:
        return ops.pad(x, [[1, 0], [0, 2]])

    expected = jnp.pad(X, [[1, 0], [0, 2]])
    np.testing.assert_array_equal(pad(X), expected)
    np.testing.assert_array_equal(jax.jit(pad)(X), expected)
    np.testing.assert_array_equal(jax.grad(lambda x: (pad(x) ** 2).sum())(X), 2 * X)
    text = for_a_card(jax.grad(lambda x: (pad(x) ** 2).sum()), X)
    calls = [line for line in text.splitlines() if "custom_call @" in line]
    assert len(calls) == 2 and all("paddings = " in call for call in calls)
