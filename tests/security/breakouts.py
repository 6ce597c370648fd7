"""Texts put into a saved graph, and what becomes of the file: refused, or printed everywhere.

In: a text for each of some places. Out: the module, or None for a file that is refused; or how many
outputs were compared with those of the file with harmless texts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path as Folder
from typing import Any

import fxlite as fx
from fxlite.base.errors import FileFormatError
from fxlite.base.outside_text import LONGEST_NAME, forbidden_in, is_name, line, lines
from fxlite.files.serialize import from_bytes, to_bytes
from tests.security.outputs import outputs
from tests.security.specimen import BREAKOUTS, Path, fields, packed, specimen, with_text

CONTENT, WEIGHTS = specimen()
FIELDS = tuple(fields(CONTENT))
#: Texts that a file may hold, where it may say anything.
PRINTED = tuple(t for t in BREAKOUTS if forbidden_in(t) is None and len(t) <= LONGEST_NAME)


def groups() -> dict[str, tuple[Path, ...]]:
    """Places that are to change together, by a name: each alone, and all that say the same."""
    found: dict[str, tuple[Path, ...]] = {str(path): (path,) for path in FIELDS}
    same: dict[str, list[Path]] = {}
    for path in FIELDS:
        same.setdefault(_text_at(path), []).append(path)
    return found | {f"all {text!r}": tuple(paths) for text, paths in same.items() if paths[1:]}


def _text_at(path: Path) -> str:
    if isinstance(path[-1], tuple):
        return str(path[-1][1])
    value: Any = CONTENT
    for step in path:
        value = value[step]
    return str(value)


def load(texts: Mapping[Path, str]) -> fx.GraphModule | None:
    """The module with these texts, None if the file is refused, which must be said of the file and
    say something."""
    try:
        return from_bytes(packed(with_text(CONTENT, texts), WEIGHTS), "given.fxl")
    except FileFormatError as error:
        said = str(error)
        assert "given.fxl" in said and said == lines(said) and len(said) < 3000, said
        assert "Error:" not in said, said
        return None


@functools.cache
def accepted() -> tuple[Path, ...]:
    """The places that may say anything: alone, or, the last two, together."""
    text = 'two words; "'
    alone = tuple(path for path in FIELDS if load({path: text}) is not None)
    together = groups()["all 'rows'"]  # a key of the result, which its type has, too
    assert len(together) == 2 and load(dict.fromkeys(together, text)) is not None
    return (*alone, *together)


def harmless(text: str) -> str:
    """Letters, with spaces where the text has them once it is printed; a name only for a name."""
    letters = re.sub(r"\S", "h", line(text))
    return letters if is_name(text) or not is_name(letters) else f"-{letters[1:]}"


def compare(texts: Mapping[Path, str], folder: Folder) -> int:
    """Raise AssertionError if an output differs from that of the harmless file in more than its
    texts; returns how many outputs there are."""
    gm, plain = load(texts), load({path: harmless(text) for path, text in texts.items()})
    assert gm is not None and plain is not None, texts
    assert to_bytes(from_bytes(to_bytes(gm))) == to_bytes(gm)
    count = 0
    for (name, read, text), (_, _, other) in zip(outputs(gm, folder), outputs(plain, folder), strict=True):
        assert read(text) == read(other), name
        count += 1
    return count
