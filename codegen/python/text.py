"""Regenerated Python as text: the names of values, and expressions.

In: a graph, and its nodes. Out: :class:`Names`, which knows the names in use, and Python text that means the
same when run on arrays and when traced again. Values keep the graph's names unless those would hide a
builtin, an import or the class (``sum`` becomes ``sum_``). Parameters of ``forward`` keep the program's
names; imports that conflict with them are renamed.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import itertools
import keyword
import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import fxlite.nn.functional as F
from fxlite.base.location import FunctionCall
from fxlite.base.on_demand import is_expression
from fxlite.base.outside_text import is_number, python_string
from fxlite.codegen.kernel.names import file_name
from fxlite.codegen.python.layers import Input, Layer, picked
from fxlite.codegen.python.parameters import Parameters, Record, parameters_of, records_in, results_of, roots
from fxlite.graph.graph import Graph, Node
from fxlite.nn.container import Weights
from fxlite.ops.op import Op
from fxlite.ops.own.foreign import ForeignOp
from fxlite.scalar.index import Index, to_text
from fxlite.show.text.pretty import complex_text, dims_read, has_operator, path_text
from fxlite.types import shapes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType

# -- names -----------------------------------------------------------------------------------------
_SOFT = frozenset(("match", "case", "type", "_"))
_ALIASES = ("F", "ops", "shapes", "math", "np", "torch", "jnp")  # of modules, in all dialects
_LONGEST = 100  # characters of the name of a file or class


def module_name(name: str) -> str:
    """``MiniLM`` -> ``mini_lm``: the name of a Python file."""
    snake = file_name(name)
    if keyword.iskeyword(snake):
        return f"{snake}_"
    return f"m_{snake}" if snake[0].isdigit() else snake


def class_name(name: str) -> str:
    """``residual_net`` -> ``ResidualNet``: the name of a class."""
    words = re.sub(r"\W+", "_", name, flags=re.ASCII)[:_LONGEST].split("_")
    joined = "".join(w[:1].upper() + w[1:] for w in words if w) or "Model"
    joined = f"Model{joined}" if joined[0].isdigit() else joined
    taken = hasattr(builtins, joined) or keyword.iskeyword(joined)
    return f"{joined}Model" if taken or joined in (*_USED_BY_TEXT, *_ALIASES, "nn", "fx", "I", "O") else joined


_USED_BY_TEXT = frozenset(("Weights", "Buffer", "Path", "NamedTuple", "Any", "WEIGHTS", "ValueError", "dataclass"))


def is_attribute(part: str) -> bool:
    """True if ``self.PART`` reaches a weight or child of that name; otherwise ``self["PART"]`` is needed."""
    plain = part.isidentifier() and part.isascii() and not keyword.iskeyword(part)
    if part.startswith("__"):
        return False  # Python mangles such names in a class
    return plain and not hasattr(Weights, part) and part not in ("load", "training", "children")


def attribute_text(path: str) -> str:
    """``layers.0.weight`` -> ``self.layers[0].weight``"""
    return path_text(path, is_attribute)


class _Taken:
    """Names that are in use."""

    def __init__(self, names: Iterable[str]) -> None:
        self.taken = set(names)

    def unique(self, wish: str, builtin: bool = False) -> str:
        """The name, or a similar one if it is taken or would hide a Python builtin (unless ``builtin``)."""
        hidden = not builtin and (hasattr(builtins, wish) or wish in _SOFT)
        name = f"{wish}_" if hidden or keyword.iskeyword(wish) else wish
        while name in self.taken:
            name = f"{name}_"
        self.taken.add(name)
        return name


def numbered(wish: str, taken: Container[str], separator: str = "_") -> str:
    """The name, followed by a number from 2 on if it is taken."""
    name, count = wish, 1
    while name in taken:
        count += 1
        name = f"{wish}{separator}{count}"
    return name


class FileNames(_Taken):
    """Names that all classes of a file share, chosen so that no parameter hides them. ``imports`` are those of
    modules, ``helpers`` those of functions that the file itself defines, ``functions`` those of wrapped
    functions that are imported from the program, and ``records`` those of dataclasses and named tuples in the
    result of the first graph."""

    def __init__(
        self, graphs: Sequence[Graph], class_name: str, imports: Iterable[str], helpers: Iterable[str]
    ) -> None:
        super().__init__({"self", "fx", "nn", class_name, *_USED_BY_TEXT})
        self.taken |= {name for name, _, _ in roots(graphs[0])}
        for graph in graphs:
            for node in graph.placeholders:
                shape = node.type.shape if isinstance(node.type, TensorType) else ()
                self.taken |= shapes.names(shape)
        self.imports = {name: self.unique(name) for name in imports}
        self.helpers = {name: self.unique(name, builtin=True) for name in helpers}
        self.functions: dict[ForeignOp, str] = {}
        for node in itertools.chain.from_iterable(graph.nodes for graph in graphs):
            if isinstance(node.target, ForeignOp) and node.target not in self.functions:
                self.functions[node.target] = self.unique(node.target.function.__name__)
        #: By the identity of a module: the order of its parameters, as positions in its graph.
        self.orders: dict[int, Sequence[Any]] = {}
        #: By the identity of a module: its results, by number, in the order in which they return.
        self.results: dict[int, Sequence[int]] = {}
        #: By the identity of a module: the call of a function that it is; what that is called, and
        #: given besides its inputs.
        self.calls: Mapping[int, FunctionCall] = {}
        self.kept: dict[int, tuple[str, Sequence[str]]] = {}
        #: By the identity of a module: the layer that it is.
        self.layers: dict[int, Layer] = {}
        #: By kind, name and fields of the program's.
        self.records: dict[tuple[str, str, tuple[str, ...]], str] = {}
        for found in records_in(results_of(graphs[0])):
            if found not in self.records:
                self.records[found] = self.unique(found[1])


class Names(_Taken):
    """Names of values by node. ``parameters`` are those of forward's parameters; ``parts`` maps a node with
    several results to the names of the parts, whose own nodes are ``unpacked``. ``inputs`` are the names of
    inputs in a module of the program; values are then named after their ops, because the graph's names are
    those of the whole program."""

    def __init__(self, graph: Graph, file: FileNames, inputs: Mapping[Node, str] | None = None) -> None:
        own = [name for names in (file.imports, file.helpers, file.functions, file.records) for name in names.values()]
        own += [name for name, _ in file.kept.values()]
        super().__init__({"self"})
        self.file, self.short = file, inputs is not None
        self._names: dict[Node, str] = {}
        self.parameters: dict[Node, str] = {}
        if inputs is not None:  # otherwise imports that conflict with parameters are renamed
            self.taken |= {"fx", "nn", *_USED_BY_TEXT, *own, *dim_names(graph)}
        self.given = Parameters()  #: those of the whole program
        if inputs is None:
            self.given = parameters_of(graph, functools.partial(self.unique, builtin=True))
            self.parameters = {n: self.given.texts[n.target] for n in graph.placeholders}
        for node, wish in inputs.items() if inputs is not None else ():
            usable = not keyword.iskeyword(wish) and wish != "self"
            self.parameters[node] = self.unique(wish if usable else f"{wish}_", builtin=True)
        self.taken |= {"fx", "nn", *_USED_BY_TEXT, *own}
        for node in graph.placeholders:
            for name in shapes.names(node.type.shape if isinstance(node.type, TensorType) else ()):
                self.taken.add(name)
        for node in graph.nodes:
            if node.op == "placeholder":
                text = self.parameters[node]
                same = self.short or node.name == node.target or not text.isidentifier()
                is_state = text.startswith("self.")
                self._names[node] = text if same and not is_state else self.unique(node.name)
            elif node.op.startswith("call_"):
                self._names[node] = self.unique(self._wish(node))
        self.parts: dict[Node, list[str]] = {}
        self.unpacked: set[Node] = set()
        for node in graph.nodes:
            self._unpack(node)

    def __getitem__(self, node: Node) -> str:
        return self._names[node]

    def __setitem__(self, node: Node, name: str) -> None:
        self._names[node] = name

    def rename(self, node: Node, names: Sequence[str]) -> None:
        """Another name for a value, or other names for its parts."""
        if node not in self.parts:
            (self._names[node],) = names
            return
        for user in node.users:
            self._names[user] = names[user.arguments["index"]]
        self.parts[node] = list(names)

    def _wish(self, node: Node) -> str:
        """The preferred name of a value."""
        if node.op == "call_module" and is_number(node.target):
            return f"layer_{node.target}"
        if not self.short:
            return node.name
        if node.op == "call_function":
            return str(node.target.name)
        return re.sub(r"(?<=\D)_\d+$", "", node.name)

    def unique(self, wish: str, builtin: bool = False) -> str:
        if not self.short:
            return super().unique(wish, builtin)
        hidden = {wish} if hasattr(builtins, wish) else set()
        return super().unique(numbered(wish, self.taken | hidden), builtin=True)

    def _unpack(self, node: Node) -> None:
        """Write ``first, second = ops.split(...)`` instead of a ``getitem`` for each part."""
        if not node.op.startswith("call_") or not isinstance(node.type, tuple):
            return
        if any(u.op != "call_function" or u.target.name != "getitem" for u in node.users):
            return
        names = ["_"] * len(node.type)
        for user in node.users:
            index = user.arguments["index"]
            if names[index] != "_":
                return  # one part is read twice
            if re.fullmatch(r"getitem(_\d+)?", user.name):  # nobody chose that name
                self._names[user] = self.unique(f"{self._names[node]}_{index}")
            names[index] = self._names[user]
        self.parts[node] = names
        self.unpacked.update(node.users)


def frozen(value: Any) -> Any:
    """Nested values in hashable form, as a key of a dict."""
    if isinstance(value, (tuple, list)):
        return tuple(map(frozen, value))
    if isinstance(value, Record):
        return tuple(map(frozen, value.values))
    if isinstance(value, dict):
        return tuple((key, frozen(v)) for key, v in value.items())
    return value if isinstance(value, Node) else repr(value)


# -- expressions -----------------------------------------------------------------------------------
_NUMBER = re.compile("\0([^\0]*)\0([^\0]*)\0")


def number_text(value: Any, role: str = "") -> str:
    """A literal that may become a parameter of a class, if several modules are alike except for such numbers.
    ``role`` is its name then, in braces if it stands between quotes. :func:`with_numbers` replaces it."""
    return f"\0{role}\0{repr(value).replace('e+', 'e')}\0"


def numbers_in(text: str) -> list[tuple[str, str]]:
    """(role, literal) of the numbers in a text."""
    return _NUMBER.findall(text)


def with_numbers(text: str, replace: Callable[[str, str], str] = lambda role, literal: literal) -> str:
    """The text with ``replace(role, literal)`` for each of its numbers, and with slices."""
    text = _NUMBER.sub(lambda found: replace(found[1], found[2]), text)
    return _SLICE.sub(_slice, text) if "\1" in text else text


_SLICE = re.compile("\1([^\1]*)\1([^\1]*)\1([^\1]*)\1")


def slice_text(*parts: str) -> str:
    """``2:5`` for start, stop and step, each empty if it is not given. :func:`with_numbers` sets the spaces,
    which depend on the text of its numbers."""
    return "\1" + "".join(f"{part}\1" for part in parts)


def _slice(found: re.Match[str]) -> str:
    """A slice formatted as by ruff: ``2:n``, ``n + 1 : 5``, ``: self.size``."""
    parts = found.groups()
    if all(re.fullmatch(r"-?\w*", part) for part in parts):
        return ":".join(parts if parts[2] else parts[:2])
    shown = f"{parts[0]} : {parts[1]}" + (f" : {parts[2]}" if parts[2] else "")
    return shown.strip()


#: Functions of nn.functional that mean something else than the op of that name.
_OTHER_MEANING = frozenset(("flatten", "pad", "interpolate", "dropout", "dropout1d", "dropout2d"))
_RENAMED = {"dim": "axis", "keepdim": "keepdims", "input": "x"}
_SIMPLE = re.compile(r"-?[\w.]+")
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
#: Operators, by how strongly they bind: the weakest first. The eighth sort has one operand.
_SYMBOLS = (" ".join(_COMPARISONS), "|", "^", "&", "<< >>", "+ -", "* / // % @", "", "**")
LEVELS = {symbol: level for level, symbols in enumerate(_SYMBOLS, 1) for symbol in symbols.split()}
_UNARY, CALL = 8, 11


class Text:
    """Prints values with the names of :class:`Names`; numbers by :func:`number_text`."""

    def __init__(self, names: Names, orders: Mapping[str, Sequence[int]]) -> None:
        self.names, self.file = names, names.file
        self.orders = orders  #: of the modules that are called, by path
        self.layers: Mapping[str, Layer] = {}  #: those that are layers, by path
        #: Those that are functions, by path: their names, and arguments besides the inputs.
        self.functions: Mapping[str, tuple[str, Sequence[str]]] = {}
        #: Values that have no name, but are written where they are read: the text, and how strongly
        #: its operator binds.
        self.inlined: dict[Node, tuple[str, int]] = {}
        #: Lists of values that have a name, by what :func:`frozen` makes of them.
        self.listed: dict[Any, str] = {}

    def inline(self, node: Node, text: str) -> None:
        """Write a value where it is read."""
        self.inlined[node] = text, CALL if node.op == "get_attr" else self.level(node)

    def level(self, node: Node) -> int:
        """The binding strength of the operator that :meth:`call` writes for a value."""
        if node.op == "call_function" and self._operator(node) is not None:
            return LEVELS[node.target.symbol] if len(node.args) > 1 else _UNARY
        return CALL

    def value(self, value: Any) -> str:
        """An argument as Python text."""
        if isinstance(value, Node):
            if value in self.inlined:
                return self.inlined[value][0]
            return attribute_text(value.target) if value.op == "get_attr" else self.names[value]
        if isinstance(value, DType):
            return self.dtype(value)
        if isinstance(value, str):
            return python_string(value)
        if isinstance(value, float) and not math.isfinite(value):
            module = self.file.imports["np" if "np" in self.file.imports else "math"]
            infinity = f"{module}.{'nan' if math.isnan(value) else 'inf'}"
            return f"-{infinity}" if value < 0 else infinity
        if is_expression(value):
            return self.dim(value)
        if self.listed and isinstance(value, (tuple, list)) and frozen(value) in self.listed:
            return self.listed[frozen(value)]
        if isinstance(value, tuple):
            inner = ", ".join(map(self.value, value))
            if hasattr(value, "_fields"):
                return f"{self.file.records[next(records_in(value))]}({inner})"
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, Record) and value.structure.kind == "first":
            elements, count = map(self.value, value.values)
            lead = ":, " * (value.structure.value or 0)
            return f"{elements}[{lead}:{count}]"
        if isinstance(value, Record):
            kind, _, keys = known = next(records_in(value))
            texts = [*map(self.value, value.values)]
            if kind == "dataclass":
                texts = [f"{key}={text}" for key, text in zip(keys, texts)]
            return f"{self.file.records[known]}({', '.join(texts)})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.value, value))}]"
        if isinstance(value, dict):
            pairs = (f"{self.value(k)}: {self.value(v)}" for k, v in value.items())
            return "{" + ", ".join(pairs) + "}"
        if isinstance(value, slice):
            parts = (value.start, value.stop, value.step)
            return f"slice({', '.join(map(self.value, parts))})"
        if isinstance(value, complex):
            return complex_text(value, part_text=self.value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return number_text(value)
        return repr(value)

    def scalar(self, value: Any) -> str:
        """A value of rank 0 as NumPy's number of its dtype."""
        number = value.item()
        short = str(value[()])  # the shortest text that gives it
        if isinstance(number, float) and float(value.dtype.type(float(short))) == number:
            number = float(short)
        kind = f"{self.file.imports['np']}.{value.dtype.type.__name__}"
        if isinstance(number, complex):
            return f"{kind}({self.value(number)})"
        return f"{kind}({number_text(number, 'factor')})"

    def dtype(self, value: DType) -> str:
        """A dtype as Python text."""
        return f'"{value.name}"'

    def extremum_text(self, name: str) -> str:
        """The function that gives the ``min`` or ``max`` of two dims."""
        return f"{self.file.imports['shapes']}.{name}imum"

    def dim(self, value: Any) -> str:
        """A dim as Python text: ``4*D``, ``(H + 1)//2``."""
        text = to_text(Index.of(value), repr, "//", self.extremum_text)
        text = text.replace("*", " * ")
        outer = text.startswith("(") and text.endswith(")") and _is_one_bracket(text)
        return text[1:-1] if outer else text

    def given(self, node: Node) -> list[Any]:
        """The arguments of a module, in the order of its parameters."""
        order = self.orders.get(node.target, range(len(node.args)))
        return [picked(place, node.args) for place in order]

    def arguments(self, node: Node) -> list[str]:
        """The arguments as text, with options."""
        layer = self.layers.get(node.target)
        options = {} if layer is None else dict(layer.options)
        by_name = {k: picked(v, node.args) if isinstance(v, (tuple, Input)) else v for k, v in options.items()}
        named = [f"{name}={self.value(value)}" for name, value in by_name.items()]
        return [*map(self.value, self.given(node)), *named]

    def part(self, node: Node) -> str:
        """The place of the result that is read, if a layer returns several: ``[1][0]``."""
        layer = self.layers.get(node.target) if node.op == "call_module" else None
        return "" if layer is None else layer.place

    def call(self, node: Node) -> str:
        """The right-hand side of a node's line."""
        if node.op == "call_module" and node.target in self.functions:
            name, others = self.functions[node.target]
            return f"{name}({', '.join([*self.arguments(node), *others])})"
        if node.op == "call_module":
            called = f"{attribute_text(node.target)}({', '.join(self.arguments(node))})"
            return f"{called}{self.part(node)}"
        target: Op = node.target
        if isinstance(target, ForeignOp):
            parts = [self.value(a) for a in node.args]
            if not target.takes_in_order:
                parts = [f"{k}={v}" for k, v in zip(target.tensor_kinds, parts)]
            for name, value in node.kwargs.items():  # NumPy does not accept fxlite's dtypes
                called = value.long_name if isinstance(value, DType) else value
                parts.append(f"{name}={self.value(called)}")
            return f"{self.file.functions[target]}({', '.join(parts)})"
        operator = self._operator(node)
        if operator is not None:
            return operator
        if target.method is not None and isinstance(node.args[0], Node):
            _, given = node.bound.values()
            if isinstance(given, tuple):
                owner = self.owner(node.args[0])
                return f"{owner}.{target.method}({', '.join(map(self.value, given)) or '()'})"
        if target.name in F.__all__ and target.name not in _OTHER_MEANING:
            text = self._functional(node)
            if text is not None:
                return text
        text = self.in_numpy(node)
        if text is not None:
            return text
        parts = [self.value(a) for a in node.args]
        parts += [f"{k}={self.value(v)}" for k, v in node.kwargs.items()]
        return f"{self.file.imports['ops']}.{target.name}({', '.join(parts)})"

    def _operator(self, node: Node) -> str | None:
        target: Op = node.target
        if not has_operator(node) or not any(isinstance(a, Node) for a in node.args):
            return None
        if len(node.args) == 1:
            operand = self._operand(node.args[0], CALL)
            is_again = operand.strip("(").startswith(str(target.symbol))
            return None if is_again else f"{target.symbol}{operand}"
        left, right = node.args
        symbol = target.symbol or ""
        level = LEVELS[symbol]
        if target.symbol in _COMPARISONS and not isinstance(left, Node):
            return None  # Python would call the array on the right with the reflected operator
        is_power = target.symbol == "**"
        first = self._operand(left, level + (is_power or level == LEVELS["<"]))  # a < b < c means two comparisons of b
        second = self._operand(right, level + 1)
        if is_power:
            if with_numbers(first).startswith("-"):
                first = f"({first})"  # -2 ** x is -(2 ** x)
            is_short = all(_SIMPLE.fullmatch(with_numbers(side)) for side in (first, second))
            return f"{first}**{second}" if is_short else f"{first} ** {second}"
        return f"{first} {target.symbol} {second}"

    def in_numpy(self, node: Node) -> str | None:
        """The call in NumPy's spelling, if the dialect has one."""
        return None

    def owner(self, value: Any) -> str:
        """A value whose method is called, or that is indexed."""
        return self._operand(value, CALL)

    def _operand(self, value: Any, level: int) -> str:
        """A value next to an operator, in parentheses if its own operator binds less tightly."""
        text, own = self.value(value), CALL
        if isinstance(value, Node) and value in self.inlined:
            own = self.inlined[value][1]
        return text if own >= level else f"({text})"

    def _functional(self, node: Node) -> str | None:
        """The call in nn.functional's spelling; None if that cannot express it."""
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
                continue  # axis in addition to dim: another name for it
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
                value = defaults[own]  # the op's default, which differs from the function's
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
        return f"{self.file.imports['F']}.{target.name}({', '.join(parts)})"


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


def dim_names(graph: Graph) -> set[str]:
    """The named dims of the inputs."""
    types = [n.type for n in graph.placeholders if isinstance(n.type, TensorType)]
    return {name for type in types for name in shapes.names(type.shape)}


def dim_lines(graph: Graph, names: Names, inputs: Sequence[Node], checked: bool) -> Iterator[str]:
    """``B, T, _ = x.shape`` for the named dims that an attribute uses, or that a ``checked`` condition uses."""
    needed = frozenset[str]().union(
        *(shapes.names(list(n.kwargs.values())) for n in graph.nodes),
        *(guard.names for guard in graph.conditions() if checked),
    )
    plain, solved = dims_read(inputs, needed)
    for node, read in plain:
        if len(read) > 1:
            rank = node.type.rank
            length = max(read) + 1
            length += length == rank - 1
            part = "" if length == rank else f"[:{length}]"
            listed = ", ".join(read.get(axis, "_") for axis in range(length))
            yield f"{listed} = {names[node]}.shape{part}"
        else:
            yield from (f"{name} = {names[node]}.shape[{axis}]" for axis, name in read.items())
    for name, node, axis, scale, offset in solved:
        yield f"{name} = {_solved(f'{names[node]}.shape[{axis}]', scale, offset)}"


def _solved(place: str, scale: Any, offset: Any) -> str:
    """``(x.shape[0] - offset) // scale`` without redundant parts."""
    text = place
    if offset != 0:
        text = f"({text} - {offset})" if offset.is_Integer and offset > 0 else f"({text} - ({offset}))"
    if scale != 1:
        return f"{text} // {scale}" if scale.is_Integer else f"{text} // ({scale})"
    return text[1:-1] if text.startswith("(") else text
