"""C text of one product with integers: of u8 or i8 with sums in int32, or of a linear layer with integer
weights and float activations; with the epilogue (requantize, or dequantize and what follows) over each
finished tile.

In goes an `Int8Spec`, out comes a `Rendered`, as in `gemm.py`; the arithmetic is in `tiles/int8.h`, and
the loops are those of `gemm_walk`. Rows of the left operand are read in place. The right operand is a
weight packed at compile time, or it is computed: then it is first packed into the workspace, and its
zero point adds to the sums of a row a multiple of the sum of that row of the left operand.

While tiles of rows pass over a panel, they prefetch the next one; otherwise the first tile would wait
for memory, which is idle during the others. A *long* K is divided into consecutive blocks, so that a
block of one panel and of the next, and all rows' parts in it, stay in the second-level cache; sums are
kept in the workspace meanwhile. (A single tile of rows prefetches nothing: processors do that themselves
if everything is read consecutively, and with prefetching 8 rows took 1.15 of the time.) Measured for 16
rows, K = 17768, N = 512 on a core of Zen 4: 0.72 ms instead of 0.95 (multiplying alone takes 0.62); for
256 rows 10.9 ms instead of 12.1.

The arithmetic for float activations with integer weights, a `WeightOnlySpec`, is in
`tiles/weight_only.h`. Rows of activations that fit one tile are read in place and multiply integers in
registers; panels of weights are the tasks of the threads. More rows become a product of `gemm.py`, whose
right operand threads widen panel by panel. The number of rows decides at run time, so results do not
depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fxlite.codegen.c.dynamic_scale import Beside
from fxlite.codegen.c.product.gemm import render_product
from fxlite.codegen.c.product.gemm_fused import finish_vectors, fused_call, fused_tile, is_short
from fxlite.codegen.c.product.gemm_spec import (
    PANEL_COLUMNS,
    QUAD,
    WORD,
    GemmSpec,
    Operand,
    ProductSpec,
    WidenedOperand,
    at_most,
    words_of,
)
from fxlite.codegen.c.product.gemm_walk import FEW_ROWS, Cut, Place, Product, Tile
from fxlite.codegen.kernel.builder import (
    Argument,
    Body,
    Pointer,
    Rendered,
    bare,
    divide_up,
    parameter_names,
    smaller,
    spelled_argument,
    symbol,
    text_of,
)
from fxlite.scalar.index import Index

FASTER = 4
"""How many products of 8-bit integers take as long as one of floats (measured: 3.7 to 3.9)."""

LONG = 8192
"""Steps of K from which it is divided: a panel of so many is 256 KiB."""

BLOCK = 1984
"""Steps of K in a block, 64 KiB of a panel; whole tiles of AMX."""

SMALL = 1 << 14
"""The most bytes of a right operand all of whose panels stay in the first-level cache."""

FEW_TILES = 4
"""The number of tiles of rows that then go through all panels together."""

QUADS = Tile("int32_t", "int32_t", 4, rows="QUAD_ROWS", rate=FASTER)
"""A product of 8-bit integers; steps of K are counted in bytes."""


@dataclass(frozen=True)
class Right:
    """A right operand, [k, n], that is computed. ``zero_point`` is its own, ``left_zero_point`` that of the
    left operand."""

    operand: Operand
    type: str
    zero_point: int
    left_zero_point: int

    @property
    def offset(self) -> int:
        """The number that is subtracted when the tile reads a stored number as signed."""
        return self.zero_point - (128 if self.type == "u8" else 0)


@dataclass(frozen=True, kw_only=True)
class Int8Spec(ProductSpec):
    """One product.

    type        "u8" or "i8", of the left operand
    a           the left operand; elements of a row are adjacent
    b           the right operand, or the name of the weight, a [k, n] matrix packed by `pack_int8`
    beside      what is computed in addition to the result, tile by tile
    fetched     (row, column) -> (address of that element, distance of rows) of float arrays that the
                epilogue reads or stores there; they are prefetched while a tile is summed
    """

    type: str
    a: Operand
    b: Right | str
    beside: Beside | None = None
    fetched: Callable[[Index, Index], list[tuple[Pointer, Index]]] | None = None


class _Integers(Product):
    """A product of u8 or i8."""

    takes_tiles = True
    vector = "int"

    def __init__(self, spec: Int8Spec) -> None:
        super().__init__(spec, QUADS)
        self.spec = spec
        self.has_sums = isinstance(spec.b, Right) and spec.b.offset != 0
        self.rows_of_panel = divide_up(spec.k, QUAD) + 1
        if self.is_long:
            assert spec.k.constant is not None
            self.cut = Cut(1, divide_up(spec.k, BLOCK), BLOCK)
        whole = isinstance(spec.b, str) and spec.k.constant is not None
        self.in_registers = whole and spec.k % QUAD == 0 and at_most(spec.k, 256) and is_short(spec, 1)

    @property
    def is_long(self) -> bool:
        """Whether K is divided: then the sums take no more memory than the activations."""
        n, k = self.base.n.constant, self.base.k.constant
        if isinstance(self.spec.b, Right) or self.base.batch or at_most(self.base.m, 11):
            return False
        return n is not None and k is not None and k >= max(LONG, 4 * n)

    def row_blocks_text(self) -> str:
        n, k = self.base.n.constant, self.base.k.constant
        if self.cut is not None:
            return self.count_blocks(f"QUAD_ROWS*{BLOCK}", self.panels)
        if n is not None and k is not None and n * k <= SMALL:
            # All panels stay in the first-level cache: a few tiles of rows go through them panel after
            # panel, so that rows of the result are written completely instead of one panel's columns at a time.
            self.body.comment(f"{FEW_TILES} tiles of rows at a time pass over the small weight.")
            return bare(divide_up(self.row_tiles, FEW_TILES))
        return super().row_blocks_text()

    def panel_blocks_text(self) -> str:
        if not self.threads:
            return "1"
        return f"n_threads == 1 ? 1 : {bare(smaller(self.panels, self.n_threads * 4))}"

    def declare(self) -> None:
        spec, body = self.spec, self.body
        size = f"({text_of(divide_up(spec.k, QUAD))} + 1)*{self.width}"
        self.panel_size = body.let("panel_size", size)
        if self.cut is not None:
            rows = self.panel_count * (spec.m + 31)  # for AMX, which has the most
            self.allot("sums", "int32_t", rows * self.width, 4)
        if isinstance(spec.b, Right):
            panels = self.repeats * self.panel_count
            count = panels * self.rows_of_panel * self.width
            self.allot("packed", "int32_t", count, 4, panels * self.panel_size)
            if self.has_sums:
                self.allot("row_sums", "int32_t", self.repeats * spec.m, 4)

    # -- a right operand that is computed --------------------------------------------------------
    def phases(self) -> list[Callable[[str, str], None]]:
        if not isinstance(self.spec.b, Right):
            return []
        return [self.pack_right, *[self.sum_rows] * self.has_sums]

    def packed_panel(self, batch: tuple[Index, ...], panel: Index) -> Pointer:
        """The place of a packed panel."""
        if isinstance(self.spec.b, str):
            return Pointer(self.spec.b) + panel * self.panel_size
        matrix = self.matrix(batch) if batch else Index.of(0)
        return Pointer("packed") + (matrix * self.panels + panel) * self.panel_size

    def pack_right(self, directive: str, clauses: str) -> None:
        """Pack all right operands."""
        spec, body, right = self.spec, self.body, self.spec.b
        assert isinstance(right, Right)
        b, left_offset = right.operand, right.left_zero_point + 128 * (spec.type == "i8")
        with body.shared([*spec.batch, ("panel", self.panels)], directive, clauses) as found:
            *batch, panel = found
            self.name_batch(batch)
            at = self.in_panel(self.blank(tuple(batch), panel))
            source = b.start(0, at.column_0), b.row_stride, b.col_stride
            target = self.packed_panel(at.batch, panel)
            given = spec.k, at.columns, *source, left_offset, right.offset, target
            body.call(f"pack_panel_{right.type}", *given)

    def sum_rows(self, directive: str, clauses: str) -> None:
        """Sum the left operands' rows."""
        spec, body, right = self.spec, self.body, self.spec.b
        assert isinstance(right, Right)
        with body.shared([*spec.batch, ("row", spec.m)], directive, clauses) as found:
            *batch, row = found
            self.name_batch(batch)
            at = self.blank(tuple(batch), Index.of(0))
            total = f"sum_row_{spec.type}({bare(spec.k)}, {spec.a.start(row)})"
            body.assign(self.row_sum(at, row), f"{total} * {right.offset}")

    def row_sum(self, at: Place, row: Index) -> str:
        """The sum of a row of the left operand."""
        matrix = self.matrix(at.batch) if at.batch else Index.of(0)
        return Pointer("row_sums")[matrix * self.spec.m + row]

    # -- sums --------------------------------------------------------------------------------------
    def declare_panel(self, at: Place) -> None:
        body = self.body
        panel = body.pointer("const int32_t", "b_panel", self.packed_panel(at.batch, at.panel))
        quads = body.pointer("const int32_t", "quads", panel + self.width + at.k_0 * 8)
        if self.one_tile:
            body.pointer("const int32_t", "next", quads)
            return
        body.comment("Tiles of rows fetch the next panel meanwhile.")
        ahead = f"{quads} + ({bare(self.row_tiles)} > 1 ? {text_of(self.panel_size)} : 0)"
        body.pointer("const int32_t", "next", ahead)

    def multiply(self, at: Place) -> None:
        spec, body = self.spec, self.body
        for address, step in spec.fetched(at.row_0, at.column_0) if spec.fetched else ():
            body.call("fetch_tile", at.rows, at.columns, address, step)
        rows, panel = spec.a.start(at.row_0, at.k_0), Pointer("b_panel")
        ahead = Pointer("next") + at.tile % 2 * (at.depth // 4 * 16)
        if self.in_registers:
            body.put(fused_call(self, at, rows, spec.a.row_stride, panel, ahead))
            return
        self.add_block(body, at, rows, spec.a.row_stride, Pointer("quads"), ahead)

    def add_block(self, body: Body, at: Place, rows: Pointer, step: Index, quads: Pointer, ahead: Pointer) -> None:
        """Print the call that adds products to the sums of a tile, whose initial values come from its
        panel."""
        start = "b_panel"
        if self.cut is not None and self.cut.blocks != 1:
            start = f"{bare(at.block)} == 0 ? b_panel : 0"
        given = at.rows, at.columns, at.depth, rows, step, quads, start, ahead, at.sums
        body.call(f"add_block_{self.spec.type}", *given)

    def finish(self, at: Place) -> None:
        """Print the epilogue of a tile, by vectors if there is such a form."""
        spec, body = self.spec, self.body

        def before(row: Index) -> None:
            if self.has_sums:
                body.assign("const int32_t row_sum", self.row_sum(at, row))

        if self.in_registers:
            pass
        elif spec.vectors is not None:
            sums = "(sum - row_sum)" if self.has_sums else "sum"
            finish_vectors(self, body, at, sums, lambda _, row: before(row))
        else:
            less = " - row_sum" * self.has_sums

            def total(i: Index, j: Index) -> str:
                return f"({at.sum(i, j)}{less})" if less else at.sum(i, j)

            self.finish_rows(at, spec.epilogue, total, before)
        if spec.beside is not None:
            first = [*at.batch, at.row_0, at.column_0]
            body.put(spec.beside.tile(Index.of(at.rows), Index.of(at.columns), first))

    # -- the function ------------------------------------------------------------------------------
    def render(self) -> Rendered:
        beside = self.spec.beside
        if beside is not None:
            self.body.put(beside.before)
        return super().render()

    def function(self, before: list[str]) -> Rendered:
        if self.spec.beside is not None:
            self.body.put(self.spec.beside.after)
        return super().function(before)

    def functions(self) -> list[str]:
        if not self.in_registers:
            return []
        spec = self.spec
        assert spec.k.constant is not None
        signed, quads = int(spec.type == "i8"), spec.k.constant // QUAD

        def sums(body: Body, name: str) -> None:
            body.assign("const int32_t *const starts", "b_panel + first")
            body.put(
                f"sum_rows_int8(rows, vectors, 1, {signed}, {quads}, a_tile, a_row, 0, "
                f"starts + {self.width}, starts, 0, next, {name});"
            )

        def stored(body: Body, at: Place) -> None:
            quads = Pointer("b_panel") + self.width
            operands = Pointer("a_tile"), symbol("a_row"), quads, Pointer("next")
            self.add_block(body, at, *operands)

        own = "const void *a_tile, int64_t a_row, const int32_t *b_panel, const int32_t *next"
        return fused_tile(self, own, sums, stored)

    def about(self) -> list[str]:
        packed = "The weight" if isinstance(self.spec.b, str) else "The right operand"
        said = [f"{packed} is packed, in panels of {self.width} columns of quads."]
        if self.cut is not None:
            said.append(f"K is cut into blocks of {BLOCK}, with sums in the workspace.")
        return said


def render_int8(spec: Int8Spec) -> Rendered:
    """Print the function of one product."""
    return _Integers(spec).render()


# -- integer weights and float activations ---------------------------------------------------------
MANY = 12
"""A number of rows that is more than one tile on every target."""


@dataclass(frozen=True, kw_only=True)
class WeightOnlySpec(ProductSpec):
    """One product; m may be 0, n and k are known and not 0.

    a           the left operand; elements of a row are adjacent
    bits        8 or 4, of a weight
    group_size  weights along k that share a scale: k, or whole words of 4 bytes; the last group may be
                shorter
    weight      the result of `pack_integers`
    scale       [k / group_size (rounded up), n], packed by `pack_b`
    """

    a: Operand
    bits: int
    group_size: int
    weight: str
    scale: str

    @property
    def depth(self) -> int:
        """Steps of K."""
        assert self.k.constant is not None
        return self.k.constant

    @property
    def groups(self) -> int:
        """Groups of a row."""
        return -(-self.depth // self.group_size)

    def panel(self, of: str, number: Index) -> Pointer:
        """The weights, or scales, of a panel; their numbers are named in ``panel_sizes``."""
        return Pointer(of) + number * symbol("panel_words" if of == self.weight else "panel_scales")

    @property
    def panel_sizes(self) -> dict[str, str]:
        """C names for the numbers of elements in a panel."""
        return {
            "panel_words": f"{words_of(self.depth, self.bits)}*{PANEL_COLUMNS}",
            "panel_scales": f"{self.groups}*{PANEL_COLUMNS}".removeprefix("1*"),
        }

    def repair(self, scaled: int, at: Place, tile: Pointer) -> str:
        """The call that corrects values that overflowed before they were scaled."""
        given: tuple[Argument, ...] = (
            scaled,
            at.rows,
            at.columns,
            self.k,
            self.group_size,
            self.a.start(at.row_0),
            self.a.row_stride,
            self.panel(self.weight, at.panel),
            self.panel(self.scale, at.panel),
            tile,
        )
        return f"repair_int{self.bits}({', '.join(map(spelled_argument, given))})"

    def about(self) -> str:
        """A description of the weight, for the comment of a function."""
        grouped = f", one scale for each {self.group_size} of a row" if self.groups > 1 else ""
        return f"The weight has {self.bits} bits{grouped}."


def render_gemm_weight_only(spec: WeightOnlySpec) -> Rendered:
    """Print the function of one product, preceded by the one for many rows if there may be many."""
    if spec.m.constant is not None and spec.m.constant >= MANY:
        return _render_many(spec, spec.name)
    if at_most(spec.m, FEW_ROWS):
        return _FewRows(spec, None).render()
    return _FewRows(spec, _render_many(spec, f"{spec.name}_of_many_rows")).render()


def _render_many(spec: WeightOnlySpec, name: str) -> Rendered:
    """The product of floats. A single scale per column multiplies the column's sum; scales of groups
    multiply the weights."""

    def finish(product: Product, at: Place) -> None:
        repaired = spec.repair(int(spec.groups > 1), at, at.sums)
        if spec.groups > 1:
            product.body.put(f"{repaired};")
            product.finish_rows(at, spec.epilogue)
            return
        product.body.assign("const float *const factor", repaired)
        product.finish_rows(at, spec.epilogue, lambda i, j: f"({at.sum(i, j)} * factor[{bare(j)}])")

    def widen(panel: Index, k_0: Index, depth: Index, target: Pointer) -> str:
        scales = "0" if spec.groups == 1 else str(spec.panel(spec.scale, panel))
        given: tuple[Argument, ...] = (k_0, depth, spec.group_size, spec.panel(spec.weight, panel), scales, target)
        return f"widen_panel_int{spec.bits}({', '.join(map(spelled_argument, given))})"

    margin = 2 * (8 * WORD // spec.bits - 1)
    return render_product(
        GemmSpec(
            name=name,
            ctype="float",
            parameters=spec.parameters,
            batch=spec.batch,
            m=spec.m,
            n=spec.n,
            k=spec.k,
            a=spec.a,
            b=WidenedOperand(widen, margin, spec.panel_sizes),
            epilogue=spec.epilogue,
            comment=f"{spec.comment}\n{spec.about()}",
        ),
        finish,
    )


class _FewRows(Product):
    """One tile of rows; if there are more, ``many`` is called."""

    one_tile = True
    height = "up to TILE_ROWS rows"

    def __init__(self, spec: WeightOnlySpec, many: Rendered | None) -> None:
        super().__init__(spec, Tile("float", "float", 4))
        self.spec, self.many = spec, many
        if many is not None:
            self.workspace = many.workspace
            self.threads = "n_threads" in many.extra_parameters

    def declare(self) -> None:
        spec = self.spec
        for name, size in spec.panel_sizes.items():
            self.body.let(name, size)
        if self.many is not None:
            extra = self.many.extra_parameters
            given = ", ".join([*parameter_names(spec.parameters), *extra])
            with self.body.block(f"if ({text_of(spec.m)} > TILE_ROWS)"):
                self.body.put(f"{spec.name}_of_many_rows({given});")
                self.body.put("return;")

    def multiply(self, at: Place) -> None:
        spec = self.spec
        panels = spec.panel(spec.weight, at.panel), spec.panel(spec.scale, at.panel)
        at = replace(at, rows=self.body.let("rows", at.rows, "int"))
        rows = at.rows, at.columns, spec.k, spec.group_size, spec.a.start(), spec.a.row_stride
        self.body.call(f"multiply_scaled_int{spec.bits}", *rows, *panels, at.sums)
        self.body.put(f"{spec.repair(1, at, at.sums)};")

    def functions(self) -> list[str]:
        return []

    def function(self, before: list[str]) -> Rendered:
        made = super().function(before)
        if self.many is None:
            return made
        return Rendered(f"{self.many.text}\n{made.text}", made.workspace, made.extra_parameters)

    def about(self) -> list[str]:
        return [f"{self.spec.about()} It is packed in panels of {self.width} columns."]
