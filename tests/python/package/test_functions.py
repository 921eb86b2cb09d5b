"""The generated functions: names, signatures, docstrings, stubs."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import opsmith
import pytest
from opsmith import _wrappers
from opsmith._definition import Arg, Attr, Op, python_name
from opsmith._library import definition_of

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))
NAMES = ["distances", "zero_out", "opsmith_testops"]


@pytest.fixture(params=NAMES)
def library(request: pytest.FixtureRequest) -> opsmith.Library:
    return opsmith.load(LIBRARIES / f"lib{request.param}.so")


@pytest.fixture
def distances() -> opsmith.Library:
    return opsmith.load(LIBRARIES / "libdistances.so")


@pytest.fixture
def zero_out() -> opsmith.Library:
    return opsmith.load(LIBRARIES / "libzero_out.so")


def function_of(library: opsmith.Library, op: Op) -> object:
    return getattr(library, python_name(op.snake_name))


def test_a_library_is_like_a_module(distances: opsmith.Library) -> None:
    assert distances.__name__ == "distances"
    assert Path(distances.__file__) == (LIBRARIES / "libdistances.so").resolve()
    assert "pairwise_manhattan_distance" in dir(distances)
    assert "pairwise_manhattan_distance" in repr(distances) and "'distances'" in repr(distances)
    assert "- pairwise_manhattan_distance: Pairwise Manhattan (L1) distances" in distances.__doc__


def test_an_op_that_is_not_there_is_told_with_a_hint(distances: opsmith.Library) -> None:
    with pytest.raises(
        AttributeError, match="no op `pairwise_manhatan_distance`; did you mean `pairwise_manhattan_"
    ):
        _ = distances.pairwise_manhatan_distance
    with pytest.raises(AttributeError, match="no op `cosine`; it has: pairwise_manhattan_distance, "):
        _ = distances.cosine
    assert not hasattr(distances, "__wrapped__")


def test_parameters_are_inputs_then_attributes_then_name(library: opsmith.Library) -> None:
    for op in definition_of(library).ops:
        function = function_of(library, op)
        parameters = list(inspect.signature(function).parameters.values())
        inputs = [arg.python_name for arg in op.inputs]
        required = [attr.python_name for attr in op.call_attrs if not attr.has_default]
        defaulted = [attr.python_name for attr in op.call_attrs if attr.has_default]
        assert [p.name for p in parameters] == [*inputs, *required, *defaulted, "name"]
        assert parameters[-1].kind is inspect.Parameter.KEYWORD_ONLY
        assert all(p.default is inspect.Parameter.empty for p in parameters if p.name in required)
        assert all(
            p.default is not inspect.Parameter.empty for p in parameters if p.name in [*defaulted, "name"]
        )
        assert function.__name__ == python_name(op.snake_name)


def test_docstrings_say_everything(library: opsmith.Library) -> None:
    for op in definition_of(library).ops:
        text = function_of(library, op).__doc__
        arguments = [*op.inputs, *op.call_attrs]
        assert all(f"    {argument.python_name}: " in text for argument in arguments)
        assert all(f"    {op.outputs[i].name}: " in text for i in op.returned)
        raised = text.split("Raises:\n")[1]
        for name in (
            "opsmith.InvalidArgument",
            "Runtime",
            "tf.errors.InvalidArgument",
            "jax.errors.JaxRuntime",
        ):
            assert f"    {name}Error: " in raised


def test_a_docstring_in_full(distances: opsmith.Library) -> None:
    text = inspect.getdoc(distances.pairwise_manhattan_distance)
    assert text.startswith("Pairwise Manhattan (L1) distances between the rows of `x` and the rows of `y`:")
    assert "    x: float32 or float64 (T), shape (n,p). Points, one a row." in text
    assert "    z: float32 or float64 (T), shape (n,m)." in text


def test_defaults_are_shown_as_python_values(zero_out: opsmith.Library) -> None:
    parameters = inspect.signature(zero_out.attr_defaults).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    assert defaults == {
        "s": "foo",
        "i": 0,
        "f": 1.0,
        "b": True,
        "ty": "int32",
        "l_empty": (),
        "l_int": (2, 3, 5, 7),
        "l_float": (0.5, 0.25),
        "l_bool": (True, False),
        "l_string": ("a", "bc"),
        "l_type": ("float32", "int32"),
        "name": None,
    }
    np.testing.assert_array_equal(
        zero_out.attr_defaults(), zero_out.attr_defaults(i=0, f=1, l_int=[2, 3, 5, 7])
    )


def test_type_hints_resolve(library: opsmith.Library) -> None:
    for op in definition_of(library).ops:
        annotations = inspect.get_annotations(function_of(library, op))
        assert set(annotations) == {*inspect.signature(function_of(library, op)).parameters, "return"}


def test_mistakes_name_op_and_argument(distances: opsmith.Library, zero_out: opsmith.Library) -> None:
    x, y = np.ones((3, 4)), np.ones((5, 4))
    with pytest.raises(TypeError, match=r"pairwise_manhattan_distance\(\) missing 1 required .*'y'"):
        distances.pairwise_manhattan_distance(x)
    with pytest.raises(TypeError, match=r"pairwise_manhattan_distance\(\) .*unexpected keyword argument 'b'"):
        distances.pairwise_manhattan_distance(x, y, b=1)
    with pytest.raises(opsmith.InvalidArgumentError, match=r"attribute `a` must be int, got 'k' \(str\)"):
        distances.pairwise_manhattan_distance_grad(x, y, np.ones((3, 5)), a="k")
    with pytest.raises(opsmith.InvalidArgumentError, match=r"FruitPrice: .*`fruit`.*'pear'"):
        zero_out.fruit_price("pear")


@pytest.mark.parametrize("attr", ["name", "lambda", "value"])
def test_reserved_words_get_an_underscore(attr: str) -> None:
    assert python_name(attr) == (attr if attr == "value" else f"{attr}_")


def test_stubs_describe_the_functions(library: opsmith.Library) -> None:
    tree = ast.parse(opsmith.stubs(library))
    stubs = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    for op in definition_of(library).ops:
        function = function_of(library, op)
        same = [node for node in stubs if node.name == function.__name__]
        assert len(same) == (2 if op.inputs else 1)
        for node in same:
            names = [argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]]
            assert names == list(inspect.signature(function).parameters)
        assert inspect.cleandoc(function.__doc__) == inspect.cleandoc(ast.get_docstring(same[0]))


USER = """
import numpy as np
import {name} as library

x = np.ones((2, 3))
z = library.pairwise_manhattan_distance(x, x)
reveal_type(z)
library.pairwise_manhattan_distance([[1.0]], x, name="z")
library.pairwise_manhattan_distance_grad(x, x, z, a="k")
"""


def test_a_type_checker_reads_the_stubs(tmp_path: Path) -> None:
    for name in NAMES:
        command = [sys.executable, "-m", "opsmith.stubs", str(LIBRARIES / f"lib{name}.so"), "-o"]
        done = subprocess.run(
            [*command, str(tmp_path / f"{name}.pyi")], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == str(tmp_path / f"{name}.pyi") and not done.stderr
    mypy = [sys.executable, "-m", "mypy", "--no-incremental"]
    stubs = [str(tmp_path / f"{name}.pyi") for name in NAMES]
    checked = subprocess.run([*mypy, "--strict", *stubs], capture_output=True, text=True, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout
    (tmp_path / "user.py").write_text(USER.format(name="distances"))
    used = subprocess.run([*mypy, "user.py"], capture_output=True, text=True, cwd=tmp_path).stdout
    assert 'Revealed type is "numpy.ndarray' in used
    assert 'Argument "a"' in used or "No overload variant" in used
    assert used.count("error:") == 1


OTHER_DTYPE = """
import numpy as np
import ops
from numpy.typing import NDArray


def rows(x: NDArray[np.float64], at: NDArray[np.int32]) -> NDArray[np.float64]:
    return ops.gather(x, at)
"""


def test_an_input_of_another_dtype_leaves_the_result_its_type(tmp_path: Path) -> None:
    library = opsmith.load(LIBRARIES / "libopsmith_ops.so")
    (tmp_path / "ops.pyi").write_text(opsmith.stubs(library))
    (tmp_path / "user.py").write_text(OTHER_DTYPE)
    mypy = [sys.executable, "-m", "mypy", "--no-incremental", "--strict", "user.py"]
    checked = subprocess.run(mypy, capture_output=True, text=True, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout


def test_the_package_is_marked_as_typed() -> None:
    assert (Path(opsmith.__file__).parent / "py.typed").exists()


def test_required_attributes_behind_optional_inputs_are_keywords() -> None:
    arg = Arg("bias", "", False, True, False, "float32", None, None, None)
    attr = Attr("k", "int", False, None, None, None, None, None, None, False, False, None, "")
    op = Op(0, "F", "f", "", False, (arg,), (), (attr,), None, True, None, None)
    assert _wrappers.parameters(op, "Array") == [
        "bias: Array | None = None",
        "*",
        "k: int",
        "name: str | None = None",
    ]


def test_an_optional_input_before_a_required_one_has_no_default() -> None:
    names = {"x": False, "y_grad": True, "x_grad_grad": False, "bias": True}
    args = tuple(
        Arg(name, "", False, optional, False, "float32", None, None, None) for name, optional in names.items()
    )
    op = Op(0, "F", "f", "", False, args, (), (), None, True, None, None)
    assert _wrappers.parameters(op, "Array") == [
        "x: Array",
        "y_grad: Array | None",
        "x_grad_grad: Array",
        "bias: Array | None = None",
        "*",
        "name: str | None = None",
    ]


@pytest.mark.parametrize(
    ("saved", "expected"),
    [((), ("a", "b", "c")), ((2,), ("a", "b")), ((1, 2), "a"), ((0, 2), "b"), ((1,), ("a", "c"))],
)
def test_saved_outputs_are_dropped(saved: tuple[int, ...], expected: object) -> None:
    outputs = tuple(
        Arg(name, "", False, False, i in saved, "float32", None, None, None) for i, name in enumerate("abc")
    )
    op = Op(0, "F", "f", "", False, (), outputs, (), None, True, None, None)
    function = _wrappers.build(op, "library", {"_native": lambda: ("a", "b", "c")})
    assert function() == expected
    assert all(f"    {outputs[i].name}: " not in function.__doc__ for i in saved)


@pytest.mark.parametrize(
    ("function", "keyword", "hint"),
    [
        ("sum", "axis", "did you mean `axes`, a list?"),
        ("mean", "keepdims", "did you mean `keep_dims`?"),
        ("max", "dim", "did you mean `axes`, a list?"),
        ("softmax", "axis", "did you mean `axes`?"),
        ("gelu", "aproximate", "did you mean `approximate`?"),
        ("gather", "dim", "it takes: x, indices, axis"),
    ],
)
def test_standard_operators_tell_which_keyword_is_meant(function: str, keyword: str, hint: str) -> None:
    op = getattr(opsmith.ops, function)
    arguments = ([[1.0, 2.0]], [0])[: 2 if function == "gather" else 1]
    with pytest.raises(TypeError) as raised:
        op(*arguments, **{keyword: 0})
    assert str(raised.value) == f"{function}() got an unexpected keyword argument {keyword!r}; {hint}"
    assert not any(p.kind == p.VAR_KEYWORD for p in inspect.signature(op).parameters.values())


def test_functions_of_libraries_tell_which_keyword_is_meant(zero_out: opsmith.Library) -> None:
    with pytest.raises(TypeError) as raised:
        zero_out.zero_out_real([1.0], preserve_indx=0)
    told = (
        "zero_out_real() got an unexpected keyword argument 'preserve_indx'; did you mean `preserve_index`?"
    )
    assert str(raised.value) == told
    with pytest.raises(TypeError, match=r"it takes: to_zero, preserve_index$"):
        zero_out.zero_out_real([1.0], q=0)
    with pytest.raises(AttributeError, match="has no op `zero_out_rael`; did you mean `zero_out_real`"):
        _ = zero_out.zero_out_rael


def test_defaults_that_are_not_finite_are_numbers_in_lists_too() -> None:
    def source(default: object, *, is_list: bool) -> str:
        return _wrappers.default_source(
            Attr("x", "float", is_list, None, None, None, None, None, None, False, True, default, "")
        )

    assert source("-inf", is_list=False) == "float('-inf')"
    assert eval(source(["inf", 1, -0.5], is_list=True)) == (float("inf"), 1.0, -0.5)
    assert source([], is_list=True) == "()" and source([2], is_list=True) == "(2.0, )"
