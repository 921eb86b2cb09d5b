"""`jax.export`: symbolic sizes, serialised programs in a new process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import opsmith
import pytest
from conftest import library_path
from jax import export
from opsmith.jax import export_checks

RUN = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
import opsmith
for path in sys.argv[2:]:
    opsmith.load(path)
program = jax.export.deserialize(open(sys.argv[1], "rb").read())
for n, m, p in [(3, 5, 4), (1, 1, 1), (7, 2, 3)]:
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(n, p)), rng.normal(size=(m, p))
    value, grads = program.call(x, y)
    difference = x[:, None] - y[None]
    distances = np.abs(difference).sum(-1)
    np.testing.assert_allclose(value, (distances ** 2).sum(), rtol=1e-12)
    np.testing.assert_allclose(grads[0], (2 * distances[..., None] * np.sign(difference)).sum(1), rtol=1e-12)
    np.testing.assert_allclose(grads[1], -(2 * distances[..., None] * np.sign(difference)).sum(0), rtol=1e-12)
print("all equal")
"""


def specs(
    *shapes: str, dtype: str = "float64", constraints: tuple[str, ...] = ()
) -> list[jax.ShapeDtypeStruct]:
    """Arguments of symbolic shapes, in one scope."""
    scope = export.SymbolicScope(constraints)
    return [jax.ShapeDtypeStruct(export.symbolic_shape(s, scope=scope), np.dtype(dtype)) for s in shapes]


def test_a_program_with_gradients_in_a_new_process(distances: opsmith.Library, tmp_path: Path) -> None:
    f = jax.jit(
        jax.value_and_grad(lambda x, y: (distances.pairwise_manhattan_distance(x, y) ** 2).sum(), (0, 1))
    )
    exported = export.export(f, disabled_checks=export_checks(distances))(*specs("n, p", "m, p"))
    assert str(exported.out_avals[1].shape) == "(n, p)"
    file = tmp_path / "program"
    file.write_bytes(exported.serialize())
    command = [sys.executable, "-c", RUN, str(file), str(library_path("distances"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "all equal\n", done.stderr


def test_without_the_checks_jax_refuses(distances: opsmith.Library) -> None:
    with pytest.raises(ValueError, match="custom call"):
        export.export(jax.jit(distances.pairwise_manhattan_distance))(*specs("n, p", "m, p"))


def test_sizes_that_are_computed(zero_out: opsmith.Library) -> None:
    f = jax.jit(lambda x: zero_out.repeat(x, times=3))
    exported = export.export(f, disabled_checks=export_checks(zero_out))(*specs("n", dtype="int32"))
    assert str(exported.out_avals[0].shape) == "(3*n,)"
    for n in (1, 4):
        assert exported.call(jnp.arange(n, dtype=np.int32)).tolist() == [*range(n)] * 3


def test_batch_dims(zero_out: opsmith.Library) -> None:
    f = jax.jit(jax.vmap(zero_out.zero_out_rows))
    exported = export.export(f, disabled_checks=export_checks(zero_out))(*specs("b, c, n"))
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    assert np.array_equal(exported.call(x), zero_out.zero_out_rows(jnp.asarray(x)))


def test_a_symbolic_batch_that_is_called_one_by_one(distances: opsmith.Library) -> None:
    f = jax.jit(jax.vmap(distances.pairwise_manhattan_distance, (0, None)))
    exported = export.export(f, disabled_checks=export_checks(distances))(*specs("b, n, p", "m, p"))
    x, y = np.random.default_rng(0).normal(size=(2, 3, 4)), np.random.default_rng(1).normal(size=(5, 4))
    np.testing.assert_allclose(exported.call(x, y), np.abs(x[:, :, None] - y).sum(-1))


def test_what_must_be_equal_needs_one_symbol(distances: opsmith.Library) -> None:
    f = jax.jit(distances.pairwise_manhattan_distance)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"dim 1 of input `y` must equal .*`x` \(p\): q ≠ p"):
        export.export(f, disabled_checks=export_checks(distances))(*specs("n, p", "m, q"))
    with pytest.raises(jax.errors.JaxRuntimeError, match="input `x` must have rank 2"):
        export.export(f, disabled_checks=export_checks(distances))(*specs("n", "m, p"))


def test_shapes_that_depend_on_the_data_are_refused(zero_out: opsmith.Library) -> None:
    with pytest.raises(opsmith.UnimplementedError, match=r"NonZero: .* depends on the data"):
        export.export(jax.jit(zero_out.non_zero))(*specs("n"))


def test_shapes_without_arrays(distances: opsmith.Library, testops: opsmith.Library) -> None:
    x, y = jax.ShapeDtypeStruct((3, 4), np.float32), jax.ShapeDtypeStruct((5, 4), np.float32)
    assert jax.eval_shape(distances.pairwise_manhattan_distance, x, y) == jax.ShapeDtypeStruct(
        (3, 5), np.float32
    )
    least = jax.eval_shape(testops.echo, x)
    assert least.shape == (3, 4) and least.dtype == np.float32


def test_lowered_and_compiled_ahead(distances: opsmith.Library) -> None:
    x, y = jnp.ones((3, 4)), jnp.zeros((5, 4))
    compiled = jax.jit(distances.pairwise_manhattan_distance).lower(x, y).compile()
    assert compiled(x, y).tolist() == [[4] * 5] * 3
    assert (
        "distances.pairwise_manhattan_distance"
        in jax.jit(distances.pairwise_manhattan_distance).lower(x, y).as_text()
    )
