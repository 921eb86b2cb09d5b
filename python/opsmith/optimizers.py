"""Optimisers: nodes of a graph that change variables so that a loss becomes smaller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from math import inf, ulp
from numbers import Real

from opsmith._errors import InvalidArgumentError
from opsmith.graph import Operation, Output, Variable
from opsmith.graph._training import minimize

__all__ = ["Adam", "GradientDescent", "Momentum"]


class _Optimizer:
    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            # Rates and the least divisor are positive; the weights of running means are less than 1.
            above, below = (0.0, inf) if field.name in ("learning_rate", "epsilon") else (-ulp(0.0), 1.0)
            if isinstance(value, bool) or not isinstance(value, Real) or not above < float(value) < below:
                raise InvalidArgumentError(
                    f"{type(self).__name__}: `{field.name}` must be a number "
                    f"{'above 0' if below == inf else 'from 0 to below 1'}, got {value!r}"
                )

    def minimize(self, loss: Output, variables: Variable | Sequence[Variable] | None = None) -> Operation:
        """A node that takes one step towards a smaller loss each time it runs.

            >>> train = opsmith.optimizers.Adam(0.01).minimize(loss)

        - `loss`: an output of a graph, a float scalar.
        - `variables`: one variable or several to change. By default all on which the loss depends.

        `Momentum` and `Adam` make variables of their own, so call this before the session is initialised.
        """
        numbers = [float(number) for number in astuple(self)]  # type: ignore[call-overload]
        return minimize(type(self).__name__, numbers, loss, variables)


@dataclass(frozen=True)
class GradientDescent(_Optimizer):
    """Gradient descent: subtracts `learning_rate` times its gradient from each variable."""

    learning_rate: float


@dataclass(frozen=True)
class Momentum(_Optimizer):
    """Gradient descent with momentum. A velocity, `momentum` times the previous one plus the gradient, takes
    the gradient's place.
    """

    learning_rate: float
    momentum: float = 0.9


@dataclass(frozen=True)
class Adam(_Optimizer):
    """Adam (Kingma and Ba, 2015, algorithm 1): steps scaled by running means of the gradient and of its
    square.
    """

    learning_rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
