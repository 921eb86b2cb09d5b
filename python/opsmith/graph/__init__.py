"""The embedded engine's graphs: ops that are stated now and run later, with no framework.

    >>> import numpy as np, opsmith
    >>> graph = opsmith.Graph()
    >>> x = graph.placeholder("float64", [None, 2], name="x")
    >>> w = graph.variable(np.zeros((2, 1)), name="w")
    >>> loss = opsmith.ops.mean((x @ w - 1.0) ** 2)
    >>> train = opsmith.optimizers.GradientDescent(0.1).minimize(loss)
    >>> with opsmith.Session(graph) as session:
    ...     session.run(graph.initializer())
    ...     _ = session.run([train, loss], {x: [[1.0, 2.0]]})
    ...     print(session.run(w))
    [[0.2]
     [0.4]]

A function of a library that is given outputs of a graph adds a node to it: that is how ops of one's
own get into graphs. `docs/engine.md` is the guide.
"""

from __future__ import annotations

from opsmith.graph._cards import card_memory, release_card_memory
from opsmith.graph._graph import Graph
from opsmith.graph._output import Operation, Output, Variable
from opsmith.graph._session import InteractiveSession, Session, Trace, default_session
from opsmith.graph._sparse import SparseTensor
from opsmith.graph._tape import grad, value_and_grad
from opsmith.graph._training import gradients, jvp

__all__ = [
    "Graph",
    "InteractiveSession",
    "Operation",
    "Output",
    "Session",
    "SparseTensor",
    "Trace",
    "Variable",
    "card_memory",
    "default_session",
    "grad",
    "gradients",
    "jvp",
    "release_card_memory",
    "value_and_grad",
]
