"""A picture before it is written to a file: the text, size and colour of each part.

In: a graph and options. Out: a :class:`Picture`, from which SVG, DOT and HTML are made; and the tree of boxes for the
layout.

Loops and conditions are boxes, like modules, with the calls of their bodies inside. For this, a graph is made only
for the picture, in which the calls of all bodies replace the loop or condition. The inputs of a body are its initial
ones, and its results are those of its last calls. This graph is not a program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from fxlite.base.errors import number_of
from fxlite.base.location import Scope
from fxlite.graph.graph import Graph, Node, map_nodes, nodes_in
from fxlite.graph.node import new_node, stored_args, stored_kwargs
from fxlite.graph.subgraph import SubGraph, bodies_of
from fxlite.nn.module import Parameter
from fxlite.ops.control import BODIES
from fxlite.ops.op import lookup
from fxlite.show.drawing.colours import SCHEMES, Colours, DrawError, changes_between
from fxlite.show.drawing.layout import Box, layout
from fxlite.show.drawing.outline import Outline, Part, close_below, is_element, outline, stands_on_readers
from fxlite.show.node_cost import node_flops
from fxlite.show.text.pretty import node_line, type_text, value_text
from fxlite.types.tensor_type import TensorType

LINE_HEIGHT, BIG, SMALL = 15.0, 12.0, 11.0  # pixels: line height; names, titles and types; notes and the legend
ADVANCE = 0.605  # width of a character of a monospaced font, in ems
LONGEST = 34  # characters of one text
_MOST_TYPES = 3  # types of inputs (and of outputs) shown on a closed box
_MOST_REMOVED = 8  # nodes named in the caption
_MOST_NAMED = 30  # modules in a description
_MOST_HELD, _MOST_ROWS, _WIDEST_HELD = 2, 3, 40  # weights of one type named on a node; lines; characters
#: From top to bottom, and from left to right, in Graphviz's terms.
DIRECTIONS = ("TB", "LR")

#: The data that a colouring needs.
_NEEDS = {
    "time": "times={node: seconds}, or a profile, to draw",
    "change": "changed_from=, the graph to compare with",
    "sqnr": "sqnr={module path: dB}, as q.sensitivity() finds it",
}
#: A line of text in a part: CSS class and text.
Text = tuple[str, str]


@dataclass(frozen=True)
class Picture:
    """The outline to draw, its colours, a caption ("" if nothing is folded or closed), a text on the number of nodes,
    and one of :data:`DIRECTIONS`."""

    outline: Outline
    colours: Colours
    caption: str
    count: str = ""
    direction: str = "TB"


class Options(TypedDict, total=False):
    """The options of a picture, which :func:`fxlite.show.drawing.draw.draw` describes."""

    weights: bool
    color: str | None
    depth: int | None
    fold: bool
    direction: str
    times: Any
    changed_from: Graph | None
    sqnr: Mapping[str, float] | None


def picture(
    graph: Graph,
    *,
    weights: bool = False,
    color: str | None = None,
    depth: int | None = None,
    fold: bool = True,
    direction: str = "TB",
    times: Any = None,
    changed_from: Graph | None = None,
    sqnr: Mapping[str, float] | None = None,
) -> Picture:
    """The picture of a graph. Raises DrawError for options that do not fit."""
    data = {"time": times, "change": changed_from, "sqnr": sqnr}
    color = color or next((name for name, value in data.items() if value is not None), "op")
    if color not in SCHEMES:
        raise DrawError(f"color={color!r}: a picture is coloured by {', '.join(SCHEMES)}")
    if color in data and data[color] is None:
        raise DrawError(f"color={color!r} needs {_NEEDS[color]}")
    if depth is not None and depth < 1:
        raise DrawError(f"depth={depth}: at least one level of modules is drawn, depth=1")
    if direction not in DIRECTIONS:
        raise DrawError(f"direction={direction!r}: a picture goes from top to bottom, TB, or from left to right, LR")
    seconds = _seconds_by_name(graph, times)
    changes: dict[Node, str] = {}
    removed: list[str] = []
    if changed_from is not None:
        changes, removed = changes_between(changed_from, graph)
    drawn, copies = with_open_bodies(graph)
    changes = {copies.get(node, node): text for node, text in changes.items()}
    left_out = (lambda node: False) if weights else stands_on_readers
    found = outline(drawn, left_out, fold, marks=changes if color == "change" else None)
    closed_at = close_below(found, depth)
    ratios = ratios_by_node(drawn, sqnr or {})
    if sqnr and not ratios:
        names = ", ".join(list(sqnr)[:3])
        raise DrawError(f"sqnr= has {names}, …, but no module or node of this graph")
    coloured_by = {"time": seconds, "change": changes, "sqnr": ratios}
    colours = SCHEMES[color](found, coloured_by.get(color))
    count = counted(graph, drawn, found)
    remarks = [count] if closed_at is not None else []
    remarks += [_closed_remark(found, closed_at), _folded_remark(found), colours.remark]
    if color == "change" and removed:
        names = ", ".join(removed[:_MOST_REMOVED]) + (" …" if len(removed) > _MOST_REMOVED else "")
        remarks.append(f"{len(removed)} removed: {names}")
    caption = "; ".join(filter(None, remarks))
    return Picture(found, colours, caption, count, direction)


def counted(graph: Graph, drawn: Graph, found: Outline) -> str:
    """``173 nodes: 71 drawn, 102 weights``: an explanation of the graph's number of nodes. ``drawn`` is the graph
    with its bodies open."""
    shown = set(found.nodes)
    apart = Counter(_apart(node) for node in drawn.nodes if node not in shown)
    copies = sum(place != own for own, place in enumerate(found.drawn_as))
    closed = [part for part in found.visible() if part.children and not part.is_open]
    inside = sum(found.drawn_as[place] == place for part in closed for place in range(part.start, part.stop))
    amounts = {
        "drawn": len(shown) - copies - inside,
        "in closed boxes": inside,
        "in equal copies (×N)": copies,
        **apart,
    }
    opened = len(drawn) - len(graph)
    amounts["in bodies of loops and conditions"] = -max(opened, 0)
    parts = [f"{abs(number):,} {what}" for what, number in amounts.items() if number]
    total = number_of(len(graph), "node")
    if len(parts) <= 1:
        return total
    return f"{total}: {', '.join(parts)}"


def _apart(node: Node) -> str:
    return "weights" if node.op == "get_attr" else "elements of tuples" if is_element(node) else "constants"


def _seconds_by_name(graph: Graph, times: Any) -> dict[str, float]:
    """Seconds by name of node, from a dict by node or name, or from a profile."""
    given = times.node_seconds() if hasattr(times, "node_seconds") else times or {}
    seconds = {key.name if isinstance(key, Node) else key: value for key, value in given.items()}
    if seconds and not any(node.name in seconds for node in graph.nodes):
        names = ", ".join(list(seconds)[:3])
        raise DrawError(f"times= has {names}, …, but no node of this graph: draw the graph timed")
    return seconds


def ratios_by_node(graph: Graph, ratios: Mapping[str, float]) -> dict[Node, float]:
    """The ratio of each call, from ratios by node name or module path. Calls that only move values within a module have
    none."""
    found: dict[Node, float] = {}
    for node in graph.nodes:
        if not node.op.startswith("call_"):
            continue
        path = node.module_path
        if node.name in ratios:
            found[node] = ratios[node.name]
        elif path in ratios and _computes(node):
            found[node] = ratios[path]
    return found


def _computes(node: Node) -> bool:
    """True for calls with arithmetic, and for those that read weights."""
    reads_weights = any(x.op == "get_attr" for x in node.all_input_nodes)
    return reads_weights or node.op != "call_function" or node_flops(node) != 0


def described(drawn: Picture) -> tuple[str, str]:
    """The name and the description of a picture, for people who cannot see it."""
    found = drawn.outline
    ports = [line_type(node) for node in found.nodes if node.op == "placeholder"]
    into = ", ".join(ports[:_MOST_REMOVED]) + (", …" if len(ports) > _MOST_REMOVED else "")
    out = next((type_text(node.type) for node in reversed(found.nodes) if node.op == "output" and node.type), "")
    boxes = [title(part) for part in found.root.children if part.title]
    modules = ", ".join(boxes[:_MOST_NAMED]) + (", …" if len(boxes) > _MOST_NAMED else "")
    rows = [("Inputs", into), ("Result", out), ("In order", modules), ("", drawn.caption)]
    told = ". ".join(f"{name}: {text}" if name else text for name, text in rows if text)
    return f"Graph of {drawn.count}", told


def _closed_remark(found: Outline, closed_at: int | None) -> str:
    if closed_at is None:
        return ""
    if closed_at == 0:
        return "too many nodes to be drawn: consecutive ones are in a box"
    levels = number_of(closed_at, "level")
    return f"{levels} of modules shown (depth={closed_at + 1} shows more)"


def _folded_remark(found: Outline) -> str:
    if not any(part.times > 1 for part in found.visible()):
        return ""
    return "×N: equal parts that follow each other; the first is drawn"


# -- texts of parts --------------------------------------------------------------------------------
def title(part: Part) -> str:
    """``layer.0…5 (Layer) ×6``"""
    return f"{part.title} {repeated(part)}".strip()


def repeated(part: Part) -> str:
    """``×12``, or nothing for a part that stands for itself."""
    return f"×{part.times:,}" if part.times > 1 else ""


def texts(drawn: Picture, part: Part) -> list[Text]:
    """The lines of a node or closed box: the layer, name and attributes, weights, type, and a note."""
    lines: list[Text] = [("name", title(part))]
    if part.children:
        count = part.stop - part.start
        lines += [("more", number_of(count, "node")), *_ends(drawn.outline, part)]
    else:
        node = drawn.outline.nodes[part.start]
        name = str(node.target) if node.op == "get_attr" else node.name
        called = f"{name} {_attributes(node)}".rstrip()
        if called != part.title.partition(" ")[0]:
            lines.append(("more" if title(part) else "name", called))
        lines += [("weight", text) for text in _held_texts(drawn.outline, node)]
        lines.append(("type", _short(type_text(node.type) if node.type is not None else "")))
    lines.append(("note", drawn.colours.note(part)))
    return [(css, text) for css, text in lines if text]


def _held(found: Outline, node: Node) -> list[tuple[str, Node]]:
    """The operands that are shown on a node, with the names of their parameters."""
    if node.op != "call_function":
        return []
    named = node.arguments.items()
    pairs = ((name, read) for name, value in named for read in nodes_in(value))
    held = [
        (name, read) for name, read in pairs if stands_on_readers(read) and read not in found and not is_element(read)
    ]
    return sorted(held, key=lambda pair: pair[1].op != "get_attr")  # constants after weights


def _held_texts(found: Outline, node: Node) -> list[str]:
    """``weight [64,3,7,7]``, ``bias [64]``: names and shapes, and dtypes if they differ from that of the result."""
    by_type: dict[str, list[str]] = {}
    dtype = node.type.dtype if isinstance(node.type, TensorType) else None
    for name, read in _held(found, node):
        text = type_text(read.type) if read.type is not None else ""
        if isinstance(read.type, TensorType) and dtype in (read.type.dtype, None):
            text = text.removeprefix(repr(read.type.dtype)) or text
        value = _number(read)
        names = by_type.setdefault(f"= {value}" if value else text, [])
        name = _own_name(node, name, read)
        if name not in names:
            names.append(name)
    rows: list[str] = []
    for text, names in by_type.items():
        told = f"{', '.join(names[:_MOST_HELD])}{', …' * (len(names) > _MOST_HELD)} {text}".rstrip()
        if rows and len(rows[-1]) + len(told) + 2 <= _WIDEST_HELD:
            rows[-1] += f"  {told}"
        else:
            rows.append(told)
    return [_short(row, _WIDEST_HELD) for row in rows[:_MOST_ROWS]] + ["…"] * (len(rows) > _MOST_ROWS)


def _own_name(node: Node, name: str, read: Node) -> str:
    """The name of an operand of ``node`` that is shown on it: that of the op's parameter, as in ``weight``; or, if a
    learned weight has no such word in its name, its path inside the node's module: ``positions.weight``, not ``x``."""
    path = str(read.target)
    if f"_{name}_" in f"_{path.rpartition('.')[2]}_" or not isinstance(_array(read), Parameter):
        return name
    return path.removeprefix(f"{node.scope.path}." if node.scope and node.scope.path else "")


def _array(read: Node) -> Any:
    """What a ``get_attr`` reads; None for other nodes, and while the graph is edited."""
    owner = read.graph.owning_module
    if read.op != "get_attr" or owner is None:
        return None
    try:
        return owner.get_attribute(read.target)
    except AttributeError:
        return None


def _number(read: Node) -> str:
    """The value of a constant that is a single number and not a learned weight; otherwise empty."""
    value = _array(read)
    if value is None or isinstance(value, Parameter) or not isinstance(read.type, TensorType) or read.type.shape:
        return ""
    number = np.asarray(value).item()
    return f"{number:.6g}" if isinstance(number, float) else str(number)


def _attributes(node: Node) -> str:
    values = [] if node.op == "output" else [v for v in node.args if not list(nodes_in(v))]
    parts = [value_text(v) for v in values if v is not None]
    parts += [f"{k}={value_text(v)}" for k, v in node.kwargs.items() if not list(nodes_in(v))]
    return _short(" ".join(parts))


def _short(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _ends(found: Outline, part: Part) -> list[Text]:
    """The types of the values that enter a closed box, and of those that leave it."""
    into, out = map(_types, found.ends(part))
    if len(into) + len(out) + 3 <= 1.4 * LONGEST:
        return [("type", f"{into} → {out}")] if into or out else []
    return [("type", f"{into} →"), ("type", f"→ {out}")]


def _types(nodes: list[Node]) -> str:
    shown = [type_text(n.type) for n in nodes[:_MOST_TYPES] if n.type is not None]
    return _short(", ".join(shown + (["…"] if len(nodes) > _MOST_TYPES else [])))


def tooltip(found: Outline, part: Part) -> str:
    """The tooltip of a node: its line of code and its origin."""
    node = found.nodes[part.start]
    if part.children:
        last = found.nodes[part.stop - 1]
        told = f"{part.title}: {node.name} … {last.name}"
        into, out = found.ends(part)
        return "\n".join([told, *(f"in: {line_type(n)}" for n in into), *(f"out: {line_type(n)}" for n in out)])
    held = (f"\n  {name}: {line_type(read)}" for name, read in _held(found, node))
    line = node_line(node) + "".join(held)
    return f"{line}\n{node.origin}" if node.origin else line


def line_type(node: Node) -> str:
    """``relu: f32[B,10]``, or the path and type of a weight, in full."""
    name = str(node.target) if node.op == "get_attr" else node.name
    return f"{name}: {type_text(node.type)}" if node.type is not None else name


# -- layout ----------------------------------------------------------------------------------------
def size(lines: list[Text]) -> tuple[float, float]:
    """The width and height in pixels of a node or closed box with these texts."""
    widths = [len(text) * (SMALL if css in SMALL_TEXTS else BIG) * ADVANCE for css, text in lines]
    return max(widths, default=0.0) + 18, LINE_HEIGHT * len(lines) + 9


#: CSS classes of texts in the small font.
SMALL_TEXTS = frozenset(("note", "weight"))
#: The beginning of the title of an open box on a page.
_OPENED = "▾ "


def laid_out(drawn: Picture) -> tuple[Box, list[tuple[Part, Box]]]:
    """The root box after layout of the visible parts; and the box of each part, outer ones first."""
    root = Box(drawn.outline.root)
    boxes = {drawn.outline.root: root}
    placed = []
    for part in drawn.outline.visible():
        box = boxes[part] = Box(part)
        if part.is_drawn_whole:
            box.width, box.height = size(texts(drawn, part))
        else:
            box.title = title(part)
            box.title_width = (len(_OPENED) + len(box.title)) * BIG * ADVANCE
        assert part.parent is not None
        boxes[part.parent].children.append(box)
        placed.append((part, box))
    if placed:
        layout(root, drawn.outline.edges(), sideways=drawn.direction == "LR")
    return root, placed


# -- loops and conditions --------------------------------------------------------------------------
#: The titles of the boxes of bodies.
_TITLES = {"true_fn": "if", "false_fn": "else", "cond_fn": "while", "body_fn": "do"}


def with_open_bodies(graph: Graph) -> tuple[Graph, dict[Node, Node]]:
    """The graph for a picture, and a dict from the nodes of ``graph`` to its nodes; the graph itself and an empty
    dict if no node has a body."""
    if not any(bodies_of(node) for node in graph.nodes):
        return graph, {}
    made, known = Graph(graph.owning_module), dict[Node, Node]()
    _Opened(made).copy(list(graph.nodes), known, None)
    return made, known


class _Opened:
    def __init__(self, made: Graph) -> None:
        self.made = made

    def copy(self, nodes: Sequence[Node], known: dict[Node, Node], around: Scope | None) -> None:
        """Append nodes to the graph, with bodies in boxes; ``known`` maps nodes to those that stand for them."""
        for node in nodes:
            if node in known:
                continue
            if bodies_of(node):
                self.open(node, known, around)
            else:
                known[node] = self.append(node, known, around)

    def append(self, node: Node, known: dict[Node, Node], around: Scope | None) -> Node:
        args = stored_args(map_nodes(node._args, known.__getitem__))
        kwargs = node._kwargs
        if node.op != "call_function":
            kwargs = stored_kwargs(map_nodes(kwargs, known.__getitem__))
        return self.enter(node.name, node.op, node.target, args, kwargs, node.type, around or node.scope, node.loc)

    def enter(self, wish: str, *parts: Any) -> Node:
        """Add a new node at the end of the graph, named ``wish`` or similarly."""
        made = new_node(self.made, self.made._store.namer.unique(wish), *parts)
        self.made._store.attach(made, self.made._store.root)
        return made

    def open(self, node: Node, known: dict[Node, Node], around: Scope | None) -> None:
        """Append the calls of a node's bodies, and its results, which are elements of a tuple."""
        outer = around or node.scope
        prefix = f"{outer.path}." if outer is not None and outer.path else ""
        carried = node.arguments.get("carried", ())
        captured = node.arguments.get(BODIES[node.target][1], ())
        results: list[Node] = []
        for name, body in bodies_of(node).items():
            path = f"{prefix}{node.name}"
            box = Scope(f"{path}.{_TITLES[name]}" if name != "body_fn" else path, _title(node))
            given = self._given(node, body, (*carried, *captured), known, box)
            self.copy(body.calls, given, box)
            results += [given[r] for r in body.results]
        read = tuple(dict.fromkeys([*(known[n] for n in node.args[:1] if isinstance(n, Node)), *results]))
        args, kwargs = stored_args((read,)), stored_kwargs({})
        known[node] = self.enter(node.name, "call_function", node.target, args, kwargs, node.type, outer, node.loc)

    def _given(
        self, node: Node, body: SubGraph, values: Sequence[Node], known: dict[Node, Node], box: Scope
    ) -> dict[Node, Node]:
        given: dict[Node, Node] = {}
        lead = len(body.inputs) - len(values)
        for inner in body.inputs[:lead]:  # the number of the iteration
            start, arange = stored_kwargs({"start": 0}), lookup("arange")
            given[inner] = self.enter(inner.name, "call_function", arange, (), start, inner.type, box, node.loc)
        for inner, outer in zip(body.inputs[lead:], values):
            given[inner] = known[outer]
        return given


def _title(node: Node) -> str:
    return "If" if "true_fn" in node._kwargs else "Loop"
