"""Names of other libraries as names that a program can use.

In: any text (``input:0``, ``onnx::MatMul_12``, ``/layers.0/attention/MatMul``). Out: identifiers,
each for one text only, and paths of modules. Who renames keeps the original as metadata.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from fxlite.base.outside_text import LONGEST_NAME, is_name

#: Names that a parameter of a program, or a size, cannot have.
_NEVER = frozenset(("self",))


def valid_name(text: str, otherwise: str = "value") -> str:
    """A text as an identifier: itself where it is one, else with ``_`` for what cannot be in it."""
    if is_name(text) and text not in _NEVER:
        return text
    made = re.sub(r"\W+", "_", unicodedata.normalize("NFKC", text), flags=re.ASCII).strip("_")[: LONGEST_NAME - 8]
    if not made:
        return otherwise
    if made[0].isdigit():
        return f"{otherwise}_{made}"
    return made if is_name(made) and made not in _NEVER else f"{made}_"


class Names:
    """Identifiers for texts, each taken once. ``taken``: those that are none of its own."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._known: dict[str, str] = {}

    def of(self, text: str, otherwise: str = "value") -> str:
        """The identifier of a text, the same one each time."""
        if text not in self._known:
            wish = made = valid_name(text, otherwise)
            number = 0
            while made in self._taken:
                number += 1
                made = f"{wish}_{number}"
            self._taken.add(made)
            self._known[text] = made
        return self._known[text]

    @property
    def renamed(self) -> dict[str, str]:
        """Identifier -> the text that it stands for, where that is another."""
        return {name: text for text, name in self._known.items() if name != text}


def scope_path(text: str, separators: str = "/.") -> str:
    """The path of a module from a text such as ``/layers.0/attention``: ``layers.0.attention``.
    What cannot be a part of a path becomes ``_``; parts that are indices stay such. A part that
    begins with the one before it, ``/net/net.0``, is a path from the same module, ``net.0``."""
    kept: list[str] = []
    for part in filter(None, text.split(separators[0])):
        if kept and part.startswith(f"{kept[-1]}."):
            kept.pop()
        kept.append(part)
    parts = [p for p in re.split(f"[{re.escape(separators)}]+", separators[0].join(kept)) if p]
    return ".".join(p if p.isascii() and p.isdecimal() else valid_name(p, "module") for p in parts)


def class_name(path: str) -> str:
    """A name for the class of a module of which only the path is known: ``layers.0.self_attn`` is a
    SelfAttn, ``layers.0`` a Layers."""
    parts = [p for p in path.split(".") if not p.isdecimal()]
    words = re.split(r"[^0-9A-Za-z]+", parts[-1]) if parts else []
    made = "".join(w[:1].upper() + w[1:] for w in words)
    return made if is_name(made) else "Block"
