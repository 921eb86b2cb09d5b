"""The ways in which one call of an op is computed: NumPy's, the engine's, and each framework's.

A framework gives the outputs of a call, and its gradients of first order by the caller's own
differentiation, as NumPy arrays; `None` where it has no such call.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import opsmith
from opsmith._definition import Op

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = {"float16", "bfloat16", "float32", "float64"}

TOLERANCES = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-12}
"""How far a formula may be from an op."""

Array = np.ndarray
Inputs = tuple[Any, ...]
"""For each input of the definition an array, a list of them, or None."""
Attrs = dict[str, Any]


def flat(value: Any) -> list[Any]:
    """Tensors in a row, those that are absent left out."""
    if isinstance(value, (list, tuple)):
        return [leaf for each in value for leaf in flat(each)]
    return [] if value is None else [value]


def mapped(inputs: Inputs, function: Any) -> list[Any]:
    """The inputs, with each array made into something else."""

    def one(value: Any) -> Any:
        if isinstance(value, list):
            return [one(each) for each in value]
        return None if value is None else function(value)

    return [one(value) for value in inputs]


def is_float(array: Array) -> bool:
    """Whether gradients flow to and from such an array."""
    return array.dtype.name in FLOATS


def weights(outputs: list[Array]) -> list[Array]:
    """What flows back into the outputs."""
    numbers = (np.arange(y.size) * 37 + 11 * at for at, y in enumerate(outputs))
    return [(n % 17 / 4 - 2).reshape(y.shape).astype(y.dtype) for n, y in zip(numbers, outputs, strict=True)]


def laid_out(array: Array) -> Array:
    """The same numbers, lying in memory in one of several ways, always the same for an array."""
    if array.ndim == 0:
        return array
    way = zlib.crc32(repr((array.shape, array.dtype.name, array.tobytes()[:64])).encode()) % 4
    if way == 1:
        return np.asfortranarray(array)
    if way == 2:
        return np.repeat(array, 2, -1)[..., ::2]
    if way == 3 and array.ndim > 1:
        return np.ascontiguousarray(array.swapaxes(0, -1)).swapaxes(0, -1)
    return array


def is_close(ours: Any, theirs: Any) -> bool:
    """Whether an op's output is what a formula says, in whatever dtype it does."""
    if ours.dtype.name not in FLOATS:
        return ours.dtype.kind in "OSU" or np.array_equal(ours, theirs.astype(ours.dtype))
    with np.errstate(all="ignore"):
        expected = theirs.astype(ours.dtype).astype("float64")
    size = max(1.0, float(np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))))
    tolerance = TOLERANCES[ours.dtype.name]
    return np.allclose(ours.astype("float64"), expected, tolerance, tolerance * size, equal_nan=True)


class Framework:
    """A way to compute."""

    lays_out = False
    """Whether its tensors lie in memory as `laid_out` has them: sums are in another order then."""

    def call(self, function: Any, op: Op, inputs: Inputs, attrs: Attrs) -> list[Array] | None:
        """The outputs, those of lists one by one."""
        raise NotImplementedError

    def gradients(self, function: Any, inputs: Inputs, attrs: Attrs, seeds: list[Array]) -> list[Any] | None:
        """The gradients by all inputs of floats of what flows back into all outputs of floats; `None` for
        one that no
        output depends on."""
        return None

    def takes(self, inputs: Inputs) -> bool:
        """Whether it has tensors of such dtypes, and is asked at all: a call without tensors is NumPy's."""
        return bool(flat(inputs)) and all(array.dtype.kind not in "OSU" for array in flat(inputs))


class Engine(Framework):
    """A graph of one node, run as it is, simplified and fused."""

    lays_out = True

    def call(self, function: Any, op: Op, inputs: Inputs, attrs: Attrs) -> list[Array] | None:
        graph, feeds, outputs = self._graph(function, inputs, attrs)
        plain = opsmith.Session(graph, simplify=False, fuse=False, threads=1).run(outputs, feeds)
        fused = opsmith.Session(graph).run(outputs, feeds)
        # What is fused is computed in another order.
        for one, other in zip(plain, fused, strict=True):
            assert is_close(one, other), f"fused it is {other.ravel()[:8]} instead of {one.ravel()[:8]}"
        return plain

    def gradients(self, function: Any, inputs: Inputs, attrs: Attrs, seeds: list[Array]) -> list[Any] | None:
        graph, feeds, outputs = self._graph(function, inputs, attrs)
        xs = [node for node, array in feeds.items() if is_float(array)]
        ys = [output for output in outputs if output.dtype in FLOATS]
        found = opsmith.gradients(ys, xs, [graph.constant(seed) for seed in seeds])
        session = opsmith.Session(graph, simplify=False, fuse=False, threads=1)
        return [None if each is None else session.run(each, feeds) for each in found]

    def _graph(self, function: Any, inputs: Inputs, attrs: Attrs) -> tuple[Any, dict[Any, Array], list[Any]]:
        graph, feeds = opsmith.Graph(), {}

        def fed(array: Array) -> Any:
            name = "string" if array.dtype.kind in "OSU" else array.dtype.name
            node = graph.placeholder(name, array.shape)
            feeds[node] = laid_out(array)
            return node

        return graph, feeds, flat(function(*mapped(inputs, fed), **attrs))

    def takes(self, inputs: Inputs) -> bool:
        return bool(flat(inputs))


class Torch(Framework):
    """PyTorch, eager; one call of some is compiled."""

    lays_out = True

    def __init__(self) -> None:
        import torch

        self.torch, self.calls = torch, 0
        torch.set_num_threads(2)

    def call(self, function: Any, op: Op, inputs: Inputs, attrs: Attrs) -> list[Array] | None:
        tensors, self.calls = mapped(inputs, self._tensor), self.calls + 1
        outputs = flat(function(*tensors, **attrs))
        if self.calls % 300 == 299:
            self.torch._dynamo.reset()
            compiled = self.torch.compile(lambda *xs: function(*xs, **attrs), backend="aot_eager")
            outputs = flat(compiled(*tensors))
        return [self._array(output) for output in outputs]

    def gradients(self, function: Any, inputs: Inputs, attrs: Attrs, seeds: list[Array]) -> list[Any] | None:
        tensors = mapped(inputs, self._tensor)
        xs = [x.requires_grad_() for x in flat(tensors) if x.is_floating_point()]
        ys = [y for y in flat(function(*tensors, **attrs)) if y.is_floating_point()]
        # An output through which nothing flows asks for no gradient.
        pairs = [(y, self._tensor(seed)) for y, seed in zip(ys, seeds, strict=True) if y.requires_grad]
        if not pairs:
            return [None] * len(xs)
        ys, seeds = map(list, zip(*pairs, strict=True))
        found = self.torch.autograd.grad(ys, xs, seeds, allow_unused=True)
        return [None if each is None else self._array(each) for each in found]

    def _tensor(self, array: Array) -> Any:
        array = laid_out(np.array(array))
        if array.dtype == BFLOAT16:
            return self.torch.from_numpy(array.view(np.int16)).view(self.torch.bfloat16)
        return self.torch.from_numpy(array)

    def _array(self, tensor: Any) -> Array:
        tensor = tensor.detach()
        if tensor.dtype == self.torch.bfloat16:
            return tensor.contiguous().view(self.torch.int16).numpy().view(BFLOAT16)
        return tensor.numpy()


class TensorFlow(Framework):
    """TensorFlow, eager; one call of some is in a function."""

    def __init__(self) -> None:
        import tensorflow as tf

        self.tf, self.calls = tf, 0

    def call(self, function: Any, op: Op, inputs: Inputs, attrs: Attrs) -> list[Array] | None:
        tensors, self.calls = mapped(inputs, self.tf.constant), self.calls + 1
        if self.calls % 20 == 1:
            return [y.numpy() for y in flat(self.tf.function(lambda: function(*tensors, **attrs))())]
        return [y.numpy() for y in flat(function(*tensors, **attrs))]

    def gradients(self, function: Any, inputs: Inputs, attrs: Attrs, seeds: list[Array]) -> list[Any] | None:
        tensors = mapped(inputs, self.tf.constant)
        xs = [x for x in flat(tensors) if x.dtype.is_floating]
        with self.tf.GradientTape() as tape:
            tape.watch(xs)
            ys = [y for y in flat(function(*tensors, **attrs)) if y.dtype.is_floating]
        found = tape.gradient(ys, xs, output_gradients=[self.tf.constant(seed) for seed in seeds])
        dense = (self.tf.convert_to_tensor(each) if each is not None else None for each in found)
        return [None if each is None else each.numpy() for each in dense]


class Jax(Framework):
    """JAX, eager and under `jit`."""

    def __init__(self) -> None:
        import jax

        jax.config.update("jax_enable_x64", True)
        self.jax, self.calls = jax, 0

    def call(self, function: Any, op: Op, inputs: Inputs, attrs: Attrs) -> list[Array] | None:
        arrays, self.calls = mapped(inputs, self.jax.numpy.asarray), self.calls + 1
        call = lambda *xs: function(*xs, **attrs)  # noqa: E731
        # What an array decides by its values is not known under `jit`.
        if self.calls % 4 == 1 and op.shapes is not None:
            call = self.jax.jit(call)
        return [np.asarray(y) for y in flat(call(*arrays))]

    def gradients(self, function: Any, inputs: Inputs, attrs: Attrs, seeds: list[Array]) -> list[Any] | None:
        jnp = self.jax.numpy
        arrays = mapped(inputs, jnp.asarray)
        leaves = flat(arrays)
        is_x = [is_float(np.asarray(leaf)) for leaf in leaves]

        def of(*xs: Any) -> list[Any]:
            given, rest = iter(xs), iter(zip(leaves, is_x, strict=True))

            def one(_: Any) -> Any:
                leaf, own = next(rest)
                return next(given) if own else leaf

            outputs = flat(function(*mapped(tuple(arrays), one), **attrs))
            return [y for y in outputs if y.dtype.name in FLOATS]

        xs = [leaf for leaf, own in zip(leaves, is_x, strict=True) if own]
        _, back = self.jax.vjp(of, *xs)
        return [np.asarray(each) for each in back([jnp.asarray(seed) for seed in seeds])]


class Formulas(Framework):
    """What NumPy and SciPy say, in double precision where that differs: for the standard operators, as
    their tests have it.
    The outputs are close, and not the same bits."""

    def __init__(self) -> None:
        sys.path.insert(0, str(Path(__file__).parents[1] / "python" / "standard"))
        import table

        self.ops = {op.name: op for op in table.OPS}

    def call(self, function: Any, op: Op, inputs: Inputs, attrs: Attrs) -> list[Array] | None:
        known = self.ops.get(op.snake_name)
        arrays = flat(inputs)
        if known is None or any(array.dtype.name not in known.dtypes for array in arrays[:1]):
            return None

        def wide(array: Array) -> Array:
            return array.astype("float64") if array.dtype.kind == "f" else array

        names = known.reference.__code__.co_varnames if hasattr(known.reference, "__code__") else ()
        given = {name: value for name, value in attrs.items() if name in names}
        others = [attr for attr in op.call_attrs if attr.python_name not in given]
        if any(attrs[attr.python_name] != attr.default for attr in others):
            return None
        try:
            with np.errstate(all="ignore"):
                return [np.asarray(y) for y in flat(known.reference(*mapped(inputs, wide), **given))]
        except (TypeError, ValueError, AttributeError):
            # The formula is for fewer calls than the op.
            return None


FRAMEWORKS: dict[str, Any] = {
    "engine": Engine,
    "formulas": Formulas,
    "torch": Torch,
    "tensorflow": TensorFlow,
    "jax": Jax,
}
