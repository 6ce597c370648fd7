"""What mkdocs does besides its own work when it builds the site.

In: the pages of ``docs/``, which are written for readers of the repository. Out: the same pages with links that
lead to pages of the site, and generated ones: the ops, the API, and files that pages link to. After the build every
link of every page is followed, and a link that leads nowhere is an error, as is a page that loads something from
another host.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from docs.site import api_pages, op_pages  # noqa: E402
from fxlite.passes.gallery import markdown  # noqa: E402

#: Pages that lie elsewhere in the repository.
ELSEWHERE = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "reporting.md": "SECURITY.md",
    "tutorials/index.md": "tutorials/README.md",
}
#: What leads to the site's own first page.
HOME = "README.md"
#: How much a page counts in a search, if less than others, by how its path begins: that of long lists, which have all
#: words, and of the reference, sources and tables of measurements, which nobody reads first.
LESS = {"changelog": 0.3, "design": 0.3, "passes": 0.3, "numpy": 0.3, "api/": 0.15, "source/": 0.15, "benchmarks": 0.15}
_LINK = re.compile(r"(?<!!)\]\((?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
_FOLDED = re.compile(r"<details class=\"note\">.*?</details>", re.S)
_PLACE = "<!-- folded -->"
_FENCE = re.compile(r"^(```+|~~~+).*?^\1", re.M | re.S)


def on_files(files: Files, config: Any) -> Files:
    """Add what is not a file of ``docs/``."""
    for path, source in ELSEWHERE.items():
        files.append(File.generated(config, path, abs_src_path=str(ROOT / source)))
    for asset in sorted((ROOT / "docs/site/assets").iterdir()):
        files.append(File.generated(config, f"assets/{asset.name}", abs_src_path=str(asset)))
    for path, text in {**op_pages.pages(), **api_pages.pages(), **_linked_sources(files)}.items():
        files.append(File.generated(config, path, content=text))
    return files


def _linked_sources(files: Files) -> dict[str, str]:
    """Pages that show the files of the repository that pages link to."""
    found = {}
    for page in files.documentation_pages():
        for path in map(str, linked(page.content_string, _home_of(page.src_uri))):
            if path.endswith(".md") or path.startswith(("docs/", "tutorials/")) or not (ROOT / path).is_file():
                continue
            language = {"py": "python"}.get(path.rpartition(".")[2], path.rpartition(".")[2])
            text = (ROOT / path).read_text(encoding="utf-8")
            found[f"source/{path}.md"] = (
                f"---\nsearch: {{ exclude: true }}\n---\n\n# {path}\n\n```{language}\n{text}```\n"
            )
    return found


def _home_of(uri: str) -> Path:
    """The folder in the repository from which a page's links are meant."""
    return Path(ELSEWHERE.get(uri, f"docs/{uri}")).parent


def linked(text: str, home: Path) -> Iterator[Path]:
    """What a page links to, as paths in the repository."""
    for link in _LINK.finditer(_FENCE.sub("", text)):
        yield Path(os.path.normpath(home / link["target"]))


def page_of(path: Path) -> str:
    """The page of the site for a file of the repository, as a path in ``docs/``."""
    text = path.as_posix()
    if text == HOME:
        return "index.md"
    for page, source in ELSEWHERE.items():
        if text == source:
            return page
    if re.fullmatch(r"tutorials/\d\d_\w+\.py", text):
        return f"{text[:-3]}.md"
    if text.startswith("docs/"):
        return text.removeprefix("docs/")
    return f"source/{text}.md"


def on_page_markdown(text: str, page: Any, **_: Any) -> str:
    """Let links lead to pages of the site; let a search find long lists and the reference last."""
    uri = page.file.src_uri
    boost = next((boost for start, boost in LESS.items() if uri.startswith(start)), None)
    if boost is not None:
        page.meta["search"] = {"boost": boost}
    home = _home_of(uri)

    def changed(link: re.Match[str]) -> str:
        if not (ROOT / home / link["target"]).exists():
            return link[0]  # of the site alone, or wrong, which mkdocs says
        target = page_of(Path(os.path.normpath(home / link["target"])))
        relative = os.path.relpath(target, Path(uri).parent)
        return f"]({relative}{link['anchor'] or ''})"

    parts, position = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(changed, text[position : fence.start()]), fence[0]]
        position = fence.end()
    return "".join([*parts, _LINK.sub(changed, text[position:])])


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Take what is folded away out of a page until its words are in the index of the search: nobody looks for loops
    in C there, and they are most of the words."""
    page.folded = _FOLDED.findall(html)
    return _FOLDED.sub(_PLACE, html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Put it back."""
    before, *behind = output.split(_PLACE)
    return "".join([before, *(part for pair in zip(page.folded, behind, strict=True) for part in pair)])


class Docstrings(griffe.Extension):
    """Docstrings are written in reStructuredText, of which they use two marks and literal blocks."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Write a docstring in Markdown."""
        if obj.docstring is not None:
            obj.docstring.value = in_markdown(obj.docstring.value)


def in_markdown(docstring: str) -> str:
    """A docstring as Markdown: roles are code, and what stands indented behind ``::`` is a program."""
    lines, made = inspect.cleandoc(docstring).splitlines(), []
    while lines:
        line = lines.pop(0)
        if not line.rstrip().endswith("::"):
            made.append(markdown(line))
            continue
        made += [markdown(line.rstrip()[:-1]) if line.strip() != "::" else "", ""]
        block = []
        while lines and (not lines[0].strip() or lines[0].startswith("    ")):
            block.append(lines.pop(0)[4:])
        made += ["```python", *"\n".join(block).strip("\n").splitlines(), "```", ""]
    return "\n".join(made)


# -- links of the built pages ------------------------------------------------------------------------
_ELEMENT = re.compile(r"<(?P<tag>a|img|script|link|iframe|source)\b(?P<rest>[^>]*)>")
_ADDRESS = re.compile(r'\b(?:href|src)="?([^"\s>]+)')
_ANCHOR = re.compile(r'\s(?:id|name)="?([^"\s>]+)')


class _Page:
    """The anchors of a page, what it links to, and what it loads."""

    def __init__(self, text: str) -> None:
        self.anchors = {"", *map(unescape, _ANCHOR.findall(text))}
        self.links: set[str] = set()
        self.loads: set[str] = set()
        for element in _ELEMENT.finditer(text):
            address = _ADDRESS.search(element["rest"])
            if address is not None and not re.search(r"rel=.?(canonical|next|prev)", element["rest"]):
                (self.links if element["tag"] == "a" else self.loads).add(unescape(address[1]))


def problems(site: Path) -> list[str]:
    """Links of a built site that lead nowhere, and what its pages load from other hosts."""
    read = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in read.items():
        name = path.relative_to(site).as_posix()
        if name == "404.html":  # whose links begin at the root of a server
            continue
        found += [f"{name} loads {url}" for url in sorted(page.loads) if urlsplit(url).netloc]
        found += [f"{name}: {url}" for url in sorted(page.links | page.loads) if not _leads(url, path, read)]
    return found


def _leads(url: str, path: Path, read: dict[Path, _Page]) -> bool:
    """Whether a link leads somewhere; those to other hosts are not followed."""
    parts = urlsplit(url)
    if parts.scheme or parts.netloc:
        return True
    target = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
    if not target.is_file():
        return False
    return target not in read or unquote(parts.fragment) in read[target].anchors


def on_post_build(config: Any) -> None:
    """Follow all links."""
    found = problems(Path(config.site_dir))
    if found:
        raise PluginError("\n".join(["links that lead nowhere:", *_some(found)]))


def _some(lines: Iterable[str], most: int = 40) -> list[str]:
    lines = list(lines)
    return lines[:most] + [f"and {len(lines) - most} more"] * (len(lines) > most)
