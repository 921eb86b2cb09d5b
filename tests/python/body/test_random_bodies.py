"""Values and gradients of the random bodies are PyTorch's, and their CUDA sources compile."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import nvrtc
import torch
import torch.nn.functional as F

ARCHITECTURES = ["sm_75", "sm_80", "sm_90", "sm_100"]
DTYPES = ["Float", "Double", "Half", "Bfloat16"]


def constant(value: float) -> torch.Tensor:
    """A constant of a body."""
    return torch.tensor(value, dtype=torch.float64)


def numbers(values: list[float]) -> list[torch.Tensor]:
    """Tensors that are differentiated by."""
    return [constant(value).requires_grad_() for value in values]


def computed(sources: list[str], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of a body as PyTorch computes them; what is not the inputs' does not depend on them."""
    names = {f"x{k}": x for k, x in enumerate(inputs)}
    scope = {"torch": torch, "F": F, "math": math, "c": constant, **names}
    return [eval(source, scope) + 0 * sum(inputs) for source in sources]


def gradients(outputs: list[torch.Tensor], inputs: list[torch.Tensor], weights: Any) -> list[torch.Tensor]:
    """The gradient of a weighted sum, as something that can be differentiated again."""
    total = sum(weight * output for weight, output in zip(weights, outputs, strict=True))
    return list(torch.autograd.grad(total, inputs, create_graph=True, materialize_grads=True))


def assert_close(ours: list[float], theirs: list[torch.Tensor], what: str) -> None:
    """Equal but for rounding."""
    expected = torch.stack([t.detach() for t in theirs])
    torch.testing.assert_close(
        torch.tensor(ours, dtype=torch.float64), expected, rtol=1e-9, atol=1e-9, msg=lambda m: f"{what}: {m}"
    )


def test_outputs_and_gradients_are_those_of_pytorch(bodies: list[dict[str, Any]]) -> None:
    second_orders = 0
    for index, body in enumerate(bodies):
        for point in body["points"]:
            at = numbers(point["at"])
            inputs, weights, seconds = at[:3], at[3:5], at[5:]
            outputs = computed(body["torch"], inputs)
            assert_close(point["outputs"], outputs, f"outputs of body {index}")
            first = gradients(outputs, inputs, weights)
            assert_close(point["gradients"], first, f"gradients of body {index}")
            if point["second"] is not None:
                second = gradients(first, [*inputs, *weights], seconds)
                assert_close(point["second"], second, f"second order of body {index}")
                second_orders += 1
    assert len(bodies) == 100
    assert second_orders == 20 * 5


def check(job: tuple[int, str, str, str, str], source: str) -> None:
    """One source compiles."""
    *_, architecture, flag = job
    complaints = nvrtc.compile_source(source, architecture, *([flag] if flag else []))
    assert complaints is None, f"{job}:\n{complaints}\n{source}"


def test_every_source_compiles(bodies: list[dict[str, Any]]) -> None:
    """Each for one dtype, architecture and kernel in turn; with `OPSMITH_EVERY_SOURCE` for all of them."""
    indices = range(len(bodies))
    if os.environ.get("OPSMITH_EVERY_SOURCE"):
        jobs = [(*job, "") for job in product(indices, ["forward", "backward"], DTYPES, ARCHITECTURES)]
    else:
        # To the assembly of each generation, which is half of the work.
        virtual = [name.replace("sm_", "compute_") for name in ARCHITECTURES]
        jobs = [
            (index, way, DTYPES[index % 4], virtual[(index // 4 + turn) % 4], f"-DONLY={index // 16 % 4}")
            for index, (turn, way) in product(indices, enumerate(["forward", "backward"]))
        ]
        jobs += [
            (0, "forward", dtype, name, "-DONLY=0") for dtype, name in nvrtc.pairs(DTYPES, ARCHITECTURES)
        ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda job: check(job, bodies[job[0]][job[1]][job[2]]), jobs))


def test_a_source_that_is_wrong_is_told(bodies: list[dict[str, Any]]) -> None:
    wrong = bodies[0]["forward"]["Float"].replace("out[0] =", "out[0] = nonsense +")
    complaints = nvrtc.compile_source(wrong, "sm_75")
    assert complaints is not None
    assert "nonsense" in complaints
