"""HTML pages in a headless Chromium, and as elements, for tests.

In: a page, and a script that clicks and types. Out: what the script returns, or the page itself for keys,
the mouse and screenshots. Playwright drives the Chromium that is installed.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)


def browser(test: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a test that opens a page: ``python -m pytest -m browser``; skipped without a browser."""
    missing = "no Chromium is installed" if CHROMIUM is None else ""
    if not missing and importlib.util.find_spec("playwright") is None:
        missing = "Playwright is not installed: pip install 'fxlite[browser]'"
    skipped = pytest.mark.skipif(bool(missing), reason=missing)
    return pytest.mark.browser(skipped(test))


class Elements(HTMLParser):
    """Attributes and texts of a page, by tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append((self.found[-1][0] if self.found else "", data))


HELPERS = """
const $ = what => document.querySelector(what);
const press = thing => thing.dispatchEvent(new MouseEvent("click", { bubbles: true }));
const nameOf = part => {  // of a node, or the title of a module
  const more = part.querySelector("text.more");
  const shown = more && !/ nodes$/.test(more.textContent) ? more : part.querySelector(".name, .handle");
  return (shown || part).textContent;
};
const names = () => [...document.querySelectorAll(".part")].map(nameOf);
const part = name => [...document.querySelectorAll(".part")].find(p => nameOf(p).includes(name));
const type = text => {
  $("#search").value = text;
  $("#search").dispatchEvent(new Event("input", { bubbles: true }));
};
"""


@functools.cache
def _chromium() -> Any:
    """A browser for the whole run, which ends with it."""
    from playwright.sync_api import sync_playwright

    assert CHROMIUM is not None
    running = sync_playwright().start()
    atexit.register(running.stop)
    quiet = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    quiet += ["--disable-component-update", "--disable-sync"]
    return running.chromium.launch(executable_path=CHROMIUM, args=quiet, chromium_sandbox=False)


@contextmanager
def window(size: tuple[int, int] = (1200, 800), dark: bool = False, scale: float = 1) -> Iterator[Any]:
    """An empty page in a window of that size, as Playwright's Page."""
    shape = {"width": size[0], "height": size[1]}
    scheme = "dark" if dark else "light"
    context = _chromium().new_context(viewport=shape, color_scheme=scheme, device_scale_factor=scale)
    try:
        yield context.new_page()
    finally:
        context.close()


@contextmanager
def opened(
    tmp_path: Path,
    text: str,
    size: tuple[int, int] = (1200, 800),
    dark: bool = False,
    place: str = "",
    scale: float = 1,
) -> Iterator[Any]:
    """The page in a :func:`window`; ``place`` is what follows its address. Whatever is an error for the browser's
    console fails the test, and so does every request but the one for the page."""
    file = tmp_path / "page.html"
    file.write_text(text, encoding="utf-8")
    problems: list[str] = []
    with window(size, dark, scale) as page:
        page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda asked: problems.append(asked.url) if asked.url.startswith("http") else None)
        page.goto(file.as_uri() + place)
        yield page
    assert not problems, problems


def in_browser(tmp_path: Path, text: str, script: str) -> Any:
    """What ``script``, the body of a function, returns in the page."""
    with opened(tmp_path, text) as page:
        return page.evaluate(f"() => {{ {HELPERS} {script} }}")


#: Netron takes ``eval`` away, which Playwright needs.
_KEEP_EVAL = 'const own = eval; Object.defineProperty(window, "eval", { get: () => own, set() {} })'


@contextmanager
def in_netron(model: Path, size: tuple[int, int] = (1200, 800), dark: bool = False) -> Iterator[tuple[Any, float]]:
    """The page of Netron in which a model is open, and the milliseconds that opening took; skips where Netron is not
    installed."""
    netron = pytest.importorskip("netron", reason="Netron is not installed: pip install 'fxlite[browser]'")
    host, port = address = netron.start(str(model), browse=False)
    try:
        with window(size, dark) as page:
            page.add_init_script(_KEEP_EVAL)
            own = f"http://{host}:{port}/"
            page.route(lambda url: not url.startswith(own), lambda route: route.abort())  # it asks where its users are
            page.goto(own)
            page.click("#message-button")  # consent to cookies
            start = time.perf_counter()
            while (shown := page.evaluate("() => document.body.className")) != "default":
                if "message" in shown or "alert" in shown:
                    raise AssertionError(page.inner_text("#message-text"))
                page.wait_for_timeout(10)
            yield page, 1000 * (time.perf_counter() - start)
    finally:
        netron.stop(address)


def no_serious_findings(page: Any) -> None:
    """Fails for :func:`serious_findings`; skips where axe-core is not installed."""
    found = serious_findings(page)
    assert not found, found


def serious_findings(page: Any) -> list[tuple[str, str, list[str]]]:
    """What axe-core finds in a page that is serious for people who need a keyboard or a screen reader, or see little;
    skips where it is not installed."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed").Axe
    found = axe().run(page).response["violations"]
    return [
        (rule["id"], rule["help"], [node["html"][:200] for node in rule["nodes"][:3]])
        for rule in found
        if rule["impact"] in ("serious", "critical")
    ]
