"""What goes wrong says so, and the process lives on."""

from __future__ import annotations

import re
import warnings
from types import ModuleType

import pytest
import torch

X = torch.ones(2, 3)


def resident_kib() -> int:
    with open("/proc/self/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((X[0], X), r"input `x` must have rank 2, \(n,p\), got rank 1 \(shape \[3\]\)"),
        ((X, X[:, :2]), r"dim 1 of input `y` must equal dim 1 of input `x` \(p\): 2 ≠ 3"),
        ((X.int(), X.int()), "input `x` is int32, but must be one of float32, float64"),
        (
            (X, X.double()),
            "inputs `x` and `y` must have one dtype, got float32 and float64; cast one of them",
        ),
        (
            (X.to(torch.float8_e5m2), X),
            r"input `x`: has PyTorch's dtype number \d+, which Opsmith does not have",
        ),
    ],
)
def test_arguments_that_do_not_fit(ops: ModuleType, arguments: tuple[torch.Tensor, ...], why: str) -> None:
    with pytest.raises(RuntimeError, match=f"^testops::pairwise: {why}"):
        ops.pairwise(*arguments)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_tensors_that_are_not_plain_memory(ops: ModuleType) -> None:
    quantised = torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)
    for strange in [X.to("meta"), X.to_sparse(), X.to_mkldnn(), quantised]:
        for arguments in [(strange, X), (X, strange), (strange, strange)]:
            with pytest.raises((RuntimeError, NotImplementedError), match="testops::pairwise"):
                ops.pairwise(*arguments)
    # Nothing but the list decides where this one runs.
    for strange in [X.to("meta"), X.to_sparse(), X.to_mkldnn()]:
        with pytest.raises((RuntimeError, NotImplementedError), match="testops::double_all"):
            ops.double_all([X, strange])


def test_missing_and_unknown_arguments(ops: ModuleType) -> None:
    with pytest.raises(RuntimeError, match=r"testops::pairwise.*missing value for argument 'y'"):
        ops.pairwise(X)
    with pytest.raises(RuntimeError, match="testops::pairwise"):
        ops.pairwise(X, X, z=1)


@pytest.mark.parametrize("place", ["new", "compute", "thread"])
def test_a_panic_is_an_error_with_its_place(
    ops: ModuleType, place: str, capfd: pytest.CaptureFixture[str]
) -> None:
    words = {"new": "instance", "compute": "result", "thread": "thread"}
    for _ in range(3):
        with pytest.raises(
            RuntimeError,
            match=rf"testops::panics: panicked at .*failures\.rs:\d+:\d+: no {words[place]} today",
        ):
            ops.panics(X, place=place)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("temporary", [False, True])
@pytest.mark.parametrize("bytes", [2**50, 2**63 - 1])
def test_an_allocation_that_cannot_be(ops: ModuleType, bytes: int, temporary: bool) -> None:
    with pytest.raises(RuntimeError, match=r"testops::allocates: .*(cannot allocate|too large)"):
        ops.allocates(bytes=bytes, temporary=temporary)
    assert ops.allocates(bytes=8).shape == (8,)


def test_an_op_of_strings_is_there_and_says_why_not(ops: ModuleType) -> None:
    with pytest.raises(
        RuntimeError, match="testops::string_length: is not available in PyTorch: `texts` is string"
    ):
        ops.string_length(X)


def test_a_kernel_that_forgets_its_output(ops: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="testops::forgets: the kernel did not make output `y`"):
        ops.forgets(X)


def test_a_message_of_any_text_arrives(ops: ModuleType) -> None:
    for message in ["", "ünïcødé", "two\nlines", "x" * 100_000, "100% {sure}"]:
        with pytest.raises(RuntimeError) as caught:
            ops.fails(X, message=message)
        assert str(caught.value) == f"testops::fails: {message}"


def test_a_message_that_begins_with_the_name_of_the_op_keeps_both(ops: ModuleType) -> None:
    with pytest.raises(RuntimeError, match=r"^testops::max: Maximum of 2 expected, got 3$"):
        ops.max(X)


def test_a_hundred_thousand_failures_leak_nothing(ops: ModuleType) -> None:
    failing = [
        lambda: ops.fails(X, message="after its output was made"),
        lambda: ops.pairwise(X, X[:, :2]),
        lambda: ops.double_all([X]),
        lambda: ops.add_optional(X, X),
        lambda: ops.show_defaults(X, ss=["a", "b"], i=1),
        lambda: ops.panics(X, place="compute"),
    ]

    def fail(times: int) -> None:
        for i in range(times):
            try:
                failing[i % len(failing)]()
            except RuntimeError:
                continue
            raise AssertionError("it did not fail")

    fail(20_000)
    before = resident_kib()
    fail(100_000)
    assert resident_kib() - before < 2_000


def test_a_hundred_thousand_calls_leak_nothing(ops: ModuleType) -> None:
    def call(times: int) -> None:
        for _ in range(times):
            ops.pass_all([X, X])
            ops.show_defaults(s="a", ss=["b", "c"], shs=[[1], [2]], te=X)
            ops.extremes(X[0], wanted=1)
            ops.add_optional(X[0].double(), X[0].double())
            ops.increment(torch.ones(4).requires_grad_(False))

    call(2_000)
    before = resident_kib()
    call(20_000)
    assert resident_kib() - before < 2_000


@pytest.mark.parametrize("gradient_of", ["x", "y"])
def test_backward_without_the_package_is_an_error(ops: ModuleType, gradient_of: str) -> None:
    x, y = X.clone(), X.clone()
    {"x": x, "y": y}[gradient_of].requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        z = ops.pairwise(x, y)
        assert z.requires_grad
        with pytest.raises(RuntimeError, match="derivative for testops::pairwise is not implemented"):
            z.sum().backward()
    with torch.no_grad():
        assert not ops.pairwise(x, y).requires_grad


def test_forward_mode_is_an_error(ops: ModuleType) -> None:
    import torch.autograd.forward_ad as forward_ad

    with (
        forward_ad.dual_level(),
        pytest.raises((RuntimeError, NotImplementedError), match="testops::pairwise"),
    ):
        ops.pairwise(forward_ad.make_dual(X, X), X)
