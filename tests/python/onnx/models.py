"""Models of one node, made from an op and a call's arrays, and run in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import opsmith
import opsmith.onnx
from conftest import library_path
from onnx import TensorProto, helper
from opsmith._definition import Op
from opsmith._library import definition_of
from opsmith.onnx._attributes import DTYPES

OPSET = 18
IR = 8
"""What the oldest release of ONNX Runtime that libraries load in reads."""


def flat(value: Any) -> list[Any]:
    """Arrays in a row."""
    return [leaf for each in value for leaf in flat(each)] if isinstance(value, list | tuple) else [value]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    library: str,
    initializers: Sequence[TensorProto] = (),
) -> onnx.ModelProto:
    """A model with ops of one library."""
    graph = helper.make_graph(nodes, "graph", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(library, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR)


def session(
    made: onnx.ModelProto, *libraries: str, options: ort.SessionOptions | None = None
) -> ort.InferenceSession:
    """A session with libraries; their own files, not those of the package."""
    options = options or ort.SessionOptions()
    options.log_severity_level = 4
    for name in libraries:
        options.register_custom_ops_library(str(library_path(name)))
    return ort.InferenceSession(made.SerializeToString(), options)


def info(name: str, dtype: str, shape: Sequence[int | str | None] | None = None) -> onnx.ValueInfoProto:
    """A tensor of a graph."""
    return helper.make_tensor_value_info(name, DTYPES[dtype], shape)


def definition(library: opsmith.Library, op: str) -> Op:
    """What a library says of an op, by either of its names."""
    return next(each for each in definition_of(library).ops if op in (each.name, each.snake_name))


def dtype_name(array: np.ndarray) -> str:
    """The dtype as definitions call it."""
    return "string" if array.dtype.kind in "OUS" else array.dtype.name


class Call:
    """A call of an op as a model. bfloat16, which NumPy does not have, is cast from and to float32."""

    def __init__(
        self,
        library: opsmith.Library,
        file: str,
        op: Op,
        inputs: Sequence[Any],
        attrs: dict[str, Any],
        expected: Sequence[Any],
        symbolic: bool = False,
    ) -> None:
        """`expected` says of each output that is returned how many tensors of which dtypes there are."""
        self.feed: dict[str, np.ndarray] = {}
        self.infos: list[onnx.ValueInfoProto] = []
        before: list[onnx.NodeProto] = []
        after: list[onnx.NodeProto] = []

        def name_of(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [name_of(each) for each in value]
            if value is None:
                return None
            array, name = np.asarray(value), f"in{len(self.feed)}"
            kind = dtype_name(array)
            if kind == "bfloat16":
                before.append(helper.make_node("Cast", [name], [f"{name}_b"], to=TensorProto.BFLOAT16))
                array, kind = array.astype(np.float32), "float32"
            self.feed[name] = array.astype(object) if kind == "string" else array
            dims = [f"{name}_d{i}" for i in range(array.ndim)] if symbolic else array.shape
            self.infos.append(info(name, kind, dims))
            return f"{name}_b" if before and before[-1].input[0] == name else name

        names = [name_of(value) for value in inputs]
        outputs: list[str] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        returned = dict(zip(op.returned, expected, strict=True))
        for position in range(len(op.outputs)):
            for array in flat(returned[position]) if position in returned else [None]:
                if array is None:
                    outputs.append("")
                    continue
                name, kind = f"out{len(outputs)}", dtype_name(np.asarray(array))
                outputs.append(name)
                if kind == "bfloat16":
                    after.append(helper.make_node("Cast", [name], [f"{name}_f"], to=TensorProto.FLOAT))
                    name, kind = f"{name}_f", "float32"
                self.outputs.append(info(name, kind))
        while outputs and not outputs[-1]:
            outputs.pop()
        node = opsmith.onnx.node(library, op.name, names, outputs, **attrs)
        domain = definition_of(library).name
        self.model = model([*before, node, *after], self.infos, self.outputs, domain)
        self.file = file

    def run(self, options: ort.SessionOptions | None = None) -> list[np.ndarray]:
        """The outputs that are not left out."""
        made = session(self.model, self.file, options=options)
        return list(made.run([each.name for each in self.outputs], self.feed))


def check(library: opsmith.Library, file: str, op: Op, inputs: Sequence[Any], attrs: dict[str, Any]) -> None:
    """That an op gives in ONNX Runtime, bit by bit, what it gives on NumPy's arrays."""
    dense = [_dense(value, arg.is_list) for value, arg in zip(inputs, op.inputs, strict=False)]
    result = getattr(library, op.snake_name)(*dense, **attrs)
    expected = [result] if len(op.returned) == 1 else list(result)
    outputs = Call(library, file, op, dense, attrs, expected).run()
    wanted = [np.asarray(each) for each in flat(expected) if each is not None]
    assert len(outputs) == len(wanted)
    for ours, theirs in zip(outputs, wanted, strict=True):
        theirs = theirs.astype(np.float32) if theirs.dtype.name == "bfloat16" else theirs
        assert ours.shape == theirs.shape
        if dtype_name(theirs) == "string":
            assert [text(x) for x in ours.flat] == [text(x) for x in theirs.flat]
        else:
            assert ours.dtype == theirs.dtype
            assert ours.tobytes() == theirs.tobytes()


def _dense(value: Any, is_list: bool) -> Any:
    """The value as arrays, which lie dense in ONNX; numbers in a list are positions and sizes."""
    if is_list:
        return [np.array(each, order="C") for each in value]
    return (
        None if value is None else np.array(value, np.int64 if isinstance(value, list) else None, order="C")
    )


def text(value: Any) -> str:
    """A text as a `str`."""
    return value.decode() if isinstance(value, bytes) else str(value)
