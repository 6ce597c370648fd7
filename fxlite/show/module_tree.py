"""The modules of a graph as a list of rows, outer ones first: what a model summary shows.

In: a graph. Out: a :class:`ModuleTree`: a row for each call of a module, each input, and each run
of ops that stand in no module further inside; equal parts that follow each other are one row
("×12"). What a row stands for is a range of nodes, so that anything can be summed up over it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fxlite.graph.graph import Graph, Node
from fxlite.ops.op import Op
from fxlite.show.drawing.outline import Part, outline

#: Ops that say little about what a run of ops does: they are named only where nothing else stands.
_PLAIN_KINDS = ("view", "creation", "gather")


@dataclass(frozen=True)
class TreeRow:
    """``kind`` is "module", "ops" (outside the modules below), "input", or "repeat": several rows
    that follow each other ``times`` times.

    ``name`` is the module's path from the row above (``0…11`` for twelve equal ones), the input's
    name, or what the ops are; ``branch`` are the lines of the tree in front of it. The row stands
    for ``times`` equal ranges of nodes, of which ``start`` to ``stop`` is the first."""

    kind: str
    name: str
    class_name: str
    times: int
    depth: int
    branch: str
    start: int
    stop: int


@dataclass(frozen=True)
class ModuleTree:
    """The nodes but those that read weights, in order, and the rows over them; the first row is the
    whole graph."""

    nodes: list[Node]
    rows: tuple[TreeRow, ...]

    def inside(self, row: TreeRow) -> list[Node]:
        """The nodes of a row, of one copy where it stands for several."""
        return self.nodes[row.start : row.stop]


def module_tree(graph: Graph, name: str, depth: int | None = None) -> ModuleTree:
    """The rows of a graph called ``name``. With ``depth``, modules that many levels down are not
    opened: 1 shows the modules of the root alone."""
    found = outline(graph)
    nodes = found.nodes
    rows: list[TreeRow] = []
    work: list[tuple[TreeRow, Part, str]] = [
        (TreeRow("module", name, "", 1, 0, "", 0, len(nodes)), found.root, "")
    ]
    while work:
        row, part, indent = work.pop()
        rows.append(row)
        is_open = row.kind in ("module", "repeat") and (depth is None or row.depth < depth)
        if not (is_open and (part is found.root or _has_modules(part))):
            continue
        below = list(_rows_below(nodes, part, row.depth + 1))
        for place in reversed(range(len(below))):
            inner, inner_part = below[place]
            is_last = place == len(below) - 1
            made = replace(inner, branch=indent + ("└─ " if is_last else "├─ "))
            work.append((made, inner_part, indent + ("   " if is_last else "│  ")))
    return ModuleTree(nodes, tuple(rows))


def _rows_below(nodes: list[Node], part: Part, depth: int) -> Iterator[tuple[TreeRow, Part]]:
    """A row for each module and input in a part, and for each run of other nodes."""
    run: list[Part] = []
    for child in [*part.children, None]:
        if child is not None and _is_plain(nodes, child):
            run.append(child)
            continue
        if run:
            first, last = run[0].start, run[-1].end
            title = ops_title(nodes[first:last])
            yield TreeRow("ops", title, "", 1, depth, "", first, last), run[0]
            run = []
        if child is None or nodes[child.start].op == "output":
            continue
        name, _, class_name = child.title.partition(" (")
        kind = "module" if child.title else "repeat"
        if nodes[child.start].op == "placeholder":
            kind, name = "input", nodes[child.start].name
        row = TreeRow(
            kind, name, class_name.removesuffix(")"), child.times, depth, "",
            child.start, child.stop,
        )  # fmt: skip
        yield row, child


def _is_plain(nodes: list[Node], part: Part) -> bool:
    """True for an op outside modules, and for ops that repeat."""
    if part.title or nodes[part.start].op in ("placeholder", "output"):
        return False
    return not _has_modules(part)


def _has_modules(part: Part) -> bool:
    work = list(part.children)
    while work:
        child = work.pop()
        if child.title:
            return True
        work += child.children
    return False


def ops_title(nodes: list[Node]) -> str:
    """``matmul, div, softmax``: the ops in a run, each once; views only where there is no other."""
    telling = [
        n for n in nodes if not isinstance(n.target, Op) or n.target.kind not in _PLAIN_KINDS
    ]
    names = [
        n.target.name if isinstance(n.target, Op) else str(n.target)
        for n in telling or nodes
        if not (isinstance(n.target, Op) and n.target.name == "getitem" and len(nodes) > 1)
    ]
    return ", ".join(dict.fromkeys(names))


def outer_modules(path: str) -> list[str]:
    """A module's path and those around it, the root (an empty path) first."""
    steps = path.split(".") if path else []
    return [".".join(steps[:count]) for count in range(len(steps) + 1)]
