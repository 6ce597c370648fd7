"""The effect of quantization on a program: :func:`report`.

In: a module from convert, or one loaded from its file. Out: a :class:`QuantizationReport`, which
prints as a table: each product with its scheme, range and bytes, the share of multiply-adds in
integers, and which products stayed float and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.console import Printed, borderless
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node import types_of
from fxlite.passes.quantize.schemes.roles import multiply_adds
from fxlite.passes.quantize.schemes.scheme import QuantizationError, Record, record_of
from fxlite.show.node_cost import quantity_text
from fxlite.types import shapes
from fxlite.types.shapes import Dim


@dataclass(frozen=True)
class FloatProduct:
    """A product that stayed float: its node, op, multiply-adds, and the reason."""

    name: str
    op: str
    module: str
    multiply_adds: Dim
    reason: str


@dataclass(frozen=True, repr=False)
class QuantizationReport(Printed):
    """``rows`` are in the order of the graph; ``kept`` are the products in float. ``others`` counts the
    float ops that are not products; ``unmatched`` are rules of the mapping that matched nothing.
    ``sizes`` are values of named dims; dims without a value count as 1."""

    rows: list[Record]
    kept: list[FloatProduct]
    others: dict[str, int]
    unmatched: tuple[str, ...]
    bytes_before: int
    bytes_after: int
    sizes: Mapping[str, int] = field(default_factory=dict)
    sqnr: Mapping[str, float] = field(default_factory=dict)

    @property
    def about(self) -> str:
        return f"{len(self.rows)} quantized products, {len(self.kept)} in float"

    def count(self, multiply_adds: Dim) -> float:
        """Multiply-adds as a number."""
        names = dict.fromkeys(shapes.names(multiply_adds), 1) | dict(self.sizes)
        return float(shapes.substitute(multiply_adds, names))

    @property
    def integer_share(self) -> float:
        """The share of multiply-adds that are integer arithmetic, 0..1; 1 if there are none."""
        inside = sum(self.count(r.multiply_adds) for r in self.rows if r.integer)
        outside = sum(self.count(r.multiply_adds) for r in self.rows if not r.integer)
        outside += sum(self.count(k.multiply_adds) for k in self.kept)
        return inside / (inside + outside) if inside + outside else 1.0

    def __rich__(self) -> Any:
        from rich.console import Group

        table = borderless(("node", "scheme"), ("range", "SQNR", "MACs", "bytes", "before"), folded=1)
        for row in self.rows:
            name = row.name if row.op in row.name else f"{row.name}: {row.op}"
            measured = self.sqnr.get(row.name, row.sqnr)
            table.add_row(
                f"{name} ({row.module})" if row.module else name,
                _short(row),
                f"{row.low:.3g}..{row.high:.3g}" if row.low != row.high else _dynamic(row.scheme),
                "" if measured is None else f"{measured:.1f}",
                quantity_text(self.count(row.multiply_adds)) if row.multiply_adds != 0 else "",
                f"{row.bytes_after:,}" if row.bytes_before else "",
                f"{row.bytes_before:,}" if row.bytes_before else "",
            )
        lines = [
            f"{self.integer_share:.1%} of the multiply-adds are integer arithmetic; weights "
            f"{self.bytes_before:,} bytes → {self.bytes_after:,}"
        ]
        kept = Counter((k.op, k.reason) for k in self.kept)
        example = {(k.op, k.reason): k.name for k in self.kept}
        for (op, reason), times in kept.items():
            name = example[op, reason]
            more = f" ×{times}" if times > 1 else f" ({name})" if name != op else ""
            lines.append(f"float: {op}{more}: {reason}")
        if self.others:
            counted = ", ".join(f"{op} ×{n}" if n > 1 else op for op, n in self.others.items())
            lines.append(f"float, no products: {counted}")
        lines += [f"matched nothing: {rule}" for rule in self.unmatched]
        return Group(table, self._legend(), *lines) if self.rows else Group(*lines)

    def _legend(self) -> str:
        """What the columns of the table mean here: how weights are divided, and sizes of named dims."""
        parts = [part for row in self.rows for part in row.scheme.split(", ")]
        weights = dict.fromkeys(p.removeprefix("weight ") for p in parts if p.startswith("weight "))
        names = {name for row in self.rows for name in shapes.names(row.multiply_adds)}
        sizes = (f"{name}={self.sizes.get(name, 1)}" for name in sorted(names))
        known = [("scheme: activation × weight", True), (f"weights {', '.join(weights)}", weights)]
        known.append((f"MACs for {', '.join(sizes)}", names))
        return "; ".join(text for text, is_known in known if is_known)


@checked
def report(
    quantized: GraphModule, sizes: Mapping[str, int] | None = None, sqnr: Mapping[str, float] | None = None
) -> QuantizationReport:
    """Describe how each product of a module was quantized. ``sizes`` are values of named dims, by which
    multiply-adds are weighted; ``sqnr`` has measured signal-to-noise ratios in dB by the name of the
    float node, shown in place of the weight's own.

    Raises QuantizationError for a module that does not come from convert."""
    summary = None
    if isinstance(quantized, GraphModule):
        summary = quantized.graph.output_node().meta.get("quantization")
    if summary is None:
        raise QuantizationError("report takes what convert returned: report(convert(prepared))")
    rows: list[Record] = []
    kept: list[FloatProduct] = []
    others: Counter[str] = Counter()
    used: dict[str, int] = {}
    for node in quantized.graph.nodes:
        if node.op == "get_attr":
            used[node.target] = int(quantized.get_attribute(node.target).nbytes)
        if node.op != "call_function":
            continue
        record = record_of(node)
        if record is not None:
            rows.append(record)
        elif "float" in node.meta:
            path, why = node.module_path, node.meta["float"]
            kept.append(FloatProduct(node.name, node.target.name, path, multiply_adds(node), why))
        elif node.target.kind in ("composite", "pointwise", "reduction") and _is_arithmetic(node):
            others[node.target.name] += 1
    return QuantizationReport(
        rows,
        kept,
        dict(others),
        tuple(summary["unmatched"]),
        summary["bytes_before"],
        sum(used.values()),
        dict(sizes or {}),
        dict(sqnr or {}),
    )


def _is_arithmetic(node: Any) -> bool:
    """True for float arithmetic of the program itself."""
    if "from" in node.meta or node.target.name == "getitem" or node.target.role == "table":
        return False
    return any(t is not None and t.dtype.is_float for t in types_of(node))


def _short(row: Record) -> str:
    """``u8 × i8`` for "u8 per tensor, weight i8 per channel", ``f32 × i8`` if only the weight is
    quantized, ``u8 × u8`` for a product of two activations."""
    parts = [part.removeprefix("weight ").split(" per ")[0] for part in row.scheme.split(", ")]
    if row.scheme.startswith("weight "):
        parts = ["f32", *parts]
    elif row.integer and len(parts) == 1:
        parts *= 2
    return " × ".join(parts)


def _dynamic(scheme: str) -> str:
    """``per image`` for "i8 per image, weight i8 per channel"; empty if only the weight is quantized."""
    return "" if scheme.startswith("weight ") else scheme.split(", ")[0].partition(" ")[2]
