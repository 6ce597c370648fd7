"""What an attention is, by which plan it is computed, and the text that the plans share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fxlite.codegen.c.decisions import Choice
from fxlite.codegen.c.product.gemm import Operand, Rendered
from fxlite.codegen.c.product.packed_operands import ITEM_BYTES
from fxlite.codegen.c.text.template_text import (
    Lines,
    add,
    atom,
    block_comment,
    expression,
    multiply,
    signature,
)
from fxlite.codegen.kernel.builder import symbol, text_of

CACHE_BYTES = 128 * 1024
"""Bytes of packed keys (and of values) in one block: a part of the second-level cache."""

MOST_ROWS = 11
"""Rows of a tile at most: TILE_ROWS of any target."""

FEW_ROWS = 2
"""Up to so many queries everything is read only once."""


@dataclass(frozen=True)
class AttentionSpec:
    """One attention.

    name        of the C function
    ctype       "float" or "double"
    parameters  C parameter list; `Rendered.extra_parameters` are appended
    batch       (loop variable, extent) of the loops around it, outermost first
    rows, keys, features, columns   C expressions (literals where known, each may be 0): queries,
                keys, elements of a query and key, elements of a value
    q, k, v     matrices [rows, features], [keys, features], [keys, columns]
    scale       C expression by which scores are multiplied
    epilogue    (element, row, column) -> C statements that consume one element: the body of a simd
                loop over columns
    mask        matrix [rows, keys]: of bools, or values to add to the scores
    mask_is_bool   whether it keeps scores where it is true, or is added to them
    masked_score   C expression: what a bool mask makes of the other scores
    causal      whether row i reads the keys 0 ... i only
    empty_is_nan   what a row of which the mask leaves nothing gives: NaN, or else 0
    comment     what is computed, shapes, origin
    measured    by subject, which of `alternatives.attention_decisions` to take in place of the one
                that suits
    """

    name: str
    ctype: str
    parameters: str
    batch: tuple[tuple[str, str], ...]
    rows: str
    keys: str
    features: str
    columns: str
    q: Operand
    k: Operand
    v: Operand
    scale: str
    epilogue: Callable[[str, str, str], str]
    mask: Operand | None = None
    mask_is_bool: bool = False
    masked_score: str = "-INFINITY"
    causal: bool = False
    empty_is_nan: bool = True
    comment: str = ""
    measured: Choice = field(default_factory=dict)


def has_few_rows(spec: AttentionSpec) -> bool:
    """Whether the plan is "rows"."""
    if "plan" in spec.measured:
        return spec.measured["plan"] == "rows"
    return spec.rows.isdecimal() and int(spec.rows) <= FEW_ROWS and not spec.causal


def keys_per_block(spec: AttentionSpec) -> int:
    """Keys in one block: a multiple of a panel's columns."""
    if "keys in a block" in spec.measured:
        return int(spec.measured["keys in a block"])
    known = spec.features.isdecimal() and spec.columns.isdecimal()
    wide = max(int(spec.features), int(spec.columns), 1) if known else 128
    return min(512, max(64, CACHE_BYTES // (wide * ITEM_BYTES[spec.ctype]) // 64 * 64))


def items(spec: AttentionSpec) -> str:
    """How many attentions there are: the batch's extents multiplied."""
    return multiply(*(extent for _, extent in spec.batch))


def team(spec: AttentionSpec) -> str:
    """Clauses: threads, if there is work for them."""
    work = multiply(items(spec), spec.rows, spec.keys, add(spec.features, spec.columns))
    return f"num_threads(n_threads) if (n_threads > 1 && {work} > PARALLEL_PRODUCTS)"


def row_address(operand: Operand, row: str = "0") -> str:
    """Address of a row of an operand."""
    return str(operand.start(expression(row)))


def steps(operand: Operand) -> str:
    """Distances of rows and columns, as calls take them."""
    return f"{text_of(operand.row_stride)}, {text_of(operand.col_stride)}"


def masked(spec: AttentionSpec, score: str) -> str:
    """The score of (row, key) under the mask."""
    if spec.causal:
        return f"key <= row ? {score} : -INFINITY"
    if spec.mask is None:
        return score
    mask = spec.mask.at(symbol("row"), symbol("key"))
    return f"{mask} ? {score} : {spec.masked_score}" if spec.mask_is_bool else f"{score} + {mask}"


def put_inverse(out: Lines, spec: AttentionSpec) -> None:
    """What sums are multiplied by; without keys they are 0."""
    empty = atom(spec.keys) + " == 0" if spec.empty_is_nan else "total == 0"
    out.put(f"const {spec.ctype} inverse = {empty} ? 0 : 1 / total;")


def put_element(out: Lines, spec: AttentionSpec, total: str) -> None:
    """One element of the result, out of the sum of weighted values."""
    out.put(f"const {spec.ctype} value = {total} * inverse;")
    out.put(spec.epilogue("value", "row", "column"))


def attention_function(
    spec: AttentionSpec, note: str, body: list[str], workspace: str, extra: tuple[str, ...]
) -> Rendered:
    """The comment, the head and the body of a function."""
    head = [*block_comment(spec.comment, note), *signature(spec.name, spec.parameters, extra)]
    text = "\n".join([*head, "{", *body, "}"]) + "\n"
    return Rendered(text, expression(workspace), extra)
