"""Which weights differ between two modules, by value.

In: two graphs and, where there are any, the modules that own their weights. Out: a
:class:`WeightChange` for each weight that was added, removed, changed or got another path.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.graph.graph import Graph
from fxlite.graph.graph_module import GraphModule
from fxlite.types.tensor_type import TensorType, type_of


@dataclass(frozen=True)
class WeightChange:
    """One weight: ``kind`` is "added", "removed", "changed" or "renamed".

    ``differing`` counts the elements that differ and ``max_difference`` is the largest absolute
    difference (infinity where a number stands against NaN or infinity); both are None where the
    types differ or nobody knows the values."""

    kind: str
    old_path: str | None
    new_path: str | None
    old_type: TensorType | None
    new_type: TensorType | None
    differing: int | None = None
    max_difference: float | None = None

    @property
    def path(self) -> str:
        """The path, that of the new graph where there are two."""
        return self.new_path or self.old_path or ""


def changed_weights(
    a: Graph, b: Graph, modules: tuple[GraphModule, GraphModule] | None
) -> list[WeightChange]:
    """Differences of the weights that the graphs read, in the order in which they are read.

    Without ``modules`` there are no values: paths and types are compared."""
    old, new = _weights(a), _weights(b)
    found: list[WeightChange] = []
    gone = {path: type for path, type in old.items() if path not in new}
    come = {path: type for path, type in new.items() if path not in old}
    for old_path, new_path in _renamed(gone, come, modules).items():
        types = gone.pop(old_path), come.pop(new_path)
        found.append(WeightChange("renamed", old_path, new_path, *types, 0, 0.0))
    found += [WeightChange("removed", path, None, type, None) for path, type in gone.items()]
    for path, type in old.items():
        if path in new:
            change = _compare(path, type, new[path], modules)
            found += [] if change is None else [change]
    return found + [WeightChange("added", None, path, None, type) for path, type in come.items()]


def _weights(graph: Graph) -> dict[str, Any]:
    """Path -> type of the weights a graph reads."""
    return {n.target: n.type for n in graph.nodes if n.op == "get_attr"}


def _renamed(
    gone: Mapping[str, Any],
    come: Mapping[str, Any],
    modules: tuple[GraphModule, GraphModule] | None,
) -> dict[str, str]:
    """Old path -> new path of weights with the same type and the same bytes."""
    if modules is None:
        return {}

    def by_bytes(
        module: GraphModule, types: Mapping[str, Any], others: Any
    ) -> dict[Any, list[str]]:
        found: dict[Any, list[str]] = defaultdict(list)
        wanted = {str(type) for type in others.values()}  # bytes are looked at where it may help
        for path, type in types.items():
            if str(type) in wanted:
                found[str(type), _array(module, path).tobytes()].append(path)
        return found

    left, right = by_bytes(modules[0], gone, come), by_bytes(modules[1], come, gone)
    pairs = {key: zip(paths, right.get(key, ())) for key, paths in left.items()}
    return {one: other for zipped in pairs.values() for one, other in zipped}


def _array(module: GraphModule, path: str) -> np.ndarray[Any, Any]:
    return np.asarray(module.get_attribute(path))


def _compare(
    path: str, old: Any, new: Any, modules: tuple[GraphModule, GraphModule] | None
) -> WeightChange | None:
    if modules is None:
        return WeightChange("changed", path, path, old, new) if old != new else None
    if modules[0].get_attribute(path) is modules[1].get_attribute(path):
        return None
    one, other = (_array(module, path) for module in modules)
    types = type_of(one), type_of(other)
    if types[0] != types[1]:
        return WeightChange("changed", path, path, *types)
    if one.tobytes() == other.tobytes():
        return None
    return WeightChange("changed", path, path, *types, *difference(one, other))


def difference(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> tuple[int, float]:
    """How many elements of two arrays of one type have other bits, and the largest absolute
    difference."""
    size = a.dtype.itemsize
    bits = [np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(-1, size) for x in (a, b)]
    places = np.flatnonzero((bits[0] != bits[1]).any(axis=1))
    x, y = (np.asarray(v).reshape(-1)[places].astype(np.float64) for v in (a, b))
    with np.errstate(invalid="ignore"):
        gaps = np.abs(x - y)
    gaps[np.isnan(x) & np.isnan(y)] = 0  # other bits of the same NaN
    gaps[x == y] = 0
    largest = float(gaps.max(initial=0.0, where=~np.isnan(gaps)))
    return len(places), math.inf if np.isnan(gaps).any() else largest
