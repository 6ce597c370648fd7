"""What notebooks show of graphs, tables, diffs, profiles and reports: in words, and run by nbconvert and opened in
a browser (``python -m pytest -m browser``)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import passes
from fxlite.show.drawing import draw
from tests import models
from tests.browser import Elements, browser, no_serious_findings, opened


@pytest.fixture(scope="module")
def gm() -> fx.GraphModule:
    return models.traced("gpt_block")


def things(gm: fx.GraphModule) -> dict[str, Any]:
    """What people look at, by name."""
    optimized = passes.decompose(gm)
    sizes = {"B": 2, "T": 8}
    x = np.ones((2, 8, 64), np.float32)
    return {
        "module": gm,
        "graph": gm.graph,
        "summary": gm.summary(),
        "cost": passes.cost(gm),
        "diff": fx.diff(gm, optimized),
        "timeline": passes.memory_timeline(gm, sizes),
        "profile": passes.profile(gm, x, repeat=2),
    }


def test_everything_loads_nothing_and_runs_nothing(gm: fx.GraphModule) -> None:
    for name, thing in things(gm).items():
        text = thing._repr_html_()
        assert "\x1b" not in text, name
        assert set(re.findall(r"\w+://[\w./]+", text)) <= {"http://www.w3.org/2000/svg"}, name
        elements = Elements(text)
        for tag, attributes in elements.found:
            assert tag != "script" and not {"src", "href"} & set(attributes), name
            assert not any(attribute.startswith("on") for attribute in attributes), name


def test_a_graph_is_its_picture(gm: fx.GraphModule) -> None:
    assert draw.to_svg(gm.graph).removeprefix("<svg ") in gm._repr_html_()
    assert gm._repr_html_() == gm.graph._repr_html_()


def test_rules_of_pictures_reach_nothing_else() -> None:
    """All cells of a notebook are one document."""
    style = re.findall(r"<style>(.*?)</style>", models.traced("bert").graph._repr_html_(), re.DOTALL)
    rules = [rule for text in style for rule in re.findall(r"^([^@}\n][^{\n]*)\{", text, re.M)]
    assert len(rules) > 20
    assert all(rule.startswith(".fx-picture ") for rule in rules)


def test_tables_are_tables(gm: fx.GraphModule) -> None:
    """A cell of the table stands in a cell of the page, as text."""
    text = gm.summary()._repr_html_()
    cells = re.findall(r"<td[^>]*>(.*?)</td>", text)
    assert any("c_attn" in cell for cell in cells)
    assert text.count("<th") > 3

    class Odd(fx.nn.Module):
        def forward(self, x: Any) -> Any:
            return np.tanh(x)

    Odd.__name__ = "<b>Odd</b>"
    assert "<b>" not in fx.symbolic_trace(Odd(), x="f32[B]").summary()._repr_html_()


PROGRAM = """
import numpy as np, fxlite as fx
from fxlite import passes
from tests import models
from tests.core.test_notebook import things
shown = things(models.traced("gpt_block"))
shown["report"] = fx.report(models.traced("gpt_block"), sizes={"B": 2, "T": 8}, profile=False)
"""
NAMES = ("graph", "summary", "cost", "diff", "timeline", "profile", "report")


@browser
@pytest.mark.parametrize("dark", [False, True])
def test_in_a_notebook(tmp_path: Path, dark: bool, notebook: str) -> None:
    """A notebook is run, and what it shows is opened: all is drawn, offline, with nothing on the console."""
    with opened(tmp_path, notebook, dark=dark, size=(1000, 900)) as page:
        assert page.evaluate("() => document.querySelectorAll('svg.fx-picture').length") == 3
        assert page.evaluate("() => document.querySelectorAll('table').length") >= 3
        assert page.evaluate("() => document.querySelectorAll('.output_area').length") == len(NAMES)
        assert "[2m" not in page.evaluate("() => document.body.textContent")
        heights = page.evaluate(
            "() => [...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().height)"
        )
        assert min(heights) > 40
        frames = page.frames[1:]
        assert len(frames) == 2
        assert "Graph diff" in frames[0].evaluate("() => document.body.textContent")
        assert frames[1].evaluate("() => document.querySelectorAll('#canvas .part').length") > 20
        frames[1].evaluate("() => document.querySelector('#open-all').click()")
        no_serious_findings(page)


@browser
def test_in_a_narrow_notebook(tmp_path: Path, notebook: str) -> None:
    """Pictures are as wide as the window, or half as large as elsewhere, and nothing is wider than the window."""
    sizes = """() => [...document.querySelectorAll("svg.fx-picture")].map(svg => [
      svg.getBoundingClientRect().width, svg.getBoundingClientRect().height, svg.viewBox.baseVal.width,
      svg.viewBox.baseVal.height, svg.parentElement.clientWidth])"""
    with opened(tmp_path, notebook, size=(420, 800)) as page:
        found = page.evaluate(sizes)
        outputs = page.evaluate("() => [...document.querySelectorAll('.output_area')].map(o => o.scrollWidth)")
        assert max(outputs) <= 420
    assert len(found) == 3
    for width, height, own_width, own_height, room in found:
        assert width == pytest.approx(min(own_width, max(room, own_width // 2)))
        assert height / width == pytest.approx(own_height / own_width, rel=1e-2)


@pytest.fixture(scope="module")
def notebook() -> str:
    for package in ("nbformat", "ipykernel", "nbconvert"):
        pytest.importorskip(package)
    return notebook_page()


def notebook_page() -> str:
    """The body of the notebook as nbconvert writes it, without the scripts of its own page."""
    import nbformat
    from nbconvert import HTMLExporter
    from nbconvert.preprocessors import ExecutePreprocessor

    cells = [PROGRAM, *(f"shown[{name!r}]" for name in NAMES)]
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    root = Path(__file__).resolve().parents[2]
    ExecutePreprocessor(timeout=300, kernel_name="python3").preprocess(made, {"metadata": {"path": str(root)}})
    body, _ = HTMLExporter(template_name="basic").from_notebook_node(made)
    return f'<!doctype html><html lang="en"><head><title>notebook</title></head><body><main>{body}</main></body></html>'
