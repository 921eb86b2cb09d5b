"""Linear regression with the embedded engine, from Python: the same as `src/main.rs`, beside NumPy.

    python linear_regression.py [FOLDER]

trains for 3,000 epochs with and without NumPy, compares, saves graph and variables, and loads them in a
new process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import opsmith

DATA = Path(__file__).parent / "data" / "diabetes.csv"
NUM_TEST = 89
EPOCHS = 3000
LEARNING_RATE = 0.001

Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def read() -> Data:
    """Inputs (n, 10) and targets (n, 1) to learn from, and to test with; each measurement has variance 1."""
    table = np.loadtxt(DATA, delimiter=",", skiprows=1)
    x, y = table[:, :-1] * np.sqrt(len(table)), table[:, -1:]
    return x[:-NUM_TEST], y[:-NUM_TEST], x[-NUM_TEST:], y[-NUM_TEST:]


def by_hand(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same steps with NumPy."""
    w, b = np.zeros((x.shape[1], 1)), np.zeros(1)
    for _ in range(EPOCHS):
        wrong = x @ w + b - y
        w = w - LEARNING_RATE * 2 / len(x) * (x.T @ wrong)
        b = b - LEARNING_RATE * 2 * wrong.mean(0)
    return w, b


def train(folder: Path) -> None:
    """Train, compare with NumPy, write everything into the folder."""
    inputs, targets, test_inputs, test_targets = read()
    graph = opsmith.Graph()
    x = graph.placeholder("float64", [None, 10], name="x")
    y = graph.placeholder("float64", [None, 1], name="y")
    with graph.scope("model"):
        w = graph.variable(np.zeros((10, 1)), name="W")
        b = graph.variable(np.zeros(1), name="b")
    prediction = x @ w + b
    loss = ((prediction - y) ** 2).mean()
    step = opsmith.optimizers.GradientDescent(LEARNING_RATE).minimize(loss)
    session = opsmith.Session(graph)
    session.run(graph.initializer())
    feeds = {x: inputs, y: targets}
    losses = []
    for epoch in range(EPOCHS):
        losses.append(session.run([loss, step], feeds)[0])
        if epoch % 100 == 99:
            print(f"\repoch {epoch + 1}/{EPOCHS}, loss {losses[-1]:.1f}", end="", flush=True)
    print()
    learnt = session.run([w, b])
    difference = max(np.abs(a - e).max() for a, e in zip(learnt, by_hand(inputs, targets), strict=True))
    print(f"weights differ from NumPy's by at most {difference:.1e}")
    assert difference <= 1e-10
    error, predictions = session.run([loss, prediction], {x: test_inputs, y: test_targets})
    print(f"mean squared error: {session.run(loss, feeds):.4f} in training, {error:.4f} in the test")
    graph.save(folder / "model.opsmith")
    session.save(folder / "variables.safetensors")
    np.savez(folder / "predictions.npz", x=test_inputs, predictions=predictions)
    (folder / "graph.svg").write_text(graph.to_svg(), encoding="utf-8")
    _, trace = session.run_traced(step, feeds)
    trace.save(folder / "trace.json")
    print(trace)


def check(folder: Path) -> None:
    """Load graph and variables, and predict again: the predictions must be those that were saved."""
    graph = opsmith.Graph.load(folder / "model.opsmith")
    session = opsmith.Session(graph)
    session.restore(folder / "variables.safetensors")
    saved = np.load(folder / "predictions.npz")
    predictions = session.run(graph.output("Add"), {graph.output("x"): saved["x"]})
    np.testing.assert_array_equal(predictions, saved["predictions"])
    print(f"loaded in a new process: {predictions.size} equal predictions")


def main() -> None:
    """Train; then check in a new process."""
    if sys.argv[1:2] == ["--check"]:
        check(Path(sys.argv[2]))
        return
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "linear_regression")
    folder.mkdir(parents=True, exist_ok=True)
    train(folder)
    subprocess.run([sys.executable, __file__, "--check", str(folder)], check=True)


if __name__ == "__main__":
    main()
