"""A saved graph that uses every part of the format, its text fields, and texts that try to get out
of wherever they are printed.

In: nothing. Out: :func:`specimen`, the JSON and the weights of a file; :func:`fields`, the path of
every text in that JSON, found by walking it; :data:`BREAKOUTS`.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import fxlite as fx
from fxlite import nn
from fxlite.files.archive import MINOR, VERSION
from fxlite.files.serialize import to_bytes
from tests.security.parses import opened

#: A way into the JSON: keys, positions, and ("key", k) for the text of the key k itself.
Path = tuple[Any, ...]

_CODE = 'system("touch evil")'
BREAKOUTS = (
    # ends of comments in C: with line splices, trigraphs, one line, nested
    f"*/ {_CODE}; /*",
    f"*\\\n/ {_CODE}; //",
    f"*??/\n/ {_CODE}; //",
    f"x\\\n{_CODE};",
    "x\\",
    "*",
    "/",
    f"\n{_CODE};\n",
    f"\r{_CODE};",
    f"\x0c{_CODE};",
    f"\x0b{_CODE};",
    f"\x85{_CODE};",
    f"\u2028{_CODE};",
    f"\u2029{_CODE};",
    "**//",
    "/*/",
    "??/",
    "???/",
    "//\\",
    # Python: strings, docstrings, f-strings, comments, statements
    '"""\nimport os\n"""',
    "'''",
    '"; import os; "',
    "{__import__('os').getcwd()}",
    "{0}",
    "%s%n%d",
    "x=print(1), y",
    "): import os #",
    "# -*- coding: utf-7 -*-",
    "lambda",
    "__import__",
    "__debug__",
    # markup and data
    "</script><script>alert(1)</script>",
    "<!--",
    "]]>",
    "<img src=x onerror=alert(1)>",
    '" onload="x',
    "&lt;",
    "javascript:alert(1)",
    '"]; evil [label="',
    "<b>x</b>",
    "\\N\\G",
    '"\nevil = "x',
    "$(touch evil)",
    "`touch evil`",
    "; touch evil",
    "$(shell touch evil)",
    "[link=x]y[/link]",
    "[red]",
    # control characters, directions, halves of characters
    "a\0b",
    "\x1b]0;evil\x07",
    "\x1b[2J",
    "\x9b2J",
    "a\u202eb",
    "\u2066x",
    "\ud800",
    "\ufeff",
    "\ufffe",
    "\U000e0041",
    "\x7f",
    # paths
    "../../evil",
    "/etc/passwd",
    "C:\\evil",
    "con",
    ".",
    "",
    " ",
    "a/b",
    # names that are not what they seem, long ones, numbers
    "\uff53elf",
    "\u0131nt",
    "\u00b2",
    "\u0660",
    "x" * 5000,
    "9" * 5000,
    "-" * 3000 + "1",
    "9**9**9",
    "NaN",
)


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return np.tanh(self.fc(x))


class _Program(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(_Block(), _Block())
        self.scale = nn.Parameter(np.ones(4, np.float32))

    def forward(self, batch: dict[str, Any], y: Any) -> Any:
        x = batch["values"]
        assert x.shape[0] <= y.shape[0] + 3, "few rows"
        z = np.einsum("ij,j->ij", self.layers(x), self.scale)
        wide = fx.ops.interpolate(x.reshape(1, 1, -1, 4), scale_factor=2, mode="nearest")
        return {"rows": z, "wide": (wide, y.astype(np.float64).reshape(y.shape[0] * 2, -1))}


Files = tuple[dict[str, Any], bytes]


def specimen() -> Files:
    """The JSON and the weights of the file."""
    n, m = fx.dims("N M", min=1, max=512, multiple_of={"M": 2})
    values, rows = fx.dtypes.float32[n, 4], fx.dtypes.float32[m, 4]
    gm = fx.symbolic_trace(_Program().eval(), {"values": values}, rows)
    gm.graph.specialized = {"K": 8}
    tanh = gm.graph.find_nodes(op="call_function", target="tanh")[0]
    tanh.meta = {"from": (("rule", "node"),), "note": {"text": ["a", "b"]}}
    return opened(to_bytes(gm))


def packed(content: Any, weights: bytes, more: dict[str, bytes] | None = None, **manifest: Any) -> bytes:
    """A file of that JSON, which may be anything, with right digests; ``manifest``: what it says
    else; ``more``: further members."""
    graph = json.dumps(content).encode()
    members = {"graph.json": graph, "weights.safetensors": weights, **(more or {})}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    said = {"format": "fxlite", "version": VERSION, "minor": MINOR, "sha256": digests} | manifest
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in {"manifest.json": json.dumps(said).encode(), **members}.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # the same whatever time it is
    return target.getvalue()


def packed_2(content: Any, weights: bytes) -> bytes:
    """A file as versions 1 and 2 were, which had no manifest."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(zipfile.ZipInfo("graph.json"), json.dumps(content))
        archive.writestr(zipfile.ZipInfo("weights.safetensors"), weights)
    return target.getvalue()


def fields(content: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every text: values, and keys of dicts."""
    if isinstance(content, str):
        yield path
    elif isinstance(content, dict):
        for key, value in content.items():
            yield (*path, ("key", key))
            yield from fields(value, (*path, key))
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from fields(value, (*path, number))


def with_text(content: Any, texts: Mapping[Path, str]) -> Any:
    """The JSON with other texts at some places."""
    made = copy.deepcopy(content)
    for path in sorted(texts, key=lambda p: (-len(p), isinstance(p[-1], tuple))):
        (*parents, last), text = path, texts[path]
        place = made
        for step in parents:
            place = place[step]
        if isinstance(last, tuple):
            items = [(text if key == last[1] else key, value) for key, value in place.items()]
            place.clear()
            place.update(items)
        else:
            place[last] = text
    return made
