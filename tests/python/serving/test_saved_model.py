"""A SavedModel of TensorFlow that a program of C runs, without Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import compiled, library, output, python, run

EXPORT = """
import sys, numpy as np, tensorflow as tf
library, folder, x, y = sys.argv[1:]
distances = tf.load_op_library(library)

class Model(tf.Module):
    def __init__(self):
        self.points = tf.Variable(np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3))

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32, name="x")])
    def __call__(self, x):
        return {"y": 2 * distances.distances_pairwise_manhattan_distance(x=tf.sin(x), y=self.points)}

model = Model()
tf.saved_model.save(model, folder)
given = np.random.default_rng(0).standard_normal((7, 3)).astype("float32")
np.save(x, given)
np.save(y, model(given)["y"].numpy())
signature = tf.saved_model.load(folder).signatures["serving_default"]
print(tf.sysconfig.get_include(), tf.sysconfig.get_lib())
"""

NAMES = ("serving_default_x", "StatefulPartitionedCall")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, np.ndarray, np.ndarray]:
    """The program of C, a model, an input, and what TensorFlow gives for it."""
    folder = tmp_path_factory.mktemp("model")
    saved, x, y = folder / "model", folder / "x.npy", folder / "y.npy"
    told = python(EXPORT, library("distances"), saved, x, y)
    include, libraries = told.splitlines()[-1].split()
    links = [
        f"-L{libraries}",
        f"-Wl,-rpath,{libraries}",
        "-l:libtensorflow_cc.so.2",
        "-l:libtensorflow_framework.so.2",
    ]
    program = compiled("gcc", "saved_model.c", folder, ["-std=c11", "-Wall", f"-I{include}", *links])
    return program, saved, np.load(x), np.load(y)


Model = tuple[Path, Path, np.ndarray, np.ndarray]


def test_a_saved_model_gives_what_tensorflow_gives(model: Model) -> None:
    program, saved, x, y = model
    got = output(run(program, saved, library("distances"), *NAMES, matrix=x))
    np.testing.assert_allclose(got, y, rtol=1e-6, atol=1e-6)


def test_errors_have_the_ops_words(model: Model) -> None:
    program, saved, x, _ = model
    done = run(program, saved, library("distances"), *NAMES, matrix=np.hstack([x, x]))
    assert done.returncode == 1
    assert "PairwiseManhattanDistance" in done.stderr and "p" in done.stderr
    done = run(program, saved, "-", *NAMES, matrix=x)
    assert done.returncode == 1
    assert "Distances>PairwiseManhattanDistance" in done.stderr
    done = run(program, saved.with_name("none"), library("distances"), *NAMES, matrix=x)
    assert done.returncode == 1
