"""Weights that passes make: free paths for them, and how they were computed from those of the
program, so that others can be converted alike.

In: a module and a wish. Out: a path that nothing of the module has. In: a function over arrays, and
the paths of the weights it is given. Out: its results, and an entry in the list that goes with the
module from pass to pass, as the ledger does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.graph.graph_module import Container, GraphModule


def unique_attribute(module: GraphModule, wish: str) -> str:
    """A free path for a new weight: ``wish``, ``wish_1``, ... A path inside a leaf module, which
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
    """The path of a weight, or the name of a value on the way, among the arguments of a
    :class:`Derivation`."""


@dataclass(frozen=True)
class Derivation:
    """``results = function(*arguments, **options)``, where arguments are nested values in which a
    :class:`Source` stands for an array.

    ``function`` is an op, or a function whose text needs nothing but NumPy (``np``). ``inverse``
    is such a function, too: ``inverse(results, given, **options)``, with one result or a tuple, and
    of each argument its shape, or what it is if it is not an array, gives arrays for the arguments from
    which ``function`` makes the same results, up to rounding. ``about`` says in a sentence what is
    lost by it."""

    results: tuple[str, ...]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    inverse: Callable[..., Any] | None = None
    about: str = ""
    given: tuple[Any, ...] = ()

    def run(self, weights: Mapping[str, Any]) -> tuple[Any, ...]:
        """The results for the arrays of that name. Raises KeyError for one that is missing."""
        found = self.function(*with_sources(self.arguments, weights.__getitem__), **self.options)
        return found if len(self.results) > 1 else (found,)


def with_sources(value: Any, replace: Callable[[str], Any]) -> Any:
    """Nested arguments with something in place of each source."""
    if isinstance(value, Source):
        return replace(value)
    if isinstance(value, (tuple, list)):
        made = [with_sources(v, replace) for v in value]
        return made if isinstance(value, list) else tuple(made)
    return value


def sources_in(value: Any) -> list[str]:
    """The sources among nested arguments."""
    found: list[str] = []
    with_sources(value, found.append)
    return found


def derivations(module: GraphModule) -> tuple[Derivation, ...]:
    """All that passes noted, in the order in which it was computed."""
    found: tuple[Derivation, ...] = module.__dict__.get("_derivations", ())
    return found


def set_derivations(module: GraphModule, entries: Sequence[Derivation]) -> None:
    """Put these in place of what is noted."""
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
    """Compute weights from those at the paths ``arguments``, and note how; the caller stores them
    at the paths ``results``."""
    paths = {p: np.asarray(module.get_attribute(p)) for p in arguments if p is not None}
    shapes = tuple(None if p is None else paths[p].shape for p in arguments)
    given = tuple(None if p is None else Source(p) for p in arguments)
    made = Derivation(tuple(results), function, given, options, inverse, about, shapes)
    set_derivations(module, [*derivations(module), made])
    return made.run(paths)
