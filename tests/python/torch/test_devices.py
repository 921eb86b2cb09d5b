"""What an op with a CUDA kernel takes, on tensors that are on a card as far as shapes and dtypes go."""

from __future__ import annotations

from collections.abc import Iterator

import opsmith
import pytest
import torch
from opsmith.torch import _calls
from torch._subclasses.fake_tensor import FakeTensorMode


@pytest.fixture(autouse=True)
def fake() -> Iterator[None]:
    """Tensors of shapes and dtypes only."""
    with FakeTensorMode():
        yield


def test_the_description_tells_which_inputs_stay_in_cpu_memory(testops: opsmith.Library) -> None:
    ops = {op.name: op for op in testops._opsmith_loaded.definition.ops}
    assert (ops["Scaled"].cuda, ops["Scaled"].host_inputs) == (True, frozenset({0}))
    assert (ops["ProductLower"].cuda, ops["ProductLower"].host_inputs) == (True, frozenset())
    assert (ops["Pairwise"].cuda, ops["Pairwise"].autocast) == (False, None)


def test_numbers_for_such_an_input_stay_there(testops: opsmith.Library) -> None:
    op = testops._opsmith_loaded.definition.op("Scaled")
    for device in ["cuda:1", "cpu"]:
        x = torch.empty(2, 3, device=device)
        factor, same = _calls.tensors(op, [[2.0], x])
        assert (factor.device.type, factor.dtype) == ("cpu", torch.float64)
        assert same is x
    # Beside meta tensors all is shapes.
    factor, _ = _calls.tensors(op, [[2.0], torch.empty(3, device="meta")])
    assert factor.device.type == "meta"


def test_a_tensor_in_cpu_memory_goes_with_those_on_a_card(testops: opsmith.Library) -> None:
    x = torch.empty(2, 3, device="cuda:1")
    for factor in [torch.ones(1, dtype=torch.float64), [2.0]]:
        z = testops.scaled(factor, x)
        assert (z.device, z.shape) == (x.device, (2, 3))
    assert torch.ops.testops.scaled(torch.ones(1, dtype=torch.float64), x).device == x.device
    assert testops.scaled([2.0], x.cpu()).device.type == "cpu"
    with pytest.raises(
        RuntimeError, match="Scaled: input `factor` is on cuda:1; the CUDA kernel reads it in host memory"
    ):
        testops.scaled(torch.ones(1, dtype=torch.float64, device="cuda:1"), x)
    with pytest.raises(
        RuntimeError, match="ProductLower: all inputs must be on one device, but `y` is on cpu"
    ):
        testops.product_lower(x, x.cpu())


def test_its_gradient_takes_both_too(testops: opsmith.Library) -> None:
    x = torch.empty(4, device="cuda", requires_grad=True)
    z = testops.scaled([2.0], x)
    # PyTorch's engine does not run for a card that is not there, so what it would call is called.
    assert z.requires_grad
    assert testops.scaled_grad([2.0], torch.ones_like(z)).device == x.device


def test_a_batch_of_nothing_is_on_the_card(testops: opsmith.Library) -> None:
    x = torch.empty(0, 3, device="cuda")
    z = torch.vmap(lambda x: testops.scaled(torch.ones(1, dtype=torch.float64), x))(x)
    assert (z.device, z.shape) == (x.device, (0, 3))


def test_a_program_for_a_card_is_traced_whole(testops: opsmith.Library) -> None:
    graphs = []

    def keep(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    function = torch.compile(lambda factor, x: testops.scaled(factor, x) + 1, fullgraph=True, backend=keep)
    x = torch.empty(2, 3, device="cuda")
    assert function(torch.ones(1, dtype=torch.float64), x).device == x.device
    assert len(graphs) == 1
