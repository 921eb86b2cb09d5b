"""Models of PyTorch with ops of libraries, exported to ONNX and run in ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import opsmith
import opsmith.onnx
import pytest
import torch
from conftest import load
from models import session

DISTANCES, REDUCTIONS, OPS = (load(name) for name in ("distances", "opsmith", "zero_out"))


class Model(torch.nn.Module):
    """A pairwise op, a reduction, one of `#[op]`, and ops of PyTorch's own between them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("points", torch.linspace(-1, 1, 12).reshape(4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = torch.ops.distances.pairwise_manhattan_distance(self.linear(x), self.points)
        z = torch.ops.opsmith.softmax(z)
        return torch.ops.zero_out.zero_out_rows(z, preserve_index=2) + x.sum()


def exported(module: torch.nn.Module, *args: Any, dims: Any, libraries: Any) -> onnx.ModelProto:
    """The model as ONNX has it, checked by ONNX's own tools."""
    table = opsmith.onnx.translations(*libraries)
    program = torch.onnx.export(
        module, args, dynamo=True, dynamic_shapes=dims, custom_translation_table=table, verbose=False
    )
    assert program is not None
    made = program.model_proto
    onnx.checker.check_model(made, full_check=True)
    # ONNX Runtime 1.17 reads no newer one; what the models have is in the older one too.
    made.ir_version = min(made.ir_version, 9)
    return made


def run(made: onnx.ModelProto, files: Any, *inputs: torch.Tensor) -> list[np.ndarray]:
    """Its outputs in ONNX Runtime."""
    one = session(made, *files)
    feed = {given.name: x.numpy() for given, x in zip(one.get_inputs(), inputs, strict=True)}
    return list(one.run(None, feed))


def test_a_model_with_three_ops_and_sizes_that_are_not_known() -> None:
    torch.manual_seed(0)
    module = Model().eval()
    dims = {"x": {0: torch.export.Dim("n", min=1)}}
    made = exported(module, torch.randn(5, 3), dims=dims, libraries=(DISTANCES, REDUCTIONS, OPS))
    domains = [node.domain for node in made.graph.node]
    assert {"distances", "opsmith", "zero_out"} <= set(domains)
    for n in (1, 5, 40):
        x = torch.randn(n, 3)
        (y,) = run(made, ("distances", "opsmith_ops", "zero_out"), x)
        torch.testing.assert_close(torch.from_numpy(y), module(x).detach(), rtol=1e-6, atol=1e-6)


class Several(torch.nn.Module):
    """A list in, a list out, several outputs, and an input that is absent."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = torch.ops.opsmith.split(x, N=2, axis=1)
        joined = torch.ops.opsmith.concat([b, a], axis=0)
        values, positions = torch.ops.opsmith.top_k(joined, k=2)
        sums = torch.ops.zero_out.sum_all([a, b, a])
        return joined, values, positions, sums


def test_lists_and_several_outputs() -> None:
    x = torch.randn(3, 8)
    made = exported(Several(), x, dims=None, libraries=(REDUCTIONS, OPS))
    got = run(made, ("opsmith_ops", "zero_out"), x)
    for ours, theirs in zip(got, Several()(x), strict=True):
        np.testing.assert_array_equal(ours, theirs.numpy())


class Absent(torch.nn.Module):
    """An optional input in the middle that is absent, and an attribute that 32 bits do not hold."""

    def forward(self, x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        second = torch.ops.distances.pairwise_manhattan_distance_grad_grad(x, y, None, b)
        return second, torch.ops.activations.leaky_relu(x, slope=0.1 + 1e-12)


def test_absent_inputs_and_exact_attributes() -> None:
    x, y = torch.randn(4, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    made = exported(Absent(), x, y, y + 1, dims=None, libraries=(DISTANCES, load("activations")))
    got = run(made, ("distances", "activations"), x, y, y + 1)
    for ours, theirs in zip(got, Absent()(x, y, y + 1), strict=True):
        np.testing.assert_array_equal(ours, theirs.numpy())


def test_an_op_that_onnx_cannot_have_says_why() -> None:
    class Changes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.clone()
            torch.ops.zero_out.zero_out_in_place(y)
            return y

    with pytest.raises(Exception) as raised:
        exported(Changes(), torch.ones(3, dtype=torch.int32), dims=None, libraries=(OPS,))
    texts, error = [], raised.value
    while error is not None:
        texts.append(str(error))
        error = error.__cause__  # type: ignore[assignment]
    assert any("zero_out_in_place" in text or "in place" in text for text in texts), texts
