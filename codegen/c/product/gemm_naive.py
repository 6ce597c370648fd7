"""Printing the plain loops of a matrix product, to check the fast version against.

In: a `GemmSpec`, and the parameters that the fast version takes beyond the caller's. Out: a C
function that takes the same ones.
"""

from __future__ import annotations

from fxlite.codegen.c.product.gemm_spec import PackedOperand, Rendered
from fxlite.codegen.c.product.packed_operands import panel_columns
from fxlite.codegen.c.product.spelled import TextOperand, TextSpec
from fxlite.codegen.c.text.template_text import (
    Lines,
    add,
    atom,
    block_comment,
    divide_up,
    multiply,
    signature,
)
from fxlite.scalar.index import Index


def naive_product(spec: TextSpec, extra: tuple[str, ...]) -> Rendered:
    """The three loops and the epilogue, which take no workspace and one thread."""
    width = panel_columns(spec.ctype)
    depth = divide_up(spec.k, 2) if spec.bf16 else spec.k
    out = Lines()
    for name in extra:
        out.put(f"(void){name};")
    with out.loops([*spec.batch, ("row", spec.m), ("column", spec.n)]):
        out.put(f"{spec.ctype} sum = 0;")
        k = "(k / 2)" if spec.bf16 else "k"
        a = spec.prologue_a("row", "k") if spec.prologue_a else spec.a.at("row", "k")
        if spec.bf16 == "a":
            a = spec.a.at("row", k)
        if isinstance(spec.b, TextOperand):
            b = spec.b.at("k", "column")
        else:
            assert isinstance(spec.b, PackedOperand)  # what is widened has no naive twin
            parts = 2 if spec.split else 1
            start = multiply(f"column / {width}", depth, str(width * parts))
            b = f"{atom(spec.b.pointer)}[{add(start, f'{k} * {width} + column % {width}')}]"
        if spec.a_is_bf16:
            a = f"fx_f32_from_bf16({a})"
        if spec.bf16:
            pair, other = (a, b) if spec.bf16 == "a" else (b, a)
            half = f"half_of_pair({pair}, k % 2)"
            if spec.split:
                low = pair.replace("[", f"[{multiply(depth, str(width))} + ")
                a, b = other, f"({half} + half_of_pair({low}, k % 2))"
            else:
                a, b = f"rounded_bf16({other})", half
        out.put(f"for (int64_t k = 0; k < {spec.k}; k++)")
        out.put(f"    sum += {atom(a)} * {b};")
        out.put(spec.epilogue("sum", "row", "column"))
    head = [
        *block_comment(spec.comment, "The plain loops, to check the fast version against."),
        *signature(spec.name, spec.parameters, extra),
    ]
    return Rendered("\n".join([*head, "{", *out.lines, "}"]) + "\n", Index.of(0), extra)
