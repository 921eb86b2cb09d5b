"""Inputs and outputs: layouts, sizes, dtypes, lists, optional ones, changed in place."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
    torch.complex64,
    torch.complex128,
]


def layouts() -> dict[str, Tensor]:
    x = torch.randn(6, 8)
    return {
        "dense": x,
        "transposed": x.t(),
        "every other column": x[:, ::2],
        "with an offset": x[2:, 3:],
        "flipped": x.flip(0)[1:],
        "expanded row": x[:1].expand(5, 8),
        "no rows": x[:0],
        "no columns": x[:, :0],
        "one element": x[:1, :1],
        "channels last": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)[0, 0],
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", layouts())
@pytest.mark.parametrize("op", ["testops.pairwise", "distances.pairwise_manhattan_distance"])
def test_distances_equal_cdist_in_every_layout(op: str, layout: str, dtype: torch.dtype) -> None:
    namespace, name = op.split(".")
    distance = getattr(getattr(torch.ops, namespace), name)
    x = layouts()[layout].to(dtype) if dtype != torch.float32 else layouts()[layout]
    y = torch.randn(7, x.shape[1], dtype=dtype)
    for a, b in [(x, y), (y, x)]:
        result = distance(a, b)
        assert result.dtype == dtype and result.is_contiguous() and result.device == torch.device("cpu")
        torch.testing.assert_close(result, torch.cdist(a.contiguous(), b.contiguous(), p=1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_and_rank_passes_through(ops: ModuleType, dtype: torch.dtype) -> None:
    for shape in [(), (1,), (0,), (3, 4), (2, 0, 3), (2, 1, 3, 1, 2)]:
        x = (torch.rand(shape) * 2).to(dtype)
        y = ops.echo(x)
        assert y.dtype == dtype and y.shape == x.shape and torch.equal(x, y)
        assert x.numel() == 0 or y.data_ptr() != x.data_ptr()


def test_conjugate_and_negative_views_are_resolved(ops: ModuleType) -> None:
    x = torch.randn(3, 4, dtype=torch.complex64)
    assert x.conj().is_conj() and torch.equal(ops.echo(x.conj()), x.conj().resolve_conj())
    negative = x.conj().imag
    assert negative.is_neg() and torch.equal(ops.echo(negative), negative.resolve_neg())


def test_a_strided_kernel_sees_the_strides_and_another_a_copy(ops: ModuleType) -> None:
    x = torch.randn(3, 5)
    assert ops.strides(x.t()).tolist() == [1, 5]
    assert ops.strides(x.double().t()).tolist() == [3, 1]
    assert ops.strides(x.double()).tolist() == [5, 1]


def test_nan_and_infinities_are_values(ops: ModuleType) -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
    torch.testing.assert_close(ops.echo(x), x, equal_nan=True, rtol=0, atol=0)


def test_a_list_of_one_dtype(ops: ModuleType) -> None:
    xs = [torch.randn(2, 3), torch.randn(()), torch.randn(0, 4).t()]
    ys = ops.double_all(xs)
    assert isinstance(ys, list) and len(ys) == 3
    for x, y in zip(xs, ys, strict=True):
        assert torch.equal(y, 2 * x)


def test_a_list_that_is_too_short(ops: ModuleType) -> None:
    for xs in [[], [torch.ones(1)]]:
        with pytest.raises(
            RuntimeError, match=r"testops::double_all: input `xs` has \d tensors?, but N must be at least 2"
        ):
            ops.double_all(xs)


def test_a_list_of_many_dtypes(ops: ModuleType) -> None:
    xs = [torch.randn(2), torch.tensor([[True, False]]), torch.arange(3)]
    ys, count = ops.pass_all(xs)
    assert count.item() == 3 and count.dtype == torch.int64
    assert all(torch.equal(x, y) and x.dtype == y.dtype for x, y in zip(xs, ys, strict=True))
    ys, count = ops.pass_all([])
    assert ys == [] and count.item() == 0
    with pytest.raises(RuntimeError, match=r"testops::pass_all: input `xs`.*float64"):
        ops.pass_all([torch.ones(1, dtype=torch.float64)])


def test_an_optional_input(ops: ModuleType) -> None:
    x = torch.randn(4, dtype=torch.float64)
    assert torch.equal(ops.add_optional(x), x)
    assert torch.equal(ops.add_optional(x, None), x)
    assert torch.equal(ops.add_optional(x, bias=x), 2 * x)
    with pytest.raises(RuntimeError, match=r"input `bias`.*float32.*float64"):
        ops.add_optional(x, x.float())


def test_several_outputs_and_those_nobody_wants(ops: ModuleType) -> None:
    x = torch.tensor([3.0, -1.0, 2.0])
    least, greatest, at = ops.extremes(x)
    assert (least.item(), greatest.item(), at.tolist()) == (-1.0, 3.0, [1, 0])
    least, greatest, at = ops.extremes(x, wanted=0b101)
    assert least.item() == -1.0 and at.tolist() == [1, 0]
    assert greatest.shape == (0,) and greatest.dtype == torch.float32
    least, greatest, at = ops.extremes(x, wanted=0)
    assert least.item() == -1.0 and at.shape == (0,) and at.dtype == torch.int64


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_a_shape_that_depends_on_the_data(ops: ModuleType, dtype: torch.dtype) -> None:
    x = torch.tensor([[0, 1, 2], [3, 0, 0]], dtype=dtype)
    for x_view in [x, x.t(), x[:0], torch.tensor(1, dtype=dtype)]:
        assert torch.equal(ops.non_zero(x_view), torch.nonzero(x_view))


def test_in_place(ops: ModuleType) -> None:
    x = torch.zeros(3, 4)
    assert ops.increment(x) is None
    assert ops.increment(x.t()[1:3]) is None
    assert torch.equal(x, torch.tensor([1.0, 2, 2, 1]).expand(3, 4))


def test_in_place_counts_as_a_change_for_autograd(ops: ModuleType) -> None:
    weight = torch.ones(3, requires_grad=True)
    x = torch.ones(3)
    y = (weight * x).sum()
    version = x._version
    ops.increment(x)
    assert x._version == version + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_in_place_is_refused_where_it_is_not_sound(ops: ModuleType) -> None:
    unaligned = torch.frombuffer(bytearray(9), dtype=torch.float32, offset=1)
    windows = torch.zeros(5).as_strided((3, 3), (1, 1))
    for bad, why in [(unaligned, "not aligned"), (windows, "share memory")]:
        with pytest.raises(RuntimeError, match=f"testops::increment: input `x`.*{why}"):
            ops.increment(bad)
    transposed = torch.zeros(2, 3).T[::2]
    ops.increment(transposed)
    assert torch.equal(transposed, torch.ones(2, 2))


def test_in_place_is_refused_for_what_inference_mode_made(ops: ModuleType) -> None:
    with torch.inference_mode():
        x = torch.zeros(3)
        ops.increment(x)
    for mode in (torch.enable_grad, torch.no_grad):
        with mode(), pytest.raises(RuntimeError, match="increment: input `x` cannot be changed"):
            ops.increment(x)
    with pytest.raises(RuntimeError, match="add_into: input `sum` cannot be changed"):
        ops.add_into(x, torch.ones(3))
    assert x.tolist() == [1, 1, 1]
    # What is only read may be of any mode, and what is not made there may be changed there.
    total = torch.zeros(3)
    assert ops.add_into(total, x) == 3
    with torch.inference_mode():
        version = total._version
        ops.increment(total)
        assert total._version == version + 1


def test_in_place_is_refused_where_autograd_records(ops: ModuleType) -> None:
    leaf = torch.ones(2, requires_grad=True)
    for bad in [(leaf,), (leaf * 2,)]:
        with pytest.raises(
            RuntimeError, match="testops::increment: changes `x` in place and has no gradient"
        ):
            ops.increment(*bad)
    with pytest.raises(RuntimeError, match="testops::add_into: changes `sum` in place"):
        ops.add_into(torch.zeros(2), leaf)
    with torch.no_grad():
        ops.increment(leaf)
    assert leaf.tolist() == [2, 2]


def test_unaligned_tensors_and_odd_truth_values_are_copied(ops: ModuleType) -> None:
    values = torch.arange(4.0)
    unaligned = torch.frombuffer(bytearray(b"?" + values.numpy().tobytes()), dtype=torch.float32, offset=1)
    assert torch.equal(ops.echo(unaligned), values)
    odd = torch.tensor([[0, 1, 2], [255, 0, 7]], dtype=torch.uint8).view(torch.bool)
    for truths in [odd, odd.T]:
        assert torch.equal(ops.echo(truths).view(torch.uint8), (truths.view(torch.uint8) != 0).byte())


def test_in_place_next_to_other_arguments(ops: ModuleType) -> None:
    total = torch.zeros(3)
    assert ops.add_into(total, torch.ones(3)).item() == 3
    assert ops.add_into(total, torch.ones(3)).item() == 6
    assert torch.equal(total, torch.full((3,), 2.0))
    for bad, why in [((total, total), "shares memory"), ((torch.ones(1).expand(3), total), "expanded")]:
        with pytest.raises(RuntimeError, match=f"testops::add_into: input `sum`.*{why}"):
            ops.add_into(*bad)


def test_names_that_python_reserves(ops: ModuleType) -> None:
    assert torch.equal(ops.lambda_(in_=torch.ones(2), from_=3), torch.ones(2))
