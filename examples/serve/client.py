"""Sends the rows of an array to the server in batches, as safetensors: `python client.py URL ROWS.npy`.

Each output becomes a file `<name>.npy` in the current folder, and replaces one that is there. Rows of another
dtype are converted to the model's. It needs NumPy alone. The format is a header in JSON, with its length
before it, and the bytes of the tensors behind it.
"""

from __future__ import annotations

import json
import random
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

NAMES = {"F16": "f2", "F32": "f4", "F64": "f8", "I8": "i1", "I16": "i2", "I32": "i4", "I64": "i8"}
NAMES |= {"BOOL": "?", "U8": "u1", "U16": "u2", "U32": "u4", "U64": "u8"}

#: How often a server is asked that has no room for a request (503).
TRIES = 8


def pack(tensors: Mapping[str, np.ndarray]) -> bytes:
    """The tensors in the format."""
    codes = {np.dtype(code): name for name, code in NAMES.items()}
    header, data = {}, b""
    for name, tensor in tensors.items():
        end = len(data) + tensor.nbytes
        described = {"dtype": codes[tensor.dtype], "shape": tensor.shape}
        header[name] = described | {"data_offsets": [len(data), end]}
        data += tensor.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def unpack(answer: bytes) -> dict[str, np.ndarray]:
    """The tensors of an answer."""
    begin = 8 + int.from_bytes(answer[:8], "little")
    tensors = {}
    for name, described in json.loads(answer[8:begin]).items():
        if name != "__metadata__":
            first, end = described["data_offsets"]
            elements = np.frombuffer(answer[begin + first : begin + end], NAMES[described["dtype"]])
            tensors[name] = elements.reshape(described["shape"])
    return tensors


def run(url: str, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    """One request, sent again while the server has no room. What it refuses is an `HTTPError`, whose `read()`
    gives the reason.
    """
    headers = {"Content-Type": "application/safetensors"}
    request = urllib.request.Request(f"{url}/run", pack(inputs), headers)
    tries_left = TRIES
    while True:
        tries_left -= 1
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return unpack(answer.read())
        except urllib.error.HTTPError as error:
            if error.code != 503 or not tries_left:
                raise
            # Not all that were refused at the same moment come back at the same moment.
            time.sleep(float(error.headers.get("Retry-After", 1)) * random.uniform(1, 2))


def run_in_batches(
    url: str, name: str, rows: np.ndarray, size: int = 1024, connections: int = 8
) -> dict[str, np.ndarray]:
    """A model whose rows are independent, on so many rows a request and so many requests at a time."""
    # Of no rows there is one request: its answer has the outputs' names and dims.
    parts = [rows[first : first + size] for first in range(0, max(len(rows), 1), size)]
    with ThreadPoolExecutor(connections) as threads:
        answers = list(threads.map(lambda part: run(url, **{name: part}), parts))
    return {output: np.concatenate([answer[output] for answer in answers]) for output in answers[0]}


def main() -> None:
    """The program."""
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} http://ADDRESS:PORT ROWS.npy")
    address, file = sys.argv[1:]
    try:
        with urllib.request.urlopen(f"{address}/model", timeout=60) as told:
            (given,) = json.loads(told.read())["inputs"]
        rows = np.load(file).astype(given["dtype"], casting="same_kind", copy=False)
        outputs = run_in_batches(address, given["name"], rows)
    except urllib.error.HTTPError as error:
        sys.exit(f"{error}: {error.read().decode(errors='replace')}")
    except (OSError, TypeError, ValueError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    for output, values in outputs.items():
        np.save(f"{output}.npy", values)
        print(f"{output}.npy: {values.dtype} {values.shape}")


if __name__ == "__main__":
    main()
