"""What the generated functions take, and what they say about what they do not take."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import numpy as np
import opsmith
import pytest
import torch
from torch.utils.data import DataLoader, Dataset


def test_lists_and_scalars_beside_a_tensor(distances: opsmith.Library, testops: opsmith.Library) -> None:
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    z = distances.pairwise_manhattan_distance(x, [[1, 1], [3, 3]])
    assert z.dtype == torch.float64 and z.tolist() == [[1.0, 3.0]]
    z = distances.pairwise_manhattan_distance([[1, 1], [3, 3]], x)
    assert z.dtype == torch.float64 and z.tolist() == [[1.0], [3.0]]
    assert testops.add_optional(torch.zeros(2, dtype=torch.float64), [1, 2]).tolist() == [1.0, 2.0]
    assert testops.add_optional(torch.ones(2, dtype=torch.float64)).tolist() == [1.0, 1.0]


def test_arrays_beside_a_tensor(distances: opsmith.Library) -> None:
    f, expected = distances.pairwise_manhattan_distance, torch.cdist(X, Y, p=1)
    x, y = X.numpy(), Y.numpy()
    for z in (f(X, y), f(x, Y), f(X, y=y), f(y=Y, x=x), f(x, Y, name="z")):
        assert type(z) is torch.Tensor
        torch.testing.assert_close(z, expected)
    read_only = y.copy()
    read_only.flags.writeable = False
    for layout in (read_only, y[::-1].copy()[::-1], np.asfortranarray(y), y.astype(">f4")):
        torch.testing.assert_close(f(X, layout), expected)
    compiled = torch.compile(lambda x: f(x, y), fullgraph=True)
    torch.testing.assert_close(compiled(X), expected)
    torch.testing.assert_close(torch.compile(f)(x, Y), expected)


def test_arrays_in_lists_and_optional_inputs(testops: opsmith.Library, zero_out: opsmith.Library) -> None:
    one = torch.ones(2, dtype=torch.float64)
    for terms in ([np.ones(2), one], [one, np.ones(2)], [[1, 1], np.ones(2), one]):
        total = zero_out.sum_all(terms)
        assert type(total) is torch.Tensor and total.tolist() == [len(terms)] * 2
    ys, count = testops.pass_all([np.ones(2, np.float32), torch.tensor([1]), np.array(True)])
    assert count == 3 and [y.dtype for y in ys] == [torch.float32, torch.int64, torch.bool]
    assert testops.add_optional(one, np.ones(2)).tolist() == [2, 2]
    assert testops.add_optional(np.ones(2), one).tolist() == [2, 2]


def test_an_array_is_changed_in_place(testops: opsmith.Library) -> None:
    total = np.zeros(2, np.float32)
    assert testops.add_into(total, torch.ones(2)) == 2 and total.tolist() == [1, 1]
    total.flags.writeable = False
    with pytest.raises(opsmith.InvalidArgumentError, match=r"AddInto: input `sum` is changed .* read-only"):
        testops.add_into(total, torch.ones(2))


def test_numbers_take_the_dtype_beside_them_and_lose_nothing(ops: opsmith.Library) -> None:
    x = torch.tensor([1, 2], dtype=torch.int32)
    for number in (np.int64(1), 1, True, [1, 1], np.array([1, 1], np.int32)):
        for total in (ops.add(x, number), ops.add(number, x)):
            assert total.dtype == torch.int32 and total.tolist() == [2, 3]
    for number in (np.float64(2.5), 2.5, [2.5, 1]):
        with pytest.raises(opsmith.InvalidArgumentError, match=r"Add: input `y` holds float .* int32"):
            ops.add(x, number)
    with pytest.raises(opsmith.InvalidArgumentError, match="Add: input `y` is missing"):
        ops.add(x, None)
    for dtype in (torch.uint8, torch.uint64):
        with pytest.raises(opsmith.InvalidArgumentError, match="Add: input `y` is -1, but must be uint"):
            ops.add(x.to(dtype), -1)
    with pytest.raises(opsmith.InvalidArgumentError, match="Add: input `y` is not a tensor"):
        ops.add(x, 1 << 64)
    half = ops.add(torch.ones(2, dtype=torch.float16, requires_grad=True), 2)
    assert half.dtype == torch.float16 and half.requires_grad


class Distance(torch.nn.Module):
    """What has a library's function as an attribute."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function, self.centres = function, torch.nn.Parameter(Y.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.centres)


def test_modules_with_functions_are_saved_and_copied(distances: opsmith.Library) -> None:
    module, file = Distance(distances.pairwise_manhattan_distance), io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    saved = torch.load(file, weights_only=False)
    for again in (saved, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        torch.testing.assert_close(again(X), torch.cdist(X, Y, p=1))
        assert again.function is module.function


def test_parameters_and_subclasses_are_tensors(distances: opsmith.Library) -> None:
    class Marked(torch.Tensor):
        pass

    x, y = torch.rand(3, 4), torch.rand(5, 4)
    expected = torch.cdist(x, y, p=1)
    for kind in (torch.nn.Parameter, lambda t: t.as_subclass(Marked)):
        for left, right in ((kind(x), y), (x, kind(y)), (kind(x), kind(y))):
            torch.testing.assert_close(
                distances.pairwise_manhattan_distance(left, right).as_subclass(torch.Tensor), expected
            )


def test_saved_outputs_and_names(testops: opsmith.Library, zero_out: opsmith.Library) -> None:
    assert torch.equal(testops.lambda_(torch.ones(2), from_=3), torch.ones(2))
    value, position = zero_out.max_with_index(torch.tensor([1.0, 3.0]), name="largest")
    assert value == 3 and position == 1


def test_lists_of_tensors(testops: opsmith.Library) -> None:
    xs = [torch.ones(2), torch.ones(3)]
    assert [y.tolist() for y in testops.double_all(xs)] == [[2.0, 2.0], [2.0, 2.0, 2.0]]
    assert [y.tolist() for y in testops.double_all(tuple(xs))] == [[2.0, 2.0], [2.0, 2.0, 2.0]]
    ys, count = testops.pass_all([torch.ones(2), torch.tensor([1]), torch.tensor(True)])
    assert count == 3 and [y.dtype for y in ys] == [torch.float32, torch.int64, torch.bool]


X, Y = torch.rand(3, 4), torch.rand(5, 4)

MISTAKES = {
    "rank": (lambda f: f(X[0], Y), RuntimeError, r"input `x` must have rank 2, \(n,p\), got rank 1"),
    "dims": (
        lambda f: f(X, Y[:, :2]),
        RuntimeError,
        "dim 1 of input `y` must equal dim 1 of input `x` .*2 ≠ 4",
    ),
    "dtypes differ": (
        lambda f: f(X, Y.double()),
        RuntimeError,
        "inputs `x` and `y` must have one dtype, got float32 and float64; cast one of them",
    ),
    "dtype": (
        lambda f: f(X.int(), Y.int()),
        RuntimeError,
        "input `x` is int32, but must be one of float32, float64",
    ),
    "devices": (
        lambda f: f(X, Y.to("meta")),
        RuntimeError,
        "all inputs must be on one device, but `y` is on meta",
    ),
    "frameworks": (
        lambda f: f(X, opsmith.Graph().constant(Y.numpy())),
        opsmith.InvalidArgumentError,
        "PairwiseManhattanDistance: .* `x` is of torch, `y` is of an Opsmith graph",
    ),
    "frameworks, turned": (
        lambda f: f(opsmith.Graph().constant(X.numpy()), Y),
        opsmith.InvalidArgumentError,
        r"`x` is of an Opsmith graph, `y` is of torch\n  → convert one of them, .* numpy.asarray\(y\)",
    ),
    "an array of another dtype": (
        lambda f: f(X, Y.double().numpy()),
        RuntimeError,
        "inputs `x` and `y` must have one dtype, got float32 and float64; cast one of them",
    ),
    "an array of objects": (
        lambda f: f(X, np.array([[None]])),
        opsmith.InvalidArgumentError,
        "PairwiseManhattanDistance: input `y` cannot become a PyTorch tensor: .*object",
    ),
    "a masked array": (
        lambda f: f(X, np.ma.array(Y.numpy(), mask=Y.numpy() > 0.5)),
        opsmith.InvalidArgumentError,
        "PairwiseManhattanDistance: input `y` is a masked array, whose mask would be lost",
    ),
    "a masked scalar": (
        lambda f: f(X, np.ma.masked),
        opsmith.InvalidArgumentError,
        "PairwiseManhattanDistance: input `y` is a masked array, whose mask would be lost",
    ),
    "one array too many": (
        lambda f: f(X, Y, Y),
        TypeError,
        r"pairwise_manhattan_distance\(\) takes 2 positional arguments but 3 were given",
    ),
    "missing": (lambda f: f(X), TypeError, r"pairwise_manhattan_distance\(\) missing 1 required .*'y'"),
    "unknown": (
        lambda f: f(X, Y, b=1),
        TypeError,
        r"pairwise_manhattan_distance\(\) .*unexpected keyword argument 'b'",
    ),
    "none": (lambda f: f(X, None), opsmith.InvalidArgumentError, "input `y` is missing"),
    "a name": (
        lambda f: f(X, Y, name=3),
        opsmith.InvalidArgumentError,
        r"PairwiseManhattanDistance: `name` must be text \(str\), got 3 \(int\)",
    ),
    "text": (lambda f: f(X, "y"), RuntimeError, "input `y` is not a tensor"),
}


@pytest.mark.parametrize(("call", "kind", "message"), MISTAKES.values(), ids=MISTAKES.keys())
@pytest.mark.parametrize("requires_grad", [False, True])
def test_mistakes(distances: opsmith.Library, call, kind, message, requires_grad: bool) -> None:  # noqa: ANN001
    def function(x, *args, **kwargs):  # noqa: ANN001, ANN002, ANN003, ANN202
        if requires_grad and isinstance(x, torch.Tensor) and x.is_floating_point():
            x = x.detach().requires_grad_()
        return distances.pairwise_manhattan_distance(x, *args, **kwargs)

    with pytest.raises(kind, match=message):
        call(function)


def test_none_is_the_default_of_an_attribute(zero_out: opsmith.Library) -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    assert zero_out.zero_out_real(x, preserve_index=None).tolist() == [1, 0, 0]
    with pytest.raises(opsmith.InvalidArgumentError, match="`preserve_index` must be int, got None"):
        zero_out.zero_out_preserve(x.int(), None)


def test_wrong_attributes(distances: opsmith.Library, zero_out: opsmith.Library) -> None:
    x = torch.rand(4)
    with pytest.raises(
        RuntimeError, match=r"ZeroOutReal: attribute `preserve_index` must be int, got 'k' \(str\)"
    ):
        zero_out.zero_out_real(x, preserve_index="k")
    with pytest.raises(RuntimeError, match="preserve_index"):
        zero_out.zero_out_real(x, preserve_index=-1)
    with pytest.raises(RuntimeError, match="ZeroOutReal: attribute `preserve_index` must be int, got True"):
        zero_out.zero_out_real(x, preserve_index=True)
    with pytest.raises(
        RuntimeError, match=r"for an array of one number, give `int\(…\)` of it; an attribute has no gradient"
    ):
        zero_out.zero_out_real(x, preserve_index=torch.tensor(1))
    with pytest.raises(RuntimeError, match=r"must be int, got 11805.*which needs more than 64 bits"):
        zero_out.zero_out_real(x, preserve_index=2**70)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'preserve_index'"):
        zero_out.zero_out_preserve(x.int())
    with pytest.raises(RuntimeError, match="times"):
        zero_out.repeat(x.int(), times=1)


def test_lists_that_are_too_short(zero_out: opsmith.Library) -> None:
    with pytest.raises(opsmith.InvalidArgumentError, match=r"SumInts: .*terms"):
        zero_out.sum_ints([])
    with pytest.raises(opsmith.InvalidArgumentError, match="SumAll: input `terms` holds None"):
        zero_out.sum_all([torch.rand(2), None])
    with pytest.raises(RuntimeError, match="terms"):
        zero_out.sum_all([torch.rand(2)])
    with pytest.raises(RuntimeError, match="terms"):
        torch.ops.zero_out.sum_all([])


def test_layouts_and_special_values(distances: opsmith.Library) -> None:
    f = distances.pairwise_manhattan_distance
    x, y = torch.rand(4, 6)[:, ::2].T, torch.rand(4, 5).T
    torch.testing.assert_close(f(x, y), torch.cdist(x.contiguous(), y.contiguous(), p=1))
    assert f(torch.empty(0, 4), Y).shape == (0, 5)
    assert torch.equal(f(torch.empty(2, 0), torch.empty(3, 0)), torch.zeros(2, 3))
    x = torch.tensor([[float("nan"), 0.0], [float("inf"), 0.0], [1.0, 2.0]])
    z = f(x, torch.zeros(1, 2)).flatten()
    assert z[0].isnan() and z[1] == float("inf") and z[2] == 3


def test_sparse_tensors_are_refused(distances: opsmith.Library) -> None:
    with pytest.raises((RuntimeError, NotImplementedError)):
        distances.pairwise_manhattan_distance(X.to_sparse(), Y)


class Rows(Dataset):
    """Distances computed in the worker."""

    def __init__(self, library: opsmith.Library) -> None:
        self.library = library

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        x = torch.full((1, 3), float(index), requires_grad=True)
        z = self.library.pairwise_manhattan_distance(x, torch.zeros(1, 3))
        return torch.autograd.grad(z.sum(), x)[0] + z.detach()


def test_in_a_forked_worker(distances: opsmith.Library) -> None:
    batches = list(DataLoader(Rows(distances), num_workers=2, multiprocessing_context="fork"))
    assert [batch.flatten()[0].item() for batch in batches] == [0.0, 4.0, 7.0, 10.0]


def test_threads_agree(distances: opsmith.Library) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(_: int) -> torch.Tensor:
        x = X.clone().requires_grad_()
        return torch.autograd.grad(distances.pairwise_manhattan_distance(x, Y).pow(2).sum(), x)[0]

    expected = work(0)
    with ThreadPoolExecutor(16) as pool:
        assert all(torch.equal(result, expected) for result in pool.map(work, range(200)))
