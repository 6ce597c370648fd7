"""How much memory the values of a graph need while it runs.

In: a typed graph. Out: the largest number of bytes that values computed by the graph hold at one
moment, when nodes run one by one in the graph's order and each value is dropped after its last
reader. Results are counted up to the end; inputs and weights, which are there before, are not. A
view (reshape, permute, slice, ...) holds nothing itself and keeps what it looks at; NumPy's copy in
the reshape of a permuted array is not counted. Compiled code needs less where it fuses nodes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from fxlite.base.checked import checked
from fxlite.base.errors import GraphError
from fxlite.graph.graph import Graph, Node
from fxlite.show.node_cost import is_view
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

#: Bytes as a polynomial: products of named dims (1 for the constant term) to their factors.
Polynomial = dict[Any, int]


@dataclass(frozen=True)
class Peak:
    """The moment when the most memory is held: ``nbytes`` while ``node`` runs, by ``values``, which
    are listed with the bytes of each, the largest first."""

    nbytes: int
    node: Node
    values: tuple[tuple[Node, int], ...]


@checked
def peak_memory(graph: Graph, sizes: Mapping[str, int] | None = None) -> Dim:
    """Bytes at the peak: an int, or an expression in the named dims that ``sizes`` does not give.

    Raises GraphError for a value without a type."""
    largest = Largest()
    for moment in moments(graph, sizes):
        largest.add(moment.held)
    return largest.value


def find_peak(graph: Graph, sizes: Mapping[str, int] | None = None) -> Peak | None:
    """The first moment at which the peak is reached; None for a graph that computes nothing.

    Raises GraphError for a value without a type, and for one whose size depends on a named dim that
    ``sizes`` does not give."""
    nbytes, peak = -1, None
    for moment in moments(graph, sizes):
        missing = [key for key in moment.held if key != 1]
        if missing:
            unknown = ", ".join(sorted(shapes.names(missing)))
            raise GraphError(f"{moment.node.describe()} has a size that depends on {unknown}")
        if moment.held.get(1, 0) > nbytes:
            nbytes, peak = moment.held.get(1, 0), moment.node
    for moment in moments(graph, sizes):
        if moment.node is peak:
            listed = [(node, stored(node, sizes).get(1, 0)) for node in moment.values]
            return Peak(nbytes, moment.node, tuple(sorted(listed, key=lambda pair: -pair[1])))
    return None


class Largest:
    """The largest of several polynomials."""

    def __init__(self) -> None:
        self._candidates: list[Polynomial] = []  # none of which is covered by another

    def add(self, held: Polynomial) -> None:
        """Let it be one of them."""
        if not any(_is_covered(held, other) for other in self._candidates):
            self._candidates = [c for c in self._candidates if not _is_covered(c, held)]
            self._candidates.append(dict(held))

    @property
    def value(self) -> Dim:
        """An int or an expression, with ``Max`` where the sizes decide; 0 where none was added."""
        return functools.reduce(shapes.maximum, map(as_dim, self._candidates), 0)


@dataclass(frozen=True)
class Moment:
    """While ``node`` runs, ``values`` hold ``held`` bytes. Both are changed by the next step."""

    node: Node
    held: Polynomial
    values: dict[Node, None]


def moments(graph: Graph, sizes: Mapping[str, int] | None = None) -> Iterator[Moment]:
    """Every call, in order. Raises GraphError for a value without a type."""
    owners = _owners(graph)
    last = _last_readers(graph, owners)
    dropped: dict[Node, list[Node]] = {}
    for owner, reader in last.items():
        dropped.setdefault(reader, []).append(owner)
    held: Polynomial = {}
    values: dict[Node, None] = {}
    for node in graph.nodes:
        if owners.get(node) is node:
            values[node] = None
            _add(held, stored(node, sizes), 1)
        if node.op.startswith("call_"):
            yield Moment(node, held, values)
        dead = dropped.get(node, [])
        if owners.get(node) is node and node not in last:
            dead = [*dead, node]
        for value in dead:
            del values[value]
            _add(held, stored(value, sizes), -1)


def lifetimes(graph: Graph) -> dict[Node, tuple[int, int]]:
    """For each value that holds memory the first and the last call, by number, during which it is
    there; results stay up to the last one."""
    owners = _owners(graph)
    last = _last_readers(graph, owners)
    calls = [node for node in graph.nodes if node.op.startswith("call_")]
    number = {node: step for step, node in enumerate(calls)}
    final = len(calls) - 1
    return {
        node: (step, number.get(last.get(node, node), final))
        for node, step in number.items()
        if owners.get(node) is node
    }


def _last_readers(graph: Graph, owners: dict[Node, Node]) -> dict[Node, Node]:
    last: dict[Node, Node] = {}
    for node in graph.nodes:
        last.update((owners[used], node) for used in node.all_input_nodes if used in owners)
    return last


def _owners(graph: Graph) -> dict[Node, Node]:
    """For each computed value the node whose memory it is in; views of inputs and of weights have
    none."""
    owners: dict[Node, Node] = {}
    for node in graph.nodes:
        if not node.op.startswith("call_"):
            continue
        if node.op == "call_function" and node.all_input_nodes and is_view(node.target):
            source = owners.get(node.all_input_nodes[0])
            if source is not None:
                owners[node] = source
        else:
            owners[node] = node
    return owners


def stored(node: Node, sizes: Mapping[str, int] | None = None) -> Polynomial:
    """Bytes of a node's value. Raises GraphError for one without a type."""
    total: Polynomial = {}
    env = tuple((sizes or {}).items())
    for type in node.type if isinstance(node.type, tuple | list) else (node.type,):
        if not isinstance(type, TensorType):
            raise GraphError(f"{node.describe()} has no type; trace with input types")
        _add(total, _type_bytes(type, env), 1)
    return total


@functools.lru_cache(maxsize=4096)
def _type_bytes(type: TensorType, env: tuple[tuple[str, int], ...]) -> Polynomial:
    nbytes = shapes.substitute(type.nbytes, dict(env))
    if isinstance(nbytes, int):
        return {1: nbytes}
    terms = nbytes.as_coefficients_dict()
    return {1 if key == 1 else key: int(factor) for key, factor in terms.items()}


def _add(total: Polynomial, terms: Polynomial, sign: int) -> None:
    """Add terms to a polynomial, in place; a term that vanishes is removed."""
    for key, factor in terms.items():
        total[key] = total.get(key, 0) + sign * factor
        if not total[key]:
            del total[key]


def _is_covered(small: Polynomial, large: Polynomial) -> bool:
    """True if no term of ``small`` is larger: it cannot be more for any sizes. A term that might be
    negative has to be the same in both."""
    for key in small.keys() | large.keys():
        difference = large.get(key, 0) - small.get(key, 0)
        if difference < 0 or (difference > 0 and key != 1 and not key.is_nonnegative):
            return False
    return True


def as_dim(terms: Polynomial) -> Dim:
    """A polynomial as an int or an expression."""
    if not terms.keys() - {1}:
        return terms.get(1, 0)
    return shapes.normalize(sum((sympy.Integer(f) * key for key, f in terms.items()), start=0))
