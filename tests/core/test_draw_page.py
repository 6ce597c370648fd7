"""The HTML page of a graph: what it holds, and how it behaves in a real browser.

``python -m pytest -m browser`` runs the tests that open it in a headless Chromium
(:mod:`tests.browser`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.location import Scope
from fxlite.show.drawing import draw, page
from fxlite.show.drawing.picture import laid_out, picture
from tests import models
from tests.browser import Elements, browser, in_browser
from tests.zoo.registry import by_name


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="graph">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


# -- without a browser -----------------------------------------------------------------------------
def test_the_page_loads_nothing() -> None:
    text = draw.to_html(models.traced("bert").graph)
    for _, attributes in Elements(text).found:
        assert not {"src", "href", "srcset"} & set(attributes)
    assert "@import" not in text
    assert set(re.findall(r"\w+://[\w./]+", text)) == {"http://www.w3.org/2000/svg"}


def test_without_scripts_it_is_the_picture() -> None:
    graph = models.traced("bert").graph
    assert draw.to_svg(graph) in draw.to_html(graph)


def test_the_data_is_the_outline() -> None:
    graph = models.traced("bert").graph
    data = data_of(draw.to_html(graph, depth=1))
    parts = data["parts"]
    (layers,) = (p for p in parts if p["label"] == "layers")
    assert not layers["open"]
    (layer,) = (p for p in parts if p["times"] == 12)
    assert parts[layer["in"]] is layers
    inside = [p["label"] for p in parts if p["in"] == parts.index(layer)]
    assert len(inside) == 20
    names = {(parts[a]["label"], parts[b]["label"]) for a, b in data["edges"]}
    assert ("linear_4", "gelu") in names
    assert all(a < b for a, b in data["edges"])
    (gelu,) = (p for p in parts if p["label"] == "gelu")
    details = dict(gelu["details"])
    assert details["type"] == "f32[B,T,256]"
    assert details["line"] == "gelu: f32[B,T,256] = ops.gelu(linear_4)"
    assert details["module"] == "layers.0 (EncoderLayer)"
    assert details["place"].startswith("models.py:")
    assert details["source"] == "F.gelu(self.up(x))"


def test_names_cannot_break_out_of_the_data() -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x), x="f32[B]")
    node = next(n for n in gm.graph.nodes if n.name == "exp")
    node.scope = Scope("</script><script>alert(1)</script>", "<b>")
    text = draw.to_html(gm.graph, title="<i>&")
    assert sum(tag == "script" for tag, _ in Elements(text).found) == 2
    assert "<i>" not in text
    assert any("</script><script>" in p["title"] for p in data_of(text)["parts"])


def test_a_page_holds_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "LARGEST_PAGE", 20)
    text = draw.to_html(models.traced("resnet18").graph)
    parts = data_of(text)["parts"]
    assert len(parts) <= 20
    closed = [p for p in parts if p["kind"] == "box" and not p["can_open"]]
    assert closed
    assert not any(p["open"] for p in closed)
    nodes = sum(p["kind"] == "node" for p in parts)
    assert f"173 nodes: 64 drawn, 7 in equal copies (×N), 102 weights; {nodes:,} are on this page" in text


# -- in a browser ----------------------------------------------------------------------------------
@browser
def test_modules_open_and_close_on_a_click(tmp_path: Path) -> None:
    text = draw.to_html(models.traced("resnet18").graph, depth=1)
    seen = in_browser(
        tmp_path,
        text,
        """
      const before = names();
      press(part("layer2"));
      const opened = names();
      press(part("layer2").querySelector(".handle"));
      const closed = names();
      press($("#open-all"));
      const all = names();
      press($("#close-all"));
      return { before, opened, closed, all, none: names() };
    """,
    )
    assert "▸ layer2" in seen["before"]
    assert {"▾ layer2", "▸ 0 (BasicBlock)", "▸ 1 (BasicBlock)"} <= set(seen["opened"])
    assert sorted(seen["closed"]) == sorted(seen["before"]) == sorted(seen["none"])
    assert not any("▸" in name for name in seen["all"])


@browser
def test_search_finds_what_is_closed_and_leads_there(tmp_path: Path) -> None:
    text = draw.to_html(models.traced("resnet18").graph, depth=1)
    seen = in_browser(
        tmp_path,
        text,
        """
      type("batch_norm_7");
      const heading = $("#results h2").textContent, marked = names().filter(
        name => part(name.replace("▸ ", "")).classList.contains("found"));
      press($("#results a"));
      const after = { chosen: $(".chosen").textContent };
      const box = $(".chosen > .shape").getBoundingClientRect();
      const area = $("#picture").getBoundingClientRect();
      type("BATCH_norm f32[B,512");
      const words = $("#results h2").textContent;
      type("no such thing");
      return { heading, marked, after, words, none: $("#results").textContent,
        off: [box.x + box.width / 2 - area.x - area.width / 2,
              box.y + box.height / 2 - area.y - area.height / 2] };
    """,
    )
    assert seen["heading"] == "1 found"
    assert seen["marked"] == ["▸ layer2"]
    assert "batch_norm_7" in seen["after"]["chosen"]
    assert max(map(abs, seen["off"])) < 2
    assert seen["words"] == "5 found"
    assert seen["none"] == "0 found"


@browser
def test_a_node_tells_about_itself(tmp_path: Path) -> None:
    seen = in_browser(
        tmp_path,
        draw.to_html(models.traced("gpt_block").graph),
        """
      press(part("softmax"));
      const texts = [...document.querySelectorAll("#details dd")].map(d => d.textContent);
      const near = document.querySelectorAll(".line.near").length;
      press([...document.querySelectorAll("#details a")].find(a => a.textContent === "where"));
      return { texts, near, next: $("#details h2").textContent, chosen: $(".chosen").textContent };
    """,
    )
    assert seen["texts"][0] == "softmax: f32[B,4,T,T] = ops.softmax(where)"
    assert seen["texts"][-2:] == ["where", "matmul_1"]
    assert seen["near"] == 1
    assert seen["next"] == "where"
    assert "where" in seen["chosen"]


@browser
def test_wheel_and_drag(tmp_path: Path) -> None:
    seen = in_browser(
        tmp_path,
        draw.to_html(models.traced("gpt_block").graph),
        """
      const place = () => $("#canvas").style.transform.match(/-?[\\d.]+/g).map(Number);
      const at = { bubbles: true, clientX: 300, clientY: 300, buttons: 1 };
      const moves = [place()];
      $("#picture").dispatchEvent(new WheelEvent("wheel", { ...at, deltaY: -200 }));
      moves.push(place());
      $("#picture").dispatchEvent(new PointerEvent("pointerdown", at));
      dispatchEvent(new PointerEvent("pointermove", { ...at, clientX: 340, clientY: 330 }));
      dispatchEvent(new PointerEvent("pointerup", { ...at, clientX: 340, clientY: 330 }));
      moves.push(place());
      press(part("softmax"));  // the end of a drag is no click
      return { moves, chosen: document.querySelectorAll(".chosen").length };
    """,
    )
    first, zoomed, moved = seen["moves"]
    assert zoomed[2] > first[2]
    assert moved == pytest.approx([zoomed[0] + 40, zoomed[1] + 30, zoomed[2]])
    assert seen["chosen"] == 0


GRAPHS = ["bert", "lstm_tagger", "resnet18", "unet", "gpt_block", "transformer_block", "gru"]


@browser
@pytest.mark.parametrize(("name", "depth"), [*((name, None) for name in GRAPHS), ("resnet18", 2)])
def test_the_page_places_boxes_as_the_picture_does(tmp_path: Path, name: str, depth: int | None) -> None:
    gm = models.traced(name) if name in models.MODELS else by_name(name).trace()[0]
    drawn = picture(gm.graph, depth=depth)
    root, placed = laid_out(drawn)
    expected = [[b.x, b.y, b.width, b.height] for p, b in placed if p.is_drawn_whole]
    seen = in_browser(
        tmp_path,
        draw.to_html(gm.graph, depth=depth),
        """
      const shapes = [...document.querySelectorAll(".part > .shape:not(.box)")];
      return { lines: document.querySelectorAll("#canvas .line").length, boxes: shapes.map(
        shape => ["x", "y", "width", "height"].map(key => Number(shape.getAttribute(key)))) };
    """,
    )
    assert len(seen["boxes"]) == len(expected)
    boxes = [root, *(box for _, box in placed)]
    assert seen["lines"] == sum(len(box.lines) for box in boxes)
    np.testing.assert_allclose(seen["boxes"], expected, atol=1e-6)
