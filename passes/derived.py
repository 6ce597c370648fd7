"""Weights that passes create: unused paths for them, and a record of how each was computed from the
weights of the program, so that other checkpoints can be converted in the same way.

In: a module and a preferred path. Out: a path that the module does not use. In: a function over
arrays, and the paths of the weights it is given. Out: its results, and an entry in a list that is
carried from pass to pass with the module, as the ledger is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.graph.graph_module import Container, GraphModule


def unique_attribute(module: GraphModule, wish: str) -> str:
    """An unused path for a new weight: ``wish``, ``wish_1``, ... A path inside a leaf module, which
    belongs to the user, becomes a name on the root."""
    parent: Any = module
    for part in wish.split(".")[:-1]:
        parent = parent._modules.get(part)
        if parent is None:
            break
        if type(parent) is not Container:
            wish = wish.replace(".", "_")
            break
    counts: dict[str, int] = module.__dict__.setdefault("_name_counts", {})
    name = wish
    while _has_attribute(module, name):
        counts[wish] = counts.get(wish, 0) + 1
        name = f"{wish}_{counts[wish]}"
    return name


def _has_attribute(module: GraphModule, path: str) -> bool:
    try:
        module.get_attribute(path)
    except AttributeError:
        return False
    return True


class Source(str):
    """The path of a weight, or the name of an intermediate value, among the arguments of a
    :class:`Derivation`."""


@dataclass(frozen=True)
class Derivation:
    """``results = function(*arguments, **options)``, where the arguments may be nested and a
    :class:`Source` stands for an array.

    ``function`` is an op, or a function whose source text needs nothing but NumPy (``np``).
    ``inverse(results, given, **options)`` is a function of the same kind that recovers arguments
    from which ``function`` computes the same results, up to rounding. ``results`` is one array or a
    tuple; ``given`` holds, for each argument, its shape if it is an array and the argument itself
    otherwise. ``about`` says in one sentence what information is lost."""

    results: tuple[str, ...]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    inverse: Callable[..., Any] | None = None
    about: str = ""
    given: tuple[Any, ...] = ()

    def run(self, weights: Mapping[str, Any]) -> tuple[Any, ...]:
        """Compute the results from ``weights``, by path. Raises KeyError for a missing weight."""
        found = self.function(*with_sources(self.arguments, weights.__getitem__), **self.options)
        return found if len(self.results) > 1 else (found,)


def with_sources(value: Any, replace: Callable[[str], Any]) -> Any:
    """Nested arguments with ``replace(source)`` in place of each source."""
    if isinstance(value, Source):
        return replace(value)
    if isinstance(value, (tuple, list)):
        made = [with_sources(v, replace) for v in value]
        return made if isinstance(value, list) else tuple(made)
    return value


def sources_in(value: Any) -> list[str]:
    """The sources found in nested arguments."""
    found: list[str] = []
    with_sources(value, found.append)
    return found


def derivations(module: GraphModule) -> tuple[Derivation, ...]:
    """All derivations that passes have recorded, in the order in which they were computed."""
    found: tuple[Derivation, ...] = module.__dict__.get("_derivations", ())
    return found


def set_derivations(module: GraphModule, entries: Sequence[Derivation]) -> None:
    """Replace the recorded derivations."""
    module.__dict__["_derivations"] = tuple(entries)


def derive(
    module: GraphModule,
    results: Sequence[str],
    function: Callable[..., Any],
    arguments: Sequence[str | None],
    inverse: Callable[..., Any] | None = None,
    about: str = "",
    **options: Any,
) -> tuple[Any, ...]:
    """Compute weights from those at the paths ``arguments``, and record how. The caller stores them
    at the paths ``results``."""
    paths = {p: np.asarray(module.get_attribute(p)) for p in arguments if p is not None}
    shapes = tuple(None if p is None else paths[p].shape for p in arguments)
    given = tuple(None if p is None else Source(p) for p in arguments)
    made = Derivation(tuple(results), function, given, options, inverse, about, shapes)
    set_derivations(module, [*derivations(module), made])
    return made.run(paths)
