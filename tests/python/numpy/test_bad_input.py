"""Bad input: each mistake raises an exception that names op, argument, what was expected and what came."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import opsmith
import pytest
from test_values import Tensor

Ops = Callable[[str], Any]

ONES = np.ones((2, 3))


def refuse(
    call: Callable[[], object], *said: str, kind: type[Exception] = opsmith.InvalidArgumentError
) -> None:
    """Check that a call raises such an error, and what it says."""
    with pytest.raises(kind) as raised:
        call()
    for part in said:
        assert part in str(raised.value)
    assert isinstance(raised.value, opsmith.Error)


@pytest.mark.parametrize(
    "x, y, said",
    [
        (np.ones(3), ONES, ["`x`", "rank 2", "rank 1"]),
        (ONES, np.ones((1, 2, 3)), ["`y`", "rank 2", "rank 3"]),
        (ONES, np.ones((2, 4)), ["dim 1", "`y`", "`x`", "4", "3"]),
        (ONES, ONES.astype(np.float32), ["`x` and `y` must have one dtype, got float64 and float32"]),
        (ONES.astype(int), ONES.astype(int), ["`x` is int64", "float32, float64"]),
        (ONES, ["a", "b"], ["`y` must be float64", "['a', 'b'] (list)"]),
        (ONES, [[1, 2], [3]], ["`y` cannot be read as an array", "inhomogeneous"]),
        (ONES, [[1, 2, 3j]], ["`y` must be float64"]),
        (ONES, object(), ["`y` must be an array, a number or a list, got <object"]),
        (ONES, {1: 2}, ["`y` must be an array, a number or a list, got {1: 2} (dict)"]),
        (ONES, None, ["`y` is missing"]),
        (ONES, np.array([["a"]]), ["`x` and `y` must have one dtype, got float64 and string"]),
        (ONES, np.array([[1, "a"]], object), ["`y` holds Python objects", "element 0"]),
        (ONES, np.array(["2020-01-01"], "M8[D]"), ["`y` has dtype datetime64[D], which no op takes"]),
        (ONES, np.ones((2, 3), np.longdouble), ["`y` has dtype", "which no op takes"]),
        (ONES, np.ma.masked_array(ONES), ["`y` is a masked array"]),
        (ONES, np.ma.masked, ["`y` is a masked array"]),
        (ONES, Tensor(ONES, (2, 1)), ["`y` is on a card (index 1)"]),
        (ONES, [[10**400, 0, 0]], ["`y` "]),
    ],
)
def test_inputs_that_do_not_fit(testops: Ops, x: Any, y: Any, said: list[str]) -> None:
    refuse(lambda: testops("pairwise")(x, y), "Pairwise: ", *said)


def test_numbers_of_inputs(testops: Ops) -> None:
    refuse(lambda: testops("pairwise")(ONES), "Pairwise: input `y` is missing")
    refuse(lambda: testops("pairwise")(ONES, ONES, ONES), "Pairwise: takes 2 inputs (x, y), got 3")


def test_a_name_that_is_no_text(testops: Ops, zero_out: opsmith.Library) -> None:
    graph = opsmith.Graph()
    for call in (zero_out.zero_out_real, opsmith.ops.exp):
        for x in (ONES, graph.constant(ONES)):
            refuse(lambda call=call, x=x: call(x, name=3), ": `name` must be text (str), got 3 (int)")


def test_lists_of_inputs(testops: Ops) -> None:
    call = testops("double_all")
    refuse(
        lambda: call(np.ones((2, 2), np.float32)),
        "DoubleAll: input `xs` must be a list of tensors, got ndarray",
    )
    refuse(lambda: call([]), "DoubleAll: ", "xs")
    refuse(lambda: call([np.float32(1)]), "DoubleAll: ", "at least 2")
    refuse(lambda: call([np.float32(1), np.float64(1)]), "DoubleAll: input `xs[1]` is float64")
    refuse(lambda: call([np.float32(1), object()]), "DoubleAll: input `xs[1]` must be an array")


def test_integers_out_of_range(zero_out: opsmith.Library) -> None:
    refuse(lambda: zero_out.zero_out_real([300, 1], preserve_index=5), "ZeroOutReal", kind=opsmith.Error)
    refuse(lambda: zero_out.zero_out([2**40]), "ZeroOut: input `to_zero` ", "int32")
    refuse(lambda: zero_out.zero_out([1.5]), "ZeroOut: input `to_zero` must be int32, got [1.5] (list)")


def test_inputs_changed_in_place(testops: Ops) -> None:
    call = testops("increment")
    frozen = np.zeros(3, np.float32)
    frozen.flags.writeable = False
    refuse(lambda: call(frozen), "Increment: input `x` is changed in place and the array is read-only")
    refuse(lambda: call([1.0]), "Increment: input `x` is changed in place, so it must be an array, got list")
    refuse(
        lambda: call(np.float32(1)),
        "Increment: input `x` is changed in place, so it must be a writable array",
    )

    class Copies:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return np.zeros(3, np.float32)

    refuse(lambda: call(Copies()), "so it must be a writable array, got Copies")
    swapped = np.zeros(3, np.dtype(np.float32).newbyteorder())
    refuse(lambda: call(swapped), "Increment: input `x` is changed in place, so it must be aligned")
    refuse(lambda: call(np.zeros(3)), "Increment: input `x` is float64", "float32")
    refuse(lambda: call(np.broadcast_to(np.float32(0), 3)), "Increment: input `x` is changed in place")
    x = np.zeros(3, np.float32)
    refuse(lambda: testops("add_into")(x, x), "AddInto: input `sum` is changed in place and shares memory")
    assert not x.any()


def test_errors_have_their_parts_as_attributes(testops: Ops) -> None:
    for call, op, argument, text in [
        (lambda: testops("max")(ONES[0].astype(np.float32)), "Max", None, "Maximum of 2 expected, got 3"),
        (lambda: testops("pairwise")(ONES, ONES[0]), "Pairwise", "y", "input `y` must have rank 2"),
        (lambda: testops("pairwise")(ONES, None), "Pairwise", "y", "input `y` is missing"),
        (
            lambda: testops("pairwise")(ONES, object()),
            "Pairwise",
            "y",
            "input `y` must be an array, a number",
        ),
        (lambda: testops("pairwise")(ONES), "Pairwise", "y", "input `y` is missing"),
        (
            lambda: testops("make")(attrs={"shape": "a"}),
            "Make",
            "shape",
            "attribute `shape` must be list(int)",
        ),
        (lambda: testops("make")(attrs={"shap": []}), "Make", "shap", "has no attribute `shap`"),
        (lambda: testops("forgets")(np.float32([1])), "Forgets", "y", "the kernel did not make output `y`"),
    ]:
        with pytest.raises(opsmith.Error) as raised:
            call()
        for error in (raised.value, pickle.loads(pickle.dumps(raised.value))):
            assert (error.op, error.argument) == (op, argument)
            assert error.text.startswith(text)
            assert str(error) == f"{op}: {error.text}"
    with pytest.raises(opsmith.NotFoundError) as raised:
        testops("nothing")
    assert (raised.value.op, raised.value.argument, raised.value.code) == (None, None, "NotFound")


def test_failures_of_kernels(testops: Ops) -> None:
    x = np.ones(2, np.float32)
    refuse(lambda: testops("fails")(x), "Fails: it failed", kind=opsmith.OutOfRangeError)
    refuse(lambda: testops("forgets")(x), "Forgets: ", "`y`", kind=opsmith.InternalError)
    for place, said in [("new", "no instance"), ("compute", "no result"), ("thread", "no thread")]:
        refuse(lambda p=place: testops("panics")(x, attrs=(p,)), "Panics: ", said, kind=opsmith.InternalError)


@pytest.mark.parametrize("temporary", [False, True])
@pytest.mark.parametrize("size", [1 << 60, 2**63 - 1])
def test_too_much_memory(testops: Ops, size: int, temporary: bool) -> None:
    call = testops("allocates")
    refuse(lambda: call(attrs=(size, temporary)), "Allocates: ", kind=opsmith.ResourceExhaustedError)
    assert call(attrs=(10,)).shape == (10,)


def test_codes_and_base_classes() -> None:
    for kind, code, base in [
        (opsmith.InvalidArgumentError, "InvalidArgument", ValueError),
        (opsmith.NotFoundError, "NotFound", LookupError),
        (opsmith.OutOfRangeError, "OutOfRange", IndexError),
        (opsmith.UnimplementedError, "Unimplemented", NotImplementedError),
        (opsmith.ResourceExhaustedError, "ResourceExhausted", MemoryError),
        (opsmith.FailedPreconditionError, "FailedPrecondition", RuntimeError),
        (opsmith.AlreadyExistsError, "AlreadyExists", ValueError),
        (opsmith.InternalError, "Internal", RuntimeError),
    ]:
        error = kind("op: message")
        assert isinstance(error, (opsmith.Error, base))
        assert error.code == code
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.code) == (kind, "op: message", code)


def test_causes_are_kept(testops: Ops) -> None:
    with pytest.raises(opsmith.InvalidArgumentError) as raised:
        testops("echo")([[1], [2, 3]])
    assert isinstance(raised.value.__cause__, ValueError)


def test_names_that_do_not_exist(testops: Ops) -> None:
    refuse(
        lambda: testops("nothing"),
        "library `testops` has no op `nothing`; it has 41 ops",
        kind=opsmith.NotFoundError,
    )
    refuse(lambda: testops(1000), "there is no op 1000", kind=opsmith.OutOfRangeError)


def test_a_framework_tensor_needs_a_fallback(testops: Ops) -> None:
    foreign = type("Tensor", (), {"__module__": "torch.nested"})
    derived = type("Mine", (foreign,), {})
    op = testops("double_all")
    x = np.float32(1)
    refuse(lambda: op([x, derived()]), "DoubleAll: ", "no fallback", kind=opsmith.UnimplementedError)
    op.set_fallback(lambda inputs, attrs: (inputs, attrs))
    tensors = [x, derived()]
    assert op(tensors, attrs={"a": 1}) == ((tensors,), {"a": 1})
    assert op([x, x]) == [2, 2]
    deeper = iter([tensors, [x, x]])
    op.set_fallback(lambda inputs, attrs: op(next(deeper)))
    assert op(tensors) == [2, 2]
    op.set_fallback(lambda inputs, attrs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        op(tensors)
