"""What the colours of a picture say: kind of op, dtype, time, module, what changed, or how well
quantization keeps it.

In: an outline and one of :data:`SCHEMES`. Out: :class:`Colours`: fill and border of each part, a
short note on it where there is one (its time), and the legend.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fxlite.base.errors import FxliteError
from fxlite.graph.graph import Graph, Node
from fxlite.ops.op import Op
from fxlite.show.drawing.outline import Outline, Part
from fxlite.types import dtypes
from fxlite.types.tensor_type import TensorType

Colour = tuple[str, str]  # fill, border

#: Kind of node -> colour; ops by :attr:`Op.kind`.
KINDS: dict[str, Colour] = {
    "input": ("#eceff1", "#78909c"),
    "weight": ("#f5f5f5", "#bdbdbd"),
    "contraction": ("#dbe7fd", "#5c85d6"),
    "composite": ("#dceefb", "#4f9fd0"),
    "window": ("#d9f2ee", "#3fa796"),
    "pointwise": ("#e3f3dc", "#6aa84f"),
    "reduction": ("#fdebd0", "#e09b3d"),
    "scan": ("#fdebd0", "#e09b3d"),
    "view": ("#f4f4f4", "#a6a6a6"),
    "gather": ("#ece3f8", "#9673c9"),
    "scatter": ("#ece3f8", "#9673c9"),
    "creation": ("#fbf6d5", "#c9b037"),
    "opaque": ("#fbe0e0", "#d06a6a"),
    "random": ("#fbe0e0", "#d06a6a"),
    "module": ("#fbe0e0", "#d06a6a"),
    "control": ("#dceefb", "#4f9fd0"),
}
DTYPES: dict[str, Colour] = {d.name: d.colours for d in dtypes.ALL}
CHANGES: dict[str, Colour] = {
    "added": ("#c8f0cf", "#1f8a3b"),
    "removed": ("#fbd5d5", "#b3202a"),
    "changed": ("#ffe9b0", "#c08a00"),
    "unchanged": ("#f6f7f8", "#b8c0c8"),
}
#: Time as a share of the whole: up to this much -> colour.
SHARES: tuple[tuple[float, Colour], ...] = (
    (0.01, ("#f6f7f8", "#b8c0c8")),
    (0.03, ("#fdeedd", "#d8a878")),
    (0.10, ("#fbd0a4", "#cf7a2e")),
    (0.25, ("#f59f6c", "#b5481a")),
    (1.00, ("#e5604d", "#8e1f14")),
)
#: Signal-to-noise ratio in dB: below this -> colour.
SQNR: tuple[tuple[float, Colour], ...] = (
    (20.0, ("#f7b0a6", "#b3261e")),
    (30.0, ("#fbd0a4", "#b5671a")),
    (40.0, ("#fbf0b5", "#b8a02c")),
    (math.inf, ("#c8f0cf", "#1f8a3b")),
)
_MODULES: tuple[Colour, ...] = (
    ("#dbe7fd", "#5c85d6"),
    ("#e3f3dc", "#6aa84f"),
    ("#fdebd0", "#e09b3d"),
    ("#ece3f8", "#9673c9"),
    ("#d9f2ee", "#3fa796"),
    ("#fbe0e0", "#d06a6a"),
    ("#fbf6d5", "#c9b037"),
    ("#f5ddf0", "#b565a3"),
)
_LONGEST_LEGEND = 12  # modules; the boxes have titles, too
CLOSED: Colour = ("#eaf0f7", "#627d98")
OTHER: Colour = ("#f4f4f4", "#a6a6a6")


class DrawError(FxliteError, RuntimeError):
    """A picture cannot be made: an unknown file type, colouring or depth, or nothing on the machine
    that writes such a file."""


@dataclass(frozen=True)
class Colours:
    """Fill and border of a part, the rows of the legend, a note on a part ("" for none), and a
    remark for the caption."""

    of: Callable[[Part], Colour]
    legend: tuple[tuple[str, Colour], ...]
    note: Callable[[Part], str] = lambda part: ""
    remark: str = ""


def kind_of(node: Node) -> str:
    """A key of :data:`KINDS`."""
    if isinstance(node.target, Op):
        return node.target.kind
    kinds = {"get_attr": "weight", "call_module": "module"}
    return kinds.get(node.op, "input")


def _by_name(outline: Outline, name_of: Callable[[Part], str], table: Mapping[str, Colour]) -> Colours:
    """Colours of a table, in which each part that is drawn has a name, or none."""
    drawn = dict.fromkeys(name_of(p) for p in outline.visible() if p.is_drawn_whole)
    legend = tuple((name, table.get(name, OTHER)) for name in drawn if name)
    return Colours(lambda part: table.get(name_of(part), OTHER), legend)


def _by_op(outline: Outline, data: None) -> Colours:
    kinds = [kind_of(n) for n in outline.nodes]
    found = _by_name(outline, lambda part: "" if part.children else kinds[part.start], KINDS)
    legend = tuple(row for row in found.legend if row[0] != "input")
    return Colours(lambda part: CLOSED if part.children else KINDS[kinds[part.start]], legend)


def _by_dtype(outline: Outline, data: None) -> Colours:
    """A closed box has the colour of the dtype that most of its nodes have."""
    names = [repr(n.type.dtype) if isinstance(n.type, TensorType) else "" for n in outline.nodes]

    def dtype(part: Part) -> str:
        counts = Counter(filter(None, names[part.start : part.stop]))
        return counts.most_common(1)[0][0] if counts else ""

    return _by_name(outline, dtype, DTYPES)


def by_share(outline: Outline, amounts: Mapping[str, float], text: Callable[[float], str], of: str) -> Colours:
    """Colours by share of a whole, from the amount of each node by its name; notes have amounts as
    ``text`` writes them. A folded part has what all its copies have."""
    own = [0.0] * len(outline.nodes)
    for place, node in enumerate(outline.nodes):
        own[outline.drawn_as[place]] += amounts.get(node.name, 0.0)
    sums = [0.0, *itertools.accumulate(own)]
    total = sums[-1] or 1.0

    def share(part: Part) -> float:
        return (sums[part.stop] - sums[part.start]) / total

    def colour(part: Part) -> Colour:
        return next(c for most, c in SHARES if share(part) <= most or most == 1.0)

    def note(part: Part) -> str:
        amount = sums[part.stop] - sums[part.start]
        return f"{text(amount)} · {_percent(share(part))}" if amount else ""

    legend = tuple((f"≤ {100 * most:.0f} %", c) for most, c in SHARES[:-1])
    legend += ((f"> {100 * SHARES[-2][0]:.0f} % {of}", SHARES[-1][1]),)
    return Colours(colour, legend, note, f"{text(sums[-1])} in all")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"


def _seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns" if value else "0 s"


def _by_change(outline: Outline, changes: Mapping[Node, str]) -> Colours:
    """A closed box is "added" if all in it is, "changed" if anything is."""
    kinds = [changes.get(n, "unchanged") for n in outline.nodes]

    def change(part: Part) -> str:
        inside = set(kinds[part.start : part.stop])
        return inside.pop() if len(inside) == 1 else "changed"

    found = _by_name(outline, change, CHANGES)
    return Colours(found.of, tuple(row for row in CHANGES.items() if row in found.legend))


def changes_between(before: Graph, after: Graph) -> tuple[dict[Node, str], list[str]]:
    """ "added" or "changed" by node of ``after``, and the names of the nodes that were removed."""
    from fxlite.show.comparison.graph_diff import diff

    found = diff(before, after)
    changes = {c.node: "added" for c in found.added} | {c.node: "changed" for c in found.changed}
    return changes, [change.name for change in found.removed]


def _by_scope(outline: Outline, data: None) -> Colours:
    """The modules at the first level where there are several have a colour each."""
    paths = [n.scope.path.split(".") if n.scope and n.scope.path else [] for n in outline.nodes]
    inside = [path for path in paths if path]
    level = 0
    while len({tuple(p[: level + 1]) for p in inside}) == 1 and len(inside[0]) > level + 1:
        level += 1
    names = [".".join(path[: level + 1]) if len(path) > level else "" for path in paths]
    colours = itertools.cycle(_MODULES)
    table = {name: next(colours) for name in dict.fromkeys(filter(None, names))}
    found = _by_name(outline, lambda part: names[part.start], table)
    return Colours(found.of, found.legend[:_LONGEST_LEGEND])


def _by_sqnr(outline: Outline, ratios: Mapping[Node, float]) -> Colours:
    """A box has the colour of the least ratio of what it stands for, folded copies included."""
    least = [math.inf] * len(outline.nodes)
    known = [False] * len(outline.nodes)
    for place, node in enumerate(outline.nodes):
        if node in ratios:
            drawn = outline.drawn_as[place]
            least[drawn], known[drawn] = min(least[drawn], ratios[node]), True

    def colour(part: Part) -> Colour:
        if not any(known[part.start : part.stop]):
            return OTHER
        worst = min(least[part.start : part.stop])
        return next(c for most, c in SQNR if worst < most or most == math.inf)

    def note(part: Part) -> str:
        if not any(known[part.start : part.stop]):
            return ""
        worst = min(least[part.start : part.stop])
        return "exact" if worst == math.inf else f"{worst:.1f} dB"

    limits = [0.0, *(most for most, _ in SQNR)]
    names = [f"{low:.0f}–{high:.0f} dB" for low, high in itertools.pairwise(limits)]
    names[0], names[-1] = f"< {limits[1]:.0f} dB", f"≥ {limits[-2]:.0f} dB"
    legend = tuple((name, c) for name, (_, c) in zip(names, SQNR, strict=True))
    return Colours(colour, (*legend, ("float", OTHER)), note)


#: What ``color=`` takes, and what makes colours of an outline and the data that goes with it.
SCHEMES: dict[str, Callable[[Outline, Any], Colours]] = {
    "op": _by_op,
    "dtype": _by_dtype,
    "time": lambda outline, times: by_share(outline, times, _seconds, "of the time"),
    "change": _by_change,
    "scope": _by_scope,
    "sqnr": _by_sqnr,
}
