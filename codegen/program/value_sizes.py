"""Which values of a program have to be counted before a call (:mod:`.runtime.sizes`).

In: a :class:`~fxlite.codegen.program.program.Program`. Out: one :class:`ValueSize` for each value
that may become too large at some sizes of the named dims; those that are never larger than another
one are left out. What a program with only numbers needs is decided here, so that it has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fxlite.codegen.runtime.abi import DimText
from fxlite.codegen.runtime.sizes import CONSTANT, HOLLOW, STORED_VALUE, ValueSize, count_values
from fxlite.graph.graph import Node
from fxlite.scalar.index import Index, to_text
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.codegen.program.program import Program


def dim_data(dim: Dim) -> int | DimText:
    """A dim as what is known of a compiled program holds it."""
    if type(dim) is int:
        return dim
    return DimText(to_text(Index.of(dim)))


def value_sizes(program: Program) -> tuple[ValueSize, ...]:
    """The values to count, in the order of the program.

    Raises MemoryLimitError naming a value with numbers as sizes that no machine can hold."""
    values = list(_values(program))
    title = program.module.name
    numbers = [v for v in values if all(isinstance(d, int) for d in v.shape)]
    count_values(numbers, {}, STORED_VALUE, title)
    kept: dict[int, tuple[ValueSize, Counter[str]]] = {}
    for value in sorted(filter(_is_open, values), key=_weight, reverse=True):
        named = Counter(str(d) for d in value.shape if not isinstance(d, int))
        if not any(_covers(*other, value, named) for other in kept.values()):
            kept[id(value)] = value, named
    return tuple(v for v in values if id(v) in kept)


def _values(program: Program) -> Iterator[ValueSize]:
    held = {n for found in program.groups for n in found.stored} | set(program.results)
    seen: set[tuple[object, ...]] = set()
    for node in program.module.graph.nodes:
        if is_counted(node):
            stored = node in held and node.op == "call_function"
            if (key := (node.type, stored)) not in seen:
                seen.add(key)
                yield value_of(node, stored)


def is_counted(node: Node) -> bool:
    """Whether a node is one array that a call is given or computes."""
    return node.op in ("placeholder", "call_function") and isinstance(node.type, TensorType)


def value_of(node: Node, stored: bool) -> ValueSize:
    """A node's value as it is counted."""
    dtype, shape = node.type.dtype, tuple(map(dim_data, node.type.shape))
    takes_memory = stored and 0 not in shape
    return ValueSize(node.name, dtype.name, dtype.itemsize, shape, node.origin, takes_memory)


def _is_open(value: ValueSize) -> bool:
    """Whether it has to be counted in a call."""
    if any(not isinstance(d, int) for d in value.shape):
        return True
    counted = _known_bytes(value)
    return counted > (HOLLOW if 0 in value.shape else CONSTANT if value.stored else counted)


def _weight(value: ValueSize) -> tuple[int, bool]:
    """What covers others comes first: many known bytes, and of as many, a stored value."""
    return _known_bytes(value), value.stored


def _known_bytes(value: ValueSize) -> int:
    return value.bytes_counted([d for d in value.shape if isinstance(d, int)])


def _covers(one: ValueSize, mine: Counter[str], other: ValueSize, its: Counter[str]) -> bool:
    """Whether ``other``, of no more known bytes, can be too large only where ``one`` is, too;
    ``mine`` and ``its`` are how often they have which named axes."""
    if 0 in other.shape and 0 not in one.shape:
        return False  # only that one may be hollow
    if not other.stored:
        return its <= mine
    return its == mine and one.stored
