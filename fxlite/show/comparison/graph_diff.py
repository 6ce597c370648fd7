"""The changes made by an edit: nodes removed, added and changed, weights by value, and costs.

In: two graphs or GraphModules. Out: a :class:`GraphDiff`, which is false if nothing changed. It prints as lines of
text, plain or coloured for a terminal, as HTML, and as JSON.

A node that reads another value than before is changed, unless the old value was replaced as a whole by something that
the diff shows anyway: an inserted node is one line, and a fused group is several removed nodes and an added one.

The bodies of a loop or condition that changed are compared by a diff of their own, which stands below the node.

Layers that follow each other and change in the same way are shown once, and a line says so; ``fold=False`` shows each.

Lines have the marks ``-`` (before), ``+`` (after), ``~`` (another type, or a weight) or none (unchanged, or a note),
and are wrapped to the width. Runs of unchanged lines are folded. On the page, which loads nothing, they are
``<details>`` elements that open with a click, without a script; the cost of a node and its origin are next to its
line.

As data it is a dict of numbers, text, lists and dicts that ``json.dumps`` takes::

    {"format": "fxlite.diff", "version": 1,
     "same": bool,
     "summary": "2 removed, 1 added, 0 changed",
     "counts": {"removed": n, "added": n, "changed": n, "unchanged": n, "weights": n},
     "totals": {"flops": COST, "bytes": COST, "weight_bytes": COST},
     "nodes": [{"change": "removed" | "added" | "changed",
                "before": NODE or null, "after": NODE or null,
                "differences": [{"what": ..., "before": text, "after": text}],
                "bodies": {attribute: the diff of a body that changed, of the same form},
                "flops": COST, "bytes": COST}],
     "weights": [{"change": "removed" | "added" | "changed" | "renamed",
                  "path_before": path or null, "path_after": path or null,
                  "type_before": type or null, "type_after": type or null,
                  "differing_elements": n or null,
                  "max_abs_difference": number, "inf" or null}]}

    COST  {"before": x, "after": x, "difference": x}: a number, a formula in the named dims as text,
          or null where it is unknown
    NODE  {"name", "op", "target", "text", "type": text or null, "scope": path, "class": name,
           "file": path or null, "line": number or null}

``nodes`` are in the order of the new graph, with removed ones in their old places. ``what`` is "op", "type", "reads",
"order", "arguments", "argument N" or the name of an attribute.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxlite.base.checked import checked
from fxlite.base.console import output_width, page_html, write_whole
from fxlite.base.errors import number_of
from fxlite.base.outside_text import markup
from fxlite.base.state import paused_gc
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.subgraph import bodies_of
from fxlite.ops.op import Op
from fxlite.show.comparison.changes import NodeChange, Row, WeightChange, changed_weights, find_rows, line, weight_types
from fxlite.show.comparison.compare import graph_of, operands, title
from fxlite.show.comparison.pairing import call_key, pair_nodes
from fxlite.show.drawing.outline import outline_of
from fxlite.show.node_cost import Cost, short_text, total, total_cost
from fxlite.show.text.pretty import attribute_text, type_text
from fxlite.show.text.reading import broken_code, fold_text
from fxlite.types import shapes
from fxlite.types.shapes import Dim

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


@dataclass(frozen=True)
class GraphDiff:
    """The changes from one graph to another; false if there are none.

    ``added``, ``removed`` and ``changed`` contain a :class:`NodeChange` for each node, and ``weights`` a
    :class:`~fxlite.show.comparison.changes.WeightChange` for each weight. ``rows`` is the new graph in order, with
    removed nodes in their old places; in text, all but ``context`` unchanged lines around each change are folded, and
    with ``fold`` so are layers that change as the one before.
    ``before`` and ``after`` are the costs of the whole graphs, with the bytes of weights listed separately. Unchanged
    nodes are read when the diff is shown, so show it before the graph is edited again."""

    added: tuple[NodeChange, ...]
    removed: tuple[NodeChange, ...]
    changed: tuple[NodeChange, ...]
    weights: tuple[WeightChange, ...]
    rows: tuple[Row, ...]
    before: Cost
    after: Cost
    weight_bytes: tuple[Dim | None, Dim | None]
    context: int = 3
    fold: bool = True
    _pairs: Mapping[Node, Node] = field(default_factory=dict, repr=False, compare=False)  # of the old and the new graph

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.weights)

    @property
    def summary(self) -> str:
        """``2 removed, 1 added, 0 changed; weights: 3 removed``, or ``no difference``."""
        if not self:
            return "no difference"
        kinds = ("removed", "added", "changed")
        counts = ", ".join(f"{len(getattr(self, kind))} {kind}" for kind in kinds)
        of_weights = Counter(w.kind for w in self.weights)
        told = ", ".join(f"{of_weights[k]} {k}" for k in (*kinds, "renamed") if of_weights[k])
        return f"{counts}; weights: {told}" if told else counts

    def __str__(self) -> str:
        return "\n".join(str(item).rstrip() for item in diff_lines(self, output_width()))

    __repr__ = __str__

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        for item in diff_lines(self, options.max_width):
            yield Text(str(item).rstrip(), style=_STYLES[item.style], no_wrap=True, overflow="ignore")

    def to_json(self) -> dict[str, Any]:
        """The diff as data, as described in :mod:`fxlite.show.comparison.graph_diff`."""
        counts = {kind: len(getattr(self, kind)) for kind in ("removed", "added", "changed")}
        unchanged = [r for r in self.rows if not isinstance(r, NodeChange) and r.op != "get_attr"]
        return {
            "format": "fxlite.diff",
            "version": 1,
            "same": not self,
            "summary": self.summary,
            "counts": {**counts, "unchanged": len(unchanged), "weights": len(self.weights)},
            "totals": {
                "flops": _cost(self.before.flops, self.after.flops),
                "bytes": _cost(self.before.bytes, self.after.bytes),
                "weight_bytes": _cost(*self.weight_bytes),
            },
            "nodes": [_change(row) for row in self.rows if isinstance(row, NodeChange)],
            "weights": [_weight(change) for change in self.weights],
        }

    def _repr_html_(self) -> str:
        """The page in a frame, which notebooks show."""
        shown = len([row for row in self.rows if isinstance(row, NodeChange)])
        return page_html(page(self), min(240 + 26 * shown, 640), f"graph diff: {self.summary}")

    def to_html(self, path: str | Path | None = None) -> str:
        """The diff as a self-contained HTML page, which is also written to ``path`` if given. Returns its text."""
        text = page(self)
        if path is not None:
            write_whole(path, text)
        return text


@checked
def diff(a: Graph | GraphModule, b: Graph | GraphModule, context: int = 3, fold: bool = True) -> GraphDiff:
    """The changes from ``a`` to ``b``, whatever the names. Returns a :class:`GraphDiff`, which prints as text: with
    ``context`` unchanged lines around a change, and with ``fold`` once for layers that change in the same way.

    Nodes are paired by name and by their computations, from the inputs and from the outputs. For two GraphModules, the
    weights that are read are compared by value. The time is nearly linear in the number of nodes. Raises TypeError for
    anything but graphs and GraphModules."""
    graph_a, graph_b = graph_of(a), graph_of(b)
    modules = (a, b) if isinstance(a, GraphModule) and isinstance(b, GraphModule) else None
    weights = changed_weights(graph_a, graph_b, modules)
    renamed = {str(w.new_path): str(w.old_path) for w in weights if w.kind == "renamed"}
    renamed |= {w.path: f"+{w.path}" for w in weights if w.kind == "added"}  # an old weight may have this path
    with paused_gc():
        pairs = pair_nodes(graph_a, graph_b, renamed)
        rows = tuple(find_rows(graph_a, graph_b, pairs, renamed))
        before, after = total_cost(graph_a), total_cost(graph_b)
    found: dict[str, list[NodeChange]] = {"added": [], "removed": [], "changed": []}
    for row in rows:
        if isinstance(row, NodeChange):
            found[row.kind].append(row)
    return GraphDiff(
        **{kind: tuple(items) for kind, items in found.items()},
        weights=tuple(weights),
        rows=rows,
        before=before,
        after=after,
        weight_bytes=(_weight_bytes(graph_a), _weight_bytes(graph_b)),
        context=context,
        fold=fold,
        _pairs=pairs,
    )


def _body_diffs(change: NodeChange) -> dict[str, GraphDiff]:
    return {name: diff(before.graph, after.graph) for name, (before, after) in change.bodies.items()}


def _weight_bytes(graph: Graph) -> Dim | None:
    return total((None if type is None else type.nbytes, 1) for type in weight_types(graph).values())


# -- as data ---------------------------------------------------------------------------------------
def _change(change: NodeChange) -> dict[str, Any]:
    return {
        "change": change.kind,
        "before": None if change.old is None else _node(change.old, change.old_text),
        "after": None if change.new is None else _node(change.new, change.new_text),
        "differences": [{"what": what, "before": before, "after": after} for what, before, after in change.what],
        "bodies": {name: found.to_json() for name, found in _body_diffs(change).items()},
        "flops": _cost(change.old_cost.flops, change.new_cost.flops),
        "bytes": _cost(change.old_cost.bytes, change.new_cost.bytes),
    }


def _node(node: Node, text: str) -> dict[str, Any]:
    return {
        "name": node.name,
        "op": node.op,
        "target": node.target.name if isinstance(node.target, Op) else str(node.target),
        "text": text,
        "type": None if node.type is None else type_text(node.type),
        "scope": node.module_path,
        "class": node.scope.class_name if node.scope is not None else "",
        "file": node.loc.file if node.loc is not None else None,
        "line": node.loc.line if node.loc is not None else None,
    }


def _weight(change: WeightChange) -> dict[str, Any]:
    largest = change.max_difference
    return {
        "change": change.kind,
        "path_before": change.old_path,
        "path_after": change.new_path,
        "type_before": None if change.old_type is None else str(change.old_type),
        "type_after": None if change.new_type is None else str(change.new_type),
        "differing_elements": change.differing,
        "max_abs_difference": "inf" if largest is not None and math.isinf(largest) else largest,
    }


def _cost(before: Dim | None, after: Dim | None) -> dict[str, Any]:
    difference = None
    if before is not None and after is not None:
        difference = shapes.normalize(after - before)
    values = {"before": before, "after": after, "difference": difference}
    return {
        key: value if value is None or isinstance(value, int) else shapes.to_text(value)
        for key, value in values.items()
    }


# -- page ------------------------------------------------------------------------------------------
def page(diff: GraphDiff) -> str:
    """The whole page."""
    style = files("fxlite.show.comparison").joinpath("diff.css").read_text(encoding="utf-8")
    nodes = ("<h2>Nodes</h2>", '<div class="graph">', *row_elements(diff), "</div>")
    inside = "\n".join((*_totals(diff), *nodes, *weight_elements(diff.weights)))
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Graph diff: {markup(diff.summary)}</title>
<style>
{style}</style></head>
<body>
<h1>Graph diff</h1>
<p class="summary">{markup(diff.summary)}</p>
{inside}
</body>
</html>
"""


def _totals(diff: GraphDiff) -> Iterator[str]:
    yield "<table>"
    yield "<tr><th></th><th>before</th><th>after</th><th>difference</th></tr>"
    for name, before, after in totals(diff):
        cells = [_dim(before), _dim(after), _difference(before, after)]
        yield f"<tr><th>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    yield "</table>"


def _dim(value: Dim | None) -> str:
    """A cost in short form, with the full form as its title."""
    if value is None:
        return "unknown"
    return f'<span title="{markup(str(value))}">{markup(short_text(value))}</span>'


def _difference(before: Dim | None, after: Dim | None) -> str:
    if before is None or after is None:
        return "unknown"
    delta = after - before
    return "–" if delta == 0 else _signed(delta)


def _signed(delta: Dim, unit: str = "") -> str:
    text = signed(delta)
    kind = "saved" if text.startswith("-") else "gain"
    shown = markup(f"{text} {unit}".rstrip())
    return f'<span class="{kind}" title="{markup(str(delta))}">{shown}</span>'


def weight_elements(weights: Sequence[WeightChange]) -> Iterator[str]:
    """The weights of a diff."""
    if not weights:
        return
    yield "<h2>Weights</h2>"
    yield '<ul class="weights">'
    for change in weights:
        mark = f'<span class="mark">{_MARKS[change.kind]}</span>'
        yield f'<li class="{change.kind}">{mark} <code>{markup(weight_text(change))}</code></li>'
    yield "</ul>"


def row_elements(diff: GraphDiff, is_whole: bool = True) -> Iterator[str]:
    """The nodes of a diff: changed ones and those around them. The others are in sections that can be opened or,
    without ``is_whole``, only their number is shown."""
    for part in folded(diff):
        if not isinstance(part, Fold):
            yield from _elements(part)
            continue
        text = markup(part.text or f"… {len(part.rows)} unchanged nodes")
        if is_whole:
            yield f"<details><summary>{text}</summary>"
            for row in part.rows:
                yield from _elements(row)
            yield "</details>"
        else:
            yield f'<div class="fold">{text}</div>'


def _elements(row: Row) -> Iterator[str]:
    if isinstance(row, NodeChange):
        yield from _change_elements(row)
    else:
        yield _row_element(" ", "", line(row), _place(row))


def _change_elements(change: NodeChange) -> Iterator[str]:
    costs = "".join(f"<br>{_signed(delta, unit)}" for delta, unit in cost_changes(change))
    bodies = _body_diffs(change)
    if change.what:
        yield f'<div class="note">{markup("; ".join(_facts(change, bodies)))}</div>'
    if bodies and change.old_text == change.new_text:
        yield _row_element(" ", "", change.new_text, _place(change.node) + costs)
        yield from _body_elements(bodies)
        return
    if change.old is not None:
        side = _place(change.old) + (costs if change.new is None else "")
        yield _row_element("-", "removed", change.old_text, side)
    if change.new is not None:
        yield _row_element("+", "added", change.new_text, _place(change.new) + costs)
    yield from _body_elements(bodies)


def _body_elements(bodies: Mapping[str, GraphDiff]) -> Iterator[str]:
    for name, found in bodies.items():
        yield f'<div class="note">{name}</div><div class="body">'
        yield from row_elements(found)
        yield "</div>"


def _place(node: Node) -> str:
    """The module and line, with the file's path and the expression as the title."""
    if node.op == "output" or not node.origin:
        return ""
    told = f"{node.loc}: {node.loc.expression}".removesuffix(": ") if node.loc else ""
    return f'<span title="{markup(told)}">{markup(node.origin)}</span>'


def _row_element(mark: str, kind: str, text: str, side: str) -> str:
    head = f'<div class="row {kind}">' if kind else '<div class="row">'
    return (
        f'{head}<span class="mark">{mark}</span><code>{markup(text)}</code>'
        f'<span class="side">{side.removeprefix("<br>")}</span></div>'
    )


# -- text ------------------------------------------------------------------------------------------
#: The most weights that are listed; ``diff.weights`` has all.
MOST_WEIGHTS = 24
_MARKS = {"removed": "-", "added": "+", "changed": "~", "renamed": "~"}  # marks of weights
_STYLES = {"-": "red", "+": "green", "~": "yellow", " ": "dim", "#": "cyan", "": "bold"}


@dataclass(frozen=True)
class Line:
    """A line of text. ``style`` is its mark, "#" for a note, and "" for the summary."""

    style: str
    text: str

    def __str__(self) -> str:
        mark = self.style if self.style in ("-", "+", "~") else " "
        return f"{mark} {self.text}" if self.style else self.text


def diff_lines(diff: GraphDiff, width: int = 100) -> Iterator[Line]:
    """The lines for nodes, weights, summary and costs."""
    if diff.added or diff.removed or diff.changed:
        yield from _node_lines(diff, width)
    yield from _weight_lines(diff.weights, width)
    yield from (Line("", part) for part in _wrap(diff.summary, width))
    yield from _total_lines(diff, width)


def _node_lines(diff: GraphDiff, width: int) -> Iterator[Line]:
    origin = ""  # shown if it differs from that of the previous change
    for part in folded(diff):
        if isinstance(part, Fold):
            yield from _note(part.text, width) or [Line(" ", f"… {number_of(len(part.rows), 'line')}")]
            origin = ""
        elif isinstance(part, NodeChange):
            yield from _change_lines(part, width, part.node.origin != origin)
            origin = part.node.origin
        else:
            yield from _code(" ", line(part), width)


@dataclass(frozen=True)
class Fold:
    """Rows that are not shown: unchanged ones or, with a text that says so, copies of rows before them."""

    rows: Sequence[Row]
    text: str = ""


def folded(diff: GraphDiff) -> Iterator[Row | Fold]:
    """The changes, up to ``context`` unchanged nodes on both sides of each, and folds of the rows in between. Reads of
    weights are left out."""
    rows = [row for row in diff.rows if isinstance(row, NodeChange) or row.op != "get_attr"]
    shown: list[Row | Fold] = []
    place = 0
    for start, fold in _copies(rows, diff._pairs) if diff.fold else ():
        shown += [*rows[place:start], fold]
        place = start + len(fold.rows)
    shown += rows[place:]
    near = [isinstance(row, Fold) for row in shown]
    for place, row in enumerate(shown):
        if isinstance(row, NodeChange):
            low, high = max(place - diff.context, 0), min(place + diff.context + 1, len(shown))
            near[low:high] = [True] * (high - low)
    for is_near, group in groupby(zip(near, shown), key=itemgetter(0)):
        found = [row for _, row in group]
        if is_near or len(found) == 1:  # folding a single line would save nothing
            yield from found
        else:
            yield Fold([row for row in found if isinstance(row, Node)])


def _copies(rows: Sequence[Row], pairs: Mapping[Node, Node]) -> list[tuple[int, Fold]]:
    """Folds of the layers that change as the one before, with their places in ``rows``, in order."""
    changes = [row for row in rows if isinstance(row, NodeChange)]
    if len(changes) < 2:
        return []
    nodes = [row.node if isinstance(row, NodeChange) else row for row in rows]
    found = outline_of(
        nodes,
        marks={change.node: _mark(change) for change in changes},
        reads={change.node: _reads(change, pairs) for change in changes},
    )
    gone = {change.old for change in changes if change.new is None}
    places = {node: at for at, node in enumerate(nodes) if node not in gone}
    return sorted(
        (
            (part.stop, Fold(rows[part.stop : part.end], fold_text(part, nodes, places, *_SAME_CHANGE)))
            for part in found.parts()
            if part.times > 1
            and any(isinstance(row, NodeChange) for row in rows[part.start : part.stop])
            and not any(node.op == "placeholder" for node in nodes[part.start : part.stop])
        ),
        key=itemgetter(0),
    )


_SAME_CHANGE = ("changes in the same way", "change in the same way")


def _mark(change: NodeChange) -> Hashable:
    """What makes two changes the same, in addition to the node itself, for which the new node stands if there are two:
    the kind and, of a changed node, what it was."""
    if change.old is None or change.new is None:
        return change.kind
    return change.kind, tuple(name for name, _, _ in change.what), call_key(change.old), type_text(change.old.type)


def _reads(change: NodeChange, pairs: Mapping[Node, Node]) -> list[Node]:
    """What the new node reads, and what the old one read, by the new nodes where they are paired."""
    before = [] if change.old is None else [pairs.get(read, read) for read in operands(change.old)]
    return before if change.new is None else [*operands(change.new), *before]


def _code(mark: str, text: str, width: int, note: str = "") -> list[Line]:
    """A line of code, broken to the width, with a note after or before it."""
    whole = f"{text}  # {note}" if note else text
    if len(whole) <= width - 2:
        return [Line(mark, whole)]
    before = _note(note, width)
    return [*before, *(Line(mark, part) for part in broken_code(text, width - 2))]


def _note(text: str, width: int) -> list[Line]:
    """A comment, broken between its parts, and between the words of a part that is longer than a line."""
    lines: list[str] = []
    current = "#"
    for part in text.split("; ") if text else ():
        if current != "#" and len(current) + len(part) + 4 > width:
            lines.append(current)
            current = "#  "
        current += f"; {part}" if len(current) > 3 else f" {part}"
    wrapped = (_wrap(current, width - 2, "#     ") for current in ([*lines, current] if text else ()))
    return [Line("#", part) for parts in wrapped for part in parts]


def _change_lines(change: NodeChange, width: int, with_origin: bool) -> Iterator[Line]:
    parts = [f"{signed(delta)} {unit}" for delta, unit in cost_changes(change)]
    if with_origin and change.node.origin and change.node.op != "output":
        parts.append(change.node.origin)
    if change.kind == "removed":
        yield from _code("-", change.old_text, width, "; ".join(parts))
        yield from _body_lines("-", change.node, width)
    elif change.kind == "added":
        yield from _code("+", change.new_text, width, "; ".join(parts))
        yield from _body_lines("+", change.node, width)
    elif [what for what, _, _ in change.what] == ["type"] and _fits(retyped_text(change), width):
        yield from _code("~", retyped_text(change), width, "; ".join(parts))
    else:
        bodies = _body_diffs(change)
        yield from _note("; ".join([*_facts(change, bodies), *parts]), width)
        if bodies and change.old_text == change.new_text:
            yield from _code(" ", change.new_text, width)
        else:
            yield from _code("-", change.old_text, width)
            yield from _code("+", change.new_text, width)
        for name, found in bodies.items():
            yield Line("#", f"    # {name}")
            yield from _indented(_node_lines(found, width - 4))


def _body_lines(mark: str, node: Node, width: int) -> Iterator[Line]:
    """The bodies of a node that was added or removed."""
    for name, body in bodies_of(node).items():
        yield Line(mark, f"    # {name}")
        for inner in body.nodes:
            yield from _indented(_code(mark, line(inner), width - 4))
            yield from _indented(_body_lines(mark, inner, width - 4))


def _indented(lines: Iterable[Line]) -> Iterator[Line]:
    return (Line(part.style, f"    {part.text}") for part in lines)


def _facts(change: NodeChange, bodies: Mapping[str, GraphDiff]) -> list[str]:
    """What differs, as texts; of bodies how much. The first one begins with the op, or says which it was."""
    facts = [
        f"{what}: {bodies[what].summary}" if what in bodies else fact_text(what, before, after)
        for what, before, after in change.what
    ]
    is_other = change.what[0][0] == "op"
    return [facts[0] if is_other else f"{title(change.node)}: {facts[0]}", *facts[1:]]


def _fits(text: str, width: int) -> bool:
    """Whether a line of code can be broken so that it fits."""
    return all(len(part) <= width - 2 for part in broken_code(text, width - 2))


def retyped_text(change: NodeChange) -> str:
    """A change of only the type in one line: ``relu: f32[2,4] → f32[3,4] = ops.relu(x)``."""
    _, before, after = change.what[0]
    if change.node.op == "output":
        return f"{change.new_text}: {before} → {after}"
    return change.new_text.replace(f": {after}", f": {before} → {after}", 1)


def cost_changes(change: NodeChange) -> list[tuple[Dim, str]]:
    """The differences of FLOPs and bytes (after minus before) with their units, without those that are zero or
    unknown."""
    before, after = change.old_cost, change.new_cost
    pairs = ((before.flops, after.flops, "FLOPs"), (before.bytes, after.bytes, "bytes"))
    known = [(shapes.normalize(b - a), unit) for a, b, unit in pairs if a is not None and b is not None]
    return [(delta, unit.removesuffix("s") if delta in (1, -1) else unit) for delta, unit in known if delta != 0]


def fact_text(what: str, before: str, after: str) -> str:
    """``axis 1 → 0``"""
    if what == "arguments":
        return f"{before} → {number_of(int(after), 'argument')}"
    name = "" if what == "op" else f"{what}: " if what.startswith("argument ") else f"{what} "
    return f"{name}{before} → {after}"


def signed(value: Dim) -> str:
    """``+1.2k``, ``-3*B``."""
    text = short_text(value)
    return text if text.startswith("-") else f"+{text}"


# -- weights and totals ----------------------------------------------------------------------------
def _weight_lines(weights: Sequence[WeightChange], width: int) -> Iterator[Line]:
    for change in weights[:MOST_WEIGHTS]:
        yield from (Line(_MARKS[change.kind], part) for part in _wrap(weight_text(change), width - 2))
    if len(weights) > MOST_WEIGHTS:
        yield Line(" ", f"… {number_of(len(weights) - MOST_WEIGHTS, 'more weight')}")


def weight_text(change: WeightChange) -> str:
    """``self.fc.weight f32[3,4]: differs in 12 of 12 elements, by at most 0.0131``."""
    old, new = (attribute_text(p) if p else "" for p in (change.old_path, change.new_path))
    if change.kind == "removed":
        return f"{old} {change.old_type}"
    if change.kind == "added":
        return f"{new} {change.new_type}"
    if change.kind == "renamed":
        return f"{old} → {new} {change.new_type}: the same values"
    if change.differing is None:
        return f"{new} {change.old_type} → {change.new_type}"
    size = change.new_type.size if change.new_type is not None else 0
    return (
        f"{new} {change.new_type}: differs in {change.differing:,} of {number_of(size, 'element')}, by at most "
        f"{change.max_difference:.3g}"
    )


def _wrap(text: str, width: int, indent: str = "    ") -> list[str]:
    """Words in lines of at most ``width`` columns; further lines begin with ``indent``."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(f"{indent}{word}" if lines else word)
    return lines


def _total_lines(diff: GraphDiff, width: int) -> Iterator[Line]:
    for name, before, after in totals(diff):
        if before is None or after is None:
            told = "unknown" if diff else ""
        elif shapes.equal(before, after):
            continue
        else:
            told = f"{short_text(before)} → {short_text(after)}  ({_gain(before, after)})"
        yield from (Line("", part) for part in _wrap(f"{name:<13} {told}", width) if told)


def totals(diff: GraphDiff) -> list[tuple[str, Dim | None, Dim | None]]:
    """(name, before, after) of the costs of the whole graphs."""
    return [
        ("FLOPs", diff.before.flops, diff.after.flops),
        ("bytes moved", diff.before.bytes, diff.after.bytes),
        ("weight bytes", *diff.weight_bytes),
    ]


def _gain(before: Dim, after: Dim) -> str:
    """``-20 %`` for numbers, the difference for formulas."""
    change = shapes.normalize(after - before)
    if isinstance(before, int) and isinstance(after, int) and before:
        return f"{100 * (after - before) / before:+.3g} %"
    return signed(change)
