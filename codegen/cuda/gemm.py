"""The walks over any matrix product on CUDA, C[m, n] = sum over k of A[m, k] * B[k, n], and its
epilogue: what products of floats and of integers share; and the products of floats.

In: a :class:`Product` that knows its numbers: how they are loaded, multiplied and finished. Out:
one kernel that needs only ``prelude.cuh``, and the launch it wants.

In *tiles*, a block of 256 threads computes 64 x 64 elements, each thread 4 x 4 of them in
registers. A and B pass through shared memory in slices of 16 items along k, read in the order in
which their elements are adjacent in memory.

In *warps*, for a single row (what a model computes that answers one question at a time), a warp
computes a column: its lanes read neighbours along k and add their shares, and the 32 sums are
added by shuffles. Such a product reads each number of B once and is as fast as memory is; a tile
would compute 63 rows for nothing.

Sums run over ascending k, so a result does not depend on the launch.

The right operand of floats may be an :class:`IntegerWeight`, whose numbers are unpacked and scaled in
registers on the way to the tile: 32 bits at a time (four i8 or eight int4) where rows and groups are
made of whole words, else one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from fxlite.codegen.c.product.gemm_spec import Operand, ProductSpec, at_most
from fxlite.codegen.cuda.schedule import KernelText, kernel_text
from fxlite.codegen.kernel.builder import Body, Size, bare, divide_up, parameter_names, smaller, symbol, takes_one_trip
from fxlite.codegen.kernel.text import atom
from fxlite.scalar.index import Index, Var, product, unflatten

TILE = 64
"""Rows and columns of C per block."""

MICRO = 4
"""Rows and columns of C per thread."""

SLICE = 16
"""Items along k per turn."""

PITCH = TILE + 4
"""Of a row of a tile; the padding spreads the stores over the memory banks."""

LANES = 32
"""Threads of a warp."""

THREADS = 256
"""Threads of a block: one for each 4 x 4 elements of a tile, or a warp for each of 8 columns."""

MAX_GRID_Y = MAX_GRID_Z = 65535

UNROLL = "#pragma unroll"


@dataclass(frozen=True)
class Side:
    """An operand, ``a`` or ``b``: its *lines*, rows of A or columns of B, of which there are
    ``extent``; those of this block begin at ``start``. ``along_k``: neighbours along k are adjacent
    in memory."""

    name: str
    line: str
    extent: Index
    along_k: bool
    start: Index


def element(name: str, *place: Size) -> str:
    """An element of an array."""
    return name + "".join(f"[{bare(i)}]" for i in place)


def where(value: str, *conditions: str) -> str:
    """The value where all conditions hold, else 0; conditions that always hold are empty."""
    test = " && ".join(filter(None, conditions))
    return f"{test} ? {value} : 0" if test else value


class Product:
    """The kernel of one product while it is printed; a subclass knows its numbers.

    item            the type of sums, and of the items of tiles
    steps           of k in an item
    along_k         of A and of B, whether neighbours along k are adjacent in memory
    in_warps        whether a warp computes a column
    rows_adjacent   results of neighbouring rows are adjacent in memory
    sizes           names of long expressions of the parameters
    """

    item = "float"
    steps = 1
    along_k = (True, True)
    in_warps = False
    rows_adjacent = False
    sizes: tuple[tuple[str, Index], ...] = ()

    def __init__(self, spec: ProductSpec) -> None:
        self.base, self.body = spec, Body()

    # -- what its numbers add ------------------------------------------------------------------
    def declare(self) -> None:
        """Declare what all threads of the block share, beside the tiles."""

    def begin(self) -> None:
        """Declare what a thread gathers beside the sums of a product."""

    def fill(self, side: Side, k_0: Index) -> None:
        """Fill a tile with a slice of an operand, 0 beyond the matrix."""
        raise NotImplementedError

    def add(self, total: str, a: str, b: str) -> str:
        """The statement that adds the product of two items."""
        raise NotImplementedError

    def after_slice(self, k_0: Index) -> None:
        """What is done while the slice from ``k_0`` on is in the tiles."""

    def after_slices(self) -> None:
        """What is done when all are multiplied."""

    def total(self, i: Index, j: Index) -> str:
        """C expression of one of the thread's finished sums."""
        raise NotImplementedError

    def total_of_warp(self, lane: Index, column: Index) -> str:
        """Put the lane's share of a column; C expression of the column's finished sum."""
        raise NotImplementedError

    # -- the walks -------------------------------------------------------------------------------
    def render(self) -> KernelText:
        """The kernel."""
        blocks = self._warps() if self.in_warps else self._tiles()
        spec, batch = self.base, product(extent for _, extent in self.base.batch)
        how = f"One block for each tile of {TILE} x {TILE} elements."
        how = "One warp for each column." if self.in_warps else how
        doc, parameters = f"{spec.comment}\n{how}", spec.parameters.split(", ")
        text = kernel_text(spec.name, doc, parameters, THREADS, self.body.lines())
        arguments = tuple(parameter_names(spec.parameters))
        grid = (*blocks, smaller(batch, MAX_GRID_Z))
        return KernelText(spec.name, text, arguments, grid, THREADS, self.sizes)

    def _tiles(self) -> tuple[Index, Index]:
        body, spec, per_side, step = self.body, self.base, TILE // MICRO, SLICE * self.steps
        unit = "k" if self.steps == 1 else "quad along k"
        for name, line in (("a", "row"), ("b", "column")):
            tile = element(f"{name}_tile", SLICE, PITCH)
            body.put(f"__shared__ __align__(16) {self.item} {tile};  // [{unit}][{line}]")
        self.declare()
        for name, value in self.sizes:
            body.let(name, value)
        self.thread = body.let("thread", "threadIdx.x", "int", Index.of(THREADS - 1))
        row, column = self.thread // per_side * MICRO, self.thread % per_side * MICRO
        row, column = (column, row) if self.rows_adjacent else (row, column)
        self.thread_row = body.let("thread_row", row, "int")
        self.thread_col = body.let("thread_col", column, "int")
        blocks, row_0, col_0 = self._block()
        a = Side("a", "row", spec.m, self.along_k[0], row_0)
        b = Side("b", "col", spec.n, self.along_k[1], col_0)
        with self._batch():
            body.assign(f"{self.item} {element('sums', MICRO, MICRO)}", "{}")
            self.begin()
            with body.loop("k_begin", spec.k, step=step) as k_0:
                self.fill(a, k_0)
                self.fill(b, k_0)
                body.call("__syncthreads")
                self._multiply()
                self.after_slice(k_0)
                if spec.batch or not takes_one_trip(Index.of(0), spec.k, step):
                    body.put("__syncthreads();  // the tiles are overwritten next")
            self.after_slices()
            with self.each_sum() as (i, j):
                row, is_row = self.named("row", row_0 + self.thread_row + i, spec.m)
                column, is_column = self.named("col", col_0 + self.thread_col + j, spec.n)
                inside = " && ".join(filter(None, (is_row, is_column)))
                with body.block(f"if ({inside})") if inside else nullcontext():
                    body.put(spec.epilogue(self.total(i, j), row, column))
        return blocks

    def _block(self) -> tuple[tuple[Index, Index], Index, Index]:
        """Blocks along x and y, and the first row and column of this one. Tiles of columns are
        along y, or along x, too, where they are more than a grid can have along y; neighbouring
        blocks have neighbouring rows either way."""
        rows, columns = divide_up(self.base.m, TILE), divide_up(self.base.n, TILE)
        if columns.constant is not None and columns.constant > MAX_GRID_Y:
            grid = rows * columns, Index.of(1)
            block = _position("x", grid[0])
            row, column = block % rows, block // rows
        else:
            grid = rows, columns
            row, column = _position("x", rows), _position("y", columns)
        let = self.body.let
        return grid, let("block_row", row * TILE), let("block_col", column * TILE)

    @contextmanager
    def _batch(self) -> Iterator[None]:
        """The loop over this block's share of the batch, if there is one."""
        batch = self.base.batch
        if not batch:
            yield
            return
        number = Var("batch", product(extent for _, extent in batch))
        head = f"for (int64_t batch = blockIdx.z; batch < {bare(number.extent)}; batch += gridDim.z)"
        with self.body.block(head):
            parts = unflatten(Index.of(number), [extent for _, extent in batch])
            for (name, _), part in zip(batch, parts):
                if name != "batch":
                    self.body.let(name, bare(part))
            yield

    def _multiply(self) -> None:
        """The products of the items in the tiles."""
        body, firsts = self.body, (self.thread_row, self.thread_col)
        with self.unrolled("tile_k", SLICE) as k:
            body.declare(f"{self.item} {element('a_part', MICRO)}, {element('b_part', MICRO)}")
            with self.unrolled("i", MICRO) as i:
                for name, first in zip("ab", firsts):
                    item = element(f"{name}_tile", k, first + i)
                    body.assign(element(f"{name}_part", i), item)
            with self.each_sum() as (i, j):
                parts = element("a_part", i), element("b_part", j)
                body.put(self.add(element("sums", i, j), *parts))

    def _warps(self) -> tuple[Index, Index]:
        body, spec, warps = self.body, self.base, THREADS // LANES
        thread, blocks = symbol("threadIdx.x", Index.of(THREADS - 1)), divide_up(spec.n, warps)
        lane = body.let("lane", thread % LANES)
        column = _position("x", blocks) * warps + thread // LANES
        column, is_column = self.named("col", column, spec.n)
        if is_column:
            body.put(f"if (col >= {bare(spec.n)}) return;  // the whole warp")
        with self._batch():
            total = self.total_of_warp(lane, column)
            body.assign(f"const {self.item} sum", total)
            with body.block("if (lane == 0)"):
                body.put(spec.epilogue("sum", Index.of(0), column))
        return blocks, Index.of(1)

    # -- pieces of them --------------------------------------------------------------------------
    def unrolled(self, name: str, end: Size, start: Size = 0, step: int = 1) -> AbstractContextManager[Index]:
        """A short loop that is to be unrolled."""
        return self.body.loop(name, end, start, step, UNROLL, "int")

    @contextmanager
    def each_sum(self) -> Iterator[tuple[Index, Index]]:
        """The loops over a thread's sums."""
        with self.unrolled("i", MICRO) as i, self.unrolled("j", MICRO) as j:
            yield i, j

    @contextmanager
    def filling(self, side: Side, items: int = SLICE) -> Iterator[tuple[Index, Index, Index, str]]:
        """The loop in which threads share out a tile of so many ``items`` a line; neighbouring ones
        load along k, or across it. Gives the number of the line in the tile and of the item in the
        line; the line, and the condition under which there is one."""
        along = "k" if side.along_k else {"a": "rows", "b": "columns"}[side.name]
        self.body.put(f"// {side.name.upper()}: neighbouring threads load neighbours along {along}")
        with self.unrolled("e", TILE * items, self.thread, THREADS) as e:
            i, j = (e // items, e % items) if side.along_k else (e % TILE, e // TILE)
            i, j = self.body.let("i", i, "int"), self.body.let("j", j, "int")
            yield i, j, *self.named(side.line, side.start + i, side.extent)

    def named(self, name: str, value: Index, extent: Index) -> tuple[Index, str]:
        """A name for a row, a column or a step of k, and the condition under which there is one,
        empty if there always is. It has 64 bits, even where nothing is added to a smaller one."""
        here = self.body.let(name, bare(value), like=extent - 1)
        return here, "" if value < extent else f"{name} < {bare(extent)}"


def _position(axis: str, blocks: Index) -> Index:
    """The block's position in the grid."""
    return Index.of(0) if blocks == 1 else symbol(f"(int64_t)blockIdx.{axis}", blocks - 1)


# -- products of floats ----------------------------------------------------------------------------
BLOCK = 24 * SLICE
"""Products that a thread adds in a row, and then to the sum of such blocks before them."""


@dataclass(frozen=True)
class IntegerWeight:
    """Weights [n, k] of ``bits`` (4 or 8) with scales [n], or [n, k / group_size], rounded up.

    weight, scale   names of the arrays
    group_size      weights along k that share a scale; 0: all of a row
    """

    weight: str
    scale: str
    k: Index
    bits: int
    group_size: int

    @property
    def in_words(self) -> int:
        """How many are read at once, as 32 bits from every word's beginning are of one row and one
        group; 0 if they are not."""
        count = 32 // self.bits
        return count if self.k % count == 0 and self.group_size % count == 0 else 0

    def _place(self, k: Index, column: Index) -> tuple[str, str]:
        """C expressions of where (column, k) is stored, and of its scale."""
        in_byte, group = 8 // self.bits, column
        if self.group_size:
            group = column * divide_up(self.k, self.group_size) + k // self.group_size
        place = column * divide_up(self.k, in_byte) + k // in_byte
        return element(self.weight, place), element(self.scale, group)

    def at(self, k: Index, column: Index) -> str:
        """C expression of one weight."""
        place, scale = self._place(k, column)
        if self.bits == 4:  # the half that is wanted to the top, and back, which repeats its sign
            place = f"((int)((uint32_t){place} << ({bare(28 - k % 2 * 4)})) >> 28)"
        return f"(float){place} * {scale}"

    def words(self, body: Body, k: Index, column: Index, *inside: str) -> None:
        """Declare the word from ``k`` on and its scale, 0 unless all is ``inside``."""
        place, scale = self._place(k, column)
        word = where(f"(uint32_t)fx_quad(&{place})", *inside)
        body.assign("const uint32_t word", word)
        body.assign("const float scale_of_word", where(scale, *inside))

    def part(self, number: Index) -> str:
        """C expression of one of the weights in a ``word``."""
        top = 32 - self.bits
        bits = f"(int)(word << ({bare(top - number * self.bits)})) >> {top}"
        return f"(float)({bits}) * scale_of_word"


@dataclass(frozen=True, kw_only=True)
class CudaGemmSpec(ProductSpec):
    """One product.

    ctype   "float" or "double", in which the products are summed
    a, b    the operands
    """

    ctype: str
    a: Operand
    b: Operand | IntegerWeight


class _Floats(Product):
    """A product of float or double."""

    def __init__(self, spec: CudaGemmSpec) -> None:
        if spec.ctype not in ("float", "double"):
            raise ValueError(f"{spec.name}: ctype {spec.ctype!r} is neither 'float' nor 'double'")
        super().__init__(spec)
        self.spec, self.item = spec, spec.ctype
        b = (1, 0) if isinstance(spec.b, IntegerWeight) else (spec.b.row_stride, spec.b.col_stride)
        self.along_k = spec.a.row_stride != 1, b[1] != 1
        self.in_warps = spec.m == 1 and b[0] == 1
        self.in_blocks = not at_most(spec.k, BLOCK)

    def begin(self) -> None:
        if self.in_blocks:
            self.body.assign(f"{self.item} {element('totals', MICRO, MICRO)}", "{}")

    def fill(self, side: Side, k_0: Index) -> None:
        body, spec = self.body, self.spec
        if side.name == "b" and isinstance(spec.b, IntegerWeight) and spec.b.in_words:
            self._fill_words(spec.b, spec.b.in_words, side, k_0)
            return
        with self.filling(side) as (i, j, line, inside):
            k, is_k = self.named("k", k_0 + j, spec.k)
            number = spec.a.at(line, k) if side.name == "a" else spec.b.at(k, line)
            body.assign(element(f"{side.name}_tile", j, i), where(number, inside, is_k))

    def _fill_words(self, weight: IntegerWeight, count: int, side: Side, k_0: Index) -> None:
        with self.filling(side, SLICE // count) as (i, j, column, inside):
            k, is_k = self.named("k", k_0 + j * count, self.spec.k)
            weight.words(self.body, k, column, inside, is_k)
            with self.unrolled("part", count) as part:
                target = element("b_tile", j * count + part, i)
                self.body.assign(target, weight.part(part))

    def add(self, total: str, a: str, b: str) -> str:
        return f"{total} += {a} * {b};"

    def after_slice(self, k_0: Index) -> None:
        if not self.in_blocks:
            return
        with self.body.block(f"if ({bare(k_0 % BLOCK)} == {BLOCK - SLICE})"), self.each_sum() as (i, j):
            total, part = element("totals", i, j), element("sums", i, j)
            self.body.put(f"{total} += {part};\n{part} = 0;")

    def total(self, i: Index, j: Index) -> str:
        if not self.in_blocks:
            return element("sums", i, j)
        whole = f"{element('totals', i, j)} + {element('sums', i, j)}"
        self.body.assign(f"const {self.item} sum", whole)
        return "sum"

    def total_of_warp(self, lane: Index, column: Index) -> str:
        body, spec, b = self.body, self.spec, self.spec.b
        body.assign(f"{self.item} sums", "0")
        if isinstance(b, IntegerWeight) and b.in_words:
            count = b.in_words
            with body.loop("k", spec.k, lane * count, LANES * count) as k:
                b.words(body, k, column)
                with self.unrolled("part", count) as part:
                    body.assign("sums", f"{spec.a.at(0, k + part)} * ({b.part(part)})", "+=")
        else:
            with body.loop("k", spec.k, lane, LANES) as k:
                body.assign("sums", f"{spec.a.at(0, k)} * {atom(b.at(k, column))}", "+=")
        return "fx_warp_sum(sums)"


def render_gemm(spec: CudaGemmSpec) -> KernelText:
    """The kernel of one product.

    Raises:
        ValueError: the `ctype` is not a float type.
    """
    return _Floats(spec).render()
