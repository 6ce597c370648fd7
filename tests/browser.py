"""HTML pages in a headless Chromium, and as elements, for tests.

In: a page, and a script that clicks and types. Out: what the script returns: a copy of the page
runs it and writes the result into itself.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)


def browser(test: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a test that opens a page: ``python -m pytest -m browser``; skipped without Chromium."""
    skipped = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
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
const names = () => [...document.querySelectorAll(".part")].map(
  part => (part.querySelector(".name, .handle") || part).textContent);
const part = name => [...document.querySelectorAll(".part")].find(
  p => [...p.querySelectorAll(".name, .handle")].some(t => t.textContent.includes(name)));
const type = text => {
  $("#search").value = text;
  $("#search").dispatchEvent(new Event("input", { bubbles: true }));
};
"""


def in_browser(tmp_path: Path, text: str, script: str) -> Any:
    """What ``script``, the body of a function, returns in the page."""
    assert CHROMIUM is not None
    probe = f"""<script>addEventListener("load", () => {{
      let result;
      try {{ result = (() => {{ {HELPERS} {script} }})(); }}
      catch (error) {{ result = {{ error: String(error.stack) }}; }}
      const made = document.createElement("pre");
      made.id = "result";
      made.textContent = JSON.stringify(result);
      document.body.append(made);
    }});</script>"""
    file = tmp_path / "page.html"
    file.write_text(text.replace("</body>", f"{probe}</body>"), encoding="utf-8")
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1200,800",
        "--disable-background-networking",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom",
        file.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr[-2000:]
    return json.loads(unescape(found[1]))
