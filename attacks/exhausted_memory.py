"""Calls operators where there is next to no memory left, and where sizes are claimed that no memory has.

Each call is made in a process of its own, whose address space may grow by a few MiB only. It must succeed, or
be an error that memory is missing.

Run it with the folder of the built libraries: `python attacks/exhausted_memory.py target/release`. It tries
limits from 1 to 64 MiB, one MiB apart; `--quick` tries two.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Threads of NumPy's would not be there in the processes that are forked.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import opsmith

MIB = 1 << 20
LIMITS = range(1, 65)
QUICK_LIMITS = (1, 4)
LARGE, QUICK_LARGE, SMALL = 1024, 256, 6
"""Rows of inputs: of the limited calls, and of one before each, which opens and caches all that it needs."""
CLAIMED = 1 << 56
ROW = np.broadcast_to(np.float32(1), (1, CLAIMED))
UNARY = ["abs", "cos", "erf", "exp", "floor", "gelu", "log1p", "neg", "relu", "rsqrt", "sigmoid", "sign"]
UNARY += ["softplus", "tanh", "zeros_like"]

Case = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def text(count: int) -> np.ndarray:
    """Words that are too long to be kept in place."""
    return np.array([f"a word of some letters, number {n}" for n in range(count)], object)


def arrays(rows: int) -> dict[str, Any]:
    """What calls are made of: matrices of a thousand columns, and what belongs to them."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 1024)).astype("float32")
    return {
        "x": x,
        "y": rng.normal(size=x.shape).astype("float32"),
        "long": x.astype("float64").ravel(),
        "column": x[:, :1].copy(),
        "row": x[0].copy(),
        "square": x[:, : min(rows, 512)].astype("float64"),
        "ints": rng.integers(-9, 9, x.shape),
        "half": x.astype("float16"),
        "at": rng.integers(0, rows, 8 * rows),
        "places": np.arange(x.size // 4).reshape(-1, 1)[::-1].copy(),
        "images": x.reshape(1, rows, 32, 32),
        "text": text(8 * rows),
        "shape": np.array([rows, 1024]),
    }


def standard(rows: int) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Standard operators, their inputs and attributes."""
    a = arrays(rows)
    x, y, row = a["x"], a["y"], a["row"]
    for name in UNARY:
        yield name, (x,), {}
    for name in ["add", "div", "equal", "greater", "maximum", "mul", "pow", "sub"]:
        yield name, (x, y), {}
    for name in ["sum", "mean", "max", "softmax", "log_softmax"]:
        for axes in [0, 1]:
            dims = {"axes": 1} if "soft" in name else {"axes": [axes]}
            yield name, (x if axes else x.T,), dims
    yield "sum", (x,), {}
    yield "sum", (a["ints"],), {"axes": [0]}
    yield "arg_max", (x,), {"axes": [1]}
    yield "arg_sort", (a["long"],), {}
    yield "arg_sort", (x,), {"axis": 0}
    yield "top_k", (a["long"],), {"k": 5}
    yield "gather", (x, a["at"]), {}
    yield "gather", (a["text"], a["at"]), {}
    yield "gather_grad", (a["half"], a["at"][:rows], a["half"]), {}
    yield "one_hot", (a["at"],), {"depth": 64}
    yield "sparse_to_dense", (x.ravel()[: x.size // 4], a["places"], np.array([x.size])), {}
    yield "mat_mul", (a["square"], a["square"]), {"transpose_b": True}
    yield "mat_mul", (x, x), {"transpose_b": True}
    yield "mat_mul", (row[None], x), {"transpose_b": True}
    yield "mat_mul", (row[None], x.T[:, ::2]), {}
    yield "mat_mul", (a["half"], a["half"]), {"transpose_b": True}
    yield "mat_mul", (a["ints"][:, :64].T, a["ints"][:, :128]), {}
    yield "mat_mul", (x.reshape(-1, 32, 32), x.reshape(-1, 32, 32)), {}
    yield "mat_mul_grad", (x, x.T, np.ones((rows, rows), "float32")), {}
    yield "reshape", (x.T, np.array([-1])), {}
    yield "reshape", (a["text"], np.array([-1, 2])), {}
    yield "transpose", (x,), {}
    yield "broadcast_to", (row, a["shape"]), {}
    yield "sum_to", (x, np.array([1024])), {}
    yield "sum_to", (x, np.array([rows, 1])), {}
    yield "fill", (a["shape"], np.float64(1)), {}
    yield "fill", (np.array([4 * rows]), np.array("a word of some letters", object)), {}
    yield "slice", (x, np.array([0, 1]), np.array([-1, -1])), {}
    yield "pad", (x, np.array([[1, 1], [2, 2]])), {}
    yield "concat", ([x, y],), {}
    yield "concat", ([a["text"], a["text"]],), {}
    yield "stack", ([x, y],), {"axis": 1}
    yield "split", (x,), {"N": 2, "axis": 1}
    yield "cast", (x,), {"dtype": "float64"}
    yield "select", (x > 0, x, y), {}
    yield "select_grad", (x > 0, x, a["column"], y), {}
    yield "extract_patches", (a["images"],), {"ksize": [2, 2]}
    filters = np.ones((8, 4, 3, 3), "float32")
    for grad in [(), (np.ones((1, 8, rows, 64), "float32"),)]:
        images = x.reshape(1, 4, rows, -1)[..., :64]
        name = "conv_grad" if grad else "conv"
        yield name, (images, filters, *grad), {"strides": [1, 1], "padding": [1, 1]}
    yield "max_pool", (x,), {"ksize": [3, 3]}
    yield "avg_pool_grad", (x, x), {"ksize": [1]}
    yield "cum_sum", (x,), {"axis": 0}
    yield "cum_prod_grad", (x, y), {}
    yield "cum_max_grad", (x, y), {}
    yield "sort", (a["long"],), {}
    yield "unique", (a["long"],), {}
    yield "einsum", ([x, y],), {"equation": "ij,kj->ik"}
    yield "random_normal", (a["shape"], 1, 2), {}
    yield "random_bernoulli", (np.abs(np.tanh(x)), 1, 2), {}
    yield "dropout", (a["half"], 1, 2), {}
    yield "mul_grad", (x, row, y), {}
    yield "mul_grad", (x, a["column"], y), {}
    yield "gelu_grad_grad", (x, y, x), {}
    yield "softmax_grad_grad", (x, y, x), {}
    yield "exp", (x[::2, ::2],), {}
    yield "exp", (x.astype(">f4"),), {}
    yield "exp", (x[: max(rows // 8, 1)].tolist(),), {}
    yield "identity", (a["text"],), {}


def examples(rows: int) -> Iterator[tuple[str, str, tuple[Any, ...], dict[str, Any]]]:
    """Operators of the examples' libraries, their inputs and attributes."""
    a = arrays(rows)
    x, y, row, images = a["x"], a["y"], a["row"], a["images"].swapaxes(1, 3)
    pairs = np.ones((rows, rows), "float32")
    for name in ["canberra", "chebyshev", "euclidean", "manhattan", "mean_squared"]:
        yield "pairwise", name, (x, y), {}
        # The gradient of a root reads it.
        read = (pairs,) if name == "euclidean" else ()
        yield "pairwise", f"{name}_grad", (x[:, :8], y[:, :8], *read, pairs), {}
    yield "pairwise", "euclidean_grad_grad", (x[:, :8], y[:, :8], pairs, pairs, x[:, :8], y[:, :8]), {}
    yield "distances", "pairwise_manhattan_distance", (x, y), {}
    yield "distances", "pairwise_manhattan_distance_grad", (x[:, :64], y[:, :64], pairs), {}
    for axes in [1, 2]:
        yield "reductions", "log_sum_exp", (x,), {"axes": axes}
    sums = np.ones(len(x), "float32")
    yield "reductions", "layer_norm", (x, row, row), {}
    yield "reductions", "layer_norm_grad", (x, row, row, sums, sums, y), {}
    yield "reductions", "layer_norm_grad_grad", (x, row, row, sums, sums, y, x, row, row), {}
    yield "reductions", "range", (x,), {}
    yield "activations", "swiglu", (x, y), {}
    yield "activations", "entropy_grad_grad", (np.abs(x), y, x), {}
    yield "median_pool", "median_pool", (images,), {"ksize": [3, 3], "padding": "SAME"}
    yield "median_pool", "median_pool", (images,), {"ksize": [30, 2], "strides": [30, 2]}
    yield "median_pool", "median_pool_grad", (images, images), {"ksize": [3, 3], "padding": "SAME"}
    weights = np.ones((3 * 256, 1280), "float32")
    yield "lltm", "lltm", (x, weights, weights[:, 0].copy(), x[:, :256], x[:, :256]), {}
    yield "zero_out", "zero_out_real", (x,), {}
    yield "zero_out", "repeat", (row.astype("int32"),), {"times": 4 * rows}
    yield "zero_out", "non_zero", (row,), {}
    yield "zero_out", "sum_all", ([x, y],), {}
    yield "zero_out", "string_to_number", (a["shape"].astype(str).repeat(8 * rows),), {}


def in_session(function: Callable[..., Any], inputs: tuple[Any, ...], attributes: dict[str, Any]) -> Case:
    """The same call as a graph of the engine's, whose inputs are fed."""
    graph, feeds = opsmith.Graph(), {}

    def fed(value: Any) -> Any:
        if isinstance(value, list) and isinstance(value[0], np.ndarray):
            return [fed(one) for one in value]
        array = np.asarray(value)
        name = "string" if array.dtype.kind in "OU" else array.dtype.newbyteorder("=").name
        node = graph.placeholder(name, [None] * array.ndim)
        feeds[node] = array
        return node

    output = function(*map(fed, inputs), **attributes)
    return opsmith.Session(graph).run, (list(output) if isinstance(output, tuple) else output, feeds), {}


def cases(folder: Path, rows: int) -> Iterator[tuple[str, Case]]:
    """Name of each call, and the call."""
    for name, inputs, attributes in standard(rows):
        yield name, (getattr(opsmith.ops, name), inputs, attributes)
    for name, inputs, attributes in standard(rows):
        yield f"session: {name}", in_session(getattr(opsmith.ops, name), inputs, attributes)
    for library, name, inputs, attributes in examples(rows):
        path = folder / f"lib{library}.so"
        yield f"{library}.{name}", (getattr(opsmith.load(path), name), inputs, attributes)


def claims() -> Iterator[tuple[str, Case]]:
    """Calls whose inputs claim 2^56 elements, which are one in memory."""
    claimed = [np.broadcast_to(dtype(1), (CLAIMED,)) for dtype in (np.int64, np.int32)]
    x, ops = np.ones((2, 3), "float32"), opsmith.ops
    for shape in claimed:
        of_shape: list[tuple[Any, tuple[Any, ...]]] = [
            (ops.reshape, (x, shape)),
            (ops.broadcast_to, (x, shape)),
            (ops.sum_to, (x, shape)),
            (ops.fill, (shape, x[0, 0])),
            (ops.slice, (x, shape, shape)),
            (ops.slice, (x, np.zeros(2, shape.dtype), shape)),
            (ops.pad, (x, shape)),
            (ops.sparse_to_dense, (x[0], np.zeros((3, 1), shape.dtype), shape)),
            (ops.sparse_to_dense, (x[0], np.broadcast_to(shape[0], (3, CLAIMED)), shape)),
            (ops.reshape_grad, (x, shape, x)),
            (ops.slice_grad, (x, shape, shape, x)),
            (ops.gather, (x, shape)),
            (ops.one_hot, (shape, 3)),
            (ops.mat_mul, (shape[None], shape[:, None])),
            (ops.mat_mul, (shape[None], np.broadcast_to(shape[0], (CLAIMED, 9)))),
            (ops.arg_sort, (shape,)),
            (ops.top_k, (shape, 1)),
            (ops.sort, (shape,)),
            (ops.unique, (shape,)),
            (ops.cum_sum, (shape,)),
            (ops.random_uniform, (shape, 1, 2)),
            (ops.random_uniform, ([2], shape, 2)),
            (ops.max_pool, (shape, [2])),
            (ops.einsum, ([shape, shape], "i,j->ij")),
        ]
        for function, inputs in of_shape:
            name = f"2^56 {shape.dtype}: {function.__name__}"
            yield name, (function, inputs, {})
            with contextlib.suppress(opsmith.Error):
                yield f"session: {name}", in_session(function, inputs, {})
    for function in [ops.softmax, ops.exp]:
        yield f"2^56 numbers: {function.__name__}", (function, (ROW,), {})
    words = np.broadcast_to(np.array("word", object), (CLAIMED,))
    yield "2^56 words", (ops.identity, (words,), {})
    yield "attributes without end", (ops.transpose, (x, iter(int, 1)), {})
    yield "2^56 parts", (ops.split, (x, CLAIMED), {})


def folds() -> Iterator[tuple[str, Case]]:
    """Folds of as many, which need neither that memory nor to go through them: they are one number."""
    for function in [opsmith.ops.sum, opsmith.ops.mean, opsmith.ops.max]:
        yield f"2^56 numbers: {function.__name__}", (function, (ROW,), {})


ANSWERS = {0: "ok", 1: "no memory", 2: "refused", 3: "WRONG"}


def run(case: Case) -> int:
    """Makes a call; gives the number of its answer."""
    function, inputs, attributes = case
    try:
        function(*inputs, **attributes)
    except (MemoryError, opsmith.ResourceExhaustedError):
        return 1
    except opsmith.Error:
        return 2
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 3
    return 0


def grown(limit: int) -> None:
    """Limits the address space to what it is and so many bytes more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    bytes_now = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (bytes_now + limit, resource.RLIM_INFINITY))


def answer(case: Case, limit: int | None) -> str:
    """What becomes of a call in a process of its own, whose memory may grow by so many bytes."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 3
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.alarm(60)
            if limit is not None:
                grown(limit)
            status = run(case)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"DIED of {signal.Signals(os.WTERMSIG(status)).name}"
    status = os.WEXITSTATUS(status)
    return ANSWERS.get(status, f"DIED with status {status}")


def answers(folder: Path, quick: bool) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Name of each attack, what became of it, and what may."""
    for name, case in claims():
        yield name, answer(case, None), ("no memory", "refused")
    for name, case in folds():
        yield name, answer(case, None), ("ok",)
    for _, case in cases(folder, SMALL):
        function, inputs, attributes = case
        function(*inputs, **attributes)
    for name, case in cases(folder, QUICK_LARGE if quick else LARGE):
        for limit in QUICK_LIMITS if quick else LIMITS:
            yield f"{name} in {limit} MiB", answer(case, limit * MIB), ("ok", "no memory")


def main() -> int:
    """Show every wrong answer and how many there were of each; the status says whether there was one."""
    folder, quick = Path(sys.argv[1]), "--quick" in sys.argv
    found: Counter[str] = Counter()
    wrong = 0
    for name, became, expected in answers(folder, quick):
        found[became] += 1
        if became not in expected:
            wrong += 1
            print(f"WRONG {name}: {became}", flush=True)
    print(", ".join(f"{count} {became}" for became, count in sorted(found.items())))
    print(f"{wrong} wrong answers")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
