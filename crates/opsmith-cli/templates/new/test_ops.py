"""The ops from Python, in the frameworks that are installed: values, gradients by finite differences."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import opsmith
import pytest


def library_file() -> Path:
    """The newest build, or what OPSMITH_LIBRARY says."""
    if "OPSMITH_LIBRARY" in os.environ:
        return Path(os.environ["OPSMITH_LIBRARY"])
    asked = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
    told = subprocess.run(asked, cwd=Path(__file__).parent.parent, check=True, stdout=subprocess.PIPE)
    target = Path(json.loads(told.stdout)["target_directory"])
    built = list(target.glob("*/lib{{name}}.so"))
    if not built:
        pytest.exit("there is no library yet: run `opsmith build`", returncode=1)
    return max(built, key=lambda file: file.stat().st_mtime)


ops = opsmith.load(library_file())

rng = np.random.default_rng(0)
X = rng.standard_normal((4, 3))
FACTOR = rng.standard_normal(4)
EXPECTED = X * FACTOR[:, None]


def test_numpy() -> None:
    np.testing.assert_allclose(ops.scale_rows(X, FACTOR), EXPECTED)
    np.testing.assert_array_equal(
        ops.scale_rows(X.astype(np.float32), FACTOR.astype(np.float32)),
        X.astype(np.float32) * FACTOR.astype(np.float32)[:, None],
    )


def test_mistakes_are_errors() -> None:
    with pytest.raises(opsmith.InvalidArgumentError, match="factor"):
        ops.scale_rows(X, FACTOR[:-1])


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(X, requires_grad=True)
    factor = torch.tensor(FACTOR, requires_grad=True)
    np.testing.assert_allclose(ops.scale_rows(x, factor).detach().numpy(), EXPECTED)
    assert torch.autograd.gradcheck(ops.scale_rows, (x, factor))


def test_jax() -> None:
    jax = pytest.importorskip("jax")
    check_grads = pytest.importorskip("jax.test_util").check_grads
    jax.config.update("jax_enable_x64", True)
    x, factor = jax.numpy.asarray(X), jax.numpy.asarray(FACTOR)
    np.testing.assert_allclose(ops.scale_rows(x, factor), EXPECTED)
    check_grads(ops.scale_rows, (x, factor), order=1, modes=["rev"])


def test_tensorflow() -> None:
    tf = pytest.importorskip("tensorflow")
    x, factor = tf.constant(X), tf.constant(FACTOR)
    np.testing.assert_allclose(ops.scale_rows(x, factor).numpy(), EXPECTED)
    analytic, numeric = tf.test.compute_gradient(ops.scale_rows, [x, factor])
    for exact, difference in zip(analytic, numeric, strict=True):
        np.testing.assert_allclose(exact, difference, atol=1e-6)
