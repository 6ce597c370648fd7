"""The meaning of colours in a picture: kind of op, dtype, time, module, changes, or the accuracy after quantization.

In: an outline and one of :data:`SCHEMES`. Out: :class:`Colours`: the fill and border of each part, a short note on it
if there is one (such as its time), and the legend. Colours are for a light page; :func:`dark` converts them for a
dark one. Borders have a contrast of at least 3 to 1 with the page, as WCAG requires of graphics that carry meaning,
and can be distinguished by people who confuse red and green, or blue and yellow. The same information is also given
in words. Tests check the palette.
"""

from __future__ import annotations

import colorsys
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
    "input": ("#e6eaee", "#64727e"),
    "weight": ("#f5f5f5", "#767676"),
    "contraction": ("#d5e6f5", "#0f6eac"),
    "composite": ("#e1f1ff", "#2194f7"),
    "window": ("#d9ebe6", "#11322b"),
    "pointwise": ("#eff6da", "#77a008"),
    "reduction": ("#f8e8d6", "#7f4606"),
    "scan": ("#f8e8d6", "#7f4606"),
    "view": ("#f1f2f3", "#55595e"),
    "gather": ("#ebdff3", "#560678"),
    "scatter": ("#ebdff3", "#560678"),
    "creation": ("#f4efd2", "#85731a"),
    "opaque": ("#fbe3e8", "#cd6078"),
    "random": ("#fbe3e8", "#cd6078"),
    "module": ("#fbe3e8", "#cd6078"),
    "control": ("#e1f1ff", "#2194f7"),
}
DTYPES: dict[str, Colour] = {d.name: d.colours for d in dtypes.ALL}
CHANGES: dict[str, Colour] = {
    "added": ("#cfe5fb", "#0b62a8"),
    "removed": ("#fbd9c8", "#b34700"),
    "changed": ("#fff2b8", "#8f7300"),
    "unchanged": ("#f6f7f8", "#7d8790"),
}
#: Colours by the upper limit of a time, as a share of the whole.
SHARES: tuple[tuple[float, Colour], ...] = (
    (0.01, ("#f6f7f8", "#7d8790")),
    (0.03, ("#fdeedd", "#a8763e")),
    (0.10, ("#fcd5ad", "#a85a14")),
    (0.25, ("#f8b184", "#a03c10")),
    (1.00, ("#ef8268", "#7d160c")),
)
#: Colours by the upper limit of a signal-to-noise ratio in dB.
SQNR: tuple[tuple[float, Colour], ...] = (
    (20.0, ("#f39a83", "#a32712")),
    (30.0, ("#fbd0a4", "#a85a14")),
    (40.0, ("#fbf3c4", "#8f7b1a")),
    (math.inf, ("#cfe5fb", "#0b62a8")),
)
_MODULES: tuple[Colour, ...] = tuple(
    KINDS[kind]
    for kind in ("contraction", "pointwise", "reduction", "gather", "window", "opaque", "creation", "composite")
)
_LONGEST_LEGEND = 12  # modules; the boxes also have titles
CLOSED: Colour = ("#e6edf5", "#4a6076")
OTHER: Colour = ("#f1f2f3", "#7d8790")


# -- as CSS ----------------------------------------------------------------------------------------
def every_colour() -> list[Colour]:
    """All colours that pictures of graphs may have."""
    ramps = (colour for _, colour in (*SHARES, *SQNR))
    return list(dict.fromkeys([*KINDS.values(), *DTYPES.values(), *CHANGES.values(), *ramps, *_MODULES, CLOSED, OTHER]))


def css_class(colour: Colour) -> str:
    """The CSS class for this fill and border."""
    return "k" + "".join(part[1:] for part in colour)


def dark(colour: Colour) -> Colour:
    """The colour for a dark page: the hue of the border, and a fill whose lightness increases with the saturation of
    the light page's fill, so that ramps stay ramps."""
    fill, border = (_hls(part) for part in colour)
    hue, saturation = border[0], border[2]
    filled = (hue, 0.15 + 0.55 * (0.96 - min(fill[1], 0.96)), 0.6 * saturation)
    outlined = (hue, 0.36 + 0.86 * border[1], 0.8 * saturation)
    return _hex(filled), _hex(outlined)


def _hls(text: str) -> tuple[float, float, float]:
    return colorsys.rgb_to_hls(*(int(text[at : at + 2], 16) / 255 for at in (1, 3, 5)))


def _hex(hls: tuple[float, float, float]) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(*hls))


class DrawError(FxliteError, RuntimeError):
    """A picture cannot be made: an unknown file type, colouring or depth, or no tool on the machine that writes such a
    file."""


@dataclass(frozen=True)
class Colours:
    """The fill and border of a part, the rows of the legend, a note on a part ("" for none), and a remark for the
    caption."""

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
    """Colours from a table, by a name for each drawn part, which may be missing."""
    drawn = dict.fromkeys(name_of(p) for p in outline.visible() if p.is_drawn_whole)
    legend = tuple((name, table.get(name, OTHER)) for name in drawn if name)
    return Colours(lambda part: table.get(name_of(part), OTHER), legend)


def _by_op(outline: Outline, data: None) -> Colours:
    kinds = [kind_of(n) for n in outline.nodes]
    found = _by_name(outline, lambda part: "" if part.children else kinds[part.start], KINDS)
    legend = tuple(row for row in found.legend if row[0] != "input")
    return Colours(lambda part: CLOSED if part.children else KINDS[kinds[part.start]], legend)


def _by_dtype(outline: Outline, data: None) -> Colours:
    """Colours by dtype. A closed box has the colour of the most frequent dtype of its nodes."""
    names = [repr(n.type.dtype) if isinstance(n.type, TensorType) else "" for n in outline.nodes]

    def dtype(part: Part) -> str:
        counts = Counter(filter(None, names[part.start : part.stop]))
        return counts.most_common(1)[0][0] if counts else ""

    return _by_name(outline, dtype, DTYPES)


def by_share(outline: Outline, amounts: Mapping[str, float], text: Callable[[float], str], of: str) -> Colours:
    """Colours by share of a total, from the amount for each node by name; notes have the amounts as formatted by
    ``text``. The amount of a folded part is that of all its copies together."""
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
        if value >= 0.9995 * size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns" if value else "0 s"


def _by_change(outline: Outline, changes: Mapping[Node, str]) -> Colours:
    """Colours by change. A closed box is "added" if everything in it is, and "changed" if anything is."""
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
    """Colours by module: each module on the first level with several modules has a colour."""
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
    """Colours by signal-to-noise ratio. A box has the colour of the smallest ratio in it, including folded copies."""
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


#: The values of ``color=``, and the functions that colour an outline by the data for it.
SCHEMES: dict[str, Callable[[Outline, Any], Colours]] = {
    "op": _by_op,
    "dtype": _by_dtype,
    "time": lambda outline, times: by_share(outline, times, _seconds, "of the time"),
    "change": _by_change,
    "scope": _by_scope,
    "sqnr": _by_sqnr,
}
