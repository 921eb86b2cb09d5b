"""The model of `compare.py` in PyTorch behind FastAPI: what the server is compared with.

Run by `uvicorn torch_app:app --workers 2`, with `OPSMITH_LIBRARY` naming the file of `distances`.
"""

from __future__ import annotations

import os

import opsmith
import torch
from fastapi import FastAPI
from pydantic import BaseModel

torch.set_num_threads(1)
DISTANCES = opsmith.load(os.environ["OPSMITH_LIBRARY"])
POINTS = torch.arange(32.0).reshape(4, 8) / 4


class Inputs(BaseModel):
    """The inputs of a request."""

    x: list[list[float]]


class Request(BaseModel):
    """What is asked."""

    inputs: Inputs


app = FastAPI()


@app.post("/run")
async def run(request: Request) -> dict[str, dict[str, list[list[float]]]]:
    """Twice the distances of the rows from four points."""
    with torch.inference_mode():
        x = torch.tensor(request.inputs.x)
        y = 2 * torch.ops.distances.pairwise_manhattan_distance(x, POINTS)
    return {"outputs": {"y": y.tolist()}}
