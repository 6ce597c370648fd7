"""C text of attention for one or two queries, which read each key and value once."""

from __future__ import annotations

from fxlite.codegen.c.attention.attention_plan import (
    AttentionSpec,
    attention_function,
    items,
    keys_per_block,
    masked,
    put_element,
    put_inverse,
    row_address,
    steps,
    team,
)
from fxlite.codegen.c.product.gemm import Rendered
from fxlite.codegen.c.product.packed_operands import ITEM_BYTES
from fxlite.codegen.c.text.template_text import Lines, add, atom, mentions, multiply, round_up
from fxlite.codegen.kernel.builder import symbol


class Rows:
    """The function of the plan "rows" while it is printed."""

    def __init__(self, spec: AttentionSpec) -> None:
        self.spec, self.out = spec, Lines()
        self.block = keys_per_block(spec)
        self.parts = (  # of the scratch of one query and block of keys
            ("scores", str(self.block)),
            ("sums", round_up(spec.columns, 16)),
            ("q_rows", round_up(spec.features, 16)),
            ("highest", "16"),  # the highest score, and the sum of the weights
        )
        self.share = add(*(size for _, size in self.parts))

    def render(self) -> Rendered:
        spec, out, block = self.spec, self.out, self.block
        blocks = f"{atom(spec.keys)} > {block} ? ({spec.keys} + {block - 1}) / {block} : 1"
        if spec.keys.isdecimal():
            blocks = str(max(1, -(-int(spec.keys) // block)))
        out.put(f"const int64_t key_blocks = {blocks};")
        out.put(f"{spec.ctype} *const parts = workspace;")
        self.attend()
        self.join()
        size = multiply(items(spec), spec.rows, self.share, str(ITEM_BYTES[spec.ctype]))
        note = (
            f"{spec.rows} queries and {spec.keys} keys of {spec.features}, values of "
            f"{spec.columns}; blocks of {block} keys, each read once."
        )
        workspace = multiply(size, f"({atom(spec.keys)} / {block} + 1)")
        return attention_function(spec, note, out.lines, workspace, ("workspace", "n_threads"))

    def pragma(self, loops: list[tuple[str, str]]) -> str:
        collapse = f"collapse({len(loops)})"
        return f"#pragma omp parallel for {collapse} schedule(static) {team(self.spec)}"

    def attend(self) -> None:
        """Each query's attention to each block of keys."""
        spec, out, t = self.spec, self.out, self.spec.ctype
        loops = [*spec.batch, ("key_block", "key_blocks")]
        with out.loops(loops, self.pragma(loops)):
            out.put(f"const int64_t key_0 = key_block * {self.block};")
            rest = f"{atom(spec.keys)} - key_0"
            out.put(f"const int64_t keys = {rest} < {self.block} ? {rest} : {self.block};")
            with out.loops([("row", spec.rows)]):
                self.declare_part("key_block")
                start = "part"
                for name, size in self.parts:
                    out.put(f"{t} *const {name} = {start};")
                    start = add(name, size)
                out.put(f"for (int64_t feature = 0; feature < {spec.features}; feature++)")
                element = spec.q.at(symbol("row"), symbol("feature"))
                out.put(f"    q_rows[feature] = {element} * {atom(spec.scale)};")
                k, v = spec.k, spec.v
                out.put(
                    f"multiply_by_rows_{t}(keys, {spec.features}, q_rows, "
                    f"{row_address(k, 'key_0')}, {steps(k)}, scores);"
                )
                if spec.mask is not None:
                    self.mask_scores()
                out.put("highest[0] = -INFINITY, highest[1] = 0;")
                out.put(f"soften_{t}(keys, scores, highest, highest + 1);")
                out.put(
                    f"sum_weighted_rows_{t}(keys, {spec.columns}, scores, "
                    f"{row_address(v, 'key_0')}, {steps(v)}, sums);"
                )

    def mask_scores(self) -> None:
        """The scores of a query and a block of keys, masked."""
        out, score = self.out, masked(self.spec, "scores[j]")
        out.put("#pragma omp simd")
        with out.block("for (int64_t j = 0; j < keys; j++)"):
            if mentions(score, "key"):
                out.put("const int64_t key = key_0 + j;")
            out.put(f"scores[j] = {score};")

    def join(self) -> None:
        """The blocks' sums, rescaled to the highest score of all, and the epilogue."""
        spec, out, t = self.spec, self.out, self.spec.ctype
        (_, scores), (_, sums), (_, query), _ = self.parts
        place = multiply("key_block", spec.rows, self.share)
        blocks = "for (int64_t key_block = 0; key_block < key_blocks; key_block++)"
        columns = f"for (int64_t column = 0; column < {spec.columns}; column++)"
        loops = [*spec.batch, ("row", spec.rows)]
        with out.loops(loops, self.pragma(loops)):
            self.declare_part("0")
            out.put(f"{t} *const sums = {add('part', scores)};")
            out.put(f"const {t} *const highest = {add('sums', sums, query)};")
            out.put(f"{t} most = -INFINITY, total = 0;")
            out.put(f"{blocks}\n    most = highest[{place}] > most ? highest[{place}] : most;")
            out.put(f"const {t} shift = most == -INFINITY ? 0 : most;")
            with out.block(blocks):
                out.put(f"const {t} rescale = exp_weight_{t}(highest[{place}] - shift);")
                out.put(f"total += highest[{add(place, '1')}] * rescale;")
                own = f"sums[{add(place, 'column')}] * rescale"
                out.put(f"#pragma omp simd\n{columns}")
                out.put(f"    sums[column] = key_block == 0 ? {own} : sums[column] + {own};")
            put_inverse(out, spec)
            out.put("#pragma omp simd")
            with out.block(columns):
                put_element(out, spec, "sums[column]")

    def declare_part(self, key_block: str) -> None:
        """Where the scratch of this query and block of keys is."""
        index = "0"
        for variable, extent in self.spec.batch:
            index = add(multiply(index, extent), variable)
        index = add(multiply(index, "key_blocks"), key_block)
        index = add(multiply(index, self.spec.rows), "row")
        start = add("parts", multiply(index, self.share))
        self.out.put(f"{self.spec.ctype} *const part = {start};")
