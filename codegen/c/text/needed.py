"""Leave out what a program does not use of the C text that templates have in common.

In: that text (tiles, packing, transforms, for every element type), and the functions that call it.
Out: the definitions that are reached from those functions, in their order. A reader of an emitted
model, and its compiler, then see only what the model runs.

The text is a series of definitions with a blank line between any two, as all preambles are. A
comment `/* ---- Title ---- */` or an `#include` belongs to what follows it, up to the next title.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fxlite.codegen.kernel.text import wrap

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_WORD = re.compile(r"\b[A-Za-z_]\w*")
_TITLE = re.compile(r"/\* -{4}")
_UNUSED = re.compile(r"__attribute__\(\(unused\)\) ")

#: What a definition at the outermost level may look like; the group is the name it gives.
_DEFINED = re.compile(
    r"^#define (\w+)"
    r"|^typedef [\w ]+?[\s*](\w+)(?=;|\s+__attribute__)"
    r"|^static const \w+ (\w+)\["
    r"|^(?!#|typedef|enum)\S[^\n;{]*?[\s*](\w+)\((?!\()",
    re.MULTILINE,
)


def needed(library: str, users: str) -> str:
    """The definitions of ``library`` that the C text ``users`` reaches, with their comments."""
    words = _words(users)
    kept: list[str] = []
    wanted = False  # whether something after the last title is kept
    for definition in reversed(list(_definitions(library))):
        names = _names(definition)
        if not names:
            if wanted:
                kept.append(definition)
            wanted = wanted and not _TITLE.match(definition)
        elif not words.isdisjoint(names):
            kept.append(_folded(_UNUSED.sub("", definition)))
            words |= _words(definition)
            wanted = True
    return "".join(f"{definition}\n\n" for definition in reversed(kept))


def _definitions(library: str) -> Iterator[str]:
    """The parts of a text between blank lines, not within braces or conditions."""
    lines: list[str] = []
    depth = 0
    for line in [*library.splitlines(), ""]:
        code = _COMMENT.sub("", line)
        depth += code.count("{") - code.count("}")
        depth += bool(re.match(r"#if", line)) - bool(re.match(r"#endif", line))
        if line or depth:
            lines.append(line)
        elif lines:
            yield "\n".join(lines)
            lines = []


def _folded(definition: str) -> str:
    """With lines of at most 100 columns: names of types make some longer. Macros are left alone."""
    lines: list[str] = []
    for line in definition.splitlines():
        in_macro = bool(lines) and lines[-1].endswith("\\")
        lines += [line] if in_macro else wrap(line)
    return "\n".join(lines)


def _names(definition: str) -> set[str]:
    """The names that a definition gives."""
    code = _COMMENT.sub("", definition)
    names = {name for found in _DEFINED.findall(code) for name in found if name}
    for body in re.findall(r"^enum \{(.*?)\}", code, re.MULTILINE | re.DOTALL):
        names.update(re.findall(r"(\w+) =", body))
    return names


def _words(text: str) -> set[str]:
    return set(_WORD.findall(_COMMENT.sub("", text)))
