"""Every op that has free axes, on arrays in chunks: as on whole arrays, and cut along each of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import axes_bodies
import dask
import dask.array as da
import numpy as np
import pytest
from conftest import load
from op_samples import ELSEWHERE, LIBRARIES, Sample, flat, samples
from opsmith import _library
from opsmith._axes import FreeAxes, FreeAxis

Chunking = Callable[[int], tuple[int, ...]]

CHUNKINGS: dict[str, Chunking] = {
    "ones": lambda size: (1,) * size or (0,),
    "uneven": lambda size: (1, size - 1) if size > 1 else (size,),
    "one of nothing": lambda size: (size - 1, 0, 1) if size > 1 else (size,),
}
SAMPLES = samples()


def lazy(value: Any, chunking: Chunking) -> Any:
    """The array in chunks, along all dims; arrays of a list too."""
    if isinstance(value, list):
        return [lazy(each, chunking) for each in value]
    return da.from_array(value, chunks=tuple(map(chunking, value.shape)))


def assert_same(ours: list[Any], theirs: list[Any]) -> None:
    """Dtypes, shapes and, but for the order of sums, values; what is lazy has told the first two before."""
    computed = dask.compute(*ours)
    assert len(ours) == len(theirs)
    for told, own, other in zip(ours, computed, theirs, strict=True):
        assert isinstance(told, da.Array)
        assert (own.dtype, own.shape) == (other.dtype, other.shape)
        assert (told.dtype, told.shape) == (other.dtype, other.shape)
        narrow = own.dtype.itemsize < 8 and own.dtype.kind == "f"
        scale = 1e-4 if narrow else 1e-9
        np.testing.assert_allclose(own, other, rtol=scale, atol=scale)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
def test_chunks_are_as_the_whole(sample: Sample) -> None:
    expected = sample.call(*sample.inputs)
    # Those of gradients are many.
    chunkings = list(CHUNKINGS.values())[sample.id.count("_grad") :]
    for chunking in chunkings or [CHUNKINGS["one of nothing"]]:
        outputs = sample.call(*(lazy(value, chunking) for value in sample.inputs))
        assert_same(outputs, expected)


def along_free_axes(sample: Sample) -> tuple[tuple[FreeAxis, ...], list[Any]]:
    """The free axes of a call, and its inputs in chunks of 1 along them."""
    shapes = [[x.shape for x in flat(value)] for value in sample.inputs]
    loaded = load(sample.library)._opsmith_loaded
    axes = FreeAxes(loaded, sample.op).of(sample.attrs, [max(map(len, group)) for group in shapes])

    def cut(value: Any, position: int) -> Any:
        if isinstance(value, list):
            return [cut(each, position) for each in value]
        chunks = dict.fromkeys(range(value.ndim), -1)
        for axis in axes:
            at = axis.position(axis.inputs[position], value.shape, axis.size(shapes))
            chunks |= {} if at is None else {at: 1}
        return da.from_array(value, chunks=chunks)

    return axes, [cut(value, position) for position, value in enumerate(sample.inputs)]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
def test_nothing_is_gathered_along_free_axes(sample: Sample) -> None:
    axes, inputs = along_free_axes(sample)
    shapes = [[x.shape for x in flat(value)] for value in inputs]
    sizes = [axis.size(shapes) for axis in axes]
    outputs = getattr(load(sample.library), sample.op.snake_name)(*inputs, **sample.attrs)
    returned = sample.op.returned
    groups = [flat(x) for x in (outputs if len(returned) > 1 else [outputs])]
    for position, group in zip(returned, groups, strict=True):
        for output in group:
            layers = output.__dask_graph__().layers
            assert not [name for name in layers if name.startswith("rechunk")]
            for axis, size in zip(axes, sizes, strict=True):
                at = axis.position(axis.outputs[position], output.shape, size)
                assert at is None or output.numblocks[at] == size
            # One part for each position of each axis.
            parts = next(layer for name, layer in layers.items() if name.startswith(sample.op.snake_name))
            assert len(parts) == math.prod(sizes)


def test_the_samples_are_of_all_ops(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(SAMPLES) > 300
    names = {op.snake_name for name in LIBRARIES for op in _library.definition_of(load(name)).ops}
    assert set(ELSEWHERE) <= names
    with capsys.disabled():
        print(f"\non Dask's arrays: {len(SAMPLES)} ops with free axes, in {len(CHUNKINGS)} ways to cut them")


BODIES = [body for body in axes_bodies.bodies() if len(body.inputs) > 1][:30]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.name)
def test_generated_bodies_and_their_gradients(body: axes_bodies.Body) -> None:
    library = axes_bodies.build()
    inputs = body.numbers(axes_bodies.SIZES, 6)
    function, gradient = getattr(library, body.name), getattr(library, f"{body.name}_grad")
    expected = flat(function(*inputs))
    generator = np.random.default_rng(7)
    weights = [np.asarray(generator.uniform(-1, 1, z.shape)) for z in expected]
    taken = axes_bodies.taken(function, gradient, inputs, weights)
    for chunking in CHUNKINGS.values():
        assert_same(flat(function(*(lazy(x, chunking) for x in inputs))), expected)
        assert_same(flat(gradient(*(lazy(x, chunking) for x in taken))), flat(gradient(*taken)))


def test_some_inputs_in_chunks_and_others_whole() -> None:
    """Every way to give the inputs of an op as arrays of Dask's and of NumPy's."""
    for name in ("kernels.gaussian_convolution", "pairwise.manhattan_grad", "reductions.layer_norm"):
        sample = next(sample for sample in SAMPLES if sample.id == name)
        expected = sample.call(*sample.inputs)
        for which in itertools.product([False, True], repeat=len(sample.inputs)):
            if any(which):
                given = [
                    lazy(x, CHUNKINGS["uneven"]) if is_lazy else x
                    for x, is_lazy in zip(sample.inputs, which, strict=True)
                ]
                assert_same(sample.call(*given), expected)
