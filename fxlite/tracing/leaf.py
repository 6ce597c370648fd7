"""Modules that stay one node: which ones, ``leaf=`` by object, class, path or glob of the path.

In: what the caller gave and the traced root. Out: paths.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from fxlite.base.errors import ArgumentError
from fxlite.nn.module import Module


def leaf_paths(leaves: Iterable[Any], root: Module) -> frozenset[str]:
    """Paths of the modules under ``root`` that the text among ``leaves`` names. ``*`` stands for
    one part of a path or a piece of one: "layers.*.attn".

    Raises ArgumentError, with the nearest names, for text that names no module, and for leaves of
    another kind."""
    wanted: list[str] = []
    for leaf in leaves:
        if not isinstance(leaf, (str, type, Module)):
            raise ArgumentError(f"leaf must be a module, a class or a path, not {leaf!r}")
        if isinstance(leaf, str):
            wanted.append(leaf)
    if not wanted:
        return frozenset()
    # a shared module is called by all its paths and known to the tracer by the first
    first: dict[int, str] = {}
    paths: dict[str, str] = {}
    for path, module in root.named_modules(remove_duplicate=False):
        if path:
            paths[path] = first.setdefault(id(module), path)
    found: set[str] = set()
    for pattern in wanted:
        matched = {paths[path] for path in paths if _matches(path, pattern)}
        if not matched:
            near = difflib.get_close_matches(pattern, paths, 3)
            known = f"did you mean {' or '.join(map(repr, near))}?" if near else _listed(paths)
            raise ArgumentError(f"leaf={pattern!r} names no module; {known}")
        found |= matched
    return frozenset(found)


def _listed(paths: Iterable[str]) -> str:
    shown = list(paths)[:8]
    if not shown:
        return "the program is no module with children: give the module itself or its class"
    return f"there are {', '.join(shown)}"


def _matches(path: str, pattern: str) -> bool:
    parts, wanted = path.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))
