"""What an attention is, and by which plan it is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fxlite.codegen.c.decisions import Choice
from fxlite.codegen.c.product.gemm import Operand
from fxlite.codegen.c.product.packed_operands import ITEM_BYTES
from fxlite.scalar.index import Index

CACHE_BYTES = 128 * 1024
"""Bytes of packed keys (and of values) in one block: a part of the second-level cache."""

FEW_ROWS = 2
"""Up to so many queries everything is read only once."""


@dataclass(frozen=True)
class AttentionSpec:
    """One attention.

    name        of the C function
    ctype       "float" or "double"
    parameters  C parameter list; `Rendered.extra_parameters` are appended
    batch       (loop variable, extent) of the loops around it, outermost first
    rows, keys, features, columns   queries, keys, elements of a query and key, elements of a value;
                each may be 0
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
    batch: tuple[tuple[str, Index], ...]
    rows: Index
    keys: Index
    features: Index
    columns: Index
    q: Operand
    k: Operand
    v: Operand
    scale: str
    epilogue: Callable[[str, Index, Index], str]
    mask: Operand | None = None
    mask_is_bool: bool = False
    masked_score: str = "-INFINITY"
    causal: bool = False
    empty_is_nan: bool = True
    comment: str = ""
    measured: Choice = field(default_factory=dict)


def may_read_once(spec: AttentionSpec) -> bool:
    """Whether there are so few queries that each may read all keys and values on its own."""
    return spec.rows <= FEW_ROWS and not spec.causal


def has_few_rows(spec: AttentionSpec) -> bool:
    """Whether the plan is "rows"."""
    return spec.measured["plan"] == "rows" if "plan" in spec.measured else may_read_once(spec)


def keys_per_block(spec: AttentionSpec) -> int:
    """Keys in one block: a multiple of a panel's columns."""
    if "keys in a block" in spec.measured:
        return int(spec.measured["keys in a block"])
    widths = spec.features.constant, spec.columns.constant
    wide = 128 if None in widths else max((w for w in widths if w), default=1)
    return min(512, max(64, CACHE_BYTES // (wide * ITEM_BYTES[spec.ctype]) // 64 * 64))
