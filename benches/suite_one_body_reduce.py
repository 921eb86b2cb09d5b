"""Reductions that are a few lines of arithmetic, float32, 2^20 numbers in rows of 16 to 4096.

Forward, the peers are PyTorch's own functions, eager and compiled by `torch.compile` for these very
shapes, and `jax.jit`. Some rows also have a loop compiled by numba, or the function of NumPy or SciPy.
Backward is measured alone, after a forward call, with the gradients of all inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from harness import OURS, Case, Options, Target

if TYPE_CHECKING:
    import numpy as np
    import torch

TITLE = "Reductions written once"

NUMBERS = 1 << 20
WIDTHS = (16, 80, 128, 256, 1024, 4096)
FORWARD, BACKWARD = 1.0, 1.2
PYTORCH, COMPILED = "PyTorch", "torch.compile"

Function = Callable[..., Any]


def cases(options: Options) -> Iterator[Case]:
    """Each function forward and those with a gradient worth it backward, at each width."""
    import opsmith
    import torch

    torch.manual_seed(0)
    # Each function is compiled for each width, with and without a gradient.
    torch._dynamo.config.recompile_limit = 64
    library = opsmith.load(options.library("reductions"))
    of_torch = torch_functions()
    compiled = {name: torch.compile(function, dynamic=False) for name, function in of_torch.items()}
    others = array_functions()
    for width in WIDTHS:
        for name, function in of_torch.items():
            shapes = [(NUMBERS // width, width), *[(width,)] * (2 if name == "layer_norm" else 0)]
            inputs = [torch.randn(shape) for shape in shapes]
            functions = {OURS: getattr(library, name), PYTORCH: function, COMPILED: compiled[name]}
            yield forward(f"{name}, rows of {width}", functions, others[name], inputs)
            if name in ("softmax", "layer_norm"):
                yield backward(f"{name}, rows of {width}", functions, inputs)


def torch_functions() -> dict[str, Function]:
    """PyTorch's own."""
    import torch

    return {
        "softmax": lambda x: torch.softmax(x, -1),
        "layer_norm": lambda x, gamma, beta: torch.nn.functional.layer_norm(x, x.shape[-1:], gamma, beta),
        "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
        "log_sum_exp": lambda x: torch.logsumexp(x, -1),
    }


def array_functions() -> dict[str, dict[str, Function]]:
    """Those of other peers, of NumPy's arrays or JAX's."""
    import jax
    import numpy as np
    import scipy.special
    from jax import numpy as jnp

    def layer_norm(x: jax.Array, gamma: jax.Array, beta: jax.Array) -> jax.Array:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-5) * gamma + beta

    functions = {
        "softmax": partial(jax.nn.softmax, axis=-1),
        "layer_norm": layer_norm,
        "norm": partial(jnp.linalg.norm, axis=-1),
        "log_sum_exp": partial(jax.scipy.special.logsumexp, axis=-1),
    }
    found: dict[str, dict[str, Function]] = {
        name: {"jax.jit": jax.jit(function)} for name, function in functions.items()
    }
    found["softmax"]["numba"] = softmax_of_numba()
    found["norm"]["NumPy"] = partial(np.linalg.norm, axis=-1)
    found["log_sum_exp"]["SciPy"] = partial(scipy.special.logsumexp, axis=-1)
    return found


def softmax_of_numba() -> Function:
    """Softmax as loops over a row, the rows shared among threads."""
    import numba
    import numpy as np

    def softmax(x: np.ndarray) -> np.ndarray:
        y = np.empty_like(x)
        for row in numba.prange(x.shape[0]):
            largest = x[row, 0]
            for column in range(x.shape[1]):
                largest = max(largest, x[row, column])
            total = np.float32(0)
            for column in range(x.shape[1]):
                y[row, column] = np.exp(x[row, column] - largest)
                total += y[row, column]
            for column in range(x.shape[1]):
                y[row, column] /= total
        return y

    return numba.njit(softmax, parallel=True, fastmath=True)  # type: ignore[no-any-return]


def forward(
    name: str, functions: dict[str, Function], others: dict[str, Function], inputs: list[torch.Tensor]
) -> Case:
    """The function alone, checked against PyTorch's."""
    import jax
    import torch

    contenders: dict[str, Callable[[], object]] = {
        who: partial(function, *inputs) for who, function in functions.items()
    }
    arrays = [x.numpy() for x in inputs]
    for who, function in others.items():
        if who == "jax.jit":
            on_device = [jax.numpy.asarray(x) for x in arrays]
            contenders[who] = partial(waited, function, on_device)
        else:
            contenders[who] = partial(function, *arrays)
    expected = functions[PYTORCH](*inputs)
    for contender in contenders.values():
        found: Any = contender()
        found = found if isinstance(found, torch.Tensor) else torch.tensor(jax.device_get(found))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    return Case(f"{name}, forward", contenders, [Target(FORWARD, tuple(contenders)[1:])], twice=True)


def waited(function: Function, inputs: list[Any]) -> Any:
    """What a function of JAX gives, when it is there."""
    return function(*inputs).block_until_ready()


def backward(name: str, functions: dict[str, Function], inputs: list[torch.Tensor]) -> Case:
    """The gradients alone, of a call that has been made, checked against PyTorch's."""
    import torch

    wanted = [x.clone().requires_grad_() for x in inputs]
    upstream = torch.randn_like(inputs[0])
    contenders: dict[str, Callable[[], object]] = {
        who: partial(torch.autograd.grad, function(*wanted), wanted, upstream, retain_graph=True)
        for who, function in functions.items()
    }
    expected: Any = contenders[PYTORCH]()
    for contender in contenders.values():
        # Gradients of what is the same for all rows are sums over them.
        torch.testing.assert_close(contender(), expected, rtol=1e-3, atol=1e-3)
    return Case(f"{name}, backward", contenders, [Target(BACKWARD, (PYTORCH, COMPILED))], twice=True)
