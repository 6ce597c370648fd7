"""Alignment: how far a pattern fits at a node, and where it differs.

In: a traced pattern and a node. Out: a :class:`NearMiss` with all differences of the two trees, each
with the change to the pattern that would remove it. Unlike the matcher it continues after a
difference; operands of commutative ops are taken in the order that looks better, without
backtracking. Used by :mod:`fxlite.passes.rewrite.explain`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fxlite.base.errors import number_of
from fxlite.graph.graph import Node
from fxlite.ops.op import Op
from fxlite.passes.rewrite.matcher import Steps
from fxlite.passes.rewrite.wildcard import Wildcard, attribute_names, same_attribute, same_number
from fxlite.show.text.pretty import value_text


@dataclass(frozen=True)
class Mismatch:
    """One difference: the call of the pattern; the part of it that differs (the text of a number or
    the name of an attribute; "" is all of it); the corresponding node of the graph; the difference in
    words; and in words the smallest change to the pattern that removes it."""

    pattern: Node
    part: str
    node: Node | None
    problem: str
    edit: str


@dataclass(frozen=True)
class NearMiss:
    """A place where a pattern almost fits: ``matched`` of its ``total`` calls agree. ``distance``
    counts the calls not found and the differences, and ranks near misses. ``alike`` are other places
    with the same difference."""

    node: Node
    matched: int
    total: int
    mismatches: tuple[Mismatch, ...]
    distance: int
    alike: tuple[Node, ...] = ()

    @property
    def problem(self) -> str:
        """The first difference in words."""
        return self.mismatches[0].problem

    @property
    def edit(self) -> str:
        """The changes to the pattern that would make it fit here."""
        return "; ".join(dict.fromkeys(m.edit for m in self.mismatches))


class _Alignment:
    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.bound: dict[Node, Any] = {}
        self.matched: dict[Node, Node] = {}
        self.found: list[Mismatch] = []
        self.wild: dict[str, Any] = {}
        self.agenda: list[tuple[Any, Any, Node, Node]] = []

    def differ(self, pattern: Node, part: str, node: Any, problem: str, edit: str) -> None:
        beside = node if isinstance(node, Node) else None
        self.found.append(Mismatch(pattern, part, beside, problem, edit))

    def run(self, pattern: Node, node: Node) -> None:
        self.agenda.append((pattern, node, pattern, node))
        while self.agenda:
            self.compare(*self.agenda.pop())

    def compare(self, wanted: Any, value: Any, reader: Node, graph_reader: Node) -> None:
        """Compare a value of the pattern with one of the graph; ``reader`` is the call that reads
        the first, ``graph_reader`` the one that reads the second."""
        if not isinstance(wanted, Node):
            self.compare_number(wanted, value, reader, graph_reader)
        elif wanted in self.bound:
            if self.bound[wanted] is not value and wanted.op != "get_attr":
                first = value_text(self.bound[wanted])
                problem = f"{_name(wanted)} stands for {first} and for {value_text(value)}"
                edit = f"use a second parameter where it stands for {value_text(value)}"
                self.differ(reader, "", graph_reader, problem, edit)
        elif wanted.op == "placeholder":
            self.bound[wanted] = value
        elif wanted.op == "get_attr":
            self.bound[wanted] = value
            self.compare_weight(wanted, value, reader)
        else:
            self.bound[wanted] = value
            self.compare_calls(wanted, value, graph_reader)

    def compare_number(self, wanted: Any, value: Any, reader: Node, graph_reader: Node) -> None:
        text = repr(wanted)
        if isinstance(wanted, Wildcard):
            if isinstance(value, Node) or value is None:
                problem = f"{text} stands for a number, the graph has {_what(value)} here"
                edit = f"let {text} be a positional parameter: it stands for any value"
                self.differ(reader, text, value, problem, edit)
        elif isinstance(value, Node):
            problem = f"the pattern has the number {text} here, the graph {_what(value)}"
            self.differ(reader, text, value, problem, f"put a parameter in place of {text}")
        elif not same_number(wanted, value, graph_reader):
            problem = f"the pattern has {text} here, the graph {value!r}"
            edit = f"write {value!r} instead of {text}, or put a parameter there"
            self.differ(reader, text, graph_reader, problem, edit)

    def compare_weight(self, wanted: Node, value: Any, reader: Node) -> None:
        edit = "make the array a parameter of the pattern"
        if not isinstance(value, Node) or value.op != "get_attr":
            self.differ(reader, "", value, f"the pattern has an array here, the graph {_what(value)}", edit)
            return
        if not self.steps.same_weight(wanted, value):
            self.differ(reader, "", value, f"the array of the pattern is not equal to {value_text(value)}", edit)

    def compare_calls(self, wanted: Node, value: Any, graph_reader: Node) -> None:
        mine = call_name(wanted)
        if not isinstance(value, Node):
            problem = f"the pattern has {mine} here, the graph {_what(value)}"
            self.differ(wanted, "", graph_reader, problem, f"put a parameter in place of {_name(wanted)}")
            return
        if not self.same_target(wanted, value):
            is_call = value.op.startswith("call")
            change = f"write {call_name(value)} instead of {mine}" if is_call else ""
            parameter = f"put a parameter in place of {_name(wanted)}"
            self.differ(
                wanted, "", value, f"the pattern has {mine} here, the graph {_what(value)}", change or parameter
            )
            return
        self.matched[wanted] = value
        if wanted.op == "call_function":
            self.compare_attributes(wanted, value)
        self.compare_operands(wanted, value)

    def same_target(self, wanted: Node, value: Node) -> bool:
        if wanted.op != value.op:
            return False
        if wanted.op == "call_module":
            return self.steps.same_module(wanted.target, value)
        return wanted.target is value.target

    def compare_attributes(self, wanted: Node, value: Node) -> None:
        op: Op = wanted.target
        for name in attribute_names(op):
            mine = wanted.kwargs.get(name, op.defaults.get(name))
            theirs = value.kwargs.get(name, op.defaults.get(name))
            if isinstance(mine, Wildcard):
                first = self.wild.setdefault(mine.name, theirs)
                if first != theirs:
                    problem = f"{mine} stands for {value_text(first)} and for {value_text(theirs)}"
                    self.differ(wanted, name, value, problem, "use a second keyword-only parameter")
            elif not same_attribute(wanted, value, name):
                mine_text, text = (f"{name}={value_text(v)}" for v in (mine, theirs))
                problem = f"the pattern has {mine_text}, the graph {text}"
                edit = f"write {text} instead of {mine_text}, or make {name} a keyword-only parameter"
                self.differ(wanted, name, value, problem, edit)

    def compare_operands(self, wanted: Node, value: Node) -> None:
        pairs: list[tuple[Any, Any]] = []
        names = list(getattr(wanted.target, "tensor_kinds", ())) or [""] * 9
        longest = max(len(wanted.args), len(value.args))
        for place, name in zip(range(longest), names):
            a = wanted.args[place] if place < len(wanted.args) else None
            b = value.args[place] if place < len(value.args) else None
            if isinstance(a, tuple) and isinstance(b, tuple):
                pairs.extend(self.pair_lists(a, b, wanted, value))
            elif a is None and b is not None:
                problem = f"the graph gives {name}={value_text(b)}, the pattern has no {name}"
                self.differ(wanted, "", value, problem, f"add a parameter {name}=None and pass it on")
            elif b is None and a is not None:
                problem = f"the pattern gives {name}={_name(a)}, the graph has no {name}"
                self.differ(wanted, "", value, problem, f"leave {name} out, or give its parameter the default None")
            else:
                pairs.append((a, b))
        if getattr(wanted.target, "commutative", False) and len(pairs) == 2:
            (a, x), (b, y) = pairs
            swapped = [(a, y), (b, x)]
            if sum(self.likeness(*p) for p in swapped) > sum(self.likeness(*p) for p in pairs):
                pairs = swapped
        self.agenda.extend((a, b, wanted, value) for a, b in reversed(pairs))

    def pair_lists(
        self, a: tuple[Any, ...], b: tuple[Any, ...], wanted: Node, value: Node
    ) -> Iterator[tuple[Any, Any]]:
        rest = self.steps.rest
        if rest is not None and rest in a:
            place = a.index(rest)
            after = len(a) - place - 1
            if len(b) >= len(a) - 1:
                return zip((*a[:place], *a[place + 1 :]), (*b[:place], *b[len(b) - after :]))
        elif len(a) == len(b):
            return zip(a, b)
        problem = f"{call_name(wanted)} takes {number_of(len(b), 'value')} in the graph, {len(a)} in the pattern"
        self.differ(wanted, "", value, problem, "take *xs and pass them on: they stand for any number of values")
        return iter(())

    def likeness(self, wanted: Any, value: Any) -> int:
        """How similar two values look, judged from the calls at their top."""
        if not isinstance(wanted, Node):
            return 0 if isinstance(value, Node) else 2 + (wanted == value)
        if wanted in self.bound:
            return 4 if self.bound[wanted] is value else 0
        if wanted.op == "placeholder":
            return 1
        if not isinstance(value, Node) or wanted.op != value.op:
            return 0
        if wanted.op == "get_attr":
            return 3
        below = {call_name(n) for n in value.all_input_nodes}
        alike = sum(call_name(n) in below for n in wanted.all_input_nodes)
        return (4 if self.same_target(wanted, value) else 1) + alike

    def other_results(self, results: list[Node], anchor: Node) -> None:
        """For a pattern with several results: report those whose call is not found where it must be."""
        for wanted in results:
            known = [self.bound.get(n) for n in wanted.all_input_nodes]
            if wanted in self.matched or self.found:
                continue
            nodes = [n for n in known if isinstance(n, Node)]
            taken = set(self.matched.values())
            free = [u for n in nodes for u in n.users if u not in taken]
            if not any(self.same_target(wanted, u) for u in free):
                values = " and ".join(n.name for n in nodes) or anchor.name
                problem = f"the pattern returns {_name(wanted)} too, but no other {call_name(wanted)} reads {values}"
                self.differ(wanted, "", anchor, problem, f"leave {_name(wanted)} out of the results")

    def second_readers(self, results: set[Node]) -> None:
        inside = set(self.matched.values())
        for wanted, node in self.matched.items():
            if wanted in results:
                continue
            others = [u for u in node.users if u not in inside]
            if others and any(u in inside for u in node.users):
                where = f" at {others[0].loc.short}" if others[0].loc is not None else ""
                problem = f"{node.name} has a second reader: {others[0].name}{where}"
                self.differ(wanted, "", node, problem, f"let the pattern return {_name(wanted)} too")


def align(steps: Steps, pattern: Node, node: Node) -> NearMiss:
    """Compare a call of the pattern, and what it depends on, with ``node``."""
    alignment = _Alignment(steps)
    alignment.run(pattern, node)
    if pattern is steps.anchor:
        alignment.other_results(steps.results, node)
    alignment.second_readers(set(steps.results))
    if pattern is steps.anchor and not alignment.found:
        problem = "each part fits, but not all of them together"
        alignment.differ(pattern, "", node, problem, "leave out a part, and see whether the rest matches")
    differing = {mismatch.pattern for mismatch in alignment.found}
    matched = sum(call not in differing for call in alignment.matched)
    distance = len(steps.calls) - len(alignment.matched) + len(alignment.found)
    return NearMiss(node, matched, len(steps.calls), tuple(alignment.found), distance)


def climb(steps: Steps, pattern: Node, node: Node) -> NearMiss:
    """Like :func:`align`, but starts from a call inside the pattern and also compares its readers, as
    far as the graph follows the pattern."""
    while True:
        above = [u for u in pattern.users if u.op.startswith("call")]
        pairs = [(p, u) for p in above for u in node.users if u.target is p.target]
        if not above or not pairs:
            break
        pattern, node = pairs[0]
    below = align(steps, pattern, node)
    if below.mismatches:
        return below
    if not above:
        other = next(r for r in steps.results if r is not pattern)
        missing = Mismatch(
            pattern,
            "",
            node,
            f"the pattern returns {_name(other)} too, which is not found here",
            f"leave {_name(other)} out of the results",
        )
        return NearMiss(node, below.matched, below.total, (missing,), below.distance + 1)
    readers = ", ".join(call_name(u) for u in node.users)
    missing = Mismatch(
        above[0],
        "",
        node,
        f"the pattern has {call_name(above[0])} here, but {node.name} is read by {readers or 'nobody'}",
        f"write {readers} instead of {call_name(above[0])}"
        if len(node.users) == 1
        else f"let the pattern end at {_name(pattern)}",
    )
    return NearMiss(node, below.matched, below.total, (missing, *below.mismatches), below.distance + 1)


def call_name(node: Node) -> str:
    """The op of a call, such as ``relu``; the path of a leaf module; the opcode of other nodes."""
    if isinstance(node.target, Op):
        return node.target.name
    return str(node.target) if node.op == "call_module" else node.op


def _what(value: Any) -> str:
    if not isinstance(value, Node):
        return "nothing" if value is None else f"the number {value!r}"
    if value.op == "placeholder":
        return f"the input {value.name}"
    return f"the weight {value_text(value)}" if value.op == "get_attr" else call_name(value)


def _name(node: Any) -> str:
    """A value of the pattern as its author wrote it."""
    if not isinstance(node, Node):
        return repr(node)
    expression = node.loc.expression if node.loc is not None and node.op != "placeholder" else ""
    return expression or node.name
