"""Plots that people share: rooflines and sensitivities, in the style of all pictures; what stands where."""

from __future__ import annotations

import math
import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import fxlite as fx
from fxlite import passes
from fxlite.base.errors import ArgumentError
from fxlite.passes.profiling.profile import Setting, Times, node_row
from fxlite.passes.profiling.record import Profile
from fxlite.passes.profiling.roofline import _names
from fxlite.passes.quantize.planning.sensitivity import Choice, Layer, Sensitivity
from fxlite.show.drawing.colours import css_class, dark, every_colour
from tests import models
from tests.roofs import ROOFS

SVG = "{http://www.w3.org/2000/svg}"


def timed(seconds: float = 1e-3) -> Profile:
    """A block of GPT, each call of which takes as long."""
    gm = models.traced("gpt_block")
    setting = Setting({"B": 4, "T": 64}, ROOFS, 2)
    calls = [n for n in gm.graph.nodes if n.op == "call_function"]
    rows = tuple(node_row(node, Times((seconds,), 0.0), setting) for node in calls)
    return Profile("GptBlock", "python", 2, {"B": 4, "T": 64}, rows, (1.0,), (1.0,), 0, ROOFS)


def sensitivity(ratios: dict[str, dict[str, float]]) -> Sensitivity:
    schemes = list(dict.fromkeys(name for row in ratios.values() for name in row))
    layers = tuple(
        Layer(path, ("linear",), {name: Choice(ratio, 10, None) for name, ratio in row.items()}, {})
        for path, row in ratios.items()
    )
    return Sensitivity("Net", dict.fromkeys(schemes, None), layers, "layer", {}, 0, None)  # type: ignore[arg-type]


def told(mark: ElementTree.Element) -> str:
    return mark.findtext(f"{SVG}title") or ""


# -- rooflines -------------------------------------------------------------------------------------
def test_discs_stand_where_their_rates_are(tmp_path: Path) -> None:
    """Log axes: a tenth of the rate is the same way down everywhere, and no disc is above the roof of the cache."""
    slow, fast = timed(1e-3), timed(1e-4)
    assert fast.to_roofline(tmp_path / "a.svg") == (tmp_path / "a.svg").read_text()
    found = []
    for profile in (slow, fast):
        root = ElementTree.fromstring(profile.to_roofline())
        found.append({told(c).partition(":")[0]: c for c in root.iter(f"{SVG}circle")})
    with_flops = {row.name for row in slow.rows if row.flops}
    assert set(found[0]) == with_flops == set(found[1])
    name_a, name_b = "linear", "softmax"
    for discs in found:
        x = [float(discs[name].get("cx", "")) for name in (name_a, name_b)]
        assert x[0] > x[1]  # a product has more FLOPs for each byte
    rows = {row.name: row for row in slow.rows}
    heights = {name: float(found[0][name].get("cy", "")) for name in with_flops}
    ordered = sorted(with_flops, key=lambda name: rows[name].flops_per_second or 0)
    assert [heights[name] for name in ordered] == sorted(heights.values(), reverse=True)


def test_the_largest_disc_has_most_of_the_time() -> None:
    profile = timed()
    first, *others = (row for row in profile.rows if row.flops)
    slow = node_row(first.node, Times((1.0,), 0.0), Setting({"B": 4, "T": 64}, ROOFS, 2))
    profile = Profile("N", "python", 2, {}, (slow, *others), (1.0,), (1.0,), 0, ROOFS)
    discs = list(ElementTree.fromstring(profile.to_roofline()).iter(f"{SVG}circle"))
    assert told(max(discs, key=lambda c: float(c.get("r", "")))).startswith(f"{slow.name}: 1.00 s")


def test_names_cover_no_disc_and_no_name() -> None:
    """Discs at one place: some names stand on the other side, above or below, and the rest is left out."""
    discs = [(f"layer_norm_{number}", 100.0 + number, 80.0, 4.0) for number in range(6)]
    texts = [ElementTree.fromstring(text) for text in _names(discs)]
    assert 3 <= len(texts) < 6
    boxes = [(float(t.get("x", "")), float(t.get("y", "")), len(t.text or "") * 6.6) for t in texts]
    for one, other in combinations(boxes, 2):
        assert abs(one[1] - other[1]) >= 12 or one[0] + one[2] < other[0] or other[0] + other[2] < one[0]


def test_a_roofline_says_what_it_lacks() -> None:
    profile = timed()
    without = Profile("N", "python", 2, {}, profile.rows, (1.0,), (1.0,), 0, None)
    with pytest.raises(ArgumentError, match="roofs of the machine"):
        without.to_roofline()
    views = tuple(row for row in profile.rows if not row.flops)
    with pytest.raises(ArgumentError, match="has none"):
        Profile("N", "python", 2, {}, views, (1.0,), (1.0,), 0, ROOFS).to_roofline()


# -- sensitivities ---------------------------------------------------------------------------------
def test_marks_stand_at_their_ratios(tmp_path: Path) -> None:
    found = sensitivity(
        {"a": {"int8": 40.0, "int4": 10.0}, "b": {"int8": math.inf}, "c": {"int8": -12.0, "int4": 25.0}}
    )
    text = found.to_svg(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == text
    marks = [p for p in ElementTree.fromstring(text).iter(f"{SVG}path") if told(p)]
    x, y = {}, {}
    for mark in marks:
        name = told(mark).partition(":")[0]
        x[name], y[name] = map(float, re.findall(r"-?[\d.]+", mark.get("transform", "")))
    assert list(x) == ["a by int8", "a by int4", "b by int8", "c by int8", "c by int4"]
    step = (x["a by int8"] - x["a by int4"]) / 30
    assert x["c by int4"] - x["c by int8"] == pytest.approx(37 * step, abs=0.3)
    assert x["b by int8"] == max(x.values())
    assert y["a by int8"] == y["a by int4"] < y["b by int8"] < y["c by int4"]
    assert len({mark.get("d") for mark in marks}) == 2  # a shape for each scheme


def test_of_many_layers_those_are_drawn_that_lose_most() -> None:
    found = sensitivity({f"layers.{i}": {"int8": float(i % 97)} for i in range(200)})
    text = found.to_svg()
    names = {told(p).partition(" by ")[0] for p in ElementTree.fromstring(text).iter(f"{SVG}path") if told(p)}
    assert len(names) == 80
    assert {"layers.0", "layers.97"} <= names and "layers.96" not in names
    assert "the 80 of 200 layers that lose most" in text


# -- all of them -----------------------------------------------------------------------------------
def plots() -> dict[str, str]:
    gm = models.traced("gpt_block")
    return {
        "roofline": timed().to_roofline(),
        "flame": timed().to_flame_graph(),
        "sensitivity": sensitivity({"a": {"int8": 40.0, "int4": 10.0}}).to_svg(),
        "timeline": passes.memory_timeline(gm, {"B": 2, "T": 8}).to_svg(),
        "cost": passes.cost(gm).plot("flops", T=range(1, 9), B=1),
    }


@pytest.mark.parametrize("name", ["roofline", "flame", "sensitivity", "timeline", "cost"])
def test_plots_are_light_or_dark_and_have_a_name(name: str) -> None:
    text = plots()[name]
    root = ElementTree.fromstring(text)
    assert root.get("role") == "img" and len(root.get("aria-label", "")) > 10
    light, _, night = text.partition("@media screen and (prefers-color-scheme: dark)")
    drawn = set(re.findall(r'class="(k\w{12})"', text))
    assert drawn
    for css in drawn:
        fill, border = f"#{css[1:7]}", f"#{css[7:]}"
        assert css_class((fill, border)) == css
        assert f".fx-picture .{css} {{ fill: {fill}" in light and dark((fill, border))[0] in night
    assert not re.findall(r'(?:fill|stroke)="#', text)


def test_the_palette_knows_no_colour_twice() -> None:
    assert len({css_class(colour) for colour in every_colour()}) == len(every_colour())


def test_rows_of_a_real_profile_are_drawn() -> None:
    gm = fx.symbolic_trace(lambda x: np.tanh(x @ x), x="f32[8,8]")
    profile = passes.profile(gm, np.ones((8, 8), np.float32), repeat=2, roofs=ROOFS)
    root = ElementTree.fromstring(profile.to_roofline())
    assert {told(c).partition(":")[0] for c in root.iter(f"{SVG}circle")} == {"matmul", "tanh"}
