"""C text of one linear layer with integer weights and float activations, and its epilogue over each
finished tile.

In goes a `WeightOnlySpec`, out comes a `Rendered`, as in `gemm.py`; the arithmetic is in
`tiles/weight_only.h`. Rows of activations that fit one tile are read in place and multiply integers
in registers; panels of weights are the tasks of the threads. More rows are a product of `gemm.py`,
whose right operand threads widen panel by panel. The number of rows decides when the program runs,
so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fxlite.codegen.c.product.gemm import finish_rows, render_product
from fxlite.codegen.c.product.gemm_spec import GemmSpec, Operand, Rendered, WidenedOperand
from fxlite.codegen.c.product.packed_operands import (
    PANEL_COLUMNS,
    PARALLEL_PRODUCTS,
    WORD,
    words_of,
)
from fxlite.codegen.c.product.spelled import text_operand
from fxlite.codegen.c.text.template_text import (
    Lines,
    add,
    block_comment,
    expression,
    mentions,
    multiply,
    parameter_names,
    signature,
)
from fxlite.codegen.kernel.builder import text_of
from fxlite.scalar.index import Index


@dataclass(frozen=True)
class WeightOnlySpec:
    """One product; C expressions as in `gemm_spec.GemmSpec`.

    m           a literal is not 0; n and k are known, and not 0
    a           the activations, [m, k], elements of a row adjacent
    bits        8 or 4, of a weight
    group_size  weights along k that have one scale: k, or whole words of 4 bytes; the last group
                may be shorter
    weight      what `pack_integers` made of it
    scale       [k / group_size (rounded up), n] as `pack_b` packs it
    epilogue    (sum, row, column) -> C statements that consume one element
    """

    name: str
    parameters: str
    batch: tuple[tuple[str, str], ...]
    m: str
    n: int
    k: int
    a: Operand
    bits: int
    group_size: int
    weight: str
    scale: str
    epilogue: Callable[[str, str, str], str]
    comment: str

    @property
    def groups(self) -> int:
        """Groups of a row."""
        return -(-self.k // self.group_size)

    def panel(self, of: str) -> str:
        """C expression of the weights, or scales, of the panel that a variable `panel` numbers."""
        rows = words_of(self.k, self.bits) if of == self.weight else self.groups
        return add(of, multiply("panel", str(PANEL_COLUMNS * rows)))


FEW, MANY = 6, 12
"""Rows that are one tile, and more than one, on every target."""


def render_gemm_weight_only(spec: WeightOnlySpec) -> Rendered:
    """Print the function of one product, and before it the one for many rows where it may be."""
    if spec.m.isdecimal() and int(spec.m) >= MANY:
        return _render_many(spec, spec.name)
    if spec.m.isdecimal() and int(spec.m) <= FEW:
        return _render_few(spec, None)
    return _render_few(spec, _render_many(spec, f"{spec.name}_of_many_rows"))


def _about(spec: WeightOnlySpec) -> str:
    """What the weight is, for the comment of a function."""
    grouped = f", one scale for each {spec.group_size} of a row" if spec.groups > 1 else ""
    return f"The weight has {spec.bits} bits{grouped}."


def _render_many(spec: WeightOnlySpec, name: str) -> Rendered:
    """The product of floats. One scale for a column is multiplied with its sum, those of groups
    with the weights."""
    scales = "0" if spec.groups == 1 else spec.panel(spec.scale)

    a = text_operand(spec.a)

    def finish(out: Lines, element: str) -> None:
        row = add(a.pointer, a.offset, multiply("row_0", a.row_stride))
        total = element
        repaired = _repair(spec, int(spec.groups > 1), "rows", row, element.partition("[")[0])
        if spec.groups == 1:
            repaired, total = f"const float *const factor = {repaired}", f"({element} * factor[j])"
        out.put(f"{repaired};")
        finish_rows(out, spec.epilogue(total, "row", "column"))

    def widen(k_0: str, depth: str, target: str) -> str:
        weights = spec.panel(spec.weight)
        return (
            f"widen_panel_int{spec.bits}({k_0}, {depth}, {spec.group_size}, {weights}, {scales}, "
            f"{target})"
        )

    batch = tuple((variable, expression(extent)) for variable, extent in spec.batch)
    margin = 2 * (8 * WORD // spec.bits - 1)
    return render_product(
        GemmSpec(
            name=name, ctype="float", parameters=spec.parameters, batch=batch,
            m=expression(spec.m),
            n=Index.of(spec.n), k=Index.of(spec.k), a=spec.a, b=WidenedOperand(widen, margin),
            epilogue=lambda total, row, column: "", comment=f"{spec.comment}\n{_about(spec)}",
        ),
        finish,
    )  # fmt: skip


def _repair(spec: WeightOnlySpec, scaled: int, rows: str, a: str, tile: str) -> str:
    """The call that mends what overflowed before it was scaled."""
    return (
        f"repair_int{spec.bits}({scaled}, {rows}, columns, {spec.k}, {spec.group_size}, {a}, "
        f"{text_of(spec.a.row_stride)}, {spec.panel(spec.weight)}, {spec.panel(spec.scale)}, "
        f"{tile})"
    )


def _render_few(spec: WeightOnlySpec, many: Rendered | None) -> Rendered:
    """One tile of rows; if there are more, ``many`` is called."""
    a, width = text_operand(spec.a), PANEL_COLUMNS
    panels = -(-spec.n // width)
    extents = [extent for _, extent in spec.batch]
    work = multiply(*extents, add(spec.m, "2"), str(spec.n), str(spec.k))
    threads = not (work.isdecimal() and int(work) < PARALLEL_PRODUCTS)
    large = "" if work.isdecimal() else f" && {work} > PARALLEL_PRODUCTS"
    extra = many.extra_parameters if many else ("n_threads",) if threads else ()
    out = Lines()
    if many:
        arguments = ", ".join([*parameter_names(spec.parameters), *extra])
        with out.block(f"if ({spec.m} > TILE_ROWS)"):
            out.put(f"{spec.name}_of_many_rows({arguments});")
            out.put("return;")
    loops = [*spec.batch, ("panel", str(panels))]
    pragma = f"#pragma omp parallel for collapse({len(loops)}) schedule(static) "
    pragma += f"num_threads(n_threads) if (n_threads > 1{large})"
    with out.loops(loops, pragma if threads else ""):
        out.put(f"const int64_t column_0 = panel * {width};")
        rest = f"{spec.n} - column_0"
        known = spec.n < width or spec.n % width == 0
        columns = str(min(spec.n, width)) if known else f"{rest} < {width} ? {rest} : {width}"
        out.put(f"const int columns = {columns};")
        out.put(f"float tile[TILE_ROWS * {width}];")
        rows = f"{add(a.pointer, a.offset)}, {a.row_stride}"
        out.put(
            f"multiply_scaled_int{spec.bits}({spec.m}, columns, {spec.k}, {spec.group_size}, "
            f"{rows}, {spec.panel(spec.weight)}, {spec.panel(spec.scale)}, tile);"
        )
        out.put(f"{_repair(spec, 1, spec.m, add(a.pointer, a.offset), 'tile')};")
        statements = spec.epilogue(f"tile[row * {width} + j]", "row", "column")
        with out.block(f"for (int64_t row = 0; row < {spec.m}; row++)"):
            out.put("#pragma omp simd")
            with out.block("for (int64_t j = 0; j < columns; j++)"):
                if mentions(statements, "column"):
                    out.put("const int64_t column = column_0 + j;")
                out.put(statements)
    head = [
        *block_comment(
            spec.comment,
            f"m = {spec.m}, n = {spec.n}, k = {spec.k}; up to TILE_ROWS rows x {width}.",
            f"{_about(spec)} It is packed in panels of {width} columns.",
        ),
        *signature(spec.name, spec.parameters, extra),
    ]
    before = f"{many.text}\n" if many else ""
    text = before + "\n".join([*head, "{", *out.lines, "}"]) + "\n"
    return Rendered(text, many.workspace if many else Index.of(0), extra)
