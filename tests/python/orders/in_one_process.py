"""What `test_orders.py` runs: frameworks imported and libraries loaded as the command line says, then calls.

An argument is the name of a framework to import or the path of a library to load.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import opsmith

libraries: dict[str, Any] = {}
for argument in sys.argv[1:]:
    if argument.endswith(".so"):
        library = opsmith.load(argument)
        libraries[library.__name__] = library
    else:
        importlib.import_module(argument)

import jax  # noqa: E402
import tensorflow as tf  # noqa: E402
import torch  # noqa: E402

x = np.array([[3, -1, 4], [1, -5, 9]], np.float32)
y = np.array([[2, 7, 1]], np.float32)

CALLS: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
    "distances": (
        lambda library, x, y: library.pairwise_manhattan_distance(x, y),
        np.abs(x[:, None] - y).sum(-1),
    ),
    "zero_out": (
        lambda library, x, y: library.zero_out_real(x, preserve_index=2),
        np.where(np.arange(6).reshape(2, 3) == 2, x, 0),
    ),
    "testops": (lambda library, x, y: library.pairwise(x, y), np.abs(x[:, None] - y).sum(-1)),
}
FRAMEWORKS: dict[str, tuple[type, Callable[..., Any], Callable[..., np.ndarray]]] = {
    "NumPy": (np.ndarray, np.asarray, np.asarray),
    "PyTorch": (torch.Tensor, torch.from_numpy, lambda tensor: tensor.numpy()),
    "TensorFlow": (tf.Tensor, tf.constant, lambda tensor: tensor.numpy()),
    "JAX": (jax.Array, jax.numpy.asarray, np.asarray),
}

assert libraries.keys() == CALLS.keys()
for name, (call, expected) in CALLS.items():
    for kind, to_host, to_numpy in FRAMEWORKS.values():
        output = call(libraries[name], to_host(x), to_host(y))
        assert isinstance(output, kind), (name, kind, type(output))
        np.testing.assert_allclose(to_numpy(output), expected, rtol=1e-6)

pairwise = libraries["distances"].pairwise_manhattan_distance
in_torch = torch.tensor(x, requires_grad=True)
pairwise(in_torch, torch.from_numpy(y)).sum().backward()
in_tensorflow = tf.constant(x)
with tf.GradientTape() as tape:
    tape.watch(in_tensorflow)
    total = tf.reduce_sum(pairwise(in_tensorflow, tf.constant(y)))
gradients = [
    in_torch.grad.numpy(),
    tape.gradient(total, in_tensorflow).numpy(),
    jax.grad(lambda x: pairwise(x, jax.numpy.asarray(y)).sum())(jax.numpy.asarray(x)),
]
for gradient in gradients:
    np.testing.assert_array_equal(gradient, np.sign(x - y))

# Arrays of two frameworks are an error, whichever is first; NumPy's are beside any.
for name, (_, to_host, _) in FRAMEWORKS.items():
    for other, (_, to_other, _) in FRAMEWORKS.items():
        if "NumPy" not in (name, other) and name != other:
            framework = tf.errors if "TensorFlow" in (name, other) else opsmith
            try:
                pairwise(to_host(x), to_other(y))
            except framework.InvalidArgumentError as error:
                assert "PairwiseManhattanDistance: all inputs must be of one framework, but `x` is of" in str(
                    error
                )
            else:
                raise AssertionError(f"{name} beside {other}")
    for z in (pairwise(to_host(x), y), pairwise(x, to_host(y))):
        assert isinstance(z, FRAMEWORKS[name][0]), (name, type(z))
print("all work")
