"""What `test_verdicts.py` runs: saves a graph with each op of one version of a library, or runs those.

Its arguments are `save` or `run`, the framework, the library, a folder, and the ops as JSON: for each the
number of its inputs and its attributes. It writes JSON: for each op what went wrong, or null.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import opsmith

X = np.array([1, 2, 3], np.int32)


def save_tensorflow(call: Any, path: Path) -> None:
    import tensorflow as tf

    module = tf.Module()
    module.f = tf.function(call, input_signature=[tf.TensorSpec([None], tf.int32)])
    tf.saved_model.save(module, str(path))


def run_tensorflow(path: Path) -> Any:
    import tensorflow as tf

    return tf.saved_model.load(str(path)).f(tf.constant(X))


def save_jax(call: Any, path: Path) -> None:
    import jax
    from jax import export

    exported = export.export(
        jax.jit(call), disabled_checks=[export.DisabledSafetyCheck.custom_call(path.name)]
    )
    path.write_bytes(exported(jax.ShapeDtypeStruct(X.shape, X.dtype)).serialize())


def run_jax(path: Path) -> Any:
    from jax import export

    return export.deserialize(bytearray(path.read_bytes())).call(X)


def save_torch(call: Any, path: Path) -> None:
    import torch

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return call(x)

    torch.export.save(torch.export.export(Module(), (torch.tensor(X),)), f"{path}.pt2")


def run_torch(path: Path) -> Any:
    import torch

    return torch.export.load(f"{path}.pt2").module()(torch.tensor(X))


def outcome(
    action: str, framework: str, function: Any, path: Path, inputs: int, attrs: dict[str, Any]
) -> str | None:
    """What goes wrong with one op."""
    try:
        if action == "save":
            globals()[f"save_{framework}"](lambda x: function(*[x] * inputs, **attrs), path)
            return None
        got = np.asarray(globals()[f"run_{framework}"](path))
        return None if np.array_equal(got, X) else f"gives {got!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main() -> None:
    """Does it."""
    action, framework, library, folder, ops = sys.argv[1:]
    functions = opsmith.load(library)
    # The graphs call the ops by name and not through our functions.
    importlib.import_module(framework)
    outcomes = {}
    for op, (inputs, attrs) in json.loads(ops).items():
        path = Path(folder) / f"{functions.__name__}.{op}"
        outcomes[op] = outcome(action, framework, getattr(functions, op, None), path, inputs, attrs)
    print(json.dumps(outcomes))


main()
