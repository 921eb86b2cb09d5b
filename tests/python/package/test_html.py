"""What things show of themselves in notebooks: well-formed HTML in which no name can be markup."""

from __future__ import annotations

import os
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import opsmith
import pytest
from opsmith import _html
from opsmith.graph import Trace
from opsmith.testing import Report, Row

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))
HOSTILE = "</td><script>alert('x')</script>&<img src=x onerror=alert(1)>\"'"
ALLOWED = {"table", "caption", "tr", "th", "td", "p", "pre", "details", "summary"}


class Reader(HTMLParser):
    """The text of the elements, all of which are allowed ones and closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED
        assert attrs in ([], [("style", "text-align:left")])
        self.open.append(tag)
        self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts[-1] += data


def texts(shown: object) -> list[str]:
    return Reader(shown._repr_html_()).texts  # type: ignore[attr-defined]


@pytest.fixture
def activations() -> opsmith.Library:
    return opsmith.load(LIBRARIES / "libactivations.so")


def test_a_library_lists_its_ops(activations: opsmith.Library) -> None:
    seen = texts(activations)
    assert f"activations {activations.__version__}" in seen
    assert [f"{name}(" in "".join(seen) for name in activations._opsmith_functions] == [True] * len(
        activations._opsmith_functions
    )
    assert len(texts(opsmith.ops)) > 2 * len(opsmith.ops._opsmith_functions)


def test_every_op_shows_what_it_takes(activations: opsmith.Library) -> None:
    seen = texts(activations.gelu)
    assert "activations.gelu" in seen
    assert seen.count("input") == seen.count("output") == 1
    for name, function in opsmith.ops._opsmith_functions.items():
        assert f"opsmith.{name}" in texts(function)


def test_an_explanation_has_the_formula_and_the_source(activations: opsmith.Library) -> None:
    explanation = opsmith.explain(activations.gelu)
    seen = texts(explanation)
    assert explanation.formula in seen
    assert explanation.cuda_source in seen


def test_a_report_has_a_row_for_each_property(activations: opsmith.Library) -> None:
    report = opsmith.testing.check(activations.gelu, cases=2, properties=["shapes", "empty"])
    seen = texts(report)
    assert seen.count("passed") == len(report.rows) == 2


def test_a_trace_is_its_summary() -> None:
    graph = opsmith.Graph()
    x = graph.placeholder("float64", [None], name="x")
    with opsmith.Session(graph) as session:
        _, trace = session.run_traced(opsmith.ops.exp(x), {x: [1.0]})
    assert texts(trace) == [trace.summary]


def test_hostile_texts_stay_texts() -> None:
    row = Row(HOSTILE, HOSTILE, HOSTILE, 1, HOSTILE, HOSTILE)
    assert texts(Report(HOSTILE, 0, (row,), HOSTILE)).count(HOSTILE) == 4
    assert texts(Trace(HOSTILE, HOSTILE)) == [HOSTILE]
    assert texts(opsmith.Explanation(HOSTILE, HOSTILE, HOSTILE)).count(HOSTILE) == 2
    assert Reader(_html.table(HOSTILE, (HOSTILE,), [(HOSTILE,)])).texts.count(HOSTILE) == 3


def test_a_graph_takes_no_hostile_names() -> None:
    graph = opsmith.Graph()
    with pytest.raises(opsmith.InvalidArgumentError, match="cannot be the name of a node"):
        graph.variable(np.zeros(1), name=HOSTILE)
    with (
        pytest.raises(opsmith.InvalidArgumentError, match="cannot be the name of a node"),
        graph.scope(HOSTILE),
    ):
        pass
    graph.constant(HOSTILE)
    picture = graph._repr_svg_()
    assert picture.startswith("<svg")
    assert "script" not in picture
