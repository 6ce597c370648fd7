"""The page of a graph in a real browser, by keys and mouse, light and dark: ``python -m pytest -m browser``.

Nothing here is timed; ``python -m tests.pictures --frames`` prints how long frames take while a large graph is moved.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import fxlite as fx
from fxlite.show.drawing import draw
from tests import models
from tests.browser import HELPERS, browser, no_serious_findings, opened


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Any]:
    with opened(tmp_path, draw.to_html(models.traced("resnet18").graph, "resnet18", depth=1)) as found:
        yield found


def asked(page: Any, script: str) -> Any:
    return page.evaluate(f"() => {{ {HELPERS} return {script}; }}")


def heading(page: Any) -> Any:
    return asked(page, '$("#details h2").textContent')


# -- keys ------------------------------------------------------------------------------------------
@browser
def test_everything_by_keys(page: Any) -> None:
    """Search for a layer, walk along its edges, close the module around it and open it again."""
    page.keyboard.press("/")
    page.keyboard.type("conv2d_6")
    page.keyboard.press("Enter")
    assert heading(page) == "conv2d_6"
    assert asked(page, "document.activeElement.id") == "picture"
    assert asked(page, 'nameOf($(".chosen"))').startswith("conv2d_6")
    walked = []
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
        walked.append(heading(page))
    assert walked == ["batch_norm_6", "relu_5", "batch_norm_6", "relu_5", "batch_norm_6"]
    page.keyboard.press("Escape")
    assert heading(page) == "0 (BasicBlock)"
    assert "▸ 0 (BasicBlock)" in asked(page, "names()")
    page.keyboard.press("Enter")
    assert any(name.startswith("conv2d_6") for name in asked(page, "names()"))
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    assert heading(page) == "layer2"
    assert "▸ layer2" in asked(page, "names()")


@browser
def test_escape_ends_the_search(page: Any) -> None:
    page.keyboard.press("/")
    page.keyboard.type("relu")
    assert asked(page, 'document.querySelectorAll("#results a").length') > 5
    page.keyboard.press("Escape")
    assert asked(page, '[$("#search").value, $("#results").textContent]') == ["", ""]


@browser
def test_focus_goes_from_the_search_to_the_buttons_to_the_graph(page: Any) -> None:
    order = []
    for _ in range(10):
        page.keyboard.press("Tab")
        order.append(asked(page, "document.activeElement.id"))
    assert order == ["search", "fit", "in", "out", "open-all", "close-all", "turn", "save-svg", "save-png", "picture"]


# -- the address, the panel, the map ---------------------------------------------------------------
@browser
@pytest.mark.parametrize(
    ("name", "shown"), [("conv2d_6", "conv2d_6"), ("conv2d_3", "conv2d_1"), ("layer3_0_conv1_weight", "conv2d_11")]
)
def test_a_link_leads_to_a_node(tmp_path: Path, name: str, shown: str) -> None:
    """To the node itself, to the copy of it that is drawn, or to what reads it."""
    text = draw.to_html(models.traced("resnet18").graph, depth=1)
    with opened(tmp_path, text, place=f"#node={name}") as page:
        assert heading(page) == shown
        middle = asked(page, '(r => [r.x + r.width / 2, r.y + r.height / 2])($(".chosen").getBoundingClientRect())')
        area = asked(page, '(r => [r.x + r.width / 2, r.y + r.height / 2])($("#picture").getBoundingClientRect())')
        assert middle == pytest.approx(area, abs=8)
        page.keyboard.press("Tab")
        asked(page, 'press(part("x"))')
        assert asked(page, "location.hash") == "#node=x"


@browser
def test_the_panel_is_never_empty(page: Any) -> None:
    told = asked(page, '$("#details").textContent')
    for text in ("173 nodes", "x: f32[B,3,224,224]", "f32[B,1000]", "layer1", "search"):
        assert text in told
    for name in ("x", "layer2"):
        asked(page, f"press(part('{name}'))")
        assert asked(page, 'document.querySelectorAll("#details dd").length') >= 2


@browser
def test_the_map_leads_to_a_place(page: Any) -> None:
    asked(page, 'press($("#open-all"))')
    before = asked(page, '$("#canvas").style.transform')
    area = asked(page, '(r => [r.x, r.y, r.width, r.height])($("#map").getBoundingClientRect())')
    page.mouse.click(area[0] + area[2] / 2, area[1] + area[3] * 0.9)
    after = asked(page, '$("#canvas").style.transform')
    seen = asked(page, '(r => [r.y, r.height])($("#map i").getBoundingClientRect())')
    assert after != before
    assert seen[0] + seen[1] / 2 == pytest.approx(area[1] + area[3] * 0.9, abs=area[3] * 0.1)


# -- files -----------------------------------------------------------------------------------------
@browser
def test_what_is_open_can_be_saved(page: Any, tmp_path: Path) -> None:
    asked(page, 'press(part("layer2"))')
    kept = {}
    for ending in ("svg", "png"):
        with page.expect_download() as waiting:
            page.click(f"#save-{ending}")
        assert waiting.value.suggested_filename == f"resnet18.{ending}"
        waiting.value.save_as(tmp_path / f"kept.{ending}")
        kept[ending] = (tmp_path / f"kept.{ending}").read_bytes()
    root = ElementTree.fromstring(kept["svg"])
    texts = ["".join(t.itertext()) for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"▾ layer2", "▸ layer3", "f32[B,3,224,224]"} <= set(texts)
    assert ".fx-picture .name" in "".join(root.itertext())
    assert "chosen" not in kept["svg"].decode()
    size = struct.unpack(">II", kept["png"][16:24])
    assert size == tuple(int(2 * float(root.get(side, "0"))) for side in ("width", "height"))


# -- large graphs ----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def long_chain() -> fx.Graph:
    def chain(x: Any) -> Any:
        return functools.reduce(lambda y, step: np.tanh(y) * step, range(1500), x)

    return fx.symbolic_trace(chain, x="f32[B]").graph


@browser
def test_moving_changes_one_transform(tmp_path: Path, long_chain: fx.Graph) -> None:
    """Frame by frame the browser only shifts what it has painted: no element of the picture is changed."""
    with opened(tmp_path, draw.to_html(long_chain, fold=False, depth=9)) as page:
        changed = page.evaluate("""async () => {
          const picture = document.querySelector("#picture"), found = new Set();
          const watch = new MutationObserver(all => {
            for (const { target, attributeName } of all) found.add(`${target.id || target.tagName} ${attributeName}`);
          });
          const at = (name, y) => new PointerEvent(name, { bubbles: true, clientX: 300, clientY: y, buttons: 1 });
          picture.dispatchEvent(at("pointerdown", 600));
          window.dispatchEvent(at("pointermove", 590));
          watch.observe(document.body, { subtree: true, attributes: true, childList: true });
          for (let y = 589; y > 300; y -= 20) {
            window.dispatchEvent(at("pointermove", y));
            await new Promise(requestAnimationFrame);
          }
          return [...found].sort();
        }""")
        assert changed == ["I style", "canvas style"]  # the frame on the map, and the picture


@browser
def test_only_what_is_near_is_in_the_document(tmp_path: Path, long_chain: fx.Graph) -> None:
    with opened(tmp_path, draw.to_html(long_chain, fold=False, depth=9)) as page:
        first = asked(page, "names()")
        assert "x" in first and len(first) < 500
        page.keyboard.press("/")
        page.keyboard.type("mul_1400")
        page.keyboard.press("Enter")
        then = asked(page, "names()")
        assert "x" not in then and len(then) < 500
        assert asked(page, 'nameOf($(".chosen"))').startswith("mul_1400")
        with page.expect_download() as waiting:  # a file holds everything
            page.click("#save-svg")
        waiting.value.save_as(tmp_path / "all.svg")
        text = (tmp_path / "all.svg").read_text()
        assert all(f">{name}<" in text for name in ("x", "tanh_700", "output"))


# -- light, dark, print, and for all ---------------------------------------------------------------
@browser
@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark(tmp_path: Path, dark: bool) -> None:
    with opened(tmp_path, draw.to_html(models.traced("gpt_block").graph), dark=dark) as page:
        found = asked(
            page,
            """[getComputedStyle(document.body).backgroundColor,
            getComputedStyle($(".part .shape:not(.box)")).fill, getComputedStyle($(".part .name")).fill]""",
        )
    brightness = [sum(map(int, colour[4:-1].split(","))) / 3 for colour in found]
    assert (brightness[0] < 50, brightness[1] < 120, brightness[2] > 200) == (dark, dark, dark)


@browser
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", [(1200, 800), (420, 800)])
def test_axe_finds_nothing_serious(tmp_path: Path, dark: bool, size: tuple[int, int]) -> None:
    with opened(tmp_path, draw.to_html(models.traced("bert").graph, "bert"), dark=dark, size=size) as page:
        no_serious_findings(page)
        page.keyboard.press("/")
        page.keyboard.type("linear")
        page.keyboard.press("Enter")
        no_serious_findings(page)


@browser
def test_printed_is_the_whole_picture_and_no_button(page: Any) -> None:
    asked(page, 'press($("#open-all"))')
    page.emulate_media(media="print")
    asked(page, 'dispatchEvent(new Event("beforeprint"))')
    shown = asked(
        page,
        """[getComputedStyle($(".buttons")).display, getComputedStyle($("#map")).display,
        $("#canvas").style.transform, $("#canvas").getBoundingClientRect().right <= innerWidth]""",
    )
    assert shown == ["none", "none", "", True]
    asked(page, 'dispatchEvent(new Event("afterprint"))')
    assert asked(page, '$("#canvas").style.transform') != ""


@browser
def test_turned(page: Any) -> None:
    """From left to right, and back, by a button."""
    sizes = []
    for _ in range(3):
        sizes.append(
            asked(page, '[$("#canvas").getAttribute("width"), $("#canvas").getAttribute("height")].map(Number)')
        )
        page.click("#turn")
    assert sizes[0] == sizes[2]
    assert (sizes[0][0] < sizes[0][1]) and (sizes[1][0] > sizes[1][1])
