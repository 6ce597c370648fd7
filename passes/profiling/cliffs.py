"""Cliffs: the parts of a call that are far below what the machine allows, why, and what to do.

In: a :class:`~fxlite.passes.profiling.record.Profile` with roofs. Out: a :class:`Cliff` for each row that takes
a considerable share of the time and reaches less than half of its roof, ordered by the possible gain. Reasons
are found in the nodes that the row computes: no template takes them, they widen to float64, call the C library,
read elements in another order than they are stored, look elements up, or are so short that the call of the
kernel dominates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.text import Text

from fxlite.base.console import Printed
from fxlite.base.errors import ArgumentError, number_of
from fxlite.graph.graph import Node
from fxlite.passes.profiling.tables import bound_text, heat, seconds_text
from fxlite.scalar.functions import FUNCTIONS
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.passes.profiling.record import Profile, Row

#: Seconds below which starting a kernel, and threads for it, is a large part of its time.
SHORT = 5e-6

#: Why a row is slow, and what to do.
Reason = tuple[str, str]


@dataclass(frozen=True)
class Cliff:
    """A row, its share of the time of all rows, the fraction of its roof that it reaches, and the reasons, each
    with advice. A node that NumPy computes has no reasons."""

    row: Row
    share: float
    reached: float
    reasons: tuple[Reason, ...]

    @property
    def gain(self) -> float:
        """The share of the time of all rows that would be saved if the row reached its roof."""
        return self.share * (1 - self.reached)


class Cliffs(Printed, tuple[Cliff, ...]):
    """The cliffs of a profile, ordered by possible gain; prints with reasons and advice."""

    profile: Profile
    least: tuple[float, float]

    @property
    def about(self) -> str:
        return f"{number_of(len(self), 'cliff')} of {self.profile.name} in {self.profile.target.language}"

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        profile, (share, reached) = self.profile, self.least
        part = profile.target.part
        sought = f"with over {share:.0%} of the time and below {reached:.0%} of a roof"
        if not self:
            yield Text(f"{profile.name}: no {part} {sought}", style="bold")
            return
        many = f"{part}s" if self[1:] else part
        together = sum(cliff.gain for cliff in self)
        yield Text(f"{profile.name}: {len(self)} {many} {sought}; at the roof, {together:.0%} less time", style="bold")
        for cliff in self:
            yield ""
            yield _heading(cliff)
            for reason, advice in cliff.reasons:
                yield Padding(Text(reason), (0, 0, 0, 2))
                yield Padding(Text(advice, style="dim"), (0, 0, 0, 4))
        if part == "node":
            yield ""
            yield Text("NumPy computes one node after another, each with a pass over memory: --backend c", style="dim")


def _heading(cliff: Cliff) -> Text:
    row = cliff.row
    where = f", {row.location.short}" if row.location is not None else ""
    text = Text(row.name, style=heat(cliff.share))
    text.append(f" ({row.covers}{where}): {seconds_text(row.median)}, {cliff.share:.0%} of the time, {bound_text(row)}")
    return text


def find_cliffs(profile: Profile, share: float = 0.03, reached: float = 0.5) -> Cliffs:
    """The rows that take more than ``share`` of the time and reach less than ``reached`` of their roof. Raises
    ArgumentError for numbers outside 0 to 1, and for a profile without roofs."""
    for name, value in (("share", share), ("reached", reached)):
        if not 0 <= value <= 1:
            raise ArgumentError(f"{name} must be a part of the whole, from 0 to 1, not {value!r}")
    if profile.roofs is None:
        raise ArgumentError(f"{profile.name} was measured without roofs; they need a C compiler")
    total, found = profile.rows_seconds, []
    for row in profile.rows:
        if row.efficiency is not None and row.efficiency < reached and row.median > share * total:
            cliff = Cliff(row, row.median / total, row.efficiency, tuple(_reasons(row, profile)))
            found.append(cliff)
    cliffs = Cliffs(sorted(found, key=lambda cliff: -cliff.gain))
    cliffs.profile, cliffs.least = profile, (share, reached)
    return cliffs


def _reasons(row: Row, profile: Profile) -> Iterator[Reason]:
    if profile.target.part == "node":
        return
    nodes = [part.node for part in row.parts if part.node.op == "call_function"]
    found = [reason for look in _LOOKS if (reason := look(row, nodes)) is not None]
    yield from found or [("no reason is known", "look at its C: fxlite compile, or fn.sources; try --autotune")]


def _by_loops(row: Row, nodes: list[Node]) -> Reason | None:
    if not row.how.startswith("loops"):
        return None
    return row.how, "change what the reason names, or write a template: docs/guides/template.md"


def _widened(row: Row, nodes: list[Node]) -> Reason | None:
    """A node that computes in float64 although an operand is float32."""
    for node in nodes:
        types = [n.type for n in node.all_input_nodes]
        narrow = [n.name for n, t in zip(node.all_input_nodes, types) if _dtype(t) == "f32"]
        if narrow and _dtype(node.type) == "f64" and node.type.size != 1:
            where = f" at {node.loc.short}" if node.loc is not None else ""
            made = f"{node.name}{where} makes float64 of {' and '.join(narrow)}"
            reason = f"{made}, which is float32: half as many numbers at once"
            advice = "a Python number keeps float32 (math.sqrt, float(x)), a NumPy scalar does not"
            return reason, f"{advice}; or x.astype(np.float32)"
    return None


def _library(row: Row, nodes: list[Node]) -> Reason | None:
    """Functions for which the C code has no SIMD implementation."""
    by_ufunc = {function.compute: function for function in FUNCTIONS.values()}
    called = {}
    for node in nodes:
        function = FUNCTIONS.get(node.target.name) or by_ufunc.get(node.target.ufunc)
        kind = _dtype(node.all_input_nodes[0].type) if node.all_input_nodes else ""
        if function is not None and kind in function.calls:
            called[node.target.name] = kind, "f32" not in function.calls
    if not called:
        return None
    names = " and ".join(f"{name} of {kind}" for name, (kind, _) in called.items())
    has_simd = all(is_simd for _, is_simd in called.values())
    advice = "in float32 it is SIMD code" if has_simd else "compute it once for numbers that come again"
    verb = "call" if len(called) > 1 else "calls"
    return f"{names} {verb} the C library for each number", advice


def _other_order(row: Row, nodes: list[Node]) -> Reason | None:
    """A view by which the innermost loop reads elements in another order than they are stored."""
    for node in nodes:
        source = node.all_input_nodes[0] if node.all_input_nodes else None
        if node.target.kind != "view" or source is None or source in nodes:
            continue
        axes, steps = node.arguments.get("axes"), node.arguments.get("step")
        if (axes and axes[-1] not in (-1, len(axes) - 1)) or steps not in (None, 1):
            reason = f"{node.name} reads {source.name} in another order than it lies in memory"
            return reason, "store it in that order where it is made, or once for several readers: .copy()"
    return None


def _looked_up(row: Row, nodes: list[Node]) -> Reason | None:
    found = [node.name for node in nodes if node.target.kind in ("gather", "scatter")]
    if not found:
        return None
    reason = f"{' and '.join(found)} takes elements from places that are computed: each costs a line of the cache"
    return reason, "look up whole rows, or sorted places"


def _short(row: Row, nodes: list[Node]) -> Reason | None:
    if row.median >= SHORT:
        return None
    return (
        "it is so short that starting it takes much of its time",
        "use larger batches; on one thread (--threads 1) there are no others to start",
    )


#: What is looked for, in this order.
_LOOKS: tuple[Callable[[Row, list[Node]], Reason | None], ...] = (
    _by_loops,
    _widened,
    _library,
    _other_order,
    _looked_up,
    _short,
)


def _dtype(type: Any) -> str:
    return type.dtype.name if isinstance(type, TensorType) else ""
