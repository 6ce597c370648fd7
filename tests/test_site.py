"""The site: it builds without a warning, no link leads nowhere, nothing is loaded from elsewhere, and what is generated
is current."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from urllib.parse import urlsplit

import pytest

from docs.site import comparison, tutorial_pages
from fxlite.ops.op import REGISTRY
from tests.browser import browser, in_browser, no_serious_findings, opened, window

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "docs" / "site" / "mkdocs.yml"
WORD = re.compile(r"[A-Za-z_]{3,}")


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    pytest.importorskip("mkdocs", reason='pip install "fxlite[docs]"')
    spec = importlib.util.spec_from_file_location("site_hooks", CONFIG.with_name("hooks.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason='pip install "fxlite[docs]"')
    pytest.importorskip("mkdocstrings_handlers.python")
    return built_site(tmp_path_factory.mktemp("site"))


def built_site(into: Path) -> Path:
    """Build the site into a folder; a warning of mkdocs, and a link that leads nowhere, ends the build."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(CONFIG), "-d", str(into)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return into


def test_every_op_has_an_entry(site: Path) -> None:
    text = "".join(page.read_text() for page in sorted((site / "ops").glob("*.html")))
    missing = [name for name in REGISTRY if f'<h2 id="{name}"' not in text]
    assert not missing and len(REGISTRY) > 200
    assert text.count("Loops in C") > 200
    softmax = text[text.index('<h2 id="softmax"') :].partition("<h2")[2].partition("<h2")[0]
    assert "f32[B,5]" in softmax and "B" in softmax and "fx_exp_weight_f32" in softmax


def test_public_names_are_documented(site: Path) -> None:
    for page, names in {
        "api/fxlite.html": ("fxlite.compiler.compile", "fxlite.tracing.symbolic_trace.symbolic_trace"),
        "api/graph.html": ("fxlite.graph.graph.Graph.find_nodes", "fxlite.graph.node.Node"),
        "api/passes.html": ("fxlite.passes.manager.PassManager",),
        "api/nn.html": ("fxlite.nn.conv.Conv2d",),
    }.items():
        text = (site / page).read_text()
        assert not re.search(r":(?:class|func|meth|mod|data|attr):`", text), "marks of reStructuredText are left"
        for name in names:
            assert f'id="{name}"' in text, name


def test_search_knows_what_newcomers_ask(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    for word, page in {
        "picture": "pictures.html",
        "fuse_conv_bn": "passes.html",
        "migrate": "from_torch_fx.html",
        "gradients": "comparison.html",
        "conv2d": "ops/convolution.html",
    }.items():
        found = {entry["location"].partition("#")[0] for entry in index["docs"] if word in entry["text"].lower()}
        assert page in found, word


def test_links_that_lead_nowhere_are_found(hooks: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top"><a href="b.html#here">b</a><a href="b.html#gone">b</a><img src=x.svg>'
    )
    (tmp_path / "b.html").write_text(
        '<p id="here"><a href="#here"><a href="https://a.b/c"><script src="https://a.b/c.js">'
    )
    assert sorted(hooks.problems(tmp_path)) == ["a.html: b.html#gone", "a.html: x.svg", "b.html loads https://a.b/c.js"]


def test_links_of_the_repository_become_links_of_the_site(hooks: ModuleType) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="fast_c.md"), meta={})
    text = (
        "[t](../tutorials/04_shapes_and_costs.py) [c](../CONTRIBUTING.md#style) `[x](../README.md)`\n[n](numerics.md)"
    )
    made = hooks.on_page_markdown(text, page)
    assert made.splitlines()[0].startswith("[t](tutorials/04_shapes_and_costs.md) [c](contributing.md#style)")
    assert made.splitlines()[1] == "[n](numerics.md)"


def test_docstrings_become_markdown(hooks: ModuleType) -> None:
    text = "Uses :class:`~fxlite.graph.Node` as in::\n\n        x = 1\n        y = 2\n\n    Then ``z``."
    assert hooks.in_markdown(text) == "Uses `Node` as in:\n\n```python\nx = 1\ny = 2\n```\n\nThen `z`."


def test_figures_of_the_comparison_are_those_of_the_benchmarks() -> None:
    assert comparison.shown() == comparison.figures(), "run python -m docs.site.comparison"


def test_the_landing_page_counts_the_models_that_were_tried() -> None:
    tables = comparison.tables("models.md")
    rows = next(rows for _, columns, rows in tables if columns[:3] == ["library", "models", "right in the graph"])
    tried, right = (sum(int(row[column]) for row in rows) for column in (1, 2))
    assert f"[{right:,} of {tried:,} architectures](models.md)" in (ROOT / "docs/index.md").read_text()


@pytest.mark.parametrize("path", tutorial_pages.tutorials(), ids=lambda path: path.stem)
def test_pages_of_tutorials_are_current(path: Path) -> None:
    page = (tutorial_pages.PAGES / f"{path.stem}.md").read_text()
    stale = f"run python -m docs.site.tutorial_pages {path.stem[:2]}"
    assert tutorial_pages.without_outputs(page) == tutorial_pages.page(path), stale
    assert len(WORD.findall(tutorial_pages.outputs(page))) > 20
    assert tutorial_pages.page(path, *tutorial_pages.kept(page)) == page
    for picture in re.findall(r"\]\((images/[^)]*)\)", page):
        assert (tutorial_pages.PAGES / picture).read_text().startswith("<svg")


#: What newcomers ask, in few words, and the page that the first result leads to.
ASKED = {
    "pytorch model": "from_torch.html",
    "picture with shapes": "pictures.html",
    "write a pass": "tutorials/02_write_a_pass.html",
    "how fast": "fast_c.html",
    "batch size named": "shapes.html",
    "fuse_conv_bn": "passes.html",
    "import onnx": "onnx.html",
    "install": "quick_start.html",
    "gpu": "guides/gpu.html",
}


@browser
def test_a_newcomer_finds_answers_with_the_keyboard(site: Path) -> None:
    """Nothing but keys, from files, without an error on the console."""
    found = {}
    with opened(site, (site / "index.html").read_text()) as page:
        for words in ASKED:
            page.keyboard.press("/")
            page.keyboard.type(words)
            link = page.locator("a.md-search-result__link").first
            link.wait_for(timeout=60_000)
            page.wait_for_timeout(1000)  # until the last letter counts
            found[words] = Path(urlsplit(link.evaluate("a => a.href")).path).relative_to(site).as_posix()
            page.reload()
    assert found == ASKED


@browser
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["index", "pictures", "ops/convolution", "api/graph", "tutorials/02_write_a_pass"])
def test_axe_finds_nothing_serious(site: Path, name: str, dark: bool) -> None:
    with window(dark=dark) as page:  # axe-core reads style sheets again, which files may not: its own errors
        page.goto((site / f"{name}.html").as_uri())
        no_serious_findings(page)


@browser
def test_the_slider_shows_more_of_one_picture(site: Path) -> None:
    found = in_browser(
        site,
        (site / "index.html").read_text(),
        """
        const handle = $(".slider input");
        return [0, 50, 100].map(value => {
          handle.value = value;
          handle.dispatchEvent(new Event("input"));
          return [...document.querySelectorAll(".slider img")].map(picture => picture.style.clipPath);
        });
        """,
    )
    hidden = [[[float(n) for n in re.findall(r"-?[\d.]+", clip)] for clip in clips] for clips in found]
    before = [sum(clips[0]) for clips in hidden]
    after = [sum(clips[1]) for clips in hidden]
    assert before[0] > before[1] > before[2] and after[0] < after[1] < after[2], found
