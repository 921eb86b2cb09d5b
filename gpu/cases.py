"""Calls of every op that has, or is to have, a CUDA kernel: shapes, layouts and attributes.

Gradients are not listed: they are reached through autograd from the ops that they are the gradients of. An op
with a CUDA kernel that is neither listed nor reached is a failure of the run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Input:
    """A tensor of a call."""

    shape: Shape
    layout: str = "dense"
    """How it lies in memory: dense, transposed, strided, shifted (not aligned for wide loads) or repeated."""
    domain: str = "real"
    """real, positive, probability, or distinct: no two numbers alike, also in half precision."""
    values: Any = None
    """The numbers themselves, where they are not drawn."""
    dtype: str | None = None
    """Where it is not the definition that says it."""
    host: bool = False
    """Whether the CUDA kernel has it in host memory."""

    def base(self, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        """The memory that the tensor is a view of."""
        import torch

        if self.values is not None:
            return torch.tensor(self.values, dtype=dtype).reshape(self.shape)
        shape, count = self._base_shape(), math.prod(self._base_shape())
        if not dtype.is_floating_point:
            return torch.randint(-9, 10, shape, generator=generator).to(dtype)
        if self.domain == "distinct":
            numbers = (torch.randperm(count, generator=generator, dtype=torch.float64) - count // 2) / 64
            return numbers.reshape(shape).to(dtype)
        if self.domain == "probability":
            return torch.rand(shape, generator=generator, dtype=torch.float64).to(dtype)
        numbers = torch.randn(shape, generator=generator, dtype=torch.float64)
        return (numbers.abs() + 0.1 if self.domain == "positive" else numbers).to(dtype)

    def _base_shape(self) -> Shape:
        match self.layout if self.shape else "dense":
            case "transposed":
                return self.shape[::-1]
            case "strided":
                return (*self.shape[:-1], 2 * self.shape[-1])
            case "shifted":
                return (math.prod(self.shape) + 1,)
            case "repeated":
                return (1, *self.shape[1:])
        return self.shape

    def view(self, base: torch.Tensor) -> torch.Tensor:
        """The tensor."""
        match self.layout if self.shape else "dense":
            case "transposed":
                return base.permute(*reversed(range(base.dim())))
            case "strided":
                return base[..., ::2]
            case "shifted":
                return base[1:].view(self.shape)
            case "repeated":
                return base.expand(self.shape)
        return base


@dataclass(frozen=True)
class Case:
    """A call of an op."""

    name: str
    inputs: tuple[Input, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    large: bool = False
    """Left out of quick runs."""
    rough: float = 1.0
    """How many times the usual error it may have: long sums."""
    listed: bool = False
    """Whether all inputs are the tensors of one list."""


def pointwise(count: int = 1, domain: str = "real", **attrs: Any) -> list[Case]:
    """Of an op of `count` inputs that broadcast."""

    def same(name: str, shape: Shape, *layouts: str, large: bool = False) -> Case:
        cycle = layouts or ("dense",)
        inputs = tuple(Input(shape, cycle[i % len(cycle)], domain) for i in range(count))
        return Case(name, inputs, attrs, large)

    cases = [
        same("odd", (33, 65)),
        same("aligned", (64, 64)),
        same("views", (33, 17), "transposed", "strided"),
        same("shifted", (1025,), "shifted"),
        same("repeated", (19, 33), "repeated"),
        same("a number", ()),
        same("empty", (0, 5)),
        same("large", ((1 << 20) + 3,), large=True),
    ]
    if count > 1:
        shapes = [(4, 1, 65), (7, 65), (1, 1), (4, 7, 65)]
        inputs = tuple(Input(shapes[i % 4], "dense", domain) for i in range(count))
        cases.append(Case("broadcast", inputs, attrs, rough=4))
    return cases


def same_shape(count: int, domain: str = "real", **attrs: Any) -> list[Case]:
    """Of a step of an optimiser, say: inputs of one shape."""
    return [case for case in pointwise(count, domain, **attrs) if case.name != "broadcast"]


def rows(*, domain: str = "real", vectors: int = 0, **attrs: Any) -> list[Case]:
    """Of a reduction of the last dim, with `vectors` more inputs that have the shape of a row."""

    def case(name: str, shape: Shape, layout: str = "dense", rough: float = 1.0, **more: Any) -> Case:
        row = Input(shape[len(shape) - more.get("axes", 1) :])
        return Case(
            name,
            (Input(shape, layout, domain), *[row] * vectors),
            attrs | more,
            math.prod(shape) > 1e5,
            rough,
        )

    return [
        case("odd", (5, 33)),
        case("aligned", (8, 256)),
        case("views", (17, 12), "transposed"),
        case("two dims", (3, 4, 17), axes=2),
        case("one row", (1000,), rough=4),
        case("long rows", (2, 60_000), rough=16),
        case("many rows", (20_000, 7), rough=4),
        case("no rows", (0, 5)),
    ]


def sums(domain: str = "real", **attrs: Any) -> list[Case]:
    """Of a reduction over any dims."""
    x = Input((6, 5, 33), domain=domain)
    return [
        Case("all", (x,), attrs, rough=4),
        Case("first", (x,), attrs | {"axes": [0]}),
        Case("last", (x,), attrs | {"axes": [-1]}),
        Case("two, kept", (x,), attrs | {"axes": [0, 2], "keep_dims": True}),
        Case("views", (replace(x, layout="transposed"),), attrs | {"axes": [1]}),
        Case("long", (Input((2, 60_000), domain=domain),), attrs | {"axes": [1]}, large=True, rough=16),
        Case("tall", (Input((20_000, 37), domain=domain),), attrs | {"axes": [0]}, large=True, rough=16),
        Case("one of many", (Input((700, 900), domain=domain),), attrs, large=True, rough=64),
    ]


def pairs(domain: str = "real", **attrs: Any) -> list[Case]:
    """Of all pairs of rows."""

    def case(name: str, n: int, m: int, p: int, layout: str = "dense", rough: float = 1.0) -> Case:
        inputs = (
            Input((n, p), layout, domain),
            Input((m, p), "strided" if layout != "dense" else "dense", domain),
        )
        return Case(name, inputs, attrs, n * m * p > 1e6, rough)

    return [
        case("small", 5, 3, 4),
        case("odd", 131, 67, 73, rough=4),
        case("views", 37, 70, 33, "transposed", rough=4),
        case("long rows", 3, 5, 3000, rough=16),
        case("aligned", 256, 192, 128, rough=4),
        case("many pairs", 1000, 900, 17, rough=4),
        case("many elements", 900, 5, 800, "transposed", rough=16),
        case("no rows", 0, 3, 4),
    ]


def products() -> list[Case]:
    """Of products of matrices."""

    def case(name: str, a: Shape, b: Shape, layout: str = "dense", **attrs: bool) -> Case:
        return Case(name, (Input(a, layout), Input(b, layout)), attrs, math.prod(a) > 1e5, rough=4)

    return [
        case("odd", (33, 17), (17, 65)),
        case("both transposed", (17, 33), (65, 17), transpose_a=True, transpose_b=True),
        case("views", (33, 17), (17, 65), "transposed"),
        case("stacks", (3, 1, 9, 17), (2, 17, 8)),
        case("a vector", (1, 300), (300, 129)),
        case("no inner dim", (3, 0), (0, 4)),
        case("large", (513, 700), (700, 300)),
    ]


def masks(**attrs: Any) -> list[Case]:
    """Of runs of places in an image: two masks that overlap, an empty one, and one at the edge."""
    runs = [[[0, 4], [1, 5], [2, 2]], [[3, 6], [0, 0], [0, 7]], [[2, 1], [0, 0], [3, 3]]]
    embedding = Input((2, 3, 7, 5))
    place = [
        replace(Input((2, 3, 3, 2), values=[runs, runs[::-1]]), dtype=name) for name in ("int32", "int64")
    ]
    return [Case(f"places of {x.dtype}", (embedding, x), attrs, rough=4) for x in place]


def cell(batch: int, features: int, size: int) -> Case:
    """Of an LLTM."""
    shapes = [(batch, features), (3 * size, size + features), (3 * size,), (batch, size), (batch, size)]
    return Case(f"{batch}, {features}, {size}", tuple(map(Input, shapes)), large=batch * size > 2000, rough=8)


def einsums() -> list[Case]:
    """Of products along named dims."""
    calls: dict[str, list[Shape]] = {
        "ij,jk->ki": [(33, 17), (17, 65)],
        "bqhd,bkhd->bhqk": [(2, 33, 3, 16), (2, 40, 3, 16)],
        "abij,jia->b": [(2, 3, 4, 5), (5, 4, 2)],
        "bii,b->i": [(3, 33, 33), (3,)],
        "...ij->...j": [(3, 40, 5)],
        "bi,bi->b": [(5, 300), (5, 300)],
        "i,i->": [(3000,), (3000,)],
        "bij,ik,kl->bl": [(2, 3, 33), (3, 4), (4, 17)],
    }
    return [
        replace(case, name=f"{equation}, {case.name}", rough=16)
        for equation, shapes in calls.items()
        for case in lists(shapes, equation=equation)
    ]


def integers(shapes: Sequence[Shape], **attrs: Any) -> list[Case]:
    """Of one input of any dtype."""
    layouts = ["dense", "transposed", "strided"]
    return [Case(f"{s}, {x}", (Input(s, x),), attrs) for s in shapes for x in layouts if s or x == "dense"]


def moved() -> dict[str, list[Case]]:
    """Of ops that only move elements, of any dtype, as integers in host memory say."""

    def host(*numbers: Any, dtype: str = "int64") -> Input:
        shape = (len(numbers), len(numbers[0])) if isinstance(numbers[0], tuple) else (len(numbers),)
        return Input(shape, values=numbers, dtype=dtype, host=True)

    def over(shape: Shape, *parameters: Input, **attrs: Any) -> list[Case]:
        layouts = ("dense", "transposed", "strided")
        return [Case(f"{shape}, {x}", (Input(shape, x), *parameters), attrs) for x in layouts]

    return {
        "Pad": [
            *over((3, 4), host((1, 2), (0, 3))),
            *over((2, 3, 65), host((0, 0), (1, 0), (5, 7), dtype="int32")),
        ],
        "Slice": [*over((5, 6), host(1, 2), host(3, 4)), *over((4, 3, 65), host(0, 1, 7), host(4, 1, 40))],
        "Reshape": [*over((6, 4), host(3, 8)), *over((4, 3, 6), host(-1, 2))],
        "Transpose": [*over((33, 65), perm=[1, 0]), *over((4, 5, 6), perm=[2, 0, 1])],
        "Concat": [
            *lists(((2, 3), (2, 65), (2, 0)), axis=1),
            *(replace(case, name=f"{case.name}, aligned") for case in lists(((7, 64), (7, 16)), axis=1)),
        ],
        "Stack": lists(((33, 5), (33, 5)), axis=-1),
        "Split": [*over((6, 5), axis=0, N=3), *over((4, 3, 8), axis=-1, N=2)],
        "BroadcastTo": [*over((3, 1), host(2, 3, 65)), *over((33,), host(0, 33))],
        "SumTo": [*over((3, 65), host(3, 1)), *over((33, 4, 5), host(4, 1)), *over((33, 5), host(1))],
        "Fill": [
            Case("a number", (host(3, 65), Input(()))),
            Case("empty", (host(0, 3), Input((1, 1)))),
        ],
        **{name: [*over((33, 65)), *over(())] for name in ("Identity", "StopGradient", "ZerosLike")},
    }


def casts() -> list[Case]:
    """Of conversions between dtypes."""
    floats = ("float16", "bfloat16", "float32", "float64")
    pairs = [(x, y) for x in floats for y in (*floats, "int32", "uint8", "bool") if x != y]
    pairs += [("int64", "float32"), ("bool", "float16"), ("int32", "int8")]
    shapes = [((33, 65), "transposed"), ((0, 5), "dense")]
    return [
        Case(f"{x} to {y}, {shape}", (Input(shape, layout, dtype=x),), {"dtype": y})
        for x, y in pairs
        for shape, layout in shapes
    ]


def drawn() -> dict[str, list[Case]]:
    """Of random numbers, which are the same on every device."""
    seed = (Input((), values=-7, dtype="int64"), Input((1,), values=(2**32 - 3,), dtype="int64"))

    def of(*dtypes: str, **attrs: Any) -> list[Case]:
        shapes = [
            Input((2,), values=shape, dtype="int64", host=True) for shape in ((3, 7), (129, 65), (0, 5))
        ]
        return [
            Case(f"{shape.values} of {dtype}", (shape, *seed), attrs | {"dtype": dtype})
            for shape in shapes
            for dtype in dtypes
        ]

    floats = ("float16", "bfloat16", "float32", "float64")
    layouts = ("dense", "transposed", "strided")
    p = [Input((33, 65), layout, "probability") for layout in layouts]
    x = [Input((33, 65), layout) for layout in layouts]
    return {
        "RandomBits": of("uint32", "uint64"),
        "RandomUniform": of(*floats, low=-1.5, high=0.1),
        "RandomNormal": of(*floats, mean=0.3, stddev=1.7),
        "RandomBernoulli": [Case(p.layout, (p, *seed), {"dtype": "int8"}) for p in p],
        "Dropout": [Case(x.layout, (x, *seed), {"p": 0.3}) for x in x],
    }


def positions() -> dict[str, list[Case]]:
    """Of ops that are given positions along a dim."""
    few = Input((2, 2), values=((0, -1), (2, 2)), dtype="int64")
    many = Input((700,), values=tuple(n * 31 % 4 for n in range(700)), dtype="int32")
    places = Input((300, 2), values=tuple((n * 7 % 20, n % 33) for n in range(300)))
    shape = Input((2,), values=(20, 33), host=True)
    x = [Input((5, 4, 65), layout) for layout in ("dense", "transposed", "strided")]
    return {
        "Gather": [
            Case(f"{x.layout}, {at.shape}, {axis}", (x, at), {"axis": axis}, rough=4)
            for x in x
            for at in (few, many)
            for axis in (0, 1, -1)
        ],
        "OneHot": [Case(f"axis {axis}", (few,), {"depth": 3, "axis": axis}) for axis in (0, -1)],
        "SparseToDense": [
            Case(f"{values.layout}, {dtype}", (values, *(replace(x, dtype=dtype) for x in (places, shape))))
            for values in (Input((300,)), Input((300,), "strided"))
            for dtype in ("int64", "int32")
        ],
    }


def lanes() -> dict[str, list[Case]]:
    """Of ops that go along a dim: short and long lanes, side by side and not, of one number and of none."""

    def over(domain: str, *more: Case, **attrs: Any) -> list[Case]:
        layouts = ("dense", "transposed", "strided")
        shapes = (((9, 33, 7), 1), ((5, 300), -1), ((4, 1, 6), 1), ((3, 0, 5), 1))
        found = [
            Case(f"{shape}, {x}", (Input(shape, x, domain),), attrs | {"axis": axis}, rough=8)
            for shape, axis in shapes
            for x in layouts
        ]
        return [*found, *more]

    def scans(domain: str, *more: Case) -> list[Case]:
        odd = (Input((5, 70), domain=domain),)
        turned = {"axis": -1, "exclusive": True, "reverse": True}
        return over(domain, Case("exclusive and reverse", odd, turned, rough=8), *more)

    long = [
        Case(f"long, axis {axis}", (Input(shape),), {"axis": axis}, large=True, rough=64)
        for shape, axis in (((2, 60_000), 1), ((20_000, 37), 0))
    ]
    k = [
        Case(f"{k} of {shape}, {x}", (Input(shape, x, "distinct"),), {"k": k}, rough=4)
        for k, shape in ((3, (9, 65)), (0, (5, 4)), (7, (3, 5000)))
        for x in ("dense", "transposed", "strided")
    ]
    return {
        "CumSum": scans("real", *long),
        "CumProd": scans("probability"),
        **{name: scans("distinct", *long) for name in ("CumMax", "CumMin")},
        **{name: over("distinct", *long, descending=True) for name in ("Sort", "ArgSort")},
        "TopK": k,
    }


def windows() -> dict[str, list[Case]]:
    """Of ops over windows of images."""

    def over(*shapes: Shape, domain: str = "real", rough: float = 4, **attrs: Any) -> list[Case]:
        layouts = ("dense", "transposed", "strided")
        return [
            Case(
                f"{shapes}, {attrs}, {layout}",
                tuple(Input(shape, layout, domain) for shape in shapes),
                attrs,
                math.prod(shapes[0]) > 1e5,
                rough,
            )
            for layout in layouts
        ]

    def pools(domain: str = "real", **attrs: Any) -> list[Case]:
        odd: dict[str, Any] = {"ksize": [3, 2], "strides": [2, 1], "padding": [1, 0], "dilations": [1, 3]}
        return [
            *over((2, 3, 9, 13), domain=domain, **(odd | attrs)),
            *over((3, 70), domain=domain, ksize=[5], **attrs),
            *over((2, 4, 5, 6), domain=domain, ksize=[2, 2, 2], strides=[2, 1, 3], **attrs),
            *over((2, 40, 50), domain=domain, rough=16, ksize=[40, 50], **attrs),
            *over((0, 4, 4), domain=domain, ksize=[2, 2], **attrs),
            *over((4, 32, 56, 56), domain=domain, ksize=[3, 3], strides=[2, 2], padding=[1, 1], **attrs),
        ]

    image = (2, 9, 12, 3)
    return {
        "ExtractPatches": [
            *over(image, ksize=[3, 2], strides=[2, 1]),
            *over(image, ksize=[3, 4], strides=[2, 3], rates=[4, 2], padding="SAME"),
            *over(image, ksize=[10, 1]),
        ],
        "MaxPool": pools("distinct"),
        "AvgPool": [*pools(), *pools(count_padding=False)],
        "Conv": [
            *over((2, 3, 9, 11), (5, 3, 3, 2), strides=[1, 1], padding=[1, 0]),
            *over((2, 4, 5, 6, 7), (6, 2, 2, 3, 1), strides=[1, 2, 3], dilations=[2, 1, 1], groups=2),
            *over((2, 3, 4, 30), (4, 1, 5), strides=[4], padding=[7, 2], dilations=[6], groups=4),
            *over((20, 70), (33, 20, 1), strides=[1]),
            *over((0, 2, 5), (4, 2, 2), strides=[1]),
            *over((3, 2, 3000), (18, 2, 3), rough=16, strides=[1]),
            *over((4, 64, 28, 28), (128, 64, 3, 3), rough=64, strides=[1, 1], padding=[1, 1]),
        ],
    }


def lists(shapes: Sequence[Shape], **attrs: Any) -> list[Case]:
    """Of an op of one list."""
    layouts = ("dense", "transposed", "strided")
    return [Case(x, tuple(Input(shape, x) for shape in shapes), attrs, listed=True) for x in layouts]


def bodies(
    *calls: Sequence[Shape],
    others: tuple[Input, ...] = (),
    domain: str = "real",
    rough: float = 4,
    **attrs: Any,
) -> list[Case]:
    """Of a body over named axes: the shapes of its floats, and what comes after them."""
    layouts = ("dense", "transposed")
    return [
        Case(
            f"{shapes}, {layout}", (*(Input(s, layout, domain) for s in shapes), *others), attrs, rough=rough
        )
        for shapes in calls
        for layout in layouts
    ]


def kernels() -> dict[str, list[Case]]:
    """Of the operators over named axes."""
    two = [(5, 3), (7, 3)], [(2, 33, 17), (70, 17)], [(130, 40), (65, 40)]
    three = [(5, 3), (7, 3), (7, 2)], [(2, 33, 17), (70, 17), (70, 5)]
    row = [(5, 33)], [(3, 4, 300)]
    labels = Input((5,), values=(0, 3, 1, 32, 4), dtype="int64")
    length = Input((), values=4, dtype="int64")
    return {
        "RmsNorm": bodies([(5, 33), (33,)], [(3, 4, 300), (300,)]),
        "Entropy": bodies(*row),
        "CosineSimilarity": bodies([(5, 33), (33,)], [(3, 4, 300), (4, 300)]),
        "CosineDistance": bodies(*two),
        "RbfKernel": bodies(*two, gamma=0.1),
        "GaussianConvolution": bodies(*three, gamma=0.1),
        "Nearest": bodies(*two),
        "NearestDistance": bodies(*two),
        "KNearest": bodies(*two, neighbours=3),
        "KNearestDistances": bodies(*two, neighbours=3),
        "Chamfer": bodies(*two),
        "SinkhornStep": bodies([(5, 3), (7, 3), (7,)], [(2, 33, 17), (70, 17), (70,)], epsilon=2.0),
        "Attention": [
            *bodies(*three, others=(length,)),
            *bodies(*three, others=(length,), causal=True),
        ],
        "CrossEntropy": bodies([(5, 33)], others=(labels,)),
    }


SHAPES = [(33, 65), (4, 5, 6), (), (0, 3)]

CASES: dict[str, dict[str, list[Case]]] = {
    "example": {"Example": integers(SHAPES)},
    "zero_out": {
        "ZeroOut": integers(SHAPES),
        "ZeroOutRows": integers([(33, 65), (4, 5, 6)], preserve_index=2),
    },
    "distances": {"PairwiseManhattanDistance": pairs()},
    "gelu": {"Gelu": [*pointwise(), *pointwise(approximate="tanh")]},
    "activations": {
        "Gelu": pointwise(),
        "LeakyRelu": pointwise(slope=0.25),
        "Swiglu": pointwise(2),
        "Entropy": pointwise(domain="positive"),
        "LltmCell": pointwise(4),
    },
    "pairwise": {
        "Manhattan": pairs(),
        "SquaredEuclidean": pairs(),
        "Euclidean": pairs(),
        "Chebyshev": pairs(),
        "Canberra": pairs("positive"),
        "MinkowskiPower": pairs(order=2.5),
        "MeanSquared": pairs(),
    },
    "reductions": {
        "Norm": rows(),
        "Softmax": rows(),
        "LogSumExp": rows(),
        "LayerNorm": rows(vectors=2),
        "Range": rows(domain="distinct"),
    },
    "kernels": kernels(),
    "lltm": {key: [cell(3, 4, 5), cell(16, 32, 128), cell(64, 100, 300)] for key in ("Lltm", "LltmCell")},
    "masks": {
        "MaskedAverages": masks(),
        "AverageEmbeddingMask": masks(),
        "DiscriminativeLoss": masks(delta_v=0.3, delta_d=1.5),
    },
    "opsmith": {
        **{name: pointwise(2) for name in ("Add", "Sub", "Mul")},
        **{name: pointwise(2, "positive") for name in ("Div", "Pow")},
        **{name: pointwise(2) for name in ("Maximum", "Minimum")},
        **{
            name: pointwise()
            for name in (
                *("Neg", "Abs", "Sign", "Square", "Exp", "Expm1", "Sin", "Cos", "Tanh", "Sigmoid"),
                *("Erf", "Floor", "Softplus", "Relu"),
            )
        },
        **{name: pointwise(domain="positive") for name in ("Sqrt", "Rsqrt", "Log", "Log1p")},
        "Elu": pointwise(alpha=0.5),
        "Gelu": [*pointwise(), *pointwise(approximate=True)],
        **{name: sums() for name in ("Sum", "Mean")},
        **{name: sums("distinct") for name in ("Max", "Min")},
        **{name: rows() for name in ("Softmax", "LogSoftmax")},
        "GradientDescentStep": same_shape(2, learning_rate=0.1),
        "MomentumStep": same_shape(3, learning_rate=0.1, momentum=0.9),
        "AdamCorrections": same_shape(1, "positive", beta1=0.9, beta2=0.999),
        "AdamStep": same_shape(6, "positive", learning_rate=0.1, beta1=0.9, beta2=0.999, epsilon=1e-3),
        "MatMul": products(),
        "Einsum": einsums(),
        **{
            name: pointwise(2)
            for name in (
                *("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"),
                *("LogicalAnd", "LogicalOr"),
            )
        },
        "LogicalNot": pointwise(),
        "Select": pointwise(3),
        "Cast": casts(),
        **{name: sums("distinct") for name in ("ArgMax", "ArgMin")},
        **moved(),
        **drawn(),
        **positions(),
        **lanes(),
        **windows(),
    },
}
