"""Reading a graph back from its text, which may have been edited by hand:
``parse(graph.text(full=True)) == graph``.

In: the exact text of a graph, or the output of ``print(graph)`` if that leaves out nothing. Out: a
:class:`~fxlite.graph.graph.Graph`, or a ParseError that names the line and what was expected there.
The text is parsed with :mod:`ast` and never run.

Each line is ``name: type = expression``; an expression is a call ``ops.NAME(...)``, an operator on
values (``x + y``, ``-x``, ``x @ w``), a weight ``self.fc.weight``, or a call of a leaf module
``self.head(x)``. Lines like ``B = x.shape[0]`` say where a named dim comes from and are skipped;
``assert T <= 512`` is a guard or, with the comment ``declared``, a fact of a named dim. ``if``,
``while`` and ``for`` are nodes with sub-graphs (:mod:`fxlite.show.text.blocks`). Types may be left
out; those that are given must agree with the op's type rule. The comment on the right gives scope and
location (file name, line); ``# weights:`` gives the types of weights.
"""

from __future__ import annotations

import ast
import contextlib
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import FxliteError, ParseError, did_you_mean, expect, number_of
from fxlite.base.location import Location, Scope
from fxlite.base.outside_text import assigned_name, bounded, syntax_tree
from fxlite.base.state import paused_gc
from fxlite.graph.graph import Graph, Node
from fxlite.graph.pytree import one_by_one, state_target
from fxlite.ops.op import REGISTRY, Op, lookup
from fxlite.show.comparison.compare import types_equal
from fxlite.show.text.blocks import BlockParser
from fxlite.show.text.words import with_usual_words
from fxlite.types import guards, shapes
from fxlite.types.guards import Guard
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType, parse_type

_BINARY = "+ - * / // % ** @ & | ^ << >>".split()
_COMPARED = "== != < <= > >=".split()
_SYMBOLS: dict[type, str] = {
    **{type(ast.parse(f"x {s} y", mode="eval").body.op): s for s in _BINARY},  # type: ignore[attr-defined]
    **{type(ast.parse(f"x {s} y", mode="eval").body.ops[0]): s for s in _COMPARED},  # type: ignore[attr-defined]
}
_UNARY: dict[type, str] = {ast.USub: "-", ast.Invert: "~"}
_NUMBERS = {"inf": math.inf, "nan": math.nan}


@bounded(ParseError, "the text")
@checked
def parse(text: str) -> Graph:
    """The graph that prints as ``text``. Raises ParseError with line and column."""
    expect(text, str, "the text of a graph")
    with paused_gc():
        return _Parser(textwrap.dedent(text)).run()


class _Parser(BlockParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.lines = text.splitlines()
        self.graph = Graph()
        self.values: dict[str, Node] = {}
        self.weights: dict[str, Node] = {}
        self.types: dict[str, TensorType] = {}
        self.weight_types: dict[str, TensorType | None] = {}
        self.listed: list[str] = []  # weights of the comment that are still to be made, last first
        self.dims: set[str] = set()
        self.origin: tuple[Scope | None, Location | None] = (None, None)
        self.origins: dict[str, tuple[Scope | None, Location | None]] = {}  # by comment
        self.operators = {(o.symbol, len(o.tensor_kinds)): o for o in REGISTRY.values() if o.symbol}

    def error(self, at: Any, message: str) -> ParseError:
        return error_at(self.lines, at, message)

    # -- the whole -----------------------------------------------------------------------------
    def run(self) -> Graph:
        try:
            tree = syntax_tree(self.text, "exec")
        except SyntaxError as error:
            number, column = error.lineno or 1, (error.offset or 1) - 1
            message = f"not Python text: {error.msg}"
            raise error_at_column(self.lines, number, column, 1, message) from None
        tree = with_usual_words(tree)
        body = [s for s in tree.body if not isinstance(s, ast.ImportFrom)]
        if len(body) != 1 or not isinstance(body[0], ast.FunctionDef):
            raise self.error(1, "expected one function: def forward(self, x: f32[B,3]):")
        function = body[0]
        self._refuse_shortened()
        self.weight_types = listed_weights(self.lines)
        self._reserve(function)
        conditions = [s for s in function.body if isinstance(s, ast.Assert)]
        self._declared_dims(conditions)
        self._placeholders(function)
        self._guards(conditions)
        *before, last = function.body
        is_empty = isinstance(last, ast.Pass)
        body_lines = before if is_empty else function.body
        self.statements([s for s in body_lines if not isinstance(s, ast.Assert)])
        if is_empty and all(node.op == "placeholder" for node in self.graph.nodes):
            return self.graph  # one that is still to be written
        if self.graph._store.root._prev.op != "output":
            raise self.error(len(self.lines), "expected a last line: return value")
        return self.graph

    def _refuse_shortened(self) -> None:
        """Raise ParseError for a text that leaves out parts of its graph."""
        for number, line in enumerate(self.lines, 1):
            if _SHORTENED.match(line):
                raise self.error(number, "this text leaves out something; fx.parse reads graph.text(full=True)")

    def _reserve(self, function: ast.FunctionDef) -> None:
        """Reserve the names in the text for their lines, so that weights get other ones. Note which of
        the weights in the comment are read."""
        if self.weight_types:
            read = weights_in(self.text)
            self.listed = [t for t in reversed(self.weight_types) if t in read]
        self.graph._store.namer.taken.update(_all_assigned(function.body))

    def _placeholders(self, function: ast.FunctionDef) -> None:
        arguments = function.args
        if not arguments.args or arguments.args[0].arg != "self":
            raise self.error(function, "the first parameter must be self")
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs:
            raise self.error(function, "expected plain parameters: name: type")
        parameters = arguments.args[1:]
        defaults: list[Any] = [None] * (len(parameters) - len(arguments.defaults))
        renamed = {
            s.value.id: s.targets[0].id
            for s, following in pairwise([*function.body, None])
            if isinstance(s, ast.Assign) and isinstance(s.value, ast.Name)
            if isinstance(s.targets[0], ast.Name) and not isinstance(following, ast.For | ast.While)
        }
        called = called_inputs(self.lines)
        for parameter, default in zip(parameters, [*defaults, *arguments.defaults], strict=True):
            found = self._type(parameter.annotation) if parameter.annotation else None
            if isinstance(found, TensorType):
                self.dims |= shapes.names(found.shape)
            is_needed = default is None or (isinstance(default, ast.Constant) and default.value is Ellipsis)
            args = () if is_needed else (self._literal(default),)
            name = renamed.get(parameter.arg, parameter.arg)
            target = called.get(parameter.arg, parameter.arg)
            self._new(parameter, "placeholder", target, args, {}, name, found)

    # -- conditions on named dims ---------------------------------------------------------------
    def _conditions(self, statement: ast.Assert, loc: Location | None = None) -> list[Guard]:
        try:
            return guards.from_ast(statement.test, ast.unparse(statement.test), loc)
        except FxliteError as error:
            raise self.error(statement, str(error)) from None

    def _declared_dims(self, conditions: list[ast.Assert]) -> None:
        """``assert 1 <= T <= 512  # declared``: facts of the named dims of the inputs."""
        self.graph.specialized = specialized_dims(self.lines)
        for statement in conditions:
            if self._comment(statement) == "declared":
                try:
                    found = self._conditions(statement)
                    dim = guards.facts_from(found, ast.unparse(statement.test))
                except FxliteError as error:
                    raise self.error(statement, str(error)) from None
                self.graph.declare_dims({dim.name: dim})

    def _guards(self, conditions: list[ast.Assert]) -> None:
        """``assert T <= 512  # model.py:12: assert x.shape[1] <= self.max_len``"""
        found: list[Guard] = []
        for statement in conditions:
            comment = self._comment(statement)
            if comment != "declared":
                place = check_of(comment or self._comment_before(statement))
                found += self._conditions(statement, place)
        for guard in found:
            if unknown := sorted(guard.names - self.dims):
                raise self.error(1, f"{guard}: {unknown[0]} is not a named dim of an input")
        if found:
            self.graph.guards = found

    # -- lines ---------------------------------------------------------------------------------
    def _statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Return):
            self.origin = (None, None)
            if statement.value is None:
                raise self.error(statement, "expected: return value")
            self.graph.current_origin = self.origin
            self.graph.output(self._structure(statement.value))
            self.graph.current_origin = None
            self._read_writes(statement)
            return
        name = assigned_name(statement)
        if name is None or not isinstance(statement, (ast.Assign, ast.AnnAssign)):
            raise self.error(statement, "expected: name: type = ops.NAME(...), or return value")
        value = statement.value
        if value is None:
            raise self.error(statement, f"{name} has a type but no value")
        if isinstance(statement, ast.Assign):
            if isinstance(value, ast.Name) and self.values.get(name) is not None:
                return  # x_1 = x: another name for a parameter
            if self._reads_a_shape(value):
                self.dims.add(name)  # B = x.shape[0]
                return
        if self.graph._store.length and self.graph._store.root._prev.op == "output":
            raise self.error(statement, "nothing may follow the return")
        declared = self._type(statement.annotation) if isinstance(statement, ast.AnnAssign) else None
        self._read_origin(statement)
        self._define(statement, name, value, declared)

    def _read_writes(self, statement: ast.Return) -> None:
        """``# writes add into self.count``: the inputs that the last results are written into."""
        said = re.fullmatch(r"writes (.+)", self._comment(statement) or self._comment_before(statement))
        if said is None:
            return
        targets = [str(node.target) for node in self.graph.placeholders]
        writes: list[str] = []
        states: list[tuple[str, str]] = []
        for part in said[1].split(", "):
            path = part.partition(" into ")[2]
            if path.startswith("self."):
                path, _, named = path.removeprefix("self.").partition(" as ")
                found = named or state_target(path, ())
                states.append((found, path))
            else:
                found = path
            if found not in targets or found in writes:
                raise self.error(statement, f"the comment says that {path!r} is written, but it is not an input")
            writes.append(found)
        own = [target for target in targets if target not in dict(states)]
        self.graph.interface = replace(one_by_one(tuple(own)), writes=tuple(writes), states=tuple(states))

    def _reads_a_shape(self, value: ast.expr) -> bool:
        return any(
            isinstance(part, ast.Attribute)
            and part.attr == "shape"
            and isinstance(part.value, ast.Name)
            and part.value.id in self.values
            for part in ast.walk(value)
        )

    def _read_origin(self, statement: ast.stmt) -> None:
        """Read scope and location from the comment on the right or on the line before; without a comment
        they are those of the line before."""
        comment = self._comment(statement)
        if not comment:
            comment = self._comment_before(statement)
            if origin_of(comment)[1] is None:
                return
        if comment not in self.origins:
            self.origins[comment] = origin_of(comment)
        self.origin = self.origins[comment]

    def _comment(self, statement: ast.stmt) -> str:
        """The text after a line's ``#``."""
        last = statement.test if isinstance(statement, ast.If) else statement
        end = last.end_lineno or last.lineno
        text = cut(self.lines[end - 1], last.end_col_offset or 0, None).strip(": ")
        return text[1:].strip() if text.startswith("#") else ""

    def _comment_before(self, statement: ast.stmt) -> str:
        """The comment on the line before, which may have begun on lines above."""
        place, parts = statement.lineno - 2, list[str]()
        while (text := self.lines[place].strip()).startswith("#"):
            parts.insert(0, text[1:].strip())
            place -= 1
            if not text.startswith("#   "):
                break
        return " ".join(parts)

    def _define(self, at: ast.stmt, name: str, value: ast.expr, declared: Any) -> None:
        node = self._expression(value, name, declared)
        if not isinstance(node, Node):
            raise self.error(at, f"expected a call or an operator, not {ast.unparse(value)!r}")
        if node.name != name:
            self.values[name] = node  # w = self.fc.weight: another name for it
        if declared is not None:
            self.check_declared(at, node, declared)

    def check_declared(self, at: ast.stmt, node: Node, declared: Any) -> None:
        """Raise ParseError if the type in a line is not that of the node."""
        if node.type is not None and not types_equal(node.type, declared):
            raise self.error(
                getattr(at, "annotation", at), f"{assigned_name(at)} is declared {declared}, but it is {node.type}"
            )

    def _new(
        self,
        at: Any,
        op: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None,
        type: Any = None,
    ) -> Node:
        graph = self.graph
        if name is not None:
            if self.is_value(name):
                raise self.error(at, f"{name} is defined twice")
            graph._store.namer.taken.discard(name)
        graph.current_origin = self.origin
        try:
            node = graph.create_node(op, target, args, kwargs, name, type)
        except FxliteError as error:
            raise self.error(at, str(error)) from None
        finally:
            graph.current_origin = None
        if name is not None:
            if node.name != name:
                raise self.error(at, f"{name!r} cannot be the name of a value")
            self.values[name] = node
        return node

    # -- values --------------------------------------------------------------------------------
    def _expression(self, value: ast.expr, name: str | None = None, declared: Any = None) -> Any:
        """A tensor operand: a node, a number, or None. ``name`` is for the node it makes."""
        if isinstance(value, ast.Call):
            is_complex = isinstance(value.func, ast.Name) and _is_complex(value)
            return self._literal(value) if is_complex else self._call(value, name, declared)
        if isinstance(value, ast.Name):
            return self._name(value)
        if isinstance(value, (ast.Attribute, ast.Subscript)):
            return self._weight(value)
        if not self._has_tensor(value):
            with contextlib.suppress(ParseError):
                return self._literal(value)
        if isinstance(value, ast.BinOp):
            return self._operator(value, value.op, (value.left, value.right), name)
        if isinstance(value, ast.Compare) and len(value.ops) == 1:
            return self._operator(value, value.ops[0], (value.left, *value.comparators), name)
        if isinstance(value, ast.UnaryOp):
            return self._operator(value, value.op, (value.operand,), name)
        raise self.error(value, f"expected a value, not {ast.unparse(value)!r}")

    def _has_tensor(self, value: ast.expr) -> bool:
        """True if an expression certainly has a tensor operand; the rest is tried as a literal."""
        if isinstance(value, ast.BinOp):
            return self._has_tensor(value.left) or self._has_tensor(value.right)
        if isinstance(value, ast.UnaryOp):
            return self._has_tensor(value.operand)
        return isinstance(value, ast.Name) and self.is_value(value.id)

    def _operator(self, at: ast.expr, op: Any, operands: Any, name: str | None) -> Node:
        symbol = (_SYMBOLS if len(operands) == 2 else _UNARY).get(type(op))
        found = self.operators.get((symbol, len(operands))) if symbol else None
        if found is None:
            raise self.error(at, f"no op is written {ast.unparse(at)!r}")
        args = tuple(self._expression(o) for o in operands)
        return self._new(at, "call_function", found, args, {}, name)

    def _name(self, value: ast.Name) -> Any:
        node = self.find(value.id)
        if node is not None:
            return node
        if value.id in _NUMBERS:
            return _NUMBERS[value.id]
        hint = did_you_mean(value.id, self.values, 2)
        raise self.error(value, f"{value.id} is not defined before this line{hint}")

    def _weight(self, value: ast.expr) -> Node:
        wanted = self._path(value)
        while wanted not in self.weights:  # those before it in the comment are made first
            target = self.listed.pop() if wanted in self.listed else wanted
            declared = self.weight_types.get(target)
            inner = self.graph
            self.graph = self.around[0][0] if self.around else inner
            self.weights[target] = self._new(value, "get_attr", target, (), {}, None, declared)
            self.graph = inner
        return self._captured(self.weights[wanted])

    def _path(self, value: ast.expr) -> str:
        """``self.layers[0].weight`` -> ``layers.0.weight``"""
        parts: list[str] = []
        current = value
        while not isinstance(current, ast.Name):
            if isinstance(current, ast.Attribute):
                parts.append(current.attr)
                current = current.value
            elif isinstance(current, ast.Subscript) and isinstance(current.slice, ast.Constant):
                parts.append(str(current.slice.value))
                current = current.value
            else:
                break
        if not isinstance(current, ast.Name) or current.id != "self" or not parts:
            raise self.error(value, f"expected self.PATH or a value, not {ast.unparse(value)!r}")
        return ".".join(reversed(parts))

    def _call(self, call: ast.Call, name: str | None, declared: Any) -> Node:
        function = call.func
        if any(k.arg is None for k in call.keywords):
            raise self.error(call, "expected name=value, not **")
        op_name = _op_name(function)
        if op_name is None:
            target = self._path(function)
            args = tuple(self._structure(a) for a in call.args)
            kwargs = {str(k.arg): self._structure(k.value) for k in call.keywords}
            return self._new(call, "call_module", target, args, kwargs, name, declared)
        try:
            op = lookup(op_name)
        except FxliteError as error:
            raise self.error(call, str(error)) from None
        parameters = list(op.signature.parameters)
        if len(call.args) > len(parameters):
            raise self.error(call, f"ops.{op.name} takes {number_of(len(parameters), 'argument')}")
        args = tuple(self._argument(op, p, a) for p, a in zip(parameters, call.args))
        kwargs = {
            str(k.arg): self._argument(op, str(k.arg), k.value)
            for k in call.keywords
            if not (op.is_random and ast.unparse(k.value) == "self.training")
        }
        return self._new(call, "call_function", op, args, kwargs, name)

    def _argument(self, op: Op, parameter: str, value: ast.expr) -> Any:
        kind = op.tensor_kinds.get(parameter)
        if kind is None:
            return self._literal(value)
        if kind == "Tensors":
            if not isinstance(value, (ast.Tuple, ast.List)):
                raise self.error(value, f"{parameter} of ops.{op.name} is a tuple of values: (a, b)")
            return tuple(self._expression(v) for v in value.elts)
        return self._expression(value)

    def _structure(self, value: ast.expr) -> Any:
        """Nested tuples, lists and dicts of values."""
        if isinstance(value, (ast.Tuple, ast.List)):
            made = [self._structure(v) for v in value.elts]
            return made if isinstance(value, ast.List) else tuple(made)
        if isinstance(value, ast.Dict):
            keys = [self._literal(k) if k is not None else None for k in value.keys]
            return dict(zip(keys, map(self._structure, value.values)))
        return self._expression(value)

    def _literal(self, value: ast.expr) -> Any:
        """An attribute: numbers, text, dims, None, tuples and lists of them, slice(...)."""
        if isinstance(value, ast.Constant):
            return value.value
        if isinstance(value, (ast.Tuple, ast.List)):
            made = [self._literal(v) for v in value.elts]
            return made if isinstance(value, ast.List) else tuple(made)
        if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
            inner = self._literal(value.operand)
            if isinstance(inner, (int, float, complex)):
                return -inner
        found = self._complex(value)
        if found is not None:
            return found
        if isinstance(value, ast.Name):
            if value.id in _NUMBERS and value.id not in self.dims:
                return _NUMBERS[value.id]
            if self.is_value(value.id):
                raise self.error(value, f"{value.id} is a value; a number or a dim is expected here")
        called = value.func if isinstance(value, ast.Call) else None
        if isinstance(value, ast.Call) and isinstance(called, ast.Name) and called.id == "slice":
            return slice(*(self._literal(a) for a in value.args))
        for part in ast.walk(value):
            if isinstance(part, ast.Name) and part.id not in self.dims | _DIM_FUNCTIONS:
                raise self.error(value, f"{part.id} is neither a value nor a named dim of an input")
        try:
            return shapes.from_ast(value, ast.unparse(value))
        except FxliteError as error:
            raise self.error(value, str(error)) from None

    def _complex(self, value: ast.expr) -> complex | None:
        """``1+2j`` or ``complex(inf, 0.0)``; None for any other expression."""
        if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
            imaginary = value.right
            if not isinstance(imaginary, ast.Constant) or type(imaginary.value) is not complex:
                return None
            real = self._literal(value.left)
            if type(real) in (int, float):
                return complex(real + imaginary.value if isinstance(value.op, ast.Add) else real - imaginary.value)
        if isinstance(value, ast.Call) and _is_complex(value):
            parts = [self._literal(a) for a in value.args]
            if len(parts) == 2 and all(type(p) in (int, float) for p in parts):
                return complex(*parts)
            raise self.error(value, "complex takes a real and an imaginary part, two numbers")
        return None

    # -- types ---------------------------------------------------------------------------------
    def _type(self, value: ast.expr) -> Any:
        if isinstance(value, (ast.Tuple, ast.List)):
            return tuple(self._type(v) for v in value.elts)
        if isinstance(value, ast.Dict):
            keys = [k.id if isinstance(k, ast.Name) else self._literal(k) for k in value.keys if k]
            return dict(zip(keys, map(self._type, value.values)))
        try:
            text = self._source(value)
            found = self.types.get(text)
            if found is None:
                found = self.types[text] = parse_type(text)
            return found.substitute(own) if (own := self.graph.declared_dims) else found
        except FxliteError as error:
            raise self.error(value, str(error)) from None

    def _source(self, value: ast.expr) -> str:
        """The text of an expression. (``ast.unparse`` takes longer than everything else.)"""
        if value.lineno != value.end_lineno:
            return ast.unparse(value)
        return cut(self.lines[value.lineno - 1], value.col_offset, value.end_col_offset)


_DIM_FUNCTIONS = {"Min", "Max", "Mod", "min", "max"}


def _is_complex(value: ast.expr) -> bool:
    """Whether a call makes a complex number."""
    function = value.func if isinstance(value, ast.Call) else None
    return isinstance(function, ast.Name) and function.id == "complex"


def _op_name(function: ast.expr) -> str | None:
    """``ops.relu`` -> ``relu``; likewise ``ops.wrapped.helpers.scale``, a function that was given to
    fx.wrap; None for anything that is not an op."""
    parts: list[str] = []
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    is_op = isinstance(function, ast.Name) and function.id == "ops" and parts
    return ".".join(reversed(parts)) if is_op else None


def _all_assigned(statements: Iterable[ast.stmt]) -> Iterator[str]:
    """The names that lines define, including those in loops and branches."""
    for statement in statements:
        name = assigned_name(statement)
        if name is not None:
            yield name
            continue
        for target in getattr(statement, "targets", [getattr(statement, "target", None)]):
            yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name)) if target else ()
        for block in ("body", "orelse"):
            yield from _all_assigned(getattr(statement, block, ()))


# -- errors, with a caret under the wrong place ----------------------------------------------------
def error_at(lines: Sequence[str], at: ast.AST | int, message: str) -> ParseError:
    """The error at ``at``: a part of the tree, which gets carets, or the number of a line."""
    number = at if isinstance(at, int) else getattr(at, "lineno", 1)
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    if isinstance(at, int) or not isinstance(at, (ast.expr, ast.stmt, ast.arg)):
        return ParseError(f"line {number}: {message}\n  {line.strip()}")
    end = at.end_col_offset if at.end_lineno == number else None
    width = len(cut(line, at.col_offset, end).rstrip())
    return error_at_column(lines, number, len(cut(line, 0, at.col_offset)), width, message)


def error_at_column(lines: Sequence[str], number: int, column: int, width: int, message: str) -> ParseError:
    """The error for ``width`` characters of a line from ``column`` on."""
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    column = max(0, column - (len(line) - len(line.lstrip())))
    carets = " " * column + "^" * max(1, width)
    return ParseError(f"line {number}: {message}\n  {line.strip()}\n  {carets}")


def cut(line: str, start: int, end: int | None) -> str:
    """Part of a line by the columns of :mod:`ast`, which count UTF-8 bytes."""
    return line[start:end] if line.isascii() else line.encode()[start:end].decode()


# -- comments: types of weights, and the places that values come from ------------------------------
_STRING = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
_WEIGHT = re.compile(rf"({_STRING}|[^\s,\"']+) (\w+(?:\[[^\]]*\])?)")
_SCOPE = re.compile(r"([\w.]*) ?\((\w+)\)")
_PLACE = re.compile(r"(?:^|, )([^,]+):(\d+)$")
_CHECK = re.compile(r"([^,]+?):(\d+)(?:: (.*))?")
_SELF_PATH = re.compile(rf"self((?:\.\w+|\[\d+\]|\[(?:{_STRING})\])+)")
_CALLED = re.compile(r"\s*# input: (\w+) is (self)$")
#: The comments that :mod:`fxlite.show.text.reading` writes in place of nodes and of weights.
_SHORTENED = re.compile(r"\s*# (×\d+: |\d+ weights\b.*, not listed)")
_STEP = re.compile(rf"\[({_STRING})\]|(\w+)")


def listed_weights(lines: Iterable[str]) -> dict[str, TensorType | None]:
    """The types of the weights that the comment lists, by path and in its order."""
    parts: list[str] = []
    last = 0  # the last line of the comment so far
    for number, line in enumerate(lines):
        text = line.lstrip()
        if not text.startswith("#"):
            continue
        text = text[1:].strip()
        if text.startswith("weights:"):
            parts.append(text.removeprefix("weights:"))
            last = number
        elif parts and number == last + 1 and _WEIGHT.match(text):
            parts.append(text)
            last = number
    found = _WEIGHT.findall(" ".join(parts))
    return {_unquoted(path): None if text == "None" else parse_type(text) for path, text in found}


def _unquoted(text: str) -> str:
    return str(ast.literal_eval(text)) if text[0] in "\"'" else text


def called_inputs(lines: Iterable[str]) -> dict[str, str]:
    """The names of the inputs whose parameters are called differently: ``# input: _self is self``."""
    return {found[1]: found[2] for line in lines if (found := _CALLED.match(line))}


def weights_in(text: str) -> set[str]:
    """The paths after ``self`` anywhere in the text."""
    found = {*_SELF_PATH.findall(text)}
    return {".".join(_unquoted(a or b) for a, b in _STEP.findall(path)) for path in found}


def origin_of(comment: str) -> tuple[Scope | None, Location | None]:
    """Scope and location from ``fc (Linear), model.py:31``; None for each that is missing."""
    scope, place = None, None
    found = _PLACE.search(comment)
    if found:
        place = Location(resolved=(found[1].strip(), int(found[2]), "", ""))
        comment = comment[: found.start()]
    found = _SCOPE.fullmatch(comment.strip())
    if found:
        scope = Scope(found[1], found[2])
    return scope, place


def check_of(comment: str) -> Location | None:
    """The place of a guard, from ``model.py:12: assert x.shape[1] <= 512``."""
    found = _CHECK.fullmatch(comment)
    if found is None:
        return None
    return Location(resolved=(found[1].strip(), int(found[2]), "", found[3] or ""))


def specialized_dims(lines: Iterable[str]) -> dict[str, Dim]:
    """The named dims that ``# specialized: T = 128`` says were replaced."""
    for line in lines:
        _, sign, said = line.partition("# specialized: ")
        if sign and not line.partition("#")[0].strip():
            pairs = (pair.partition(" = ") for pair in said.split(", "))
            return {name: shapes.parse(value) for name, _, value in pairs}
    return {}
