"""The words that a graph's text needs itself, and how they are written if the graph uses them as names.

In: a graph. Out: :class:`Words`. A graph may have inputs and named dims called ``inf`` or ``ops``;
its text then begins with ``from fxlite.show.text.words import inf as inf_``, which both Python and
:func:`fxlite.parse` understand. The function that runs the text gets the words' values from here.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from math import inf as inf
from math import nan as nan
from typing import Any, NamedTuple

import numpy as np

from fxlite import ops as ops
from fxlite.graph.graph import Graph
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType

Min, Max = shapes.minimum, shapes.maximum
slice, complex = slice, complex


def Mod(a: int, b: int) -> int:
    """The remainder of a size ``a`` divided by ``b``."""
    return a % b


def range(lower: Any, upper: Any) -> Iterator[np.int64]:
    """The values of a loop variable, which are i64."""
    return map(np.int64, builtins.range(int(lower), int(upper)))


class Words(NamedTuple):
    """The spelling of each word in a text."""

    ops: str = "ops"
    inf: str = "inf"
    nan: str = "nan"
    slice: str = "slice"
    complex: str = "complex"
    Min: str = "Min"
    Max: str = "Max"
    Mod: str = "Mod"
    range: str = "range"

    def import_lines(self, code: Iterable[str]) -> list[str]:
        """The import that a text begins with if its code spells words differently: one line, or none."""
        if self is USUAL:
            return []
        found = set(re.findall(r"\w+", "\n".join(code)))
        others = [f"{n} as {w}" for n, w in zip(self._fields, self) if n != w and w in found]
        return [f"from fxlite.show.text.words import {', '.join(others)}"] if others else []


USUAL = Words()
_NUMBERS = {"inf": inf, "nan": nan}


def words_of(graph: Graph) -> Words:
    """The words of a graph's text: the usual ones, except those that name an input, a value or a dim of
    the graph."""
    inputs = graph.placeholders
    taken = {"self", *(str(node.target) for node in inputs)} | graph._store.namer.taken
    if taken.isdisjoint(USUAL):
        return USUAL
    taken = {"self", *(str(node.target) for node in inputs), *(n.name for n in graph.nodes)}
    for node in inputs:
        if isinstance(node.type, TensorType):
            taken |= shapes.names(node.type.shape)
    spelled = []
    for word in USUAL:
        while word in taken:
            word += "_"
        spelled.append(word)
    return Words(*spelled)


class _Usual(ast.NodeTransformer):
    """Writes words as usual again. This makes nothing ambiguous, as the position of a word tells calls and
    numbers from values."""

    def __init__(self, usual: dict[str, str]) -> None:
        self.usual = usual

    def visit_Call(self, node: ast.Call) -> ast.AST:
        base = node.func
        while isinstance(base, ast.Attribute):
            base = base.value
        if isinstance(base, ast.Name):
            base.id = self.usual.get(base.id, base.id)
        node.args = [self.visit(a) for a in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        number = _NUMBERS.get(self.usual.get(node.id, ""))
        return node if number is None else ast.copy_location(ast.Constant(number), node)


def with_usual_words(tree: ast.Module) -> ast.Module:
    """The tree of a text without the spellings that :meth:`Words.import_lines` introduces."""
    usual: dict[str, str] = {}
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module == __name__:
            usual |= {n.asname: n.name for n in statement.names if n.asname}
    return _Usual(usual).visit(tree) if usual else tree
