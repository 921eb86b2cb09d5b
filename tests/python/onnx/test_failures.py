"""What is wrong is an error that names op, argument, what was expected and what came; it ends nothing."""

from __future__ import annotations

import resource
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import opsmith
import opsmith.onnx
import pytest
from conftest import LIBRARIES, load
from models import Call, definition, info, model, session
from onnx import helper

ORT_ERRORS = (
    ort.capi.onnxruntime_pybind11_state.Fail,
    ort.capi.onnxruntime_pybind11_state.InvalidArgument,
    ort.capi.onnxruntime_pybind11_state.InvalidGraph,
    ort.capi.onnxruntime_pybind11_state.RuntimeException,
    ort.capi.onnxruntime_pybind11_state.NotImplemented,
)


def one(
    op: str,
    inputs: dict[str, Any],
    outputs: dict[str, str],
    attrs: dict[str, Any] | None = None,
    file: str = "opsmith_testops",
    domain: str = "testops",
    shapes: dict[str, Any] | None = None,
) -> list[np.ndarray]:
    """Run a node of raw attributes on arrays."""
    node = helper.make_node(op, list(inputs), list(outputs), domain=domain, **(attrs or {}))
    arrays = {name: np.asarray(array) for name, array in inputs.items() if name}
    infos = [
        info(name, "string" if x.dtype.kind in "OU" else x.dtype.name, (shapes or {}).get(name, x.shape))
        for name, x in arrays.items()
    ]
    made = model([node], infos, [info(name, dtype) for name, dtype in outputs.items() if name], domain)
    return list(session(made, file).run(None, arrays))


def refused(parts: tuple[str, ...], *args: Any, **kwargs: Any) -> str:
    """That a node is refused, and that the message has these parts."""
    with pytest.raises(ORT_ERRORS) as raised:
        one(*args, **kwargs)
    message = str(raised.value)
    missing = [part for part in parts if part not in message]
    assert not missing, (missing, message)
    return message


X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("attrs", "said"),
    [
        ({}, ("attribute `times`", "missing")),
        ({"times": "many"}, ("attribute `times`", "must be int", 'the text "many"')),
        ({"times": 2.5}, ("attribute `times`", "must be int", "the float 2.5")),
        ({"times": [1, 2]}, ("attribute `times`", "must be int", "2 ints")),
        ({"times": -1}, ("`times`", "-1")),
        (
            {"times": helper.make_tensor("t", 1, [1], [1.0])},
            ("`times`", "must be int", "a tensor of float32"),
        ),
    ],
    ids=["missing", "text", "float", "list", "too small", "tensor"],
)
def test_attributes_that_do_not_fit(attrs: dict[str, Any], said: tuple[str, ...]) -> None:
    x = {"x": np.arange(3, dtype=np.int32)}
    refused(("Repeat", *said), "Repeat", x, {"y": "int32"}, attrs, "zero_out", "zero_out")


def test_an_unknown_attribute_is_found_by_onnx_and_not_by_the_runtime() -> None:
    library = load("distances")
    opsmith.onnx.register(library)
    node = helper.make_node("PairwiseManhattanDistance", ["x", "y"], ["z"], domain="distances", typo=1)
    infos = [info("x", "float32", [2, 3]), info("y", "float32", [2, 3])]
    made = model([node], infos, [info("z", "float32", [2, 2])], "distances")
    (z,) = session(made, "distances").run(None, {"x": X, "y": X})
    assert z.shape == (2, 2)
    with pytest.raises(onnx.checker.ValidationError, match="typo"):
        onnx.checker.check_model(made, full_check=True)
    with pytest.raises(opsmith.InvalidArgumentError, match="has no attribute `typo`"):
        opsmith.onnx.node(library, "pairwise_manhattan_distance", ["x", "y"], ["z"], typo=1)


def test_dtypes_that_the_op_does_not_have() -> None:
    pair = ("PairwiseManhattanDistance", "distances")
    x = np.ones((2, 3), np.int32)
    refused((pair[0], "int32"), pair[0], {"x": x, "y": x}, {"z": "int32"}, file="distances", domain=pair[1])
    mixed = {"x": X, "y": X.astype(np.float64)}
    refused((pair[0],), pair[0], mixed, {"z": "float32"}, file="distances", domain=pair[1])


def test_wrong_static_shapes() -> None:
    inputs = {"x": X, "y": np.ones((2, 4), np.float32)}
    refused(
        ("PairwiseManhattanDistance", "`y`", "4", "3"),
        "PairwiseManhattanDistance",
        inputs,
        {"z": "float32"},
        file="distances",
        domain="distances",
    )


@pytest.mark.parametrize("inputs", [{"x": X}, {"x": X, "y": X, "z": X}], ids=["too few", "too many"])
def test_numbers_of_inputs(inputs: dict[str, Any]) -> None:
    parts = ("PairwiseManhattanDistance",)
    refused(parts, parts[0], inputs, {"w": "float32"}, file="distances", domain="distances")


def test_a_missing_required_input_in_the_middle() -> None:
    inputs = {"": None, "y": X}
    refused(
        ("PairwiseManhattanDistance",),
        "PairwiseManhattanDistance",
        inputs,
        {"z": "float32"},
        None,
        "distances",
        "distances",
    )


def test_an_unknown_op_and_one_that_is_left_out() -> None:
    refused(("Nothing",), "Nothing", {"x": X}, {"y": "float32"})
    library = load("zero_out")
    assert set(opsmith.onnx.left_out(library)) == {"ZeroOutInPlace"}
    refused(
        ("ZeroOutInPlace",), "ZeroOutInPlace", {"x": np.ones(3, np.int32)}, {}, None, "zero_out", "zero_out"
    )
    with pytest.raises(opsmith.UnimplementedError, match="changes `to_zero` in place"):
        opsmith.onnx.node(library, "zero_out_in_place", ["x"], [])
    with pytest.raises(opsmith.NotFoundError, match="no op `nothing`"):
        opsmith.onnx.node(library, "nothing", ["x"], [])


@pytest.mark.parametrize("place", ["new", "compute", "thread"])
def test_panics_end_nothing(place: str) -> None:
    said = {"new": "no instance today", "compute": "no result today", "thread": "no thread today"}
    refused(("Panics", "panicked", said[place]), "Panics", {"x": X}, {"y": "float32"}, {"place": place})
    (y,) = one("Echo", {"x": X}, {"y": "float32"})
    np.testing.assert_array_equal(y, X)


def test_errors_of_kernels_come_whole() -> None:
    message = "käse\n" + "x" * 1000
    refused(("Fails", message), "Fails", {"x": X}, {"y": "float32"}, {"message": message})
    refused(("Forgets", "`y`"), "Forgets", {"x": X}, {"y": "float32"})
    for temporary in (0, 1):
        attrs = {"bytes": 1 << 62, "temporary": temporary}
        refused(("Allocates",), "Allocates", {}, {"y": "uint8"}, attrs)


def test_an_error_a_thousand_times_leaves_the_session_usable() -> None:
    made = session(
        model(
            [helper.make_node("Fails", ["x"], ["y"], domain="testops")],
            [info("x", "float32", [2, 3])],
            [info("y", "float32")],
            "testops",
        ),
        "opsmith_testops",
    )
    for _ in range(1000):
        with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, match="it failed"):
            made.run(None, {"x": X})


def test_truncated_models() -> None:
    node = opsmith.onnx.node(load("distances"), "pairwise_manhattan_distance", ["x", "y"], ["z"])
    infos = [info("x", "float32", ["n", 3]), info("y", "float32", ["m", 3])]
    whole = model([node], infos, [info("z", "float32")], "distances").SerializeToString()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(str(LIBRARIES / "libdistances.so"))
    failed = 0
    for length in range(len(whole)):
        try:
            ort.InferenceSession(whole[:length], options)
        except Exception:
            failed += 1
    assert failed > len(whole) // 2
    ort.InferenceSession(whole, options)


def test_a_library_that_is_registered_twice_for_a_session() -> None:
    node = opsmith.onnx.node(load("distances"), "pairwise_manhattan_distance", ["x", "y"], ["z"])
    infos = [info("x", "float32", [2, 3]), info("y", "float32", [2, 3])]
    made = model([node], infos, [info("z", "float32")], "distances")
    with pytest.raises(ORT_ERRORS, match=r"[Dd]omain"):
        session(made, "distances", "distances")
    # For the next one it is there as before.
    (z,) = session(made, "distances").run(None, {"x": X, "y": X})
    np.testing.assert_array_equal(z, np.zeros((2, 2)))


def test_runs_on_8_threads() -> None:
    library = load("opsmith_testops")
    op = definition(library, "Squares")
    x = np.arange(20_000.0)
    call = Call(library, "opsmith_testops", op, [x], {}, [x])
    made = session(call.model, "opsmith_testops")

    def run(_: int) -> bool:
        return all(np.array_equal(made.run(None, call.feed)[0], x * x) for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(8)))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_loops_on_the_threads_of_a_session(threads: int) -> None:
    library = load("distances")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 40)), rng.normal(size=(500, 40))
    expected = library.pairwise_manhattan_distance(x, y)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    op = definition(library, "PairwiseManhattanDistance")
    (z,) = Call(library, "distances", op, [x, y], {}, [expected]).run(options)
    assert z.tobytes() == expected.tobytes()


def test_a_session_outlives_its_options_and_the_library_its_sessions() -> None:
    program = """
        import gc, sys
        sys.path[:0] = sys.argv[1:]
        import numpy as np
        import onnxruntime as ort
        from models import info, model, session
        from onnx import helper
        node = helper.make_node("Echo", ["x"], ["y"], domain="testops")
        made = model([node], [info("x", "float32", ["n"])], [info("y", "float32")], "testops")
        for _ in range(3):
            one = session(made, "opsmith_testops")
            gc.collect()
            assert one.run(None, {"x": np.ones(3, "f")})[0].tolist() == [1, 1, 1]
            del one
            gc.collect()
        assert "libopsmith_testops" in open("/proc/self/maps").read()
        print("done")
    """
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", textwrap.dedent(program), here]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (finished.returncode, finished.stdout) == (0, "done\n"), finished.stderr[-3000:]


def test_sessions_leave_nothing_behind() -> None:
    """Neither one that runs nor one that fails to load."""
    library = load("distances")
    node = opsmith.onnx.node(library, "pairwise_manhattan_distance", ["x", "y"], ["z"])
    infos = [info(name, "float32", ["n", 3]) for name in "xy"]
    good = model([node], infos, [info("z", "float32")], "distances")
    bad = model([node], [info(name, "int32", ["n", 3]) for name in "xy"], [info("z", "int32")], "distances")

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    def use() -> None:
        session(good, "distances").run(None, {name: np.ones((4, 3), np.float32) for name in "xy"})
        with pytest.raises(Exception, match="PairwiseManhattanDistance"):
            session(bad, "distances")

    for _ in range(50):
        use()
    before = resident()
    for _ in range(200):
        use()
    assert resident() - before < 4 << 20
