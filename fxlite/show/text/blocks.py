"""Text of control flow: the sub-graphs of a node as Python's ``if``, ``while`` and ``for``.

In: a node with bodies. Out: lines of code, which Python runs and :func:`fxlite.parse` reads back::

    i, total = full, x
    while i < n:
        add: f32[3] = total + w
        i, total = add_1, add
    while_loop: (i64, f32[3]) = (i, total)

A loop's carried values are assigned before it and at the end of its body; what a body captures is
the value of that name around it. Names are those of the sub-graph, or nearest ones that are free.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fxlite.graph.graph import Node
from fxlite.graph.subgraph import Names, SubGraph, bodies_of

#: Code, indented, and the comment beside it.
Line = tuple[str, str]


@dataclass(frozen=True)
class Writer:
    """How parts are written: the line of a node without bodies, an operand, the annotation of a
    type, and where a node comes from (empty where that was just said). ``taken`` gives the names
    that mean something else."""

    line: Callable[[Node], Line]
    value: Callable[[Any], str]
    annotation: Callable[[Any], str]
    origin: Callable[[Node], str]
    taken: Callable[[], set[str]]

    @functools.cached_property
    def names(self) -> Names:
        """Names in the text, which only bodies ask for."""
        return Names(self.taken())

    def lines(self, node: Node) -> Iterable[Line]:
        """A node's lines."""
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
        """The lines of a body whose inputs are called so, and what its results are called."""
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
