"""Modules that stay one node: which ones (``leaf=`` by object, class, path or glob of the path) and
the type of what they return.

In: what the caller gave and the traced root; a module and its arguments. Out: paths; a type.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from fxlite.base.errors import ArgumentError, DTypeError, ShapeError
from fxlite.graph.graph import Node
from fxlite.nn.module import Module
from fxlite.types.tensor_type import TensorType


def leaf_paths(leaves: Iterable[Any], root: Module) -> frozenset[str]:
    """Paths of the modules under ``root`` that the text among ``leaves`` names. ``*`` stands for
    one part of a path or a piece of one: "layers.*.attn".

    Raises ArgumentError, with the nearest names, for text that names no module, and for leaves of
    another kind."""
    leaves = tuple(leaves)
    wanted = [leaf for leaf in leaves if isinstance(leaf, str)]
    for leaf in leaves:
        if not isinstance(leaf, (str, type, Module)):
            raise ArgumentError(f"leaf must be a module, a class or a path, not {leaf!r}")
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


def leaf_result_type(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Type of what a leaf returns for arguments that are nodes and plain values: by its method
    ``infer(*types)`` if it has one, else by tracing it. None where an argument has no type, the
    module cannot be traced, or it returns something else than arrays.

    Raises ShapeError and DTypeError for arguments that do not fit."""

    def type_or_value(value: Any) -> Any:
        return value.type if isinstance(value, Node) else value

    types = [type_or_value(a) for a in args]
    named = {k: type_or_value(v) for k, v in kwargs.items()}
    infer = getattr(module, "infer", None)
    if infer is not None:
        return infer(*types, **named)
    nodes = [a for a in (*args, *kwargs.values()) if isinstance(a, Node)]
    if not all(isinstance(n.type, TensorType) for n in nodes):
        return None
    from fxlite.tracing.tracer import Tracer

    try:
        bound = inspect.signature(module.forward).bind(*types, **named).arguments
        declared = {n: t for n, t in bound.items() if isinstance(t, TensorType)}
        concrete = {n: v for n, v in bound.items() if n not in declared}
        found = Tracer().trace(module, declared, concrete).output_node().type
    except (ShapeError, DTypeError):
        raise
    except Exception:  # a leaf may be anything, that is what leaves are for
        return None
    parts = found if type(found) is tuple else (found,)
    return found if all(isinstance(t, TensorType) for t in parts) else None
