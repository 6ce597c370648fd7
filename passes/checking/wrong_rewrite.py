"""What a verification says: how many rewrites of a pass were checked and how, or which one is
wrong, and the file that reproduces it.

In: counts, entered while :mod:`fxlite.passes.checking.claim_check` works; or a region whose two
sides disagree, with the inputs that show it. Out: a :class:`VerificationReport`, a line for the
table of a pass manager and a text that lists what was left unchecked; or a
:class:`VerificationError` that names pass, nodes and lines, shows both sides as text, and gives the
path of a Python file that runs both and prints the difference
(:mod:`fxlite.passes.checking.minimize`).

The file is written to the folder that FXLITE_REPRO_DIR names, else to a new temporary one.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.base.errors import FxliteError
from fxlite.graph.graph import Graph, Node, map_nodes
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import PassError
from fxlite.passes.checking.changed_region import Key, Region, Side
from fxlite.passes.checking.minimize import write_repro
from fxlite.passes.checking.region_check import Disagreement
from fxlite.types import shapes
from fxlite.types.agreement import Exactness
from fxlite.types.tensor_type import type_of


@dataclass
class VerificationReport:
    """How the rewrites of one pass were checked: ``alike`` are computed in the same way before and
    after, ``run`` agreed on drawn inputs, ``repeated`` have the form of one that was run,
    ``sampled`` too, but compute with weights of their own that were not tried; ``unchecked`` are
    places that could not be run, each with the reason. ``note`` says what else to know."""

    name: str
    promise: Exactness
    alike: int = 0
    run: int = 0
    repeated: int = 0
    sampled: int = 0
    unchecked: list[tuple[str, str]] = field(default_factory=list)
    note: str = ""

    @property
    def rewrites(self) -> int:
        """How many places there are."""
        return self.alike + self.run + self.repeated + self.sampled + len(self.unchecked)

    @property
    def summary(self) -> str:
        """``12 alike, 3 run, 40 repeated``; of results that are meant to change the types."""
        counts = (
            ("alike", self.alike),
            ("run", self.run),
            ("repeated", self.repeated),
            ("sampled", self.sampled),
            ("unchecked", len(self.unchecked)),
        )
        if self.promise.kind == "changes" and not self.run:
            return "types alone"
        return ", ".join(f"{count} {name}" for name, count in counts if count) or "-"

    def __str__(self) -> str:
        lines = [f"{self.name} ({self.promise}): {self.summary}"]
        lines += [f"  unchecked: {place}: {reason}" for place, reason in self.unchecked]
        return "\n".join([*lines, f"  {self.note}"] if self.note else lines)


# -- a wrong rewrite -------------------------------------------------------------------------------
#: Lines shown of each side; the file has all.
MOST_LINES = 24


class VerificationError(PassError):
    """A pass changed what the program computes. ``pass_name`` and ``node`` (as it is called before
    the pass) say where; ``repro`` is the file that shows it, None where none could be written."""

    def __init__(self, message: str, pass_name: str, node: str, repro: Path | None = None) -> None:
        super().__init__(message)
        self.pass_name = pass_name
        self.node = node
        self.repro = repro


def wrong_rewrite(report: VerificationReport, before: Side, after: Side, found: Disagreement) -> VerificationError:
    """The error for a region that disagrees; writes the file."""
    pair = found.region.pairs[found.pair]
    lines = [f"pass {report.name} is declared {report.promise}, but it changed the result of {_title(pair.before)}"]
    if pair.after is not pair.before:
        lines.append(f"  which is now {_title(pair.after)}")
    for node in dict.fromkeys(pair):
        if node.loc is not None:
            expression = f": {node.loc.expression}" if node.loc.expression else ""
            lines.append(f"  made at {node.loc}{expression}")
            break
    lines.append(f"  {found.text}")
    conditions = str(found.draw)
    inputs = ", ".join(f"{_name(n)}: {_type_text(found.inputs[k])}" for k, n in _inputs(found.region))
    lines.append(f"  on {inputs or 'no inputs'}{f' ({conditions})' if conditions else ''}")
    graphs = []
    for side, name in ((before, "before"), (after, "after")):
        try:
            gm: GraphModule | None = region_module(side, name, found)
            text = str(gm.graph) if gm is not None else ""
        except FxliteError as error:
            gm, text = None, "\n".join([*_plain_lines(side, name, found.region), f"# {error}"])
        graphs.append(gm)
        lines += [f"  {name}:", *(f"    {line}" for line in _shortened(text))]
    path, reason = _write(report, pair.before.name, graphs, found, "\n".join(lines))
    if path is not None:
        lines.append(f"  python {path}  shows the difference")
    else:
        lines.append(f"  no file that reproduces it could be written: {reason}")
    return VerificationError("\n".join(lines), report.name, pair.before.name, path)


def effect_error(report: VerificationReport, node: Node, what: str) -> VerificationError:
    """The error for a call with effects that a pass removed or changed."""
    text = f"pass {report.name} must keep {node.describe()}: it {what}"
    if node.loc is not None:
        text += f"\n  made at {node.loc}: {node.loc.expression}"
    return VerificationError(text, report.name, node.name)


def result_error(report: VerificationReport, before: Node, after: Node, value_before: Any = None) -> VerificationError:
    """The error for results of another structure than before."""
    old = value_before if value_before is not None else before.args[0]
    return VerificationError(
        f"pass {report.name} changed what the program returns\n"
        f"  before: return {old}\n  after:  return {after.args[0]}",
        report.name,
        before.name,
    )


def _title(node: Node) -> str:
    return node.describe().removeprefix("node ")


def _name(node: Node) -> str:
    return re.sub(r"\W", "_", node.name)


def _inputs(region: Region) -> list[tuple[Key, Node]]:
    return list(region.inputs.items())


def _type_text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_type_text, value))})"
    return str(type_of(value))


def _shortened(text: str) -> list[str]:
    lines = text.splitlines()
    if len(lines) <= MOST_LINES:
        return lines
    left_out = len(lines) - MOST_LINES
    return [*lines[: MOST_LINES // 2], f"    # ... {left_out} lines ...", *lines[-MOST_LINES // 2 :]]


def _plain_lines(side: Side, name: str, region: Region) -> list[str]:
    """The calls of a side that has no types (it does not run)."""
    lines = []
    for node in (region.before if name == "before" else region.after).nodes:
        call = side.call(node)
        target = getattr(call.target, "name", call.target)
        arguments = [*map(str, call.args), *(f"{k}={v}" for k, v in call.kwargs.items())]
        lines.append(f"{node.name} = {target}({', '.join(arguments)})")
    return lines


def region_module(side: Side, name: str, found: Disagreement) -> GraphModule:
    """One side of a region as a module of its own, on inputs of the sizes that were drawn.

    Raises FxliteError where a call does not fit them."""
    region, draw = found.region, found.draw
    first = name == "before"
    half = region.before if first else region.after
    graph = Graph()
    holder: dict[str, Any] = {}
    made: dict[Node, Any] = {}
    for key, node in _inputs(region):
        value = _placeholders(graph, _name(node), found.inputs[key])
        if key in half.inputs:
            made[half.inputs[key]] = value
    for node in half.nodes:
        call = side.call(node)
        with graph.with_origin(node):
            if call.op == "get_attr":
                holder[call.target] = side.attribute(call.target)
                made[node] = graph.get_attr(call.target, type_of(np.asarray(holder[call.target])))
                continue
            args = map_nodes(call.args, made.__getitem__)
            kwargs = map_nodes(dict(call.kwargs), made.__getitem__)
            if call.op == "call_module":
                holder[call.target] = side.attribute(call.target)
                made[node] = graph.call_module(call.target, args, kwargs)
                continue
            kwargs = {k: shapes.substitute(v, draw.dims) for k, v in kwargs.items()}
            if call.target.name == "getitem" and isinstance(args[0], tuple):
                made[node] = args[0][kwargs["index"]]
                continue
            if call.target.is_random:
                kwargs.setdefault("training", side.training)
            made[node] = graph.call_op(call.target, args, kwargs, node.name)
    roots = [made[p.before if first else p.after] for p in region.pairs]
    graph.output(roots[0] if len(roots) == 1 else tuple(roots))
    module = GraphModule(holder, graph, name)
    module.training = side.training
    return module


def _placeholders(graph: Graph, name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_placeholders(graph, f"{name}_{i}", v) for i, v in enumerate(value))
    return graph.placeholder(name, type_of(value))


def _flat_inputs(graph: Graph, values: list[Any]) -> Mapping[str, Any]:
    flat: list[Any] = []

    def collect(value: Any) -> None:
        if isinstance(value, tuple):
            for v in value:
                collect(v)
        else:
            flat.append(value)

    for value in values:
        collect(value)
    return {p.target: v for p, v in zip(graph.placeholders, flat, strict=True)}


def _write(
    report: VerificationReport, node: str, graphs: list[GraphModule | None], found: Disagreement, message: str
) -> tuple[Path | None, str]:
    """Write the file; returns its path, or why there is none."""
    before, after = graphs
    if before is None or after is None:
        return None, "one side does not fit the inputs"
    folder = os.environ.get("FXLITE_REPRO_DIR") or tempfile.mkdtemp(prefix="fxlite-repro-")
    path = Path(folder) / f"{re.sub(r'[^A-Za-z0-9]+', '_', report.name)}_{node}.py"
    inputs = _flat_inputs(before.graph, [found.inputs[k] for k, _ in _inputs(found.region)])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_repro(path, before, after, inputs, message, promise=report.promise)
    except (FxliteError, OSError) as error:
        return None, str(error)
    return path, ""
