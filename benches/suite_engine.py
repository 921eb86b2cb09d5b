"""Sessions of the embedded engine. The peers are the frameworks' own ways to run a graph.

- *A training step* is one epoch of linear regression on the diabetes data, float64, 353 rows of ten
  numbers: both products, the loss, the gradients and the update of both variables.
- *The chain* is a thousand additions of a scalar, one after another. TensorFlow's rewriting of such chains
  is switched off.
- *The rows with folds*, float32, are a softmax of 1,000 rows of 256, a layer norm of 512 rows of 1,024,
  and a training step with a softmax cross entropy of 512 rows and 1,000 classes.
- *The rows with pairs* are sums over rows of functions of the cosine distances between 2,000 and 2,000
  rows of 16.

Each run includes one call from Python. The session computes consecutive pointwise nodes and folds as one
call; "node by node" switches that off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from harness import OURS, ROOT, Case, Options, Target

TITLE = "Sessions"

DATA = ROOT / "examples" / "linear_regression" / "data" / "diabetes.csv"
NUM_TEST = 89
LEARNING_RATE = 0.001
LENGTH = 1000


def cases(options: Options) -> Iterator[Case]:
    """The step and the chain."""
    table = np.loadtxt(DATA, delimiter=",", skiprows=1)[:-NUM_TEST]
    x, y = table[:, :-1], table[:, -1:]
    contenders = {
        OURS: _engine_step(x, y),
        "PyTorch": _torch_step(x, y),
        "tf.function": _tensorflow_step(x, y),
        "jax.jit": _jax_step(x, y),
    }
    targets = [Target(0.3, ("PyTorch",)), Target(0.3, ("tf.function",)), Target(1.0, ("jax.jit",))]
    yield Case("A training step", contenders, targets)
    contenders = {
        OURS: _engine_chain(fuse=True),
        "Opsmith, node by node": _engine_chain(fuse=False),
        "tf.function": _tensorflow_chain(),
    }
    yield Case("A chain of 1,000 scalar additions", contenders, [Target(0.1, ("tf.function",))])
    pairs = [(2000, 16), (2000, 16), (2000,)]
    of_pairs = ("Σ relu(distances + b)", _distances(options), _torch_distances, pairs)
    for name, ours, theirs, shapes in [*FOLDS, of_pairs]:
        arrays = [np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in shapes]
        contenders = {
            OURS: _engine_folds(ours, arrays, fuse=True),
            "Opsmith, node by node": _engine_folds(ours, arrays, fuse=False),
            "PyTorch": _torch_folds(theirs, arrays),
        }
        yield Case(name, contenders, [Target(1.0, ("Opsmith, node by node",))])


def _softmax(x: Any, a: Any, b: Any) -> Any:
    import opsmith

    return opsmith.ops.softmax(x * a + b)


def _torch_softmax(x: Any, a: Any, b: Any) -> Any:
    import torch

    return torch.softmax(x * a + b, -1)


def _layer_norm(x: Any, y: Any) -> Any:
    import opsmith

    z = opsmith.ops.gelu(x) + y
    z = z - z.mean(-1, keepdims=True)
    return z / opsmith.ops.sqrt((z * z).mean(-1, keepdims=True) + 1e-5)


def _torch_layer_norm(x: Any, y: Any) -> Any:
    import torch

    return torch.nn.functional.layer_norm(torch.nn.functional.gelu(x) + y, x.shape[-1:])


def _distances(options: Options) -> Callable[..., Any]:
    import opsmith

    kernels = opsmith.load(options.library("kernels"))
    return lambda x, y, bias: opsmith.ops.relu(kernels.cosine_distance(x, y) + bias).sum(1)


def _torch_distances(x: Any, y: Any, bias: Any) -> Any:
    import torch

    lengths = (x * x).sum(1)[:, None] * (y * y).sum(1)
    return torch.relu(1.0 - (x @ y.T) * lengths.rsqrt() + bias).sum(1)


def _cross_entropy(x: Any, labels: Any, w: Any) -> Any:
    import opsmith

    logs = opsmith.ops.log_softmax(x @ w)
    loss = -(logs * labels).sum(-1).mean()
    (slope,) = opsmith.gradients(loss, [w])
    return w - slope * LEARNING_RATE


def _torch_cross_entropy(x: Any, labels: Any, w: Any) -> Any:
    import torch

    w.requires_grad_()
    loss = torch.nn.functional.cross_entropy(x @ w, labels)
    (slope,) = torch.autograd.grad(loss, [w])
    return w.detach() - slope * LEARNING_RATE


FOLDS: list[tuple[str, Callable[..., Any], Callable[..., Any], list[tuple[int, ...]]]] = [
    ("softmax(x · a + b)", _softmax, _torch_softmax, [(1000, 256), (256,), (256,)]),
    ("layer_norm(gelu(x) + y)", _layer_norm, _torch_layer_norm, [(512, 1024), (512, 1024)]),
    ("A step with cross entropy", _cross_entropy, _torch_cross_entropy, [(512, 64), (512, 1000), (64, 1000)]),
]


def _engine_folds(
    function: Callable[..., Any], arrays: list[np.ndarray[Any, Any]], *, fuse: bool
) -> Callable[[], object]:
    import opsmith

    graph = opsmith.Graph()
    inputs = [graph.placeholder("float32", array.shape) for array in arrays]
    y = function(*inputs)
    session = opsmith.Session(graph, fuse=fuse)
    feeds = dict(zip(inputs, arrays, strict=True))
    return lambda: session.run(y, feeds)


def _torch_folds(function: Callable[..., Any], arrays: list[np.ndarray[Any, Any]]) -> Callable[[], object]:
    import torch

    tensors = [torch.from_numpy(array.copy()) for array in arrays]
    return lambda: function(*tensors)


def _engine_step(inputs: np.ndarray[Any, Any], targets: np.ndarray[Any, Any]) -> Callable[[], object]:
    import opsmith

    graph = opsmith.Graph()
    x = graph.placeholder("float64", [None, 10])
    y = graph.placeholder("float64", [None, 1])
    w, b = graph.variable(np.zeros((10, 1))), graph.variable(np.zeros(1))
    loss = ((x @ w + b - y) ** 2).mean()
    step = opsmith.optimizers.GradientDescent(LEARNING_RATE).minimize(loss)
    session = opsmith.Session(graph)
    session.initialize()
    feeds = {x: inputs, y: targets}
    return lambda: session.run(step, feeds)


def _torch_step(inputs: np.ndarray[Any, Any], targets: np.ndarray[Any, Any]) -> Callable[[], object]:
    import torch

    x, y = torch.tensor(inputs), torch.tensor(targets)
    w = torch.zeros(10, 1, dtype=torch.float64, requires_grad=True)
    b = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([w, b], lr=LEARNING_RATE)

    def step() -> None:
        optimizer.zero_grad()
        loss = ((x @ w + b - y) ** 2).mean()
        loss.backward()
        optimizer.step()

    return step


def _tensorflow_step(inputs: np.ndarray[Any, Any], targets: np.ndarray[Any, Any]) -> Callable[[], object]:
    import tensorflow as tf

    x, y = tf.constant(inputs), tf.constant(targets)
    w, b = tf.Variable(tf.zeros((10, 1), tf.float64)), tf.Variable(tf.zeros(1, tf.float64))

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ w + b - y) ** 2)
        for variable, gradient in zip((w, b), tape.gradient(loss, (w, b)), strict=True):
            variable.assign_sub(LEARNING_RATE * gradient)

    return step  # type: ignore[no-any-return]


def _jax_step(inputs: np.ndarray[Any, Any], targets: np.ndarray[Any, Any]) -> Callable[[], object]:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    x, y = jnp.array(inputs), jnp.array(targets)
    parameters = [jnp.zeros((10, 1)), jnp.zeros(1)]

    @jax.jit
    def updated(parameters: list[Any]) -> list[Any]:
        gradients = jax.grad(lambda p: jnp.mean((x @ p[0] + p[1] - y) ** 2))(parameters)
        return [p - LEARNING_RATE * g for p, g in zip(parameters, gradients, strict=True)]

    def step() -> None:
        parameters[:] = jax.block_until_ready(updated(parameters))

    return step


def _engine_chain(*, fuse: bool) -> Callable[[], object]:
    import opsmith

    graph = opsmith.Graph()
    x, one = graph.placeholder("float32", [], name="x"), graph.placeholder("float32", [], name="one")
    y = x
    for _ in range(LENGTH):
        y = y + one
    session = opsmith.Session(graph, fuse=fuse)
    feeds = {x: np.float32(1.0), one: np.float32(1.0)}
    assert session.run(y, feeds) == LENGTH + 1
    return lambda: session.run(y, feeds)


def _tensorflow_chain() -> Callable[[], object]:
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

    @tf.function
    def chain(x: Any, one: Any) -> Any:
        for _ in range(LENGTH):
            x = x + one
        return x

    x, one = tf.constant(1.0), tf.constant(1.0)
    assert chain(x, one).numpy() == LENGTH + 1
    return lambda: chain(x, one).numpy()
