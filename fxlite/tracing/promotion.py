"""The promotion doctor: finds NumPy scalars that widen the values with which they are combined.

In: a traced graph. Out: a warning with the line of the program if an expression such as ``q @ k / np.sqrt(d)`` turns
float32 into float64. This also happens in NumPy, whose scalars have a dtype, unlike Python numbers. The warning tells
how many values are widened, what this costs, and what to write instead. There is none for a program with float64
inputs, because it then is intended.
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass

from fxlite.base.errors import number_of
from fxlite.graph.graph import Graph, Node
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType


class PromotionWarning(UserWarning):
    """A NumPy scalar widens the values that a program computes."""


@dataclass(frozen=True)
class Widening:
    """At ``node``, numbers of dtype ``narrow`` are combined with ``scalar`` and become ``wide``; ``values`` are all
    nodes that are widened by this, including ``node``."""

    node: Node
    scalar: Node
    narrow: DType
    wide: DType
    values: tuple[Node, ...]

    def __str__(self) -> str:
        loc = self.node.loc
        where, text = (str(loc), loc.expression) if loc is not None else (self.node.name, self.node.name)
        text = " ".join(text.split())
        found = re.search(r"\bnp\.(\w+)\(", text)
        instead = "a Python number: float(...) around NumPy's"
        if found and callable(getattr(math, found[1], None)):
            instead = f"math.{found[1]} in place of np.{found[1]}, or float(...) around it"
        count = len(self.values)
        return (
            f"{where}: in `{text}` a scalar of NumPy, {self.scalar.type.dtype}, makes {self.narrow} {self.wide}, as it "
            f"does in NumPy; {'this value is' if count == 1 else f'{count} values from there on are'} {self.wide}"
            f"{self._cost()}. To stay with {self.narrow}, use {instead}"
        )

    def _cost(self) -> str:
        """The memory that the values take, and that they would take otherwise."""
        times = self.wide.itemsize // self.narrow.itemsize
        total = shapes.normalize(sum(n.type.size for n in self.values))
        known = ""
        if type(total) is int:
            known = f" ({total * self.wide.itemsize:,} bytes for {total * self.narrow.itemsize:,})"
        return f": {times} times the memory{known}, and instructions compute 1/{times} of the numbers"


#: The dtypes of numbers of more than 32 bits.
_WIDE = frozenset(d for d in dtypes.ALL if d.is_inexact and d.real.itemsize > 4)


def widenings(graph: Graph) -> list[Widening]:
    """The places of a graph where scalars widen other numbers, in order, without those that follow from earlier ones.
    Empty if an input already has the widest numbers."""
    found: list[Widening] = []
    wide = [n for n in graph.nodes if isinstance(n.type, TensorType) and n.type.dtype in _WIDE]
    if not wide or any(n.op == "placeholder" for n in wide):
        return found
    scalars: set[Node] = set()
    covered: set[Node] = set()
    for node in graph.nodes:
        if not isinstance(node.type, TensorType):
            continue
        inputs = node.all_input_nodes
        if node.type.rank == 0 and node.op in ("get_attr", "call_function") and scalars.issuperset(inputs):
            scalars.add(node)
            continue
        if node.op != "call_function" or node.target.kind != "pointwise" or node in covered:
            continue
        numbers = [n for n in inputs if n in scalars]
        others = [n.type.dtype for n in inputs if n not in scalars and isinstance(n.type, TensorType)]
        if not numbers or not others or not any(d.is_inexact for d in others) or not node.type.dtype.is_inexact:
            continue
        narrow = max((d for d in others if d.is_inexact), key=_precision)
        if _precision(node.type.dtype) > _precision(dtypes.result_type(*others)):
            values = _followers(node, _precision(narrow))
            covered.update(values)
            found.append(Widening(node, numbers[0], narrow, node.type.dtype, values))
    return found


def _precision(dtype: DType) -> int:
    """The bytes of one real number; 0 for dtypes that are not inexact."""
    return dtype.real.itemsize if dtype.is_inexact else 0


def _followers(node: Node, bytes: int) -> tuple[Node, ...]:
    """The node and the nodes that are computed from it with numbers of more bytes."""
    found, work = {node: None}, [node]
    while work:
        for user in work.pop().users:
            is_wide = isinstance(user.type, TensorType) and _precision(user.type.dtype) > bytes
            if user.op == "call_function" and is_wide and user not in found:
                found[user] = None
                work.append(user)
    return tuple(found)


def warn_of_widening(graph: Graph) -> None:
    """Warn about the first place, and mention the number of others."""
    found = widenings(graph)
    if not found:
        return
    first, more = found[0], len(found) - 1
    text = str(first) + (f". {number_of(more, 'more place')} like this one" if more else "")
    loc = first.node.loc
    if loc is None:
        warnings.warn(text, PromotionWarning, stacklevel=3)
    else:
        warnings.warn_explicit(text, PromotionWarning, loc.file, loc.line)
