"""docs/passes.md and its pictures are what the gallery writes now."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fxlite.passes.gallery import gallery, main, own_passes

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return gallery(own_passes())


def test_it_is_up_to_date(files: dict[str, str]) -> None:
    stale = [
        path
        for path, text in files.items()
        if not (ROOT / "docs" / path).is_file() or (ROOT / "docs" / path).read_text(encoding="utf-8") != text
    ]
    assert not stale, "run: python -m fxlite.passes.gallery"
    drawn = {f"images/passes/{p.name}" for p in (ROOT / "docs/images/passes").glob("*.svg")}
    assert drawn == files.keys() - {"passes.md"}, "pictures of passes that are gone"


def test_the_page_is_whole(files: dict[str, str]) -> None:
    page = files["passes.md"]
    assert len(page.splitlines()) < 80 * len(own_passes()) and page.count("```") % 2 == 0
    for item in own_passes():
        assert f"\n## {item.name}\n" in page and f"(#{item.name})" in page
    for path in re.findall(r'src="([^"]+)"', page):
        assert path in files
    sources = re.findall(r"Source: `([^`]+)`", page)
    assert len(sources) == len(list(own_passes())) and all((ROOT / s).is_file() for s in sources)
    for path, text in files.items():
        if path.endswith(".svg"):
            root = ElementTree.fromstring(text)
            assert len(root.findall("{http://www.w3.org/2000/svg}svg")) == 2
    assert not re.findall(r"\w+\.py:\d+", "".join(files.values())), "lines of sources change"


def test_main_writes_the_files(tmp_path: Path, files: dict[str, str]) -> None:
    main(str(tmp_path))
    written = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert written == files.keys()
