"""Paths for weights that passes make.

In: a module and a wish. Out: a path that nothing of the module has.
"""

from __future__ import annotations

from typing import Any

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
