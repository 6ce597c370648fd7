"""C text of one attention: y[row] = sum over keys of softmax(q[row] . k[key] * scale + mask)[key]
times v[key], with its epilogue; the matrix of scores is never in memory as a whole.

In goes an `AttentionSpec`; out comes a `Rendered` as from `gemm.py`: one ``static`` C function for
that node. There are two plans:

- "tiles": for each block of queries, keys and values are packed in blocks of KEYS; a tile of query
  rows times a block of keys is computed into scratch by the matrix tile, scaled, masked and turned
  into weights there, and the weights times the values are added to the block's sums. From one block
  of keys to the next sums are rescaled to the highest score so far (Milakov and Gimelshein,
  "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022).
- "rows": one or two queries (decoding with a cache of keys and values) read everything once: no
  packing; blocks of keys are the threads' tasks, and their sums are put together afterwards.

Which thread computes what does not change results: tiles and blocks of keys do not depend on the
number of threads.
"""

from __future__ import annotations

from fxlite.codegen.c.attention.attention_plan import (
    AttentionSpec,
    attention_function,
    has_few_rows,
    masked,
    put_element,
    put_inverse,
)
from fxlite.codegen.c.attention.attention_rows import Rows
from fxlite.codegen.c.attention.attention_tiles import Tiles
from fxlite.codegen.c.product.gemm import Rendered
from fxlite.codegen.c.text.template_text import Lines, atom
from fxlite.codegen.kernel.builder import symbol

__all__ = [
    "AttentionSpec",
    "render_attention",
    "render_attention_naive",
]


def render_attention(spec: AttentionSpec) -> Rendered:
    """Print the function of one attention."""
    if not {spec.rows, spec.columns, *(e for _, e in spec.batch)}.isdisjoint({"0"}):
        body = ["    /* Nothing to compute. */"]
        return attention_function(spec, "An empty result.", body, "0", ())
    return (Rows(spec) if has_few_rows(spec) else Tiles(spec)).render()


def render_attention_naive(spec: AttentionSpec) -> Rendered:
    """Print the plain loops: the same parameters and epilogue, one thread. Scores are computed anew
    for their maximum and for each column."""
    out, t = Lines(), spec.ctype
    extra = render_attention(spec).extra_parameters
    for name in extra:
        out.put(f"(void){name};")
    with out.loops([*spec.batch, ("row", spec.rows), ("column", spec.columns)]):
        out.put(f"{t} highest = -INFINITY, total = 0, sums = 0;")
        for step in ("highest", "total"):
            with out.loops([("key", spec.keys)]):
                out.put(f"{t} sum = 0;")
                out.put(f"for (int64_t feature = 0; feature < {spec.features}; feature++)")
                product = f"{spec.q.at(symbol('row'), symbol('feature'))} * {atom(spec.scale)}"
                out.put(f"    sum += {product} * {spec.k.at(symbol('key'), symbol('feature'))};")
                out.put(f"const {t} score = {masked(spec, 'sum')};")
                if step == "highest":
                    out.put("highest = score > highest ? score : highest;")
                else:
                    shift = "(highest == -INFINITY ? 0 : highest)"
                    out.put(f"const {t} weight = exp(score - {shift});")
                    value = spec.v.at(symbol("key"), symbol("column"))
                    out.put(f"total += weight, sums += weight * {value};")
        put_inverse(out, spec)
        put_element(out, spec, "sums")
    note = "The plain loops, to check the fast version against."
    return attention_function(spec, note, out.lines, "0", extra)
