"""The model of `compare.py` behind FastAPI, in ONNX Runtime or in PyTorch: what the server is compared with.

Run by `uvicorn app:app --workers 2`. `OPSMITH_LIBRARY` names the file of `distances`, and `OPSMITH_MODEL`
that of the ONNX model; without it the model is PyTorch's.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from fastapi import FastAPI
from pydantic import BaseModel

LIBRARY, MODEL = os.environ["OPSMITH_LIBRARY"], os.environ.get("OPSMITH_MODEL")

if MODEL is not None:
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    OPTIONS = onnxruntime.SessionOptions()
    OPTIONS.register_custom_ops_library(LIBRARY)
    OPTIONS.intra_op_num_threads = 1
    SESSION = onnxruntime.InferenceSession(MODEL, OPTIONS)

    def compute(x: list[list[float]]) -> Any:
        """Twice the distances of the rows from four points."""
        return SESSION.run(["y"], {"x": np.array(x, "float32")})[0]

else:
    import opsmith
    import torch

    torch.set_num_threads(1)
    DISTANCES = opsmith.load(LIBRARY)
    POINTS = torch.arange(32.0).reshape(4, 8) / 4

    def compute(x: list[list[float]]) -> Any:
        """Twice the distances of the rows from four points."""
        with torch.inference_mode():
            return 2 * torch.ops.distances.pairwise_manhattan_distance(torch.tensor(x), POINTS)


class Inputs(BaseModel):
    """The inputs of a request."""

    x: list[list[float]]


class Request(BaseModel):
    """What is asked."""

    inputs: Inputs


app = FastAPI()


@app.post("/run")
async def run(request: Request) -> dict[str, dict[str, list[list[float]]]]:
    """The model's answer."""
    return {"outputs": {"y": compute(request.inputs.x).tolist()}}
