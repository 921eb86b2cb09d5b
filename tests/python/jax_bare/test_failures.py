"""What goes wrong says so, with XLA's code for it, and the process lives on."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import Ops, like
from jax.errors import JaxRuntimeError

X = np.ones((2, 3), np.float32)


def resident_kib() -> int:
    """The kibibytes of this process that are in memory."""
    with open("/proc/self/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((X[0], X), r"input `x` must have rank 2, \(n,p\), got rank 1 \(shape \[3\]\)"),
        ((X, X[:, :2]), r"dim 1 of input `y` must equal dim 1 of input `x` \(p\): 2 ≠ 3"),
        ((X.astype("int32"), X.astype("int32")), "input `x` is int32, but must be one of float32, float64"),
        (
            (X, X.astype("float64")),
            "inputs `x` and `y` must have one dtype, got float32 and float64; cast one of them",
        ),
        ((X,), r"has the inputs \[x, y\], got 1 tensors"),
        ((X, X, X), r"has the inputs \[x, y\], got 3 tensors"),
    ],
)
def test_arguments_that_do_not_fit(ops: Ops, arguments: tuple[np.ndarray, ...], why: str) -> None:
    with pytest.raises(JaxRuntimeError, match=f"^INVALID_ARGUMENT: Pairwise: {why}"):
        ops.pairwise(like(2, 2), *arguments)


@pytest.mark.parametrize("place", ["new", "compute", "thread"])
def test_a_panic_is_an_error_with_its_place(ops: Ops, place: str, capfd: pytest.CaptureFixture[str]) -> None:
    words = {"new": "instance", "compute": "result", "thread": "thread"}
    for _ in range(3):
        with pytest.raises(
            JaxRuntimeError,
            match=rf"INTERNAL: Panics: panicked at .*failures\.rs:\d+:\d+: no {words[place]} today",
        ):
            ops.panics(like(2, 3), X, place=place)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("bytes", [2**50, 2**63 - 1])
def test_a_temporary_that_cannot_be(ops: Ops, bytes: int) -> None:
    with pytest.raises(
        JaxRuntimeError, match=r"RESOURCE_EXHAUSTED: Allocates: .*(cannot allocate|too large)"
    ):
        ops.allocates(like(0, dtype="uint8"), bytes=bytes, temporary=True)
    with pytest.raises(JaxRuntimeError, match=r"Allocates: output `y`"):
        ops.allocates(like(0, dtype="uint8"), bytes=bytes)
    assert ops.allocates(like(8, dtype="uint8"), bytes=8).shape == (8,)


def test_an_op_of_strings_says_why_not(ops: Ops) -> None:
    with pytest.raises(JaxRuntimeError, match="StringLength: input `texts` is float32, but must be string"):
        ops.string_length(like(2, 3, dtype="int64"), X)


def test_a_kernel_that_forgets_its_output(ops: Ops) -> None:
    with pytest.raises(JaxRuntimeError, match="INTERNAL: Forgets: the kernel did not make output `y`"):
        ops.forgets(like(2, 3), X)


def test_a_message_of_any_text_arrives(ops: Ops) -> None:
    for message in ["", "ünïcødé", "two\nlines", "x" * 100_000, "100% {sure}"]:
        with pytest.raises(JaxRuntimeError) as caught:
            ops.fails(like(2, 3), X, message=message)
        assert str(caught.value) == f"OUT_OF_RANGE: Fails: {message}"


def test_a_message_that_begins_with_the_name_of_the_op_keeps_both(ops: Ops) -> None:
    with pytest.raises(JaxRuntimeError, match=r"^OUT_OF_RANGE: Max: Maximum of 2 expected, got 3$"):
        ops.max(like(2, 3), X)


def test_a_failing_op_in_a_program_leaves_it_usable(ops: Ops) -> None:
    @jax.jit
    def program(x: jax.Array, y: jax.Array) -> jax.Array:
        def step(total: jax.Array, _: None) -> tuple[jax.Array, None]:
            return total + ops.pairwise(like(2, 2), x, y).sum(), None

        return jax.lax.scan(step, jnp.float32(0), None, length=3)[0]

    @jax.jit
    def failing(x: jax.Array) -> jax.Array:
        return ops.fails(like(2, 3), 2 * x, message="as it should") + 1

    for _ in range(3):
        with pytest.raises(JaxRuntimeError, match="as it should"):
            failing(X).block_until_ready()
        assert program(X, 2 * X) == 3 * 3 * 4


def test_thirty_thousand_failures_leak_nothing(ops: Ops) -> None:
    failing = [
        jax.jit(lambda x: ops.fails(like(2, 3), x, message="after its output was made")),
        jax.jit(lambda x: ops.pairwise(like(2, 2), x, x[:, :2])),
        jax.jit(lambda x: ops.pairwise(like(2, 3), x, x)),
        jax.jit(lambda x: ops.double_all([like(2, 3)], x)),
        jax.jit(lambda x: ops.show_defaults(like(1, dtype="uint8"), ss="['a', 'b']", i=1)),
        jax.jit(lambda x: ops.panics(like(2, 3), x, place="compute")),
    ]

    def fail(times: int) -> None:
        for i in range(times):
            try:
                np.asarray(failing[i % len(failing)](X))
            except JaxRuntimeError:
                continue
            raise AssertionError("it did not fail")

    fail(6_000)
    before = resident_kib()
    fail(30_000)
    assert resident_kib() - before < 1_500


def test_a_hundred_thousand_calls_leak_nothing(ops: Ops) -> None:
    @jax.jit
    def program(x: jax.Array) -> list[jax.Array]:
        return [
            *ops.double_all([like(2, 3)] * 2, x, x),
            *ops.extremes([like()], x[0], wanted=0),
            ops.add_constant(like(3), x[0], value="{ dtype: DT_FLOAT float_val: 1 }"),
            *ops.increment([like(2, 3)], x, aliases={0: 0}),
        ]

    def call(times: int) -> None:
        for _ in range(times):
            program(X)
        jax.block_until_ready(program(X))

    call(2_000)
    before = resident_kib()
    call(20_000)
    assert resident_kib() - before < 4_000
