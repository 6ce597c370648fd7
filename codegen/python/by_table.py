"""Dialects in which ops are written by a table: calls of a library's functions, and functions of
the file's own where the library has none.

In: for each op a spelling, or a function of a Python file that is kept as text (a
:class:`Library`). Out: :class:`TableText`, which prints values.
"""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from fxlite.base.errors import CodegenError
from fxlite.codegen.python.text import CALL, Text, number_text
from fxlite.graph.graph import Node
from fxlite.ops.op import Op
from fxlite.ops.own.foreign import ForeignOp
from fxlite.types import dtypes
from fxlite.types.dtypes import DType

_PARAMETER = re.compile(r"(\*?)(\w+)([=:?]?)(\w*)")
Method = TypeVar("Method", bound=Callable[..., Any])


class Library:
    """Functions and classes of a Python file, by name: their text, and what they need."""

    def __init__(self, file: str) -> None:
        self.path = Path(__file__).with_name(file)

    @functools.cached_property
    def text(self) -> Mapping[str, str]:
        """The text of each definition, in the order of the file."""
        source = self.path.read_text(encoding="utf-8")
        lines = source.splitlines()
        found = {}
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                found[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
        return found

    @functools.cached_property
    def needs(self) -> Mapping[str, frozenset[str]]:
        """The definitions of the file that each of them mentions."""
        found = {}
        for name, text in self.text.items():
            words = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
            found[name] = frozenset(words & self.text.keys() - {name})
        return found

    def definitions(self, names: Iterable[str]) -> str:
        """The text of definitions, and of what they need."""
        wanted: set[str] = set()
        waiting = [*names]
        while waiting:
            name = waiting.pop()
            if name not in wanted:
                wanted.add(name)
                waiting += self.needs[name]
        return "".join(f"{text}\n\n\n" for name, text in self.text.items() if name in wanted)


class Verbatim(str):
    """The text of an operand."""


def spellings(table: str) -> Mapping[str, str]:
    """Spellings by op, of lines with both."""
    rows = (line.strip().partition(" ") for line in table.strip().splitlines())
    return {name: spelling.strip() for name, _, spelling in rows}


def uses(*names: str) -> Callable[[Method], Method]:
    """Say which functions of the library a method of :class:`TableText` writes calls of, where it
    is not the one of the op's name."""

    def said(method: Method) -> Method:
        method.uses = names  # type: ignore[attr-defined]
        return method

    return said


def counted(start: Any, stop: Any, step: Any) -> tuple[list[Any], DType]:
    """The arguments of ``arange`` that have to be given, and the dtype that NumPy makes of them."""
    bounds = [0, start] if stop is None else [start, stop]
    bounds += [] if step == 1 else [step]
    usual = dtypes.float64 if float in map(type, bounds) else dtypes.int64
    if len(bounds) == 2 and type(bounds[0]) is int and bounds[0] == 0:
        del bounds[0]
    return bounds, usual


class TableText(Text):
    """Prints values by a table of spellings.

    A spelling is a function, or after a dot a method of the first operand, and which of the op's
    parameters it is given: ``np.sum x axis= keepdims=``. ``name=`` is given by that name and
    ``other=name`` by another, both only where the call does, as ``name?``; with ``:`` in place of
    ``=`` always; ``*name`` are all of them; a number is itself."""

    library: ClassVar[Library]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        #: What operands are cast to, while the call that reads them is printed.
        self.casts: Mapping[Node, DType] = {}

    # -- what is written how ---------------------------------------------------------------------
    @classmethod
    def is_known(cls, op: Op) -> bool:
        """Whether a call of the op can be written."""
        if op.symbol or op.method or hasattr(cls, f"op_{op.name}") or cls.spelling(op):
            return True
        return cls.helper(op) is not None

    @classmethod
    def spelling(cls, op: Op) -> str:
        """The op's spelling; empty where there is none."""
        raise NotImplementedError

    @classmethod
    def helper(cls, op: Op) -> str | None:
        """The function of the library that computes an op: of its name, perhaps for any rank."""
        names = (op.name, op.name.removesuffix("1d").removesuffix("2d").removesuffix("3d"))
        return next((name for name in names if name in cls.library.text), None)

    def cast_operands(self, node: Node) -> tuple[Mapping[Node, DType], DType | None]:
        """What operands of a call must be cast to, and what its result, if anything."""
        return {}, None

    def cast(self, text: str, dtype: DType) -> str:
        """A value, which binds as a call does, as another dtype."""
        raise NotImplementedError

    # -- calls -----------------------------------------------------------------------------------
    def call(self, node: Node) -> str:
        return self.spelled(node)[0]

    def level(self, node: Node) -> int:
        return self.spelled(node)[1]

    def spelled(self, node: Node) -> tuple[str, int]:
        """The right-hand side of a node's line, and how strongly it binds."""
        if node.op != "call_function" or isinstance(node.target, ForeignOp):
            return super().call(node), CALL
        operands, result = self.cast_operands(node)
        self.casts = operands
        try:
            text, level = self.plain(node)
        finally:
            self.casts = {}
        if result is None:
            return text, level
        return self.cast(text if level >= CALL else f"({text})", result), CALL

    def plain(self, node: Node) -> tuple[str, int]:
        """:meth:`spelled` before the result is cast."""
        target: Op = node.target
        write = getattr(self, f"op_{target.name}", None)
        if write is not None:
            found: tuple[str, int] | str = write(node, **node.bound)
            return (found, CALL) if isinstance(found, str) else found
        operator = self._operator(node)
        if operator is not None:
            return operator, super().level(node)
        spelling = self.spelling(target)
        if spelling:
            return self.by_spelling(node, spelling), CALL
        if target.method is not None:
            return super().call(node), CALL
        helper = self.helper(target)
        if helper is None:
            return self.by_spelling(node, self.default_spelling(target)), CALL
        return self.by_helper(node, helper, node.arguments), CALL

    def default_spelling(self, op: Op) -> str:
        """The spelling of an op that the table lacks."""
        raise CodegenError(f"the op {op.name} cannot be written in this dialect")

    def by_spelling(self, node: Node, spelling: str) -> str:
        """A call as its spelling says."""
        head, *parameters = spelling.split()
        given, bound = node.arguments, node.bound
        parts: list[str] = []
        if head.startswith("."):
            head = f"{self.owner(node.args[0])}{head}"
        else:
            head = self.function(head)
        for parameter in parameters:
            star, keyword, sign, name = _PARAMETER.findall(parameter)[0]
            name = name or keyword
            if sign in ("=", "?") and given.get(name) is None:
                continue
            if star:
                parts += map(self.value, bound[name])
            else:
                text = self.value(bound[name]) if name in bound else name
                parts.append(f"{keyword}={text}" if sign in ("=", ":") else text)
        return f"{head}({', '.join(parts)})"

    def by_helper(self, node: Node, helper: str, given: Mapping[str, Any], *first: str) -> str:
        """A call of a function of the file's own, which has the parameters of the op."""
        return self.by_call(self.file.helpers[helper], node, given, *first)

    def by_call(self, function: str, node: Node, given: Mapping[str, Any], *first: str) -> str:
        """A call of a function that has the parameters of the op: operands by position, others by
        name."""
        parts, by_position = [*first], True
        for name in node.target.tensor_kinds:
            value = given.get(name)
            if value is None:
                by_position = False
                continue
            text = self.named(name, value)
            parts.append(text if by_position else f"{name}={text}")
        others = {n: v for n, v in given.items() if n not in node.target.tensor_kinds}
        parts += [f"{name}={self.named(name, value)}" for name, value in others.items()]
        return f"{function}({', '.join(parts)})"

    # -- parts of text ---------------------------------------------------------------------------
    def named(self, name: str, value: Any) -> str:
        """An argument; a number that becomes a parameter of a class is called as it is here."""
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number_text(value, name) if is_number and math.isfinite(value) else self.value(value)

    def function(self, name: str) -> str:
        """``np.sum`` with the name that the module has in this file."""
        module, dot, rest = name.partition(".")
        return f"{self.file.imports.get(module, module)}{dot}{rest}"

    def value(self, value: Any) -> str:
        if isinstance(value, Verbatim):
            return str(value)
        text = super().value(value)
        if isinstance(value, Node) and value in self.casts:
            if value in self.inlined and self.inlined[value][1] < CALL:
                text = f"({text})"
            return self.cast(text, self.casts[value])
        return text

    def _operand(self, value: Any, level: int) -> str:
        if isinstance(value, Node) and value in self.casts:
            return self.value(value)
        return super()._operand(value, level)
