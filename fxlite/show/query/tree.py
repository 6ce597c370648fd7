"""Graph queries as data: what the parser makes and the matcher reads.

A query is some chains; a chain is steps and the links between them; a step is filters, which all
have to hold for a node. Globs for the paths of modules are made into patterns here, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fxlite.ops.op import Op


@dataclass(frozen=True)
class Opcode:
    """``placeholder``"""

    word: str


@dataclass(frozen=True)
class Calls:
    """``conv2d``: calls of that op."""

    op: Op


@dataclass(frozen=True)
class Named:
    """``#relu_1``: the node of that name."""

    name: str


@dataclass(frozen=True)
class Either:
    """``(conv1d|conv2d)``; with ``negated`` ``:not(conv1d|conv2d)``."""

    steps: tuple[Step, ...]
    negated: bool


@dataclass(frozen=True)
class Test:
    """``[axis=1]``; without a sign, that the attribute is there. ``start`` and ``end`` say where it
    stands in the text, for errors that only show on a graph."""

    attribute: str
    sign: str
    value: object
    start: int
    end: int


@dataclass(frozen=True)
class Users:
    """``:users(>1)``"""

    sign: str
    count: int


@dataclass(frozen=True)
class Flag:
    """``:constant``"""

    word: str


@dataclass(frozen=True)
class Inside:
    """``:in("layers.*.attn")``: made in such a module or in one below it."""

    glob: str


@dataclass(frozen=True)
class At:
    """``:at("model.py:31")``, ``:at("model.py:31-40")``, ``:at("model.py")``"""

    file: str
    first: int
    last: int


Filter = Opcode | Calls | Named | Either | Test | Users | Flag | Inside | At


@dataclass(frozen=True)
class Step:
    """What one node of a chain has to be: all filters hold, taken in this order."""

    filters: tuple[Filter, ...]


@dataclass(frozen=True)
class Chain:
    """``steps[i + 1]`` reads ``steps[i]``: directly (``links[i] == ">"``) or through others
    (``">>"``)."""

    steps: tuple[Step, ...]
    links: tuple[str, ...]


def path_pattern(glob: str) -> re.Pattern[str]:
    """The paths of modules that a glob names, as a pattern for ``path_key(path)``: ``*`` and ``?``
    stay within one part of a path, ``**`` stands for any number of parts."""
    parts = ("(?:[^.]+[.])*" if part == "**" else _part_pattern(part) for part in glob.split("."))
    return re.compile("".join(parts))


def _part_pattern(part: str) -> str:
    wild = {"*": "[^.]*", "?": "[^.]"}
    return "".join(wild.get(c, re.escape(c)) for c in part) + "[.]"


def path_key(path: str) -> str:
    """The text that a :func:`path_pattern` is matched with: every part of the path has its dot."""
    return f"{path}." if path else ""
