"""The library by itself in each framework: loaded natively, with gradients, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import count, library_path

TORCH = """
import sys
import torch
torch.ops.load_library(sys.argv[1])
ops = torch.ops.opsmith
a, b = torch.randn(3, 4), torch.randn(4, 5)
torch.testing.assert_close(ops.mat_mul(a, b), a @ b)
torch.testing.assert_close(ops.add(a, torch.ones(4)), a + 1)
torch.testing.assert_close(ops.sum(a, axes=[0]), a.sum(0))
assert ops.arg_max(a, axes=[1]).tolist() == a.argmax(1).tolist()
import opsmith
assert opsmith.load(sys.argv[1]).reshape(torch.ones(1), []).shape == ()
a.requires_grad_(), b.requires_grad_()
ours = torch.autograd.grad(ops.tanh(ops.mat_mul(a, b)).sum(), (a, b))
theirs = torch.autograd.grad(torch.tanh(a @ b).sum(), (a, b))
torch.testing.assert_close(ours, theirs)
@torch.compile(backend="aot_eager", fullgraph=True, dynamic=True)
def compiled(a, b):
    return ops.softmax(ops.mat_mul(a, b))
torch.testing.assert_close(compiled(a, b), torch.softmax(a @ b, -1))
long = torch.ones(1, dtype=torch.int64).expand(1 << 56)
for op, inputs in [
    (ops.reshape, (a, long)),
    (ops.broadcast_to, (a, long)),
    (ops.sum_to, (a, long)),
    (ops.fill, (long, a[0, 0])),
    (ops.slice, (a, long, long)),
    (ops.pad, (a, long)),
    (ops.gather, (a, long)),
    (ops.arg_sort, (long,)),
    (ops.mat_mul, (long[None], long[:, None])),
]:
    try:
        op(*(x.detach() if x is a else x for x in inputs))
    except RuntimeError as error:
        assert any(part in str(error) for part in ["at most 254", "allocate", "must have", "large"]), error
    else:
        raise AssertionError(f"{op} of 2^56 numbers")
"""

TENSORFLOW = """
import sys
import numpy as np
import opsmith
import tensorflow as tf
native = tf.load_op_library(sys.argv[1])
a, b = np.random.randn(3, 4).astype("f"), np.random.randn(4, 5).astype("f")
np.testing.assert_allclose(native.opsmith_mat_mul(a=a, b=b), a @ b, rtol=1e-5, atol=1e-6)
library = opsmith.load(sys.argv[1])
x, y = tf.constant(a), tf.constant(b)
with tf.GradientTape() as tape:
    tape.watch([x, y])
    z = tf.reduce_sum(library.transpose(library.tanh(library.mat_mul(x, y))))
ours = tape.gradient(z, [x, y])
slope = 1 - np.tanh(a @ b) ** 2
np.testing.assert_allclose(ours[0], slope @ b.T, rtol=1e-4, atol=1e-5)
np.testing.assert_allclose(ours[1], a.T @ slope, rtol=1e-4, atol=1e-5)
parts = library.split(x, N=2, axis=1)
np.testing.assert_array_equal(library.concat(parts, axis=1), a)
reshaped = tf.function(lambda x: library.reshape(x, [2, -1]))(x)
np.testing.assert_array_equal(reshaped, a.reshape(2, -1))
"""

JAX = """
import sys
import jax
import numpy as np
import opsmith
library = opsmith.load(sys.argv[1])
a, b = np.random.randn(3, 4).astype("f"), np.random.randn(4, 5).astype("f")
def ours(a, b):
    return library.sum(library.tanh(library.mat_mul(a, library.transpose(b, perm=[1, 0]), transpose_b=True)))
def theirs(a, b):
    return jax.numpy.tanh(a @ b).sum()
x, y = jax.numpy.asarray(a), jax.numpy.asarray(b)
np.testing.assert_allclose(jax.jit(ours)(x, y), theirs(x, y), rtol=1e-5, atol=1e-5)
for one, other in zip(jax.jit(jax.grad(ours, (0, 1)))(x, y), jax.grad(theirs, (0, 1))(x, y)):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
second = jax.grad(lambda x: jax.grad(lambda x: library.sum(library.exp(x)))(x).sum())
np.testing.assert_allclose(second(x), np.exp(a), rtol=1e-5)
"""


@pytest.mark.parametrize("program", [TORCH, TENSORFLOW, JAX], ids=["PyTorch", "TensorFlow", "JAX"])
def test_the_library_is_native(program: str) -> None:
    command = [sys.executable, "-c", program, str(library_path())]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr[-3000:]
    count("frameworks' own, natively")
