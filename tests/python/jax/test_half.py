"""JAX as it comes, with `jax_enable_x64` off: what a definition has in 64 bits is 32 bits wide there."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import opsmith
import pytest

pytestmark = pytest.mark.usefixtures("half")


def test_float64_is_truncated_by_jax_itself(distances: opsmith.Library) -> None:
    x, y = np.random.default_rng(0).random((3, 4)), np.random.default_rng(1).random((5, 4))
    z = distances.pairwise_manhattan_distance(jnp.asarray(x), jnp.asarray(y))
    assert z.dtype == np.float32
    np.testing.assert_allclose(z, np.abs(x[:, None] - y).sum(-1), rtol=1e-6)


def test_outputs_of_64_bits(zero_out: opsmith.Library) -> None:
    x = jnp.array([1.0, 3.0, 2.0])
    for call in (zero_out.max_with_index, jax.jit(zero_out.max_with_index)):
        value, position = call(x)
        assert (value, position, position.dtype) == (3, 1, np.int32)
    grads = jax.jit(jax.grad(lambda x: zero_out.max_with_index(x)[0] ** 2))(x)
    assert grads.tolist() == [0, 6, 0]
    twice = jax.grad(lambda x: (jax.grad(lambda x: zero_out.max_with_index(x)[0] ** 2)(x) ** 2).sum())(x)
    assert twice.tolist() == [0, 24, 0]
    values, positions = jax.vmap(zero_out.max_with_index)(jnp.stack([x, x[::-1]]))
    assert values.tolist() == [3, 3] and positions.tolist() == [1, 1] and positions.dtype == np.int32


def test_inputs_of_64_bits(testops: opsmith.Library) -> None:
    x = jnp.arange(3, dtype=np.float32)
    for call in (testops.add_optional, jax.jit(testops.add_optional)):
        total = call(x, x)
        assert total.dtype == np.float32 and total.tolist() == [0, 2, 4]
    assert jax.vmap(testops.squares)(jnp.ones((2, 3)) * 2).tolist() == [[4] * 3] * 2
    assert testops.add_optional(x, [1, 2, 3]).tolist() == [1, 3, 5]


def test_shapes_that_depend_on_the_data(zero_out: opsmith.Library) -> None:
    indices = zero_out.non_zero(jnp.array([0.0, 1.0, 2.0]))
    assert indices.tolist() == [[1], [2]] and indices.dtype == np.int32


def test_what_the_inputs_decide_stays_as_it_is(testops: opsmith.Library) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="input `x` is int32, but must be float64"):
        testops.squares(jnp.arange(3))
