"""The parts that the printers of all convolutions share: the function around them, named sizes, threads,
the padded copies of images, the table of taps, and the epilogue over a finished tile.

In: a `ConvSpec`. The printer of a plan is a subclass of :class:`Walk`, which adds statements to its
``body``. Out: a `Rendered`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from fxlite.codegen.c.conv.conv_plan import SEGMENT, ConvSpec
from fxlite.codegen.c.product.gemm_spec import ITEM_BYTES, PARALLEL_PRODUCTS
from fxlite.codegen.kernel.builder import (
    Body,
    Pointer,
    Rendered,
    Size,
    bare,
    divide_up,
    rendered,
    round_up,
    smaller,
    symbol,
    takes_one_trip,
    text_of,
)
from fxlite.scalar.index import Atom, Index, extremum

CACHE_LINE = 64

COPIED = 1 << 19
"""Bytes of copied images per thread that stay in a second-level cache until they are read. Measured on 64 images of
128 channels of 5 x 64 pixels: copying all at once took twice the time."""

Loop = tuple[str, Size]
"""A loop: its variable and its extent."""


def conv_function(spec: ConvSpec, note: str, body: Body, workspace: Size = 0) -> Rendered:
    """The function of a body that needs ``workspace`` bytes of scratch."""
    lines = body.lines()
    if spec.beside is not None:
        lines = [f"    {spec.beside.before}", *lines, f"    {spec.beside.after}"]
    return rendered(spec.name, spec.parameters, (spec.comment, note), lines, workspace)


def empty_result(spec: ConvSpec) -> Rendered | None:
    """The function of a convolution whose result has no elements; None for other convolutions."""
    if all(size != 0 for size in (spec.n, spec.k, *spec.output_size())):
        return None
    body = Body()
    body.comment("Nothing to compute.")
    return conv_function(spec, "An empty result.", body)


class Walk:
    """A function under construction: its statements, sizes and threads. Its products are ``faster`` times
    as fast as those of floats."""

    def __init__(self, spec: ConvSpec, faster: int = 1) -> None:
        self.spec = spec
        self.body = Body()
        self.ctype = spec.ctype
        self.taps = spec.r * spec.s
        self.out_h, self.out_w = spec.output_size()
        self.meanings: dict[Atom, Index] = {}
        self.image_h, self.image_w = spec.h, spec.w  # of an image, or of its copy
        self.first_image, self.images = Index.of(0), spec.n  # of the images that are copied at once
        self.top, self.left = spec.padding[:2]  # zeros of a copy above the image, and beside it
        self.products = divide_up(spec.k * spec.group_inputs * self.taps, faster)  # per pixel
        self.weight = Pointer(spec.weight)  # in the layout that the tiles read
        self.free = Pointer("workspace")  # after the weights that are packed in each call
        work = spec.n * self.out_h * self.out_w * self.products
        self.threads = work.constant is None or work.constant >= PARALLEL_PRODUCTS

    # -- sizes
    def name(self, name: str, value: Size) -> Index:
        """Define a name for a size in the whole function."""
        found = self.body.let(name, value)
        if (atom := found.single_atom) is not None and found != value:
            self.meanings[atom] = Index.of(value).substitute(self.meanings)
        return found

    def name_result(self) -> None:
        """Define names for the height and the width of the output."""
        self.out_h, self.out_w = self.name("out_h", self.out_h), self.name("out_w", self.out_w)

    def meaning(self, size: Size) -> Index:
        """A size in terms of the parameters."""
        return Index.of(size).substitute(self.meanings)

    @property
    def team(self) -> str:
        """The clauses of a directive that uses all threads if there is enough work."""
        work, large = self.spec.n * self.out_h * self.out_w * self.products, ""
        if work.constant is None:
            large = f" && {text_of(work)} > PARALLEL_PRODUCTS"
        return f" num_threads(n_threads) if (n_threads > 1{large})"

    @property
    def all_threads(self) -> Index:
        """The number of threads."""
        return symbol("n_threads") if self.threads else Index.of(1)

    # -- loops
    def parallel(self, *loops: Loop) -> AbstractContextManager[list[Index]]:
        """Loops that all threads share, if there is enough work."""
        return self.body.shared(loops, "omp parallel for" if self.threads else "", self.team)

    @contextmanager
    def team_of_threads(self) -> Iterator[None]:
        """A block that each thread runs, if there is enough work."""
        with ExitStack() as stack:
            if self.threads:
                stack.enter_context(self.body.block(f"#pragma omp parallel{self.team}"))
            yield

    def own(self, size: Size) -> Index:
        """The start of a thread's own part of an array whose parts have ``size`` elements."""
        if not self.threads:
            return Index.of(0)
        return symbol("this_thread()") * self.body.let("own_size", size)

    def of_team(self, *loops: Loop) -> AbstractContextManager[list[Index]]:
        """Loops that the threads of `team_of_threads` share."""
        return self.body.shared(loops, "omp for" if self.threads else "")

    @contextmanager
    def segments(self, variable: str) -> Iterator[tuple[Index, Index]]:
        """A loop over segments of an output row: the first pixel, and the number of them."""
        with self.body.loop(variable, self.out_w, step=SEGMENT) as start:
            yield start, self.body.let("pixels", smaller(self.out_w - start, SEGMENT), "int")

    def row_blocks(self, rows: Index, row_bytes: Size, others: Size) -> Index:
        """The number of blocks into which the output rows are divided; each is a task, and ``others`` tasks
        exist in any case."""
        if rows == 1:
            return Index.of(1)
        arguments = ", ".join(map(bare, (rows, row_bytes, others, self.all_threads)))
        return self.body.let("row_blocks", f"count_row_blocks({arguments})")

    def rows_of(self, variable: str, block: Index, blocks: Index, rows: Index) -> AbstractContextManager[Index]:
        """A loop over the rows of a block."""
        start, end = block * rows // blocks, (block + 1) * rows // blocks
        return self.body.loop(variable, end, start)

    # -- the weight
    def pack_weight(self, size: Size, *loops: Loop) -> AbstractContextManager[list[Index]]:
        """Loops that pack a weight that the program computes into ``size`` elements at the start of the
        workspace."""
        body, lanes = self.body, CACHE_LINE // ITEM_BYTES[self.ctype]
        body.comment("The weight, as the tiles read it.")
        self.weight = body.pointer(self.ctype, "packed", f"({self.ctype} *)workspace")
        self.free = self.weight + self.name("packed_size", round_up(size, lanes))
        return self.parallel(*loops)

    @property
    def weight_bytes(self) -> Index:
        """Bytes of the packed weight in the workspace."""
        return self.meaning(self.free.offset * ITEM_BYTES.get(self.ctype, 0))

    # -- the image
    def most_images(self, image_bytes: Size) -> Index:
        """How many images of so many bytes are copied at once."""
        whole = (self.spec.n * image_bytes).constant
        if self.spec.n == 1 or (whole is not None and whole <= COPIED):
            return self.spec.n
        least = image_bytes if Index.of(image_bytes).constant else image_bytes + 1  # never 0
        return smaller(self.spec.n, extremum("max", self.all_threads * COPIED // least, 1))

    @contextmanager
    def image_blocks(self, image_bytes: Size) -> Iterator[None]:
        """A loop over blocks of images that are copied and then read."""
        spec, body = self.spec, self.body
        most = self.most_images(image_bytes)
        if most == spec.n:
            yield
            return
        most = body.let("most_images", most)
        with body.block(f"for (int64_t n_0 = 0; n_0 < {bare(spec.n)}; n_0 += {bare(most)})"):
            self.first_image = symbol("n_0", spec.n - 1)
            self.images = body.let("images", smaller(spec.n - self.first_image, most))
            yield

    def distances(self, name: str, comment: str, values: Sequence[Index]) -> None:
        """Declare a table of the positions of a kernel's pixels, relative to its first."""
        if len(values) > 1:
            self.body.comment(comment)
        self.body.assign(f"const int64_t {name}[{len(values)}]", f"{{{', '.join(map(bare, values))}}}")

    def declare_taps(self, row: Size, column: Callable[[int], Size]) -> None:
        """Declare the table of taps: rows of the image are ``row`` apart, and ``column`` gives the place of
        a column."""
        comment = "The offset of each weight's pixel from the pixel of the first weight."
        self.distances("tap", comment, self.kernel_places(row, column, self.spec.s))

    def kernel_places(self, row: Size, column: Callable[[int], Size], columns: int) -> list[Index]:
        """The positions of the pixels in a kernel's first columns, row by row, relative to its first pixel."""
        spec = self.spec
        rows = [Index.of(row) * (r * spec.dilation[0]) for r in range(spec.r)]
        return [start + column(s * spec.dilation[1]) for start in rows for s in range(columns)]

    @contextmanager
    def copying(self, comment: str, *loops: Loop) -> Iterator[list[Index]]:
        """Loops that copy all images into the workspace, before the convolution."""
        self.body.comment(comment)
        with self.parallel(*loops) as variables:
            yield variables
        self.body.comment("The convolution.")

    def name_image(self, copied: bool, stride: tuple[int, int], width: str = "padded_w", around: bool = True) -> None:
        """Define names for the height and the width of an image, or of its copy with padding ``around`` it if there is
        one, which covers what the kernels reach."""
        if not around:
            self.top = self.left = 0
        elif copied:
            reach = self.spec.reach
            self.image_h = self.name("padded_h", self.out_h * stride[0] + (reach[0] - 1))
            self.image_w = self.name(width, self.out_w * stride[1] + (reach[1] - 1))

    def copy_rows(self, comment: str, pitch: Index, copy: Callable[[str, Pointer, Pointer], None]) -> None:
        """Copy all images, channels last and with their padding, into the workspace, row by row.
        ``copy`` copies a number of pixels (in C; 0: none) of a row to a row of ``pitch`` elements."""
        spec, target = self.spec, Pointer("padded")
        with self.copying(comment, ("n", self.images), ("i", self.image_h)) as (n, i):
            row, image = i - self.top, self.first_image + n
            source = (image * spec.h + row) * spec.w * spec.c
            if not spec.x_last:
                source = (image * spec.c * spec.h + row) * spec.w
            row_target = target + (n * self.image_h + i) * pitch
            copy(self.inside(i), Pointer(spec.x) + source, row_target)

    def pad_planes(self, h: Index, w: Index, rows: Index, pitch: Index) -> None:
        """Copy all channels of all images, with zeros around them, into the workspace."""
        spec = self.spec
        comment = "The images with zeros around them."
        with self.copying(comment, ("plane", self.images * spec.c)) as (plane,):
            image = h, w, Pointer(spec.x) + (self.first_image * spec.c + plane) * (h * w), *spec.padding[:2]
            copy = rows, pitch, Pointer("padded") + plane * (rows * pitch)
            self.body.call(f"pad_plane_{self.ctype}", *image, *copy)

    def inside(self, i: Index) -> str:
        """How many pixels of the image are in row i of its copy, in C: none above and below it."""
        spec, conditions = self.spec, []
        top, rows = self.top, self.image_h
        if top:
            conditions.append(f"{bare(i)} >= {top}")
        if not rows <= spec.h + top:
            conditions.append(f"{bare(i)} < {text_of(spec.h + top)}")
        inside = " && ".join(conditions)
        return f"{inside} ? {text_of(spec.w)} : 0" if conditions else text_of(spec.w)


# -- the epilogue of a tile ------------------------------------------------------------------------
# Print the epilogue of a convolution over a finished tile: element by element, by vectors, by vectors
# of integers whose loads come before the loops, or over the pixels of joined rows; what is computed in
# addition to the result; and prefetches.
#
# In: the statements under construction, a `ConvSpec` for its slots, and the place of the tile in memory
# and in the result. Out: more statements.


@dataclass(frozen=True)
class Axis:
    """An axis of a finished tile: which position of a result varies along it ("k", "oh" or "ow"), its start
    and its length; and the loop's variable."""

    position: str
    start: Size
    count: Size
    variable: str

    @property
    def is_one(self) -> bool:
        """Whether the axis has one element."""
        return takes_one_trip(Index.of(0), Index.of(self.count), 1)

    @property
    def pragma(self) -> str:
        """The pragma before its loop if elements along it are adjacent."""
        return "" if self.is_one else "#pragma omp simd"


def finish(body: Body, spec: ConvSpec, element: Callable[..., str], axes: Sequence[Axis], **place: Index) -> None:
    """Print the epilogue over a tile. ``element`` gives the C text of a sum by the variables of the axes, of
    which the last should be the one along which elements are adjacent in memory; ``place`` has the other
    positions."""
    found: list[Index] = []
    with ExitStack() as stack:
        for axis in axes:
            pragma = axis.pragma if axis is axes[-1] else ""
            found.append(stack.enter_context(body.loop(axis.variable, axis.count, pragma=pragma)))
            place[axis.position] = body.let(axis.position, axis.start + found[-1])
        body.put(spec.epilogue(element(*found), **place))


def finish_joined(
    body: Body, spec: ConvSpec, element: Callable[..., str], channel: Axis, pixel: Axis, n: Index
) -> None:
    """Print the epilogue over pixels of joined rows, whose axis counts them through all rows: row by row,
    unless the epilogue works on joined rows."""
    if spec.joinable:
        finish(body, spec, element, (channel, pixel), n=n, oh=Index.of(0))
        return
    width, count = spec.output_size()[1], bare(pixel.count)
    first = Index.of(pixel.start)
    oh = body.let("first_oh", first // width)
    ow = body.let("first_ow", first % width)
    start = f"{pixel.variable}_0"
    with body.loop(channel.variable, channel.count) as j:
        k = body.let("k", channel.start + j)
        body.assign("int64_t oh", f"{bare(oh)}, ow_0 = {bare(ow)}")
        with body.block(f"for (int64_t {start} = 0, run; {start} < {count}; {start} += run)"):
            rest = Index.of(pixel.count) - symbol(start)
            body.assign("run", bare(smaller(width - symbol("ow_0"), rest)))
            end, begin = symbol(start) + symbol("run"), symbol(start)
            with body.loop(pixel.variable, end, begin, pragma=pixel.pragma) as i:
                at = body.let("ow", symbol("ow_0") + i - begin)
                body.put(spec.epilogue(element(j, i), n=n, k=k, oh=symbol("oh"), ow=at))
            body.put("oh++, ow_0 = 0;")


def finish_tile(
    body: Body, spec: ConvSpec, sums: Pointer, pitch: int, pixel: Axis, channel: Axis, n: Index, oh: Index
) -> None:
    """Print the epilogue over a tile of pixels of a row, with adjacent channels and pixels ``pitch`` apart.
    It runs along the axis whose results are adjacent."""
    place = {"n": n, "oh": oh}
    if spec.split_epilogue and spec.y_last:
        with body.block(f"for (int j = 0; j < {bare(channel.count)}; j += int_lanes)"):
            j = symbol("j", channel.count)
            count = body.let("count", channel.count - j, "int")
            place["k"] = body.let("k", channel.start + j)
            finish_vector(body, spec, lambda i: f"*(const int_vec *)&{sums[i * pitch + j]}", count, pixel, place)
    elif spec.vector_epilogue and spec.y_last:
        _finish_floats(body, spec, sums, pitch, pixel, channel, place)
    elif spec.y_last:
        finish(body, spec, lambda i, j: sums[i * pitch + j], (pixel, channel), **place)
    else:
        finish(body, spec, lambda j, i: sums[i * pitch + j], (channel, pixel), **place)
    finish_beside(body, spec, pixel, channel, n, oh)


def _finish_floats(
    body: Body, spec: ConvSpec, sums: Pointer, pitch: int, pixel: Axis, channel: Axis, place: dict[str, Index]
) -> None:
    """Print the epilogue by vectors of channels."""
    assert spec.vector_epilogue is not None
    with body.loop(pixel.variable, pixel.count) as i:
        place["ow"] = body.let("ow", pixel.start + i)
        lanes = f"{spec.ctype}_lanes"
        with body.block(f"for (int64_t j = 0; j < {bare(channel.count)}; j += {lanes})"):
            j = symbol("j", channel.count)
            place["k"] = body.let("k", channel.start + j)
            total = f"(*(const {spec.ctype}_vec *)&{sums[i * pitch + j]})"
            count = f"(int)({bare(channel.count - j)})"
            body.put(spec.vector_epilogue(total, count=count, **place))


def finish_vector(
    body: Body,
    spec: ConvSpec,
    element: Callable[[Index], str],
    count: Index,
    pixel: Axis,
    place: dict[str, Index],
    pragma: str = "",
) -> None:
    """Print the epilogue of a vector of integer sums of channels, for all pixels of an axis. What is the same
    for all pixels comes before the loop, which stands behind the pragma."""
    assert spec.split_epilogue is not None
    i = Index.of(0) if pixel.is_one else symbol(pixel.variable, pixel.count)
    ow = Body().let("ow", pixel.start + i)  # its name in the loop
    loads, statements = spec.split_epilogue("sum", count=bare(count), moving=(ow,), ow=ow, **place)
    body.put(loads)
    with body.loop(pixel.variable, pixel.count, pragma=pragma):
        body.let("ow", pixel.start + i)
        body.assign("const int_vec sum", element(i))
        body.put(statements)


def finish_beside(body: Body, spec: ConvSpec, pixel: Axis, channel: Axis, n: Index, oh: Index) -> None:
    """Print what is computed in addition to the result of a tile."""
    if spec.beside is not None:
        first = [n, oh, Index.of(pixel.start), Index.of(channel.start)]
        body.put(spec.beside.tile(Index.of(pixel.count), Index.of(channel.count), first))


def fetch(
    body: Body, spec: ConvSpec, size: tuple[Index, Index], place: Sequence[Index], channels: Size, count: Size
) -> None:
    """Prefetch what the epilogue needs for ``count`` pixels of some channels, from the place (n, k, oh, ow)
    of a result of this height and width on."""
    n, k, oh, ow = place
    height, width = size
    for array in spec.fetched:
        start = ((n * spec.k + k) * height + oh) * width + ow
        body.call("fetch_rows", channels, count, Pointer(array) + start, height * width)
