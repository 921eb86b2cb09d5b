"""When the library is loaded and who opens it first; each case in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from conftest import library_path

DISTANCES = str(library_path("distances").resolve())

LOAD = "import opsmith\nlibrary = opsmith.load(path)\n"

USE = """
x = tf.ones([1, 2])
with tf.GradientTape() as tape:
    tape.watch(x)
    z = library.pairwise_manhattan_distance(x, tf.zeros([1, 2]))
print(z.numpy().tolist(), tape.gradient(z, x).numpy().tolist())
"""


def run(source: str) -> list[str]:
    """What the program prints, line by line. It finds `path`, of the library of distances."""
    head = f"import os, sys\nos.environ['TF_CPP_MIN_LOG_LEVEL'] = '2'\npath = {DISTANCES!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(source)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "order",
    [
        f"import tensorflow as tf\n{LOAD}",
        f"{LOAD}import tensorflow as tf\n",
        f"import tensorflow as tf\ntf.load_op_library(path)\n{LOAD}",
        f"import ctypes\nctypes.CDLL(path)\nimport tensorflow as tf\n{LOAD}",
        f"import tensorflow as tf\nimport ctypes\nctypes.CDLL(path)\n{LOAD}",
        f"{LOAD}from tensorflow import keras\nimport tensorflow as tf\n",
    ],
    ids=[
        "TensorFlow first",
        "library first",
        "as an op library too",
        "opened before",
        "opened after",
        "a submodule",
    ],
)
def test_tensorflow_may_be_imported_whenever(order: str) -> None:
    assert run(order + USE) == ["[[2.0]] [[1.0, 1.0]]"]


def test_load_op_library_works_after_opsmith() -> None:
    assert run("""
        import tensorflow as tf, opsmith
        library = opsmith.load(path)
        module = tf.load_op_library(path)
        x, y = tf.ones([1, 2]), tf.zeros([1, 2])
        print(module.distances_pairwise_manhattan_distance(x, y).numpy().tolist())
    """) == ["[[2.0]]"]


def test_what_is_no_library_is_refused_before_tensorflow_sees_it() -> None:
    assert run("""
        import tempfile, tensorflow as tf, opsmith
        folder = tempfile.mkdtemp()
        open(folder + "/cut.so", "wb").write(open(path, "rb").read()[:5000])
        open(folder + "/text.so", "w").write("no library")
        for name in ("absent.so", "cut.so", "text.so"):
            try:
                opsmith.load(f"{folder}/{name}")
            except opsmith.Error as error:
                print(type(error).__name__)
    """) == ["NotFoundError", "InvalidArgumentError", "InvalidArgumentError"]


def test_tensorflow_starts_nothing_when_a_library_is_loaded() -> None:
    """Devices can still be set up: no tensor was made."""
    assert run("""
        import tensorflow as tf, opsmith
        opsmith.load(path)
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
        )
        print(len(tf.config.list_logical_devices("CPU")))
    """) == ["2"]


def test_another_file_with_these_ops_serves_on() -> None:
    assert run("""
        import shutil, tempfile, tensorflow as tf, opsmith
        copy = tempfile.mkdtemp() + "/libcopy.so"
        shutil.copy(path, copy)
        first = tf.load_op_library(copy)
        try:
            opsmith.load(path)
        except opsmith.AlreadyExistsError as error:
            print("TensorFlow has an op of this name already" in str(error))
        x = tf.ones([1, 2])
        print(first.distances_pairwise_manhattan_distance(x, x).numpy().tolist())
    """) == ["True", "[[0.0]]"]
