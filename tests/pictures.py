"""The pictures of docs/pictures.md: models of :mod:`tests.models`, drawn in several ways; and looks at pages.

In: nothing. Out: SVG texts by path. ``python -m tests.pictures`` writes them again after a change;
a test compares them with the files.

``python -m tests.pictures --screenshots FOLDER`` opens the pages of models, a report, a diff, a notebook, the README
and the first page of the site in a headless Chromium and writes what is seen, light and dark, wide and narrow, for
somebody to look at. ``--netron FOLDER`` opens two models in Netron, from the ONNX files that fxlite writes of them, and
as pages, and prints what can be counted.
``python -m tests.pictures --times`` prints how much processor time pictures and pages take, how long a browser takes
to open them, and how long the frames are while they are moved.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fxlite as fx
from fxlite import nn, passes
from fxlite.show.drawing.draw import to_html, to_svg
from tests import models
from tests.benchmarks.models import ResNet50
from tests.roofs import ROOFS

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "images" / "models"

#: Model -> options of its picture
PICTURES: dict[str, dict[str, Any]] = {
    "resnet18": {"depth": 2},
    "bert": {},
    "lstm_tagger": {},
    "lstm_cells": {},
    "unet": {"depth": 1, "color": "scope"},
    "gpt_block": {},
}


def pictures() -> dict[str, str]:
    """SVG texts by file name. Tooltips say the node's line only: the place in tests/models.py
    changes with every edit there."""
    drawn = {name: to_svg(models.traced(name).graph, **how) for name, how in PICTURES.items()}
    before = models.traced("resnet18")
    after = passes.fuse_conv_bn(before)
    drawn["changed"] = to_svg(after.graph, changed_from=before.graph, depth=2)
    return {f"{name}.svg": _without_places(text) for name, text in drawn.items()}


def _without_places(svg: str) -> str:
    return re.sub(r"(<title>[^<]*?)\n[^\n<]*\.py:[^<]*(</title>)", r"\1\2", svg)


# -- models to look at -----------------------------------------------------------------------------
class Step(nn.Module):
    """Nodes that differ from those of the step before, so that nothing is folded."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.linear = number, nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        for power in range(self.number % 5 + 1):
            y = np.tanh(y) + np.exp(y) * (self.number + power)
        return y + x


def large(groups: int) -> fx.GraphModule:
    """About 160 nodes for each group of ten steps."""
    model = nn.Sequential(*(nn.Sequential(*(Step(10 * g + s) for s in range(10))) for g in range(groups)))
    return fx.symbolic_trace(model, x="f32[B,16]")


#: Name -> makes the graph.
LOOKED_AT: dict[str, Callable[[], fx.GraphModule]] = {
    "resnet50": lambda: fx.symbolic_trace(ResNet50().eval(), x="f32[B,3,224,224]"),
    "bert": lambda: models.traced("bert"),
    "unet": lambda: models.traced("unet"),
    "lstm": lambda: models.traced("lstm_tagger"),
    "5000 nodes": lambda: large(31),
    "50000 nodes": lambda: large(313),
}


def pages() -> dict[str, str]:
    """Pages by name: of models, a report, a diff, a notebook and the README."""
    from tests.core.test_notebook import notebook_page

    found = {name: to_html(make().graph, name) for name, make in LOOKED_AT.items() if name != "50000 nodes"}
    block, resnet = models.traced("gpt_block"), models.traced("resnet18")
    found["report"] = fx.report(block, sizes={"B": 2, "T": 64}, repeat=3, roofs=ROOFS).to_html()
    found["diff"] = fx.diff(resnet, passes.fuse_conv_bn(resnet)).to_html()
    found["notebook"] = notebook_page()
    found["readme"] = readme_page()
    return found


def readme_page() -> str:
    """The README as a hosting site shows it: in a column, in the fonts of the system."""
    from markdown import markdown

    body = markdown((ROOT / "README.md").read_text(encoding="utf-8"), extensions=["fenced_code", "tables"])
    style = (
        ":root { color-scheme: light dark } body { font: 16px/1.5 sans-serif; max-width: 1012px; margin: 2rem auto;"
        " padding: 0 1rem } pre { font-size: 85%; overflow: auto } table { border-spacing: 1rem 0.3rem }"
        " img { max-width: 100% }"
    )
    head = f'<title>README</title><base href="{ROOT.as_uri()}/"><style>{style}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


def screenshots(folder: Path) -> None:
    """Write what is seen of each page, light and dark, wide and narrow."""
    from tests.browser import opened
    from tests.test_site import built_site

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as space:
        site = built_site(Path(space) / "site")
        looked_at = {"site": (site / "index.html").read_text(encoding="utf-8"), **pages()}
        for name, text in looked_at.items():
            for shape, size in (("wide", (1280, 900)), ("narrow", (420, 800))):
                for dark in (False, True):
                    file = folder / f"{name.replace(' ', '_')}-{shape}-{'dark' if dark else 'light'}.png"
                    with opened(site, text, size, dark) as page:
                        page.screenshot(path=file)
                    sys.stdout.write(f"{file} written\n")


# -- beside Netron ---------------------------------------------------------------------------------
#: Of a picture: boxes, elements of the page, and how many windows of 900 points it is high.
_COUNT = """([boxes, picture]) => [
  document.querySelectorAll(boxes).length,
  document.querySelectorAll("*").length,
  (document.querySelector(picture).getBoundingClientRect().height / 900).toFixed(1),
]"""


def beside_netron(folder: Path) -> None:
    """Open the ONNX files of models in Netron, and the models as pages; print what can be counted, and write what is
    seen."""
    import netron  # type: ignore[import-not-found]

    from tests.browser import in_netron, opened, serious_findings

    folder.mkdir(parents=True, exist_ok=True)
    sys.stdout.write(f"Netron {netron.__version__}; boxes, elements, windows high; opens ms; serious findings of axe\n")
    for name in ("resnet50", "bert"):
        gm, size = LOOKED_AT[name](), (1280, 900)
        fx.to_onnx(gm, folder / f"{name}.onnx")
        for dark in (False, True):
            seen = f"{name}-{'dark' if dark else 'light'}"
            with in_netron(folder / f"{name}.onnx", size, dark) as (page, taken):
                counts = page.evaluate(_COUNT, ["g.node", "#canvas"])
                page.screenshot(path=folder / f"{seen}-netron.png")
                sys.stdout.write(f"{seen}, Netron: {counts}; {taken:.0f}; {serious_findings(page)}\n")
            with (
                tempfile.TemporaryDirectory() as space,
                opened(Path(space), to_html(gm.graph, name), size, dark) as page,
            ):
                taken = page.evaluate("() => performance.getEntriesByType('navigation')[0].loadEventEnd")
                counts = page.evaluate(_COUNT, ["#canvas .part", "#canvas"])
                page.screenshot(path=folder / f"{seen}-fxlite.png")
                sys.stdout.write(f"{seen}, fxlite: {counts}; {taken:.0f}; {serious_findings(page)}\n")


# -- times -----------------------------------------------------------------------------------------
#: Drags the picture over 120 frames; their lengths in milliseconds.
_DRAG = """async () => {
  const picture = document.querySelector("#picture"), lengths = [];
  const at = (name, x, y) => new PointerEvent(name, { bubbles: true, clientX: x, clientY: y, buttons: 1 });
  picture.dispatchEvent(at("pointerdown", 600, 400));
  let last = await new Promise(requestAnimationFrame);
  for (let step = 1; step <= 120; step++) {
    window.dispatchEvent(at("pointermove", 600 + step % 40 * 4, 400 - step * 10));
    const now = await new Promise(requestAnimationFrame);
    lengths.push(now - last);
    last = now;
  }
  window.dispatchEvent(at("pointerup", 0, 0));
  return lengths.sort((a, b) => a - b);
}"""


def times() -> None:
    """Print a row for each model."""
    from tests.browser import opened

    sys.stdout.write(
        "model: nodes; SVG s, page s (processor); opens ms; frames ms folded, all open: median/95 %/worst\n"
    )
    for name, make in LOOKED_AT.items():
        graph = make().graph
        start = time.process_time()
        to_svg(graph)
        drawn = time.process_time()
        text = to_html(graph, name)
        done = time.process_time()
        with tempfile.TemporaryDirectory() as space, opened(Path(space), text) as page:
            opens = page.evaluate("() => performance.getEntriesByType('navigation')[0].loadEventEnd")
            folded = page.evaluate(_DRAG)
            page.click("#open-all")
            page.evaluate("() => new Promise(requestAnimationFrame)")
            whole = page.evaluate(_DRAG)
        frames = ", ".join("/".join(f"{x[at]:.1f}" for at in (60, 114, 119)) for x in (folded, whole))
        row = f"{len(graph):,}; {drawn - start:.2f}, {done - drawn:.2f}; {opens:.0f}; {frames}"
        sys.stdout.write(f"{name}: {row}\n")


def main() -> None:
    """Write the pictures; or screenshots, or times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--screenshots", metavar="FOLDER", type=Path, help="what a browser shows of pages")
    parser.add_argument("--netron", metavar="FOLDER", type=Path, help="two models in Netron and as pages")
    parser.add_argument("--times", action="store_true", help="how long pictures, pages and frames take")
    options = parser.parse_args()
    if options.screenshots or options.netron or options.times:
        if options.screenshots:
            screenshots(options.screenshots)
        if options.netron:
            beside_netron(options.netron)
        if options.times:
            times()
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{FOLDER / name} written\n")


if __name__ == "__main__":
    main()
