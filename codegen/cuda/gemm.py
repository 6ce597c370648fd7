"""The walks over any product on CUDA, C[m, n] = sum over k of A[m, k] * B[k, n], and its epilogue: the
parts shared by products and convolutions of floats and of integers, and those for floats.

In: a :class:`Product` that knows how its numbers are loaded, multiplied and finished. Out: one kernel
that needs only ``prelude.cuh``, and its launch.

With *tiles*, a block of 256 threads computes a tile of C, of one of several :class:`Shape`. A and B pass
through shared memory in slices along k. While one slice is multiplied, the next one is on its way from
memory to registers. Some threads, a *group*, keep all sums of the tile in their registers; each group
sums its own share of every slice. So even small tiles, of which small matrices have many, keep equally
many threads busy. The groups add their sums to the tile's totals in shared memory, one after the other,
and then all threads finish elements that are adjacent in memory. The scheme is that of CUTLASS's SIMT
products with slices divided among warps ("sliced-k", NVIDIA, "Efficient GEMM in CUDA").

With *warps*, for a single row (which a model computes when it answers one question at a time), a warp
computes a column: its lanes read adjacent elements along k and add their shares, and the 32 sums are added
by shuffles. Such a product reads each number of B once and is as fast as memory permits; a tile would
compute its other rows in vain.

Sums run over k in an order that does not depend on the launch.

The right operand of floats may be an :class:`IntegerWeight`, whose numbers are unpacked and scaled in
registers on the way to the tile: 32 bits at a time (four i8 or eight int4) if rows and groups consist of
whole words, otherwise one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from fxlite.codegen.c.product.gemm_spec import at_most
from fxlite.codegen.cuda.counted import CountedSpec, Gathered
from fxlite.codegen.cuda.schedule import KernelText, kernel_text
from fxlite.codegen.kernel.builder import Body, Size, bare, divide_up, parameter_names, smaller, symbol, takes_one_trip
from fxlite.codegen.kernel.text import atom
from fxlite.scalar.index import Index, Var, product, unflatten

LANES = 32
"""Threads of a warp."""

THREADS = 256
"""Threads of a block: several groups for a tile, or a warp for each of 8 columns."""

RUN = 4
"""Adjacent rows, or columns, of a thread, which are read from a tile at once."""

NEIGHBOURS = 16
"""Items along k that adjacent threads load; more would cause bank conflicts in a tile."""

ENOUGH = 96
"""The number of blocks that keeps a GPU busy: one for most of its multiprocessors (an H100 has 132). Measured on an
H100: [128, 768] x [768, 3072] takes 29 us in 96 blocks of 64 x 64, 38 us in smaller ones."""

MAX_GRID_Y = MAX_GRID_Z = 65535

UNROLL = "#pragma unroll"

ZERO = Index.of(0)


@dataclass(frozen=True)
class Shape:
    """What a block computes at once: a tile of ``rows`` x ``columns``, of which a thread keeps ``micro`` rows
    and columns in registers, with ``depth`` items along k in a slice."""

    rows: int
    columns: int
    micro: tuple[int, int]
    depth: int

    @property
    def lines(self) -> dict[str, int]:
        """Rows of ``a`` and columns of ``b``."""
        return {"a": self.rows, "b": self.columns}

    @property
    def group(self) -> int:
        """The number of threads that hold the sums of a tile."""
        return self.rows * self.columns // (self.micro[0] * self.micro[1])

    @property
    def groups(self) -> int:
        """The number of such groups in a block."""
        return THREADS // self.group


#: Shapes by the bytes of an item, from large to small: a large one reads each number less often, of
#: small ones there are more.
SHAPES = {
    4: (Shape(128, 64, (8, 8), 16), Shape(64, 64, (8, 8), 32), Shape(32, 32, (8, 4), 64)),
    8: (Shape(64, 64, (4, 4), 8), Shape(32, 32, (4, 4), 32)),
}


def chosen(shapes: tuple[Shape, ...], m: Index, n: Index, batch: Index) -> Shape:
    """The largest shape of which there are enough tiles; the second one if their number is unknown."""
    for shape in shapes:
        blocks = (divide_up(m, shape.rows) * divide_up(n, shape.columns) * batch).constant
        if blocks is None:
            return shapes[1] if not at_most(n, shapes[-1].columns) else shapes[-1]
        if blocks >= ENOUGH:
            return shape
    return shapes[-1]


@dataclass(frozen=True)
class Side:
    """An operand, ``a`` or ``b``. Its *lines* are rows of A or columns of B, of which there are ``extent``
    in total and ``lines`` in a tile; those of this block begin at ``start``. ``along_k``: adjacent elements
    along k are adjacent in memory. One load of a thread takes ``count`` adjacent elements."""

    name: str
    line: str
    extent: Index
    lines: int
    along_k: bool
    start: Index
    count: int


def element(name: str, *place: Size) -> str:
    """An element of an array."""
    return name + "".join(f"[{bare(i)}]" for i in place)


def where(value: str, *conditions: str, other: str = "0") -> str:
    """The value if all conditions hold, otherwise ``other``; empty conditions always hold."""
    test = " && ".join(filter(None, conditions))
    return f"{test} ? {value} : {other}" if test else value


class Product:
    """The kernel of one product while it is printed; a subclass knows its numbers.

    item            the type of sums, and of the items of tiles
    item_bytes      bytes of an item
    steps           steps of k in an item
    block           the most items that a group adds in registers before it adds them to the totals
    along_k         for A and for B, whether adjacent elements along k are adjacent in memory
    counts          for A and for B, the number of adjacent elements loaded at once
    in_warps        whether a warp computes a column
    """

    item = "float"
    item_bytes = 4
    steps = 1
    block: int | None = None
    counts = (1, 1)

    def __init__(self, spec: CountedSpec) -> None:
        self.base, self.axes, self.body = spec, spec.axes, Body()
        self.along_k = spec.a.along_k, spec.b.along_k
        self.in_warps = spec.m == 1 and spec.b.along_k and spec.axes.is_plain

    # -- what its numbers add ------------------------------------------------------------------
    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes to choose from."""
        return SHAPES[self.item_bytes]

    def declare(self) -> None:
        """Declare what all threads of the block share, besides the tiles."""

    def begin(self) -> None:
        """Declare what a thread accumulates besides the sums of a product."""

    def load(self, side: Side, line: Index, k: Index, inside: str, target: Callable[[Size], str]) -> None:
        """Assign the items from (line, k) on to ``target(0)``, …, as many as the side counts; items beyond the
        matrix are 0. ``inside`` is the condition under which the line exists."""
        raise NotImplementedError

    def add(self, total: str, a: str, b: str) -> str:
        """The statement that adds the product of two items."""
        raise NotImplementedError

    def after_slice(self) -> None:
        """Print what is done while a slice is in the tiles."""

    def after_slices(self) -> None:
        """Print what is done when all slices have been multiplied."""

    def total(self, i: Index, j: Index) -> str:
        """C expression of one of the tile's finished sums."""
        return element("totals", i, j)

    def total_of_warp(self, lane: Index, column: Index) -> str:
        """Store the lane's share of a column; returns the C expression of the column's finished sum."""
        raise NotImplementedError

    # -- the walks -------------------------------------------------------------------------------
    def render(self) -> KernelText:
        """The kernel."""
        spec, batch = self.base, product(extent for _, extent in self.base.batch)
        self.shape = chosen(self.shapes, spec.m, spec.n, batch)
        blocks = self._warps() if self.in_warps else self._tiles()
        how = f"One block for each tile of {self.shape.rows} x {self.shape.columns} elements."
        how = "One warp for each column." if self.in_warps else how
        doc, parameters = f"{spec.comment}\n{how}", spec.parameters.split(", ")
        text = kernel_text(spec.name, doc, parameters, THREADS, self.body.lines())
        arguments = tuple(parameter_names(spec.parameters))
        grid = (*blocks, smaller(batch, MAX_GRID_Z))
        return KernelText(spec.name, text, arguments, grid, THREADS, self.axes.sizes)

    def _tiles(self) -> tuple[Index, Index]:
        body, spec, shape = self.body, self.base, self.shape
        unit = "k" if self.steps == 1 else "quad along k"
        for name, line in (("a", "row"), ("b", "column")):
            tile = element(f"{name}_tile", shape.depth, shape.lines[name] + RUN)
            body.put(f"__shared__ __align__(16) {self.item} {tile};  // [{unit}][{line}]")
        body.put(f"__shared__ __align__(16) {self.item} {element('totals', shape.rows, shape.columns + RUN)};")
        self.declare()
        for name, value in self.axes.sizes:
            body.let(name, value)
        self.thread = body.let("thread", "threadIdx.x", "int", Index.of(THREADS - 1))
        self.group = body.let("group", self.thread // shape.group, "int")
        own = self.thread % shape.group
        per_row = shape.columns // shape.micro[1]
        self.firsts = (
            body.let("thread_row", own // per_row * RUN, "int"),
            body.let("thread_col", own % per_row * RUN, "int"),
        )
        blocks, row_0, col_0 = self._block()
        a = Side("a", "row", spec.m, shape.rows, self.along_k[0], row_0, self.counts[0])
        b = Side("b", "col", spec.n, shape.columns, self.along_k[1], col_0, self.counts[1])
        with self._batch():
            self._clear()
            body.assign(f"{self.item} {element('sums', *shape.micro)}", "{}")
            self.begin()
            self._slices(a, b)
            self._flush()
            self.after_slices()
            self._finish(row_0, col_0)
            if spec.batch:
                body.put("__syncthreads();  // the totals are cleared next")
        return blocks

    def _block(self) -> tuple[tuple[Index, Index], Index, Index]:
        """Blocks along x and y, and the first row and column of this block. Tiles of columns are along y, or
        also along x if they exceed the grid's limit along y; adjacent blocks have adjacent rows either way."""
        rows, columns = divide_up(self.base.m, self.shape.rows), divide_up(self.base.n, self.shape.columns)
        if columns.constant is not None and columns.constant > MAX_GRID_Y:
            grid = rows * columns, Index.of(1)
            block = self._position("x", grid[0])
            row, column = block % rows, block // rows
        else:
            grid = rows, columns
            row, column = self._position("x", rows), self._position("y", columns)
        let = self.body.let
        row, column = row * self.shape.rows, column * self.shape.columns
        return grid, let("block_row", row, self.axes.ctype), let("block_col", column, self.axes.ctype)

    @contextmanager
    def _batch(self) -> Iterator[None]:
        """A loop over this block's share of the batch, if there is one."""
        batch = self.base.batch
        if not batch:
            yield
            return
        number = Var("batch", product(extent for _, extent in batch))
        ctype = self.axes.ctype
        head = f"for ({ctype} batch = blockIdx.z; batch < {bare(number.extent)}; batch += gridDim.z)"
        with self.body.block(head):
            parts = unflatten(Index.of(number), [extent for _, extent in batch])
            for (name, _), part in zip(batch, parts):
                if name != "batch":
                    self.body.let(name, bare(part), ctype)
            yield

    def _clear(self) -> None:
        shape = self.shape
        with self.unrolled("e", shape.rows * shape.columns, self.thread, THREADS) as e:
            self.body.assign(element("totals", e // shape.columns, e % shape.columns), "0")

    def _slices(self, a: Side, b: Side) -> None:
        """Print all slices: they are loaded into registers, stored in the tiles, and multiplied."""
        body, k, step = self.body, self.base.k, self.shape.depth * self.steps
        if takes_one_trip(ZERO, k, step):
            self._declare(a, b)
            self._load(ZERO, a, b)
            self._store(a, b)
            body.call("__syncthreads")
            self._multiply()
            return
        with body.loop("k_next", k + step, step=step, ctype=self.axes.ctype):
            whole = k % step == 0
            k_0 = Index.of(Var("k_next", k - step + 1 if whole else k))
            self._declare(a, b)
            with body.block(f"if (k_next < {bare(k)})"):
                self._load(k_0, a, b)
            with body.block("if (k_next > 0)"):
                self._multiply()
                block = self.block and self.block * self.shape.groups
                if block and not at_most(k, block):
                    with body.block(f"if ({bare(k_0 % block)} == 0)"):
                        self._flush()
            body.call("__syncthreads")
            with body.block(f"if (k_next < {bare(k)})"):
                self._store(a, b)
            body.call("__syncthreads")

    def _share(self, side: Side) -> int:
        """Number of loads of a thread for a slice."""
        return side.lines * self.shape.depth // (THREADS * side.count)

    @contextmanager
    def _sharing(self, side: Side) -> Iterator[tuple[Index, Index, Index]]:
        """A loop over a thread's loads of a slice: the number of the load, its line and its item."""
        lanes, lines = min(NEIGHBOURS, self.shape.depth) // side.count, side.lines // side.count
        with self.unrolled("e", self._share(side)) as e:
            place = self.thread + e * THREADS
            if side.along_k:
                i = place // lanes % side.lines
                j = (place // (lanes * side.lines) * lanes + place % lanes) * side.count
            else:
                i, j = place % lines * side.count, place // lines
            yield e, self.body.let("i", i, "int"), self.body.let("j", j, "int")

    def _declare(self, *sides: Side) -> None:
        for side in sides:
            self.body.declare(f"{self.item} {element(f'{side.name}_next', self._share(side) * side.count)}")

    def _load(self, k_0: Index, *sides: Side) -> None:
        for side in sides:
            along = "k" if side.along_k else {"a": "rows", "b": "columns"}[side.name]
            self.body.put(f"// {side.name.upper()}: neighbouring threads load neighbours along {along}")
            with self._sharing(side) as (e, i, j):
                line, inside = self.named(side.line, side.start + i, side.extent)
                first = e * side.count

                def target(part: Size, name: str = side.name, first: Index = first) -> str:
                    return element(f"{name}_next", first + part)

                self.load(side, line, k_0 + j * self.steps, inside, target)

    def _store(self, *sides: Side) -> None:
        for side in sides:
            with self._sharing(side) as (e, i, j), self.unrolled("part", side.count) as part:
                place = (j + part, i) if side.along_k else (j, i + part)
                item = element(f"{side.name}_next", e * side.count + part)
                self.body.assign(element(f"{side.name}_tile", *place), item)

    def _multiply(self) -> None:
        """Print the products of the items in the group's share of the tiles."""
        body, share = self.body, self.shape.depth // self.shape.groups
        with self.unrolled("step", share) as step:
            k = self.group * share + step
            for name, first, micro, lines in self._lines():
                body.declare(f"{self.item} {element(f'{name}_part', micro)}")
                with self.unrolled("i", micro) as i:
                    item = element(f"{name}_tile", k, first + self._line(i, micro, lines))
                    body.assign(element(f"{name}_part", i), item)
            with self.each_sum() as (i, j):
                parts = element("a_part", i), element("b_part", j)
                body.put(self.add(element("sums", i, j), *parts))
        self.after_slice()

    def _lines(self) -> Iterator[tuple[str, Index, int, int]]:
        return zip("ab", self.firsts, self.shape.micro, self.shape.lines.values(), strict=True)

    @staticmethod
    def _line(i: Index, micro: int, lines: int) -> Index:
        """The line of a tile, relative to the thread's first line, of one of the thread's own lines: they come
        in runs, and the runs of a warp are adjacent."""
        return i if micro == RUN else i // RUN * (lines * RUN // micro) + i % RUN

    def _flush(self) -> None:
        """Print the addition of each group's sums to the totals, one group after the other."""
        body, (_, row, rows, all_rows), (_, column, columns, all_columns) = self.body, *self._lines()
        with body.loop("turn", self.shape.groups, ctype="int") as turn:
            its_turn = body.block(f"if (group == {bare(turn)})") if self.shape.groups > 1 else nullcontext()
            with its_turn, self.each_sum() as (i, j):
                place = row + self._line(i, rows, all_rows), column + self._line(j, columns, all_columns)
                own = element("sums", i, j)
                body.put(f"{element('totals', *place)} += {own};\n{own} = 0;")
            body.call("__syncthreads")

    def _finish(self, row_0: Index, col_0: Index) -> None:
        """Print the epilogue of the totals."""
        body, spec, shape = self.body, self.base, self.shape
        with body.loop("e", shape.rows * shape.columns, self.thread, THREADS, ctype="int") as e:
            i, j = e // shape.columns, e % shape.columns
            if self.axes.rows_adjacent:
                i, j = e % shape.rows, e // shape.rows
            i, j = body.let("i", i, "int"), body.let("j", j, "int")
            row, is_row = self.named("row", row_0 + i, spec.m)
            column, is_column = self.named("col", col_0 + j, spec.n)
            inside = " && ".join(filter(None, (is_row, is_column)))
            with body.block(f"if ({inside})") if inside else nullcontext():
                body.assign(f"const {self.item} sum", self.total(i, j))
                body.put(spec.epilogue("sum", row, column))

    def _warps(self) -> tuple[Index, Index]:
        body, spec, warps = self.body, self.base, THREADS // LANES
        thread, blocks = symbol("threadIdx.x", Index.of(THREADS - 1)), divide_up(spec.n, warps)
        lane = body.let("lane", thread % LANES)
        column = self._position("x", blocks) * warps + thread // LANES
        column, is_column = self.named("col", column, spec.n)
        if is_column:
            body.put(f"if (col >= {bare(spec.n)}) return;  // the whole warp")
        with self._batch():
            total = self.total_of_warp(lane, column)
            body.assign(f"const {self.item} sum", total)
            with body.block("if (lane == 0)"):
                body.put(spec.epilogue("sum", ZERO, column))
        return blocks, Index.of(1)

    # -- pieces of them --------------------------------------------------------------------------
    def unrolled(self, name: str, end: Size, start: Size = 0, step: int = 1) -> AbstractContextManager[Index]:
        """A short loop to be unrolled."""
        return self.body.loop(name, end, start, step, UNROLL, "int")

    @contextmanager
    def each_sum(self) -> Iterator[tuple[Index, Index]]:
        """Loops over a thread's sums."""
        rows, columns = self.shape.micro
        with self.unrolled("i", rows) as i, self.unrolled("j", columns) as j:
            yield i, j

    def named(self, name: str, value: Index, extent: Index) -> tuple[Index, str]:
        """A name for a row, a column or a step of k, and the condition under which it exists, which is empty if
        it always does."""
        here = self.body.let(name, bare(value), self.axes.ctype, like=extent - 1)
        return here, "" if value < extent else f"{name} < {bare(extent)}"

    def _position(self, axis: str, blocks: Index) -> Index:
        """The block's position in the grid."""
        cast = "(int64_t)" if self.axes.ctype == "int64_t" else ""
        return ZERO if blocks == 1 else symbol(f"{cast}blockIdx.{axis}", blocks - 1)


# -- products of floats ----------------------------------------------------------------------------
@dataclass(frozen=True)
class IntegerWeight:
    """Weights [n, k] of ``bits`` (4 or 8) with scales [n], or [n, k / group_size], rounded up.

    weight, scale   names of the arrays
    group_size      weights along k that share a scale; 0 for all of a row
    """

    weight: str
    scale: str
    k: Index
    bits: int
    group_size: int

    along_k = True

    @property
    def count(self) -> int:
        """How many weights are read at once: those in 32 bits, if every word belongs to one row and one group;
        otherwise 1."""
        count = 32 // self.bits
        return count if self.k % count == 0 and self.group_size % count == 0 else 1

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
        if self.bits == 4:  # shift the half to the top and back, which extends its sign
            place = f"((int)((uint32_t){place} << ({bare(28 - k % 2 * 4)})) >> 28)"
        return f"(float){place} * {scale}"

    def words(self, body: Body, k: Index, column: Index, *inside: str) -> None:
        """Declare the word from ``k`` on and its scale, which are 0 unless all conditions in ``inside`` hold."""
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
class CudaGemmSpec(CountedSpec):
    """One product of floats. ``ctype`` is the type in which products are summed: "float" or "double"."""

    ctype: str
    b: Gathered | IntegerWeight


class _Floats(Product):
    """A product of float or double."""

    block = 384  # summing more numbers in sequence loses bits

    def __init__(self, spec: CudaGemmSpec) -> None:
        super().__init__(spec)
        self.spec, self.item, self.item_bytes = spec, spec.ctype, {"float": 4, "double": 8}[spec.ctype]
        if spec.ctype == "float":
            self.counts = spec.a.count, spec.b.count

    @property
    def shapes(self) -> tuple[Shape, ...]:
        # the first shape has less than a word of eight weights for each thread
        return super().shapes[1 if isinstance(self.spec.b, IntegerWeight) else 0 :]

    def load(self, side: Side, line: Index, k: Index, inside: str, target: Callable[[Size], str]) -> None:
        body, spec = self.body, self.spec
        operand = spec.a if side.name == "a" else spec.b
        k, is_k = self.named("k", k, spec.k)
        if isinstance(operand, IntegerWeight):
            if side.count == 1:
                body.assign(target(0), where(operand.at(k, line), inside, is_k))
                return
            operand.words(body, k, line, inside, is_k)
            with self.unrolled("part", side.count) as part:
                body.assign(target(part), operand.part(part))
            return
        axis = self.axes.rows if side.name == "a" else self.axes.columns
        number, guard = operand.at(body, axis.located(body, line), k)
        if side.count == 1:
            body.assign(target(0), where(number, inside, is_k, guard))
            return
        body.assign("const float4 four", where(f"fx_four(&{number})", inside, is_k, guard, other="float4()"))
        for number_of, name in enumerate("xyzw"):
            body.assign(target(number_of), f"four.{name}")

    def add(self, total: str, a: str, b: str) -> str:
        return f"{total} += {a} * {b};"

    def total_of_warp(self, lane: Index, column: Index) -> str:
        body, spec, b = self.body, self.spec, self.spec.b
        body.assign(f"{self.item} sums", "0")
        if isinstance(b, IntegerWeight):
            count = b.count
            with body.loop("k", spec.k, lane * count, LANES * count) as k:
                if count > 1:
                    b.words(body, k, column)
                with self.unrolled("part", count) as part:
                    weight = b.part(part) if count > 1 else b.at(k, column)
                    body.assign("sums", f"{self._row(k + part)} * {atom(weight)}", "+=")
            return "fx_warp_sum(sums)"
        place, count = self.axes.columns.located(body, column), min(self.counts)
        with body.loop("k", spec.k, lane * count, LANES * count) as k:
            pair = self._row(k), b.at(body, place, k)[0]
            if count == 1:
                body.assign("sums", " * ".join(pair), "+=")
            else:
                for name, number in zip("ab", pair):
                    body.assign(f"const float4 {name}_four", f"fx_four(&{number})")
                body.assign("sums", " + ".join(f"a_four.{x} * b_four.{x}" for x in "xyzw"), "+=")
        return "fx_warp_sum(sums)"

    def _row(self, k: Index) -> str:
        """C expression of an element of the only row."""
        return self.spec.a.at(self.body, self.axes.rows.located(self.body, ZERO), k)[0]


def render_gemm(spec: CudaGemmSpec) -> KernelText:
    """The kernel of one product."""
    return _Floats(spec).render()
