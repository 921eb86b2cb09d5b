"""ONNX Runtime: what a node costs, and a body of one million elements.

The chain has 64 nodes, one after another, on a float32 tensor of shape (1, 1), so that a run's own cost does
not hide that of a node. Ours is `LeakyRelu` of the library `activations`. The peers are ONNX Runtime's own
nodes; the cheapest counts. Optimisations of graphs are switched off, as they might shorten a chain.

The larger row is one node, GELU of 1,000,000 elements of float32. Its peer is `Gelu` of ONNX.

All sessions have one thread. A run takes its inputs where they lie, by an I/O binding.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np
from harness import OURS, Case, Options, Target

TITLE = "ONNX Runtime"

CHAIN = 64
"""Nodes of the chain."""
LARGE = 1_000_000
TINY = 1.6
"""How much a node may cost beside ONNX Runtime's `Neg`."""
OPSET = 20
IR = 9


def cases(options: Options) -> Iterator[Case]:
    """The chain, then a large body."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    path = options.library("activations")
    x = np.full((1, 1), 0.5, np.float32)
    peers = {op: runs(op, x, CHAIN)[0] for op in ("Neg", "LeakyRelu", "Sigmoid")}
    contenders = {OURS: runs("LeakyRelu", x, CHAIN, path)[0], **peers}
    yield Case(f"{CHAIN} tiny nodes", contenders, [Target(TINY, ("Neg",))])

    x = np.random.default_rng(0).standard_normal(LARGE, np.float32)
    (ours, result), (theirs, expected) = runs("Gelu", x, 1, path), runs("Gelu", x, 1)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-6)
    yield Case("GELU of 1,000,000", {OURS: ours, "Gelu": theirs}, [Target(1.0, ("Gelu",))])


def runs(
    op: str, x: np.ndarray, length: int, library: str | None = None
) -> tuple[Callable[[], object], np.ndarray]:
    """A run of a session whose graph applies an op `length` times; of the library, where there is one."""
    import onnxruntime as ort
    from onnx import TensorProto, helper

    domain = "activations" if library else ""
    nodes = [helper.make_node(op, [f"x{i}"], [f"x{i + 1}"], domain=domain) for i in range(length)]
    last = f"x{length}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in ("x0", last)]
    graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("activations", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR)
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if library:
        settings.register_custom_ops_library(library)
    session = ort.InferenceSession(model.SerializeToString(), settings)
    binding = session.io_binding()
    binding.bind_cpu_input("x0", x)
    binding.bind_output(last, "cpu")

    def run() -> object:
        # It keeps the session alive too.
        return session.run_with_iobinding(binding)

    run()
    return run, binding.copy_outputs_to_cpu()[0]
