"""The pictures of docs/pictures.md: models of :mod:`tests.models`, drawn in several ways.

In: nothing. Out: SVG texts by path. ``python -m tests.pictures`` writes them again after a change;
a test compares them with the files.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from fxlite import passes
from fxlite.show.drawing.draw import to_svg
from tests import models

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images" / "models"

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
    return re.sub(r"(<title>[^<\n]*)\n[^<]*(</title>)", r"\1\2", svg)


def main() -> None:
    """Write the pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{FOLDER / name} written\n")


if __name__ == "__main__":
    main()
