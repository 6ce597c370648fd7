"""Text of control flow: writing the sub-graphs of a node as Python's ``if``, ``while`` and ``for``, and
reading such text back.

In: a node with bodies. Out: lines of code, which Python runs and :func:`fxlite.parse` reads back::

    i, total = full, x
    while i < n:
        add: f32[3] = total + w
        i, total = add_1, add
    while_loop: (i64, f32[3]) = (i, total)

A loop's carried values are assigned before it and at the end of its body. A body reads the values
that it captures by their names in the text around it. Names are those of the sub-graph, or similar
ones that are free.

In: such statements. Out: nodes. The values that a body reads of the text around it are captured.
"""

from __future__ import annotations

import ast
import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fxlite.base.outside_text import assigned, assigned_name
from fxlite.graph.graph import Graph, Node
from fxlite.graph.subgraph import BodyBuilder, Names, SubGraph, bodies_of
from fxlite.ops.control import INDEX
from fxlite.ops.op import lookup
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fxlite.base.errors import ParseError

# -- writing ---------------------------------------------------------------------------------------
#: Code, indented, and the comment beside it.
Line = tuple[str, str]


@dataclass(frozen=True)
class Writer:
    """Functions that write parts: the line of a node without bodies, an operand, the annotation of a type,
    and the place a node comes from (empty if it is that of the node before). ``taken`` gives the names
    that are not free."""

    line: Callable[[Node], Line]
    value: Callable[[Any], str]
    annotation: Callable[[Any], str]
    origin: Callable[[Node], str]
    taken: Callable[[], set[str]]

    @functools.cached_property
    def names(self) -> Names:
        """The names in the text, which only bodies need."""
        return Names(self.taken())

    def lines(self, node: Node) -> Iterable[Line]:
        """The lines of a node."""
        bodies = bodies_of(node)
        if bodies:
            found: Iterator[Line] = getattr(self, f"_{node.target.name}")(node, **bodies)
            return found
        return (self.line(node),)

    # -- the three kinds -----------------------------------------------------------------------
    def _cond(self, node: Node, true_fn: SubGraph, false_fn: SubGraph) -> Iterator[Line]:
        pred, operands = node.args[0], node.args[1] if len(node.args) > 1 else ()
        given = list(map(self.value, operands))
        for head, body in (("if", true_fn), ("else", false_fn)):
            test = f" {self.value(pred)}" if head == "if" else ""
            yield f"{head}{test}:", self.origin(node) if head == "if" else ""
            lines, results = self._body(body, given)
            yield from _indented(lines)
            yield f"    {node.name}{self.annotation(node.type)} = {_tuple(results)}", ""

    def _while_loop(self, node: Node, cond_fn: SubGraph, body_fn: SubGraph) -> Iterator[Line]:
        carried, captured = node.args[0], node.args[1] if len(node.args) > 1 else ()
        names, given = self._carried(body_fn.inputs, carried), list(map(self.value, captured))
        yield self._assigned(names, list(map(self.value, carried))), self.origin(node)
        lines, (test,) = self._body(cond_fn, [*names, *given])
        if not lines:
            yield f"while {test}:", ""
        elif len(lines) == 1 and cond_fn.calls[-1:] == [cond_fn.results[0]]:
            yield f"while {lines[0][0].partition(' = ')[2]}:", ""
        else:
            yield "while True:", ""
            yield from _indented([*lines, (f"if not {test}:", ""), ("    break", "")])
        yield from self._iteration(node, body_fn, names, [*names, *given])

    def _fori_loop(self, node: Node, body_fn: SubGraph) -> Iterator[Line]:
        lower, upper, carried, *others = node.args
        captured = others[0] if others else ()
        (index,) = self._carried(body_fn.inputs, (None,))
        names = self._carried(body_fn.inputs[1:], carried)
        given = list(map(self.value, captured))
        yield self._assigned(names, list(map(self.value, carried))), self.origin(node)
        yield f"for {index} in range({self.value(lower)}, {self.value(upper)}):", ""
        yield from self._iteration(node, body_fn, names, [index, *names, *given])

    # -- parts ---------------------------------------------------------------------------------
    def _carried(self, inputs: Sequence[Node], values: Sequence[Any]) -> list[str]:
        return [self.names.free(node.name) for node, _ in zip(inputs, values)]

    def _iteration(self, node: Node, body: SubGraph, names: Sequence[str], given: Sequence[str]) -> Iterator[Line]:
        lines, results = self._body(body, given)
        yield from _indented([*lines, (self._assigned(names, results), "")])
        yield f"{node.name}{self.annotation(node.type)} = {_tuple(names)}", ""

    def _assigned(self, names: Sequence[str], values: Sequence[str]) -> str:
        return f"{', '.join(names)} = {', '.join(values)}"

    def _body(self, body: SubGraph, inputs: Sequence[str]) -> tuple[list[Line], list[str]]:
        """The lines of a body with these names of inputs, and the names of its results."""
        graph, copies = body.copy()
        for node, text in zip(body.inputs, inputs, strict=True):
            object.__setattr__(copies[node], "name", text)
        lines: list[Line] = []
        for node in graph.nodes:
            if node.op == "call_function":
                object.__setattr__(node, "name", self.names.free(node.name))
                lines += self.lines(node)
        return lines, [self.value(copies[node]) for node in body.results]


def _tuple(names: Sequence[str]) -> str:
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def _indented(lines: Sequence[Line]) -> Iterator[Line]:
    return ((f"    {code}", comment) for code, comment in lines)


# -- reading ---------------------------------------------------------------------------------------
_BLOCKS = (ast.If, ast.For, ast.While)


class BlockParser:
    """The part of the parser that reads blocks. ``values`` are those of the innermost body that is being
    read, ``around`` has the bodies around it and their values."""

    graph: Graph
    values: dict[str, Node]
    origin: tuple[Any, Any]

    def __init__(self) -> None:
        self.around: list[tuple[Graph, dict[str, Node]]] = []
        self.bodies: list[BodyBuilder] = []

    if TYPE_CHECKING:

        def error(self, at: Any, message: str) -> ParseError: ...
        def _statement(self, statement: ast.stmt) -> None: ...
        def _expression(self, value: ast.expr, name: str | None = None) -> Any: ...
        def _read_origin(self, statement: ast.stmt) -> None: ...
        def _type(self, value: ast.expr) -> Any: ...
        def check_declared(self, at: ast.stmt, node: Node, declared: Any) -> None: ...
        def _new(self, at: Any, op: str, target: Any, args: Any, kwargs: Any, name: str | None) -> Node: ...

    # -- names ---------------------------------------------------------------------------------
    def find(self, name: str) -> Node | None:
        """The value of that name, as the innermost body reads it."""
        found = self.values.get(name)
        if found is not None:
            return found
        for depth in reversed(range(len(self.around))):
            found = self.around[depth][1].get(name)
            if found is not None:
                return self._captured(found, depth)
        return None

    def is_value(self, name: str) -> bool:
        return name in self.values or (bool(self.around) and any(name in values for _, values in self.around))

    def _captured(self, node: Node, depth: int = 0) -> Node:
        for body in self.bodies[depth:]:
            node = body.capture(node)
        return node

    @contextmanager
    def _body(self) -> Iterator[BodyBuilder]:
        body = BodyBuilder(self.graph)
        self.around.append((self.graph, self.values))
        self.bodies.append(body)
        self.graph, self.values = body.graph, {}
        try:
            yield body
        finally:
            self.graph, self.values = self.around.pop()
            self.bodies.pop()

    # -- blocks --------------------------------------------------------------------------------
    def statements(self, body: Sequence[ast.stmt]) -> None:
        """Read statements; a loop is read together with the assignments before and after it."""
        left = deque(body)
        if not any(isinstance(statement, _BLOCKS) for statement in body):  # as in most texts
            while left:
                self._statement(left.popleft())
        while left:
            statement = left.popleft()
            if isinstance(statement, ast.If):
                self._condition(statement)
            elif left and isinstance(left[0], (ast.For, ast.While)):
                self._loop(statement, left.popleft(), left.popleft() if left else None)
            elif isinstance(statement, (ast.For, ast.While)):
                raise self.error(statement, "expected the carried values before it: a, b = x, y")
            else:
                self._statement(statement)

    def _condition(self, statement: ast.If) -> None:
        self._read_origin(statement)
        origin = self.origin
        pred = self._expression(statement.test)
        bodies, results, name = [], [], ""
        for block in (statement.body, statement.orelse):
            last = block[-1] if block else None
            target = assigned_name(last)
            if target is None or (name and name != target):
                at = last or statement
                raise self.error(at, f"expected at the end of each branch: {name or 'name'} = (…)")
            name = target
            with self._body() as body:
                self.statements(block[:-1])
                results.append(self._tuple(last.value, last))  # type: ignore[union-attr]
            bodies.append(body)
        captured, (true_fn, false_fn) = _finished(bodies, results)
        kwargs = {"true_fn": true_fn, "false_fn": false_fn}
        self._control(statement, "cond", (pred, captured), kwargs, name, origin)

    def _loop(self, before: ast.stmt, loop: ast.stmt, after: ast.stmt | None) -> None:
        assert isinstance(loop, (ast.For, ast.While))
        self._read_origin(before)
        origin = self.origin
        names, values = self._assignment(before)
        carried = tuple(self._expression(v) for v in values)
        for value, node in zip(values, carried):
            if not isinstance(node, Node):
                raise self.error(value, "expected a value, with a type, that the loop starts with")
        name, block, bodies, results = assigned_name(after), list(loop.body), [], list[tuple[Node, ...]]()
        if name is None:
            raise self.error(after or loop, f"expected after the loop: name = ({', '.join(names)})")
        limits: tuple[Any, ...] = ()
        if isinstance(loop, ast.While):
            with self._body() as body:
                self._inputs(body, names, carried)
                test, block = self._test(loop, block)
                results.append((test,))
            bodies.append(body)
        else:
            limits = self._limits(loop)
        with self._body() as body:
            if isinstance(loop, ast.For):
                assert isinstance(loop.target, ast.Name)
                self._input(body, loop.target.id, INDEX)
            self._inputs(body, names, carried)
            last = block[-1] if block else loop
            self.statements(block[:-1])
            again, new = self._assignment(last)
            if again != names:
                raise self.error(last, f"expected at the end of the loop: {', '.join(names)} = …")
            results.append(tuple(self._value(v) for v in new))
        bodies.append(body)
        captured, made = _finished(bodies, results)
        keys = ("cond_fn", "body_fn") if isinstance(loop, ast.While) else ("body_fn",)
        op = "while_loop" if isinstance(loop, ast.While) else "fori_loop"
        self._control(after, op, (*limits, carried, captured), dict(zip(keys, made)), name, origin)

    def _control(self, at: Any, op: str, args: Any, kwargs: dict[str, Any], name: str, origin: Any) -> None:
        """The node of a block. It is made after those in its bodies, but comes from the line before them."""
        last, self.origin = self.origin, origin
        made = self._new(at, "call_function", lookup(op), args, kwargs, name)
        self.origin = last
        said = at.body[-1] if isinstance(at, ast.If) else at
        if isinstance(said, ast.AnnAssign):
            self.check_declared(said, made, self._type(said.annotation))

    def _limits(self, loop: ast.For) -> tuple[Any, ...]:
        call = loop.iter
        is_range = isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        if not is_range or call.func.id != "range" or len(call.args) != 2:  # type: ignore[attr-defined]
            raise self.error(loop.iter, "expected range(lower, upper)")
        if not isinstance(loop.target, ast.Name):
            raise self.error(loop.target, "expected a name for the loop variable")
        return tuple(self._expression(a) for a in call.args)  # type: ignore[attr-defined]

    def _test(self, loop: ast.While, block: list[ast.stmt]) -> tuple[Node, list[ast.stmt]]:
        """The value that decides whether a loop goes on, and the rest of its body."""
        is_long = isinstance(loop.test, ast.Constant) and loop.test.value is True
        if not is_long:
            return self._value(loop.test), block
        end = next((n for n, s in enumerate(block) if _is_end(s)), None)
        if end is None:
            raise self.error(loop, "expected in the loop: if not name: break")
        self.statements(block[:end])
        test = block[end].test.operand  # type: ignore[attr-defined]
        return self._value(test), block[end + 1 :]

    # -- parts ---------------------------------------------------------------------------------
    def _inputs(self, body: BodyBuilder, names: Sequence[str], values: Sequence[Node]) -> None:
        for name, value in zip(names, values):
            self._input(body, name, value.type)

    def _input(self, body: BodyBuilder, name: str, type: TensorType | None) -> None:
        if self.is_value(name):
            raise self.error(1, f"{name} is a value already; carried values have names of their own")
        self.values[name] = body.input(name, type)

    def _assignment(self, statement: ast.stmt) -> tuple[list[str], list[ast.expr]]:
        """``a, b = x, y``"""
        target = assigned(statement)
        if isinstance(statement, ast.Assign) and target is not None:
            value = statement.value
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = value.elts if isinstance(target, ast.Tuple) else [value]  # type: ignore[attr-defined]
            if len(names) == len(values) and all(isinstance(n, ast.Name) for n in names):
                return [n.id for n in names], values  # type: ignore[attr-defined]
        raise self.error(statement, "expected the values that the loop carries: a, b = x, y")

    def _tuple(self, value: ast.expr | None, at: Any) -> tuple[Node, ...]:
        if not isinstance(value, ast.Tuple):
            raise self.error(at, "expected a tuple of values: (a, b)")
        return tuple(self._value(v) for v in value.elts)

    def _value(self, value: ast.expr) -> Node:
        found = self._expression(value)
        if not isinstance(found, Node):
            raise self.error(value, f"expected a value, not {ast.unparse(value)!r}")
        return found


def _is_end(statement: ast.stmt) -> bool:
    """``if not name: break``"""
    return (
        isinstance(statement, ast.If)
        and isinstance(statement.test, ast.UnaryOp)
        and isinstance(statement.test.op, ast.Not)
        and len(statement.body) == 1
        and isinstance(statement.body[0], ast.Break)
    )


def _finished(
    bodies: Sequence[BodyBuilder], results: Sequence[tuple[Node, ...]]
) -> tuple[tuple[Node, ...], list[SubGraph]]:
    """The values that the bodies capture, and the sub-graphs."""
    captured = tuple(dict.fromkeys(node for body in bodies for node in body.captured))
    return captured, [body.finish(r, captured) for body, r in zip(bodies, results)]
