"""Why a pattern or rule does not fire.

In: a graph and a pattern. Out: an :class:`Explanation`: the places where the pattern almost fits,
best first. Each has the first difference, a caret under it in the pattern's own source, the
corresponding line of the graph, and the smallest change to the pattern that would make it fit::

    silu matches nowhere; 1 near miss
    1. mul: f32[4] = x * sigmoid   (model.py:31)   1 of 2 calls match
         rules.py:12 | return x * F.sigmoid(x)
                     |            ^^^^^^^^^^^^
         model.py:30 | gate = np.tanh(x)
                     |        ^^^^^^^^^^
         the pattern has sigmoid here, the graph tanh
         edit: write tanh instead of sigmoid
"""

from __future__ import annotations

import ast
import heapq
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, ParseError
from fxlite.base.outside_text import syntax_tree
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.op import Op
from fxlite.passes.rewrite.align import Mismatch, NearMiss, align, call_name, climb
from fxlite.passes.rewrite.match import Match, find_match
from fxlite.passes.rewrite.matcher import Steps, Surroundings
from fxlite.passes.rewrite.pattern import Pattern, Program

if TYPE_CHECKING:
    from rich.text import Text

    from fxlite.passes.rewrite.rule import Rule

_SHOWN = 3  # near misses
_NAMED = 10  # matches
_WIDTH = 58  # characters of a quoted line: with its place they fit into a terminal of 80


@dataclass(frozen=True)
class Explanation:
    """The result of a pattern on a graph: its ``matches``, and its ``near_misses``, best first.
    ``str`` gives plain text; printing with rich adds colours."""

    name: str
    matches: tuple[Match, ...]
    near_misses: tuple[NearMiss, ...]
    note: str = ""

    def __rich__(self) -> Text:
        from rich.text import Text

        text = Text()
        for line, style in self._lines():
            text.append(f"{line}\n", style)
        text.rstrip()
        return text

    def __str__(self) -> str:
        return "\n".join(line for line, _ in self._lines())

    __repr__ = __str__

    def _lines(self) -> list[tuple[str, str]]:
        if self.matches:
            shown = ", ".join(_place(m.anchor) for m in self.matches[:_NAMED])
            more = f" and {len(self.matches) - _NAMED} more" if len(self.matches) > _NAMED else ""
            lines = [(f"{self.name} matches at {shown}{more}", "bold green")]
        else:
            lines = [(f"{self.name} does not match{self.note}", "bold")]
        for number, miss in enumerate(self.near_misses, 1):
            origin = f"   ({miss.node.origin})" if miss.node.origin else ""
            head = f"{number}. {miss.node.format_node().strip()}{origin}"
            lines.append((head.rstrip(), "bold"))
            lines.append((f"     {miss.matched} of {miss.total} calls match", ""))
            first = miss.mismatches[0]
            pattern, graph = _quote(first.pattern, first.part), []
            if first.node is not None:
                graph = _quote(first.node)
            width = max((len(place) for place, _, _ in (*pattern, *graph)), default=0)
            for place, source, carets in (*pattern, *graph):
                lines.append((f"     {place:{width}} | {source}", "dim"))
                lines.append((f"     {'':{width}} | {carets}", "red"))
            lines.append((f"     {first.problem}", "bold"))
            lines.append((f"     edit: {miss.edit}", "green"))
            if miss.alike:
                names = ", ".join(node.name for node in miss.alike[:_SHOWN])
                more = f" and {len(miss.alike) - _SHOWN} more" if len(miss.alike) > _SHOWN else ""
                lines.append((f"     the same at {names}{more}", ""))
        return lines


@checked
def explain(gm: GraphModule, pattern: Rule | Program | Pattern, node: Node | str | None = None) -> Explanation:
    """Show where ``pattern`` (a rule, or anything that :func:`fx.replace_pattern` takes) matches, and
    where it almost does; with ``node`` (or its name) only there. Raises ArgumentError for an unknown
    node."""
    rule: Any = pattern if isinstance(getattr(pattern, "pattern", None), Pattern) else None
    if rule is not None:
        name, compiled = rule.name, rule.pattern
    else:
        name = getattr(pattern, "__name__", type(pattern).__name__)
        name = "the pattern" if name in ("<lambda>", "Pattern", "_") else name
        compiled = pattern if isinstance(pattern, Pattern) else Pattern(pattern)
    if node is None:
        return _everywhere(gm, name, compiled, rule)
    found = _node(gm, node)
    match, miss = _at(gm, found, compiled, rule)
    return Explanation(name, (match,) if match else (), (miss,) if miss else (), f" at {_place(found)}")


def _everywhere(gm: GraphModule, name: str, pattern: Pattern, rule: Rule | None) -> Explanation:
    matches: list[Match] = []
    misses: list[NearMiss] = []
    for node in gm.graph.nodes:
        if pattern.variants_for(node):
            match, miss = _at(gm, node, pattern, rule)
            if match is not None:
                matches.append(match)
            elif miss is not None:
                misses.append(miss)
    note = " anywhere"
    if not matches and not misses:
        misses, note = _inside(gm, pattern)
    kinds: dict[Any, list[NearMiss]] = {}
    for miss in misses:
        differences = ((m.pattern, m.part, "" if m.part else m.edit) for m in miss.mismatches)
        key = miss.matched, miss.problem if miss.matched == miss.total else "", *differences
        kinds.setdefault(key, []).append(miss)
    groups = heapq.nsmallest(_SHOWN, kinds.values(), key=lambda group: group[0].distance)
    best = [replace(g[0], alike=tuple(m.node for m in g[1:])) for g in groups]
    if len(kinds) > len(best):
        note += f"; the best {len(best)} of {len(kinds)} kinds of near misses"
    return Explanation(name, tuple(matches), tuple(best), note)


def _at(gm: GraphModule, node: Node, pattern: Pattern, rule: Rule | None) -> tuple[Match | None, NearMiss | None]:
    """The match whose result is ``node``, or how far the pattern is from matching there."""
    around = Surroundings()
    accept = (lambda match: rule.why_not(match) is None) if rule is not None else None
    found = find_match(pattern, node, around, accept)
    reason = _refused(found, rule) if found is not None else None
    if found is not None and reason is None:
        return found, None
    plain = found or find_match(pattern, node, around)
    if plain is not None and rule is not None:  # the pattern fits, but a condition declines
        return None, _turned_down(plain, node, reason or rule.why_not(plain) or "", pattern)
    loose = None if pattern.associative else find_match(_loose(pattern), node, around)
    if loose is not None:
        return None, _regrouped(node, pattern, rule)
    variants = [v for v in pattern.variants if not v.regrouped]
    miss = min((_near(v, node) for v in variants), key=lambda miss: miss.distance)
    if miss.node is not node and find_match(pattern, miss.node, around, accept) is not None:
        inside = Mismatch(
            miss.mismatches[0].pattern,
            "",
            node,
            f"{node.name} is inside the match at {miss.node.name}",
            "none is needed",
        )
        return None, NearMiss(node, miss.total, miss.total, (inside,), 0)
    return None, miss


def _near(steps: Steps, node: Node) -> NearMiss:
    root = steps.results[-1] if len(steps.results) == 1 else steps.anchor
    if call_name(root) != call_name(node):
        inner = [n for n in steps.slots if n.op == node.op and n.target is node.target]
        if inner:
            return climb(steps, inner[-1], node)
    return align(steps, root, node)


def _refused(match: Match, rule: Rule | None) -> str | None:
    """Why the replacement, if there is one, does not fit a place."""
    if rule is None or rule.__dict__.get("_replacement") is None:
        return None
    return rule.new.why_not(match)


def _turned_down(match: Match, node: Node, reason: str, pattern: Pattern) -> NearMiss:
    total = len(match.nodes)
    anchor = next(p for p, g in match.nodes.items() if g is node)
    difference = Mismatch(anchor, "", node, reason, "change the condition or the replacement")
    return NearMiss(node, total, total, (difference,), 1)


def _regrouped(node: Node, pattern: Pattern, rule: Rule | None) -> NearMiss:
    steps = pattern.variants[0]
    allow = "declare exactness='allclose'" if rule is not None else "pass associative=True"
    difference = Mismatch(
        steps.anchor, "", node, "the graph groups these operands differently, which rounds differently", allow
    )
    return NearMiss(node, len(steps.calls), len(steps.calls), (difference,), 1)


def _loose(pattern: Pattern) -> Pattern:
    if pattern.loose is None:
        pattern.loose = Pattern(pattern.program, True, pattern.ignore_literals, pattern.same_weights)
    return pattern.loose


def _inside(gm: GraphModule, pattern: Pattern) -> tuple[list[NearMiss], str]:
    """Near misses if no node computes the pattern's result: they are sought around the rarest of its ops."""
    counts = Counter(n.target for n in gm.graph.nodes if n.op == "call_function")
    steps = pattern.variants[0]
    calls = [n for n in steps.slots if n.op.startswith("call")]
    names = ", ".join(dict.fromkeys(call_name(n) for n in calls))
    there = [n for n in calls if counts[n.target]]
    if not there:
        return [], f": the graph has no {names}"
    rarest = min(there, key=lambda n: counts[n.target])
    nodes = [n for n in gm.graph.nodes if n.target is rarest.target]
    note = f": the graph has no {call_name(steps.anchor)}"
    return [climb(steps, rarest, node) for node in nodes], note


def _node(gm: GraphModule, node: Node | str) -> Node:
    if isinstance(node, Node):
        if node not in gm.graph.nodes:
            raise ArgumentError(f"{node.name} is not a node of this graph (passes copy it): give its name")
        return node
    for candidate in gm.graph.nodes:
        if candidate.name == node:
            return candidate
    raise ArgumentError(f"the graph has no node {node!r}")


def _place(node: Node) -> str:
    return f"{node.name} ({node.loc.short})" if node.loc is not None else node.name


def _quote(node: Node, part: str = "") -> list[tuple[str, str, str]]:
    """``(place, source line, carets)`` for the expression that made a node, or for a part of it: a
    number or the argument of that name. Empty if the source is not available."""
    location = node.loc
    if location is None:
        return []
    lines = location.file_lines()
    line = lines[location.line - 1].rstrip("\n") if 0 < location.line <= len(lines) else ""
    columns = location.columns
    if not line.strip() or columns is None:
        return []
    start, stop = columns
    if part:
        start, stop = _part_columns(line[start:stop], part, start, node.target) or columns
    indent = len(line) - len(line.lstrip())
    first = indent if stop - indent <= _WIDTH else max(indent, start - 8)  # long lines are cut
    shown = line[first : first + _WIDTH]
    carets = " " * (start - first) + "^" * max(min(stop, first + _WIDTH) - start, 1)
    return [(location.short, shown, carets)]


def _part_columns(expression: str, part: str, start: int, target: Any) -> tuple[int, int] | None:
    try:
        tree = syntax_tree(expression)
    except (SyntaxError, ParseError):
        return None
    for found in ast.walk(tree):
        is_keyword = isinstance(found, ast.keyword) and _parameter(target, found.arg) == part
        is_number = isinstance(found, ast.Constant) and repr(found.value) == part
        is_name = isinstance(found, ast.Name) and found.id == part
        if (is_keyword or is_number or is_name) and found.end_col_offset is not None:  # type: ignore
            offset = len(expression.encode()[: found.col_offset].decode())  # type: ignore
            end = len(expression.encode()[: found.end_col_offset].decode())  # type: ignore
            return start + offset, start + end
    return None


def _parameter(target: Any, name: str | None) -> str | None:
    """A keyword under the name that the op uses: ``axis`` for ``dim``."""
    try:
        return target.parameter_name(name) if isinstance(target, Op) and name else name
    except ArgumentError:  # the keyword of a call inside the expression
        return None
