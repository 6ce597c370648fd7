"""Regenerated Python as text: what each value is called, and expressions.

In: a graph, and its nodes. Out: :class:`Names`, which says which names are taken, and Python text
that means the same when run on arrays and when traced again. Values keep the graph's names unless
those would hide a builtin, an import or the class (``sum`` becomes ``sum_``); parameters of
``forward`` keep the program's names, and imports give way to them.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import keyword
import math
import re
from collections.abc import Iterator
from typing import Any

import sympy

import fxlite.nn.functional as F
from fxlite.base.outside_text import python_string
from fxlite.graph.graph import Graph, Node, nodes_in
from fxlite.nn.container import Weights
from fxlite.ops.op import Op
from fxlite.ops.wrapping import WrappedOp
from fxlite.scalar.index import Index, to_text
from fxlite.show.text.pretty import has_operator
from fxlite.types import shapes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType

# -- names -----------------------------------------------------------------------------------------
_SOFT = frozenset(("match", "case", "type", "_"))
#: Modules that the text uses, by the names it prefers.
_IMPORTS = ("F", "ops", "shapes", "math")


_LONGEST = 100  # characters of the name of a file or class


def module_name(name: str) -> str:
    """``MiniLM`` -> ``mini_lm``: the name of a Python file."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    snake = re.sub(r"\W+", "_", snake, flags=re.ASCII).strip("_")[:_LONGEST] or "model"
    return (
        f"{snake}_" if keyword.iskeyword(snake) else f"m_{snake}" if snake[0].isdigit() else snake
    )


def class_name(name: str) -> str:
    """``residual_net`` -> ``ResidualNet``: the name of a class."""
    words = re.sub(r"\W+", "_", name, flags=re.ASCII)[:_LONGEST].split("_")
    joined = "".join(w[:1].upper() + w[1:] for w in words if w) or "Model"
    joined = f"Model{joined}" if joined[0].isdigit() else joined
    taken = hasattr(builtins, joined) or keyword.iskeyword(joined)
    return (
        f"{joined}Model" if taken or joined in (*_USED_BY_TEXT, *_IMPORTS, "nn", "fx") else joined
    )


_USED_BY_TEXT = frozenset(("Weights", "Buffer", "Path", "NamedTuple", "Any", "WEIGHTS"))


def is_attribute(part: str) -> bool:
    """True if ``self.PART`` reaches a weight or child of that name; else it must be
    ``self["PART"]``."""
    plain = part.isidentifier() and part.isascii() and not keyword.iskeyword(part)
    return plain and not hasattr(Weights, part) and part not in ("load", "training", "children")


def attribute_text(path: str) -> str:
    """``layers.0.weight`` -> ``self.layers[0].weight``"""
    text = "self"
    for part in path.split("."):
        if part.isdigit() and str(int(part)) == part:
            text += f"[{part}]"
        else:
            text += f".{part}" if is_attribute(part) else f"[{python_string(part)}]"
    return text


class Names:
    """Names of values by node. ``parameters`` are those of forward's parameters, ``imports`` those
    of modules, ``functions`` those of wrapped functions, ``tuples`` those of named-tuple classes;
    ``parts`` maps a node with several results to the names of the parts, whose own nodes are
    ``unpacked``."""

    def __init__(self, graph: Graph, class_name: str) -> None:
        self._names: dict[Node, str] = {}
        self._taken = {"self"}
        self.parameters: dict[Node, str] = {}
        for node in graph.placeholders:
            wish = str(node.target)
            usable = not keyword.iskeyword(wish) and wish != "self"
            self.parameters[node] = self._unique(wish if usable else f"{wish}_", builtin=True)
        self._taken |= {"fx", "nn", class_name, *_USED_BY_TEXT}
        for node in graph.placeholders:
            for name in shapes.names(node.type.shape if isinstance(node.type, TensorType) else ()):
                self._taken.add(name)
        self.imports = {name: self._unique(name) for name in _IMPORTS}
        #: Wrapped functions, which are imported from the program.
        self.functions: dict[WrappedOp, str] = {}
        for node in graph.nodes:
            if isinstance(node.target, WrappedOp) and node.target not in self.functions:
                self.functions[node.target] = self._unique(node.target.function.__name__)
        self.tuples: dict[Any, str] = {}
        for found in _named_tuples(graph.output_node().args[0]):
            if found not in self.tuples:
                self.tuples[found] = self._unique(found.__name__)
        for node in graph.nodes:
            if node.op == "placeholder":
                same = node.name == node.target
                self._names[node] = self.parameters[node] if same else self._unique(node.name)
            elif node.op == "call_function":
                self._names[node] = self._unique(node.name)
        self.parts: dict[Node, list[str]] = {}
        self.unpacked: set[Node] = set()
        for node in graph.nodes:
            self._unpack(node)

    def __getitem__(self, node: Node) -> str:
        return self._names[node]

    def _unique(self, wish: str, builtin: bool = False) -> str:
        hidden = not builtin and (
            hasattr(builtins, wish) or wish in _SOFT or keyword.iskeyword(wish)
        )
        name = f"{wish}_" if hidden else wish
        while name in self._taken:
            name = f"{name}_"
        self._taken.add(name)
        return name

    def _unpack(self, node: Node) -> None:
        """``first, second = ops.split(...)`` in place of a ``getitem`` for each."""
        if node.op != "call_function" or not isinstance(node.type, tuple):
            return
        if any(u.op != "call_function" or u.target.name != "getitem" for u in node.users):
            return
        names = ["_"] * len(node.type)
        for user in node.users:
            index = user.arguments["index"]
            if names[index] != "_":
                return  # one part read twice
            if re.fullmatch(r"getitem(_\d+)?", user.name):  # nobody chose that name
                self._names[user] = self._unique(f"{self._names[node]}_{index}")
            names[index] = self._names[user]
        self.parts[node] = names
        self.unpacked.update(node.users)


def _named_tuples(value: Any) -> list[Any]:
    """The named-tuple classes in a nested result."""
    found = []
    if hasattr(value, "_fields"):
        found.append(type(value))
    if isinstance(value, (tuple, list)):
        found += [f for v in value for f in _named_tuples(v)]
    elif isinstance(value, dict):
        found += [f for v in value.values() for f in _named_tuples(v)]
    return found


def reads(node: Node) -> list[Node]:
    """Nodes among the arguments, repeats included."""
    return [*nodes_in(node.args), *nodes_in(node.kwargs)]


# -- expressions -----------------------------------------------------------------------------------
#: Functions of nn.functional that mean something else than the op of that name.
_OTHER_MEANING = frozenset(("flatten", "pad", "interpolate", "dropout", "dropout1d", "dropout2d"))
_RENAMED = {"dim": "axis", "keepdim": "keepdims", "input": "x"}
_SIMPLE = re.compile(r"-?[\w.]+")
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


class Text:
    """Prints values with the names of :class:`Names`."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def value(self, value: Any) -> str:
        """An argument as Python text."""
        if isinstance(value, Node):
            return attribute_text(value.target) if value.op == "get_attr" else self.names[value]
        if isinstance(value, DType):
            return f'"{value.name}"'
        if isinstance(value, str):
            return python_string(value)
        if isinstance(value, float) and not math.isfinite(value):
            infinity = f"{self.names.imports['math']}.{'nan' if math.isnan(value) else 'inf'}"
            return f"-{infinity}" if value < 0 else infinity
        if isinstance(value, sympy.Expr):
            return self.dim(value)
        if isinstance(value, tuple):
            inner = ", ".join(map(self.value, value))
            if hasattr(value, "_fields"):
                return f"{self.names.tuples[type(value)]}({inner})"
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.value, value))}]"
        if isinstance(value, dict):
            pairs = (f"{self.value(k)}: {self.value(v)}" for k, v in value.items())
            return "{" + ", ".join(pairs) + "}"
        if isinstance(value, slice):
            parts = (value.start, value.stop, value.step)
            return f"slice({', '.join(map(self.value, parts))})"
        return repr(value)

    def dim(self, value: Any) -> str:
        """A dim as Python text: ``4*D``, ``(H + 1)//2``."""
        module = self.names.imports["shapes"]
        text = to_text(Index.of(value), repr, "//", (f"{module}.minimum", f"{module}.maximum"))
        text = text.replace("*", " * ")
        outer = text.startswith("(") and text.endswith(")") and _is_one_bracket(text)
        return text[1:-1] if outer else text

    def call(self, node: Node) -> str:
        """The right-hand side of a node's line."""
        target: Op = node.target
        operator = self._operator(node)
        if operator is not None:
            return operator
        if target.name in F.__all__ and target.name not in _OTHER_MEANING:
            text = self._functional(node)
            if text is not None:
                return text
        parts = [self.value(a) for a in node.args]
        if isinstance(target, WrappedOp) and not target.keeps_order:
            parts = [f"{k}={v}" for k, v in zip(target.tensor_kinds, parts)]
        parts += [f"{k}={self.value(v)}" for k, v in node.kwargs.items()]
        if isinstance(target, WrappedOp):
            return f"{self.names.functions[target]}({', '.join(parts)})"
        return f"{self.names.imports['ops']}.{target.name}({', '.join(parts)})"

    def _operator(self, node: Node) -> str | None:
        target: Op = node.target
        if not has_operator(node) or not any(isinstance(a, Node) for a in node.args):
            return None
        if len(node.args) == 1:
            return f"{target.symbol}{self.value(node.args[0])}"
        left, right = node.args
        if target.symbol in _COMPARISONS and not isinstance(left, Node):
            return None  # Python would ask the array on the right, with the operator turned around
        first, second = self.value(left), self.value(right)
        if target.symbol == "**":
            if first.startswith("-"):
                first = f"({first})"  # -2 ** x is -(2 ** x)
            return f"{first}**{second}" if _SIMPLE.fullmatch(second) else f"{first} ** {second}"
        return f"{first} {target.symbol} {second}"

    def _functional(self, node: Node) -> str | None:
        """The call in nn.functional's spelling; None where that cannot say it."""
        target: Op = node.target
        parameters = _parameters(target.name)
        defaults = {p.name: p.default for p in target.signature.parameters.values()}
        given = dict(node.arguments)
        parts: list[str] = []
        by_position = True
        said: set[str] = set()
        for parameter in parameters:
            own = _RENAMED.get(parameter.name, parameter.name)
            if own in said:
                continue  # axis beside dim: another name of it
            said.add(own)
            required = parameter.default is parameter.empty
            if own in given:
                value = given.pop(own)
            elif own not in defaults:
                if required:
                    return None
                by_position = False
                continue
            elif required or parameter.default != defaults[own]:
                value = defaults[own]  # the op's default, which is not the function's
                if value is inspect.Parameter.empty:
                    return None
            else:
                by_position = False
                continue
            by_position = by_position and parameter.kind is not parameter.KEYWORD_ONLY
            is_tensor = own in target.tensor_kinds or required
            text = self.value(value)
            parts.append(text if by_position and is_tensor else f"{parameter.name}={text}")
            by_position = by_position and is_tensor
        if given:
            return None
        return f"{self.names.imports['F']}.{target.name}({', '.join(parts)})"


@functools.cache
def _parameters(name: str) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(getattr(F, name)).parameters.values())


def _is_one_bracket(text: str) -> bool:
    depth = 0
    for position, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0 and position < len(text) - 1:
            return False
    return True


def dim_lines(graph: Graph, names: Names) -> Iterator[str]:
    """``B = x.shape[0]`` for every named dim that an attribute or a condition uses."""
    needed = frozenset[str]().union(
        *(shapes.names(list(n.kwargs.values())) for n in graph.nodes),
        *(guard.names for guard in graph.conditions()),
    )
    bound: set[str] = set()
    pending: list[tuple[Any, str]] = []
    for node in graph.placeholders:
        for axis, dim in enumerate(node.type.shape if isinstance(node.type, TensorType) else ()):
            place = f"{names[node]}.shape[{axis}]"
            if isinstance(dim, sympy.Symbol) and dim.name not in bound:
                bound.add(dim.name)
                if dim.name in needed:
                    yield f"{dim.name} = {place}"
            elif not isinstance(dim, int):
                pending.append((dim, place))
    for dim, place in pending:
        unknown = [s for s in dim.free_symbols if s.name not in bound]
        if len(unknown) != 1 or not dim.is_polynomial(unknown[0]):
            continue
        polynomial = sympy.Poly(dim, unknown[0])
        if polynomial.degree() == 1:
            scale, offset = polynomial.all_coeffs()
            bound.add(unknown[0].name)
            if unknown[0].name in needed:
                yield f"{unknown[0].name} = {_solved(place, scale, offset)}"


def _solved(place: str, scale: Any, offset: Any) -> str:
    """``(x.shape[0] - offset) // scale`` without needless parts."""
    text = place
    if offset != 0:
        text = (
            f"({text} - {offset})" if offset.is_Integer and offset > 0 else f"({text} - ({offset}))"
        )
    if scale != 1:
        return f"{text} // {scale}" if scale.is_Integer else f"{text} // ({scale})"
    return text[1:-1] if text.startswith("(") else text
