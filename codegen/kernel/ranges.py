"""What integers a computed number may be, as far as its expression tells: ``clip(x, 0, 9)`` is from 0 to 9.

In: an expression, or a node of the graph. Out: the least and the largest value, or None. An index that is surely in
range needs no check, and loops without checks become SIMD code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fxlite.graph.graph import Node
from fxlite.passes.group import element_of
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, Cast, Const, Expr, IndexValue, Load, MultiIndex
from fxlite.scalar.index import Index
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType

#: The least and the largest value.
Range = tuple[int, int]
#: The nodes after which the search for the range of a loaded number ends.
_MOST_NODES = 8


def ranges_of(nodes: Mapping[str, Node], most: int = _MOST_NODES) -> Callable[[Load], Range | None]:
    """What is known of numbers that are loaded from the memory of nodes, which have these names."""
    found: dict[str, Range | None] = {}

    def known(load: Load) -> Range | None:
        if load.buffer not in found:
            node = nodes.get(load.buffer)
            found[load.buffer] = None if node is None else range_of(node, most)
        inside = found[load.buffer]
        if inside is None or load.guard is None:
            return inside
        return min(inside[0], 0), max(inside[1], 0)  # 0 where the guard fails

    return known


def range_of(node: Node, most: int = _MOST_NODES) -> Range | None:
    """The range of the elements of a node, if it holds integers; computed from a few nodes before it at most."""
    if not isinstance(node.type, TensorType) or not (node.type.dtype.is_integer or node.type.dtype.is_bool):
        return None
    if not most or node.op != "call_function" or node.target.kind not in ("pointwise", "view"):
        return _of_dtype(node.type.dtype)
    read: dict[str, Node] = {}

    def on_read(operand: Node, index: MultiIndex) -> Expr:
        read[operand.name] = operand
        return Load(operand.type.dtype, operand.name, index)

    place = tuple(Index.of(0 if d == 1 else expr.fresh_var(d, "v")) for d in node.type.shape)
    return between(element_of(node, place, on_read), ranges_of(read, most - 1))


def _of_dtype(dtype: DType) -> Range | None:
    """All numbers of a dtype, if it is small enough that this tells something."""
    if dtype.is_bool:
        return 0, 1
    if not dtype.is_integer or dtype.itemsize > 2:
        return None
    limits = np.iinfo(dtype.numpy)
    return int(limits.min), int(limits.max)


def between(value: Expr, known: Callable[[Load], Range | None]) -> Range | None:
    """The range of an integer expression; ``known`` tells that of a load."""
    found = _between(value, known) if value.dtype.is_integer else None
    if found is not None:
        limits = np.iinfo(value.dtype.numpy)
        if not limits.min <= found[0] <= found[1] <= limits.max:
            found = None  # it may wrap around
    return _of_dtype(value.dtype) if found is None else found


def _between(value: Expr, known: Callable[[Load], Range | None]) -> Range | None:
    if isinstance(value, Const):
        return int(value.value), int(value.value)
    if isinstance(value, Load):
        return known(value)
    if isinstance(value, Cast):
        return between(value.operand, known)
    if isinstance(value, IndexValue):
        ends = value.index.lower(), value.index.upper()
        least, most = (None if end is None else end.constant for end in ends)
        return None if least is None or most is None else (least, most)
    if not isinstance(value, Apply):
        return None
    return _of_function(value, [between(a, known) for a in value.args], known)


def _of_function(value: Apply, args: list[Range | None], known: Callable[[Load], Range | None]) -> Range | None:
    if value.function == "where":
        is_chosen = _answer(value.args[0], known)
        return _hull(args[1], args[2]) if is_chosen is None else args[1 if is_chosen else 2]
    if len(args) == 1:
        return _of_one(value.function, args[0])
    if len(args) != 2:
        return None
    one, other = args
    if value.function in ("mod", "fmod", "and", "floordiv", "shr"):
        return _of_division(value.function, one, other)
    if value.function in ("maximum", "minimum"):
        return _of_choice(value, one, other)
    if one is None or other is None:
        return None
    if value.function == "add":
        return one[0] + other[0], one[1] + other[1]
    if value.function == "sub":
        return one[0] - other[1], one[1] - other[0]
    if value.function == "mul":
        products = [a * b for a in one for b in other]
        return min(products), max(products)
    return None


def _answer(condition: Expr, known: Callable[[Load], Range | None]) -> bool | None:
    """Whether one integer is less than another, if their ranges tell: ``k < 0`` is false for a u8."""
    if not isinstance(condition, Apply) or condition.function not in ("lt", "ge"):
        return None
    one, other = (between(a, known) if a.dtype.is_integer else None for a in condition.args)
    if one is None or other is None or (one[1] >= other[0] and one[0] < other[1]):
        return None
    return (one[1] < other[0]) == (condition.function == "lt")


def _of_one(function: str, one: Range | None) -> Range | None:
    if one is None:
        return None
    if function == "neg":
        return -one[1], -one[0]
    if function == "abs":
        return max(one[0], -one[1], 0), max(one[1], -one[0])
    return None


def _of_division(function: str, one: Range | None, other: Range | None) -> Range | None:
    """The range of a remainder or quotient, or of bits that are selected or shifted, by numbers of one sign."""
    if function == "and":  # bits of a number that is not negative, which may be either one
        ends = [r[1] for r in (one, other) if r is not None and r[0] >= 0]
        return (0, min(ends)) if ends else None
    if other is None:
        return None
    least, most = other
    if function == "mod" and least > 0:
        return (0, most - 1) if one is None or one[0] < 0 else (0, min(one[1], most - 1))
    if function == "mod" and most < 0:
        return least + 1, 0
    if one is None or least < 0 or (least == 0 and function != "shr"):
        return None
    if function == "fmod":  # of the sign of the number that is divided
        return max(min(one[0], 0), 1 - most), min(max(one[1], 0), most - 1)
    if function == "floordiv":
        ends = [a // b for a in one for b in other]
    elif most < 64:
        ends = [a >> b for a in one for b in other]
    else:
        return None
    return min(ends), max(ends)


def _hull(one: Range | None, other: Range | None) -> Range | None:
    return None if one is None or other is None else (min(one[0], other[0]), max(one[1], other[1]))


def _of_choice(value: Apply, one: Range | None, other: Range | None) -> Range | None:
    """The range of the larger or the smaller of two numbers. If only one has a range, it tells one end, and the dtype
    the other one."""
    limits = np.iinfo(value.dtype.numpy)
    every = int(limits.min), int(limits.max)
    choose = max if value.function == "maximum" else min
    (a, b), (c, d) = one or every, other or every
    return choose(a, c), choose(b, d)
