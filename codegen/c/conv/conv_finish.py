"""Printing the epilogue of a convolution over a finished tile: element by element, by vectors, by
vectors of integers whose loads are split off, over the pixels of joined rows; what is computed
beside it; fetches of what it needs.

In: the statements under construction, a `ConvSpec` for its slots, and where in memory and in the
result the tile is. Out: more statements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from fxlite.codegen.c.conv.conv_plan import ConvSpec
from fxlite.codegen.kernel.builder import Body, Pointer, Size, bare, smaller, symbol, takes_one_trip
from fxlite.scalar.index import Index


@dataclass(frozen=True)
class Axis:
    """An axis of a finished tile: which position of a result varies along it ("k", "oh" or "ow"),
    from where, how often; and the loop's variable."""

    position: str
    start: Size
    count: Size
    variable: str

    @property
    def is_one(self) -> bool:
        """Whether it has one element."""
        return takes_one_trip(Index.of(0), Index.of(self.count), 1)

    @property
    def pragma(self) -> str:
        """What stands in front of its loop if elements along it are neighbours."""
        return "" if self.is_one else "#pragma omp simd"


def finish(body: Body, spec: ConvSpec, element: Callable[..., str], axes: Sequence[Axis], **place: Index) -> None:
    """The epilogue over a tile. ``element`` says in C where its sum is, by the variables of the
    axes, of which neighbours in memory should be along the last one; ``place`` has the other
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
    """The epilogue over pixels of joined rows, whose axis counts them through all rows: row by row,
    unless it does not mind."""
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
        body.put(f"int64_t oh = {bare(oh)}, ow_0 = {bare(ow)};")
        with body.block(f"for (int64_t {start} = 0, run; {start} < {count}; {start} += run)"):
            rest = Index.of(pixel.count) - symbol(start)
            body.put(f"run = {bare(smaller(width - symbol('ow_0'), rest))};")
            end, begin = symbol(start) + symbol("run"), symbol(start)
            with body.loop(pixel.variable, end, begin, pragma=pixel.pragma) as i:
                at = body.let("ow", symbol("ow_0") + i - begin)
                body.put(spec.epilogue(element(j, i), n=n, k=k, oh=symbol("oh"), ow=at))
            body.put("oh++, ow_0 = 0;")


def finish_tile(
    body: Body, spec: ConvSpec, sums: Pointer, pitch: int, pixel: Axis, channel: Axis, n: Index, oh: Index
) -> None:
    """The epilogue over a tile of pixels of a row, whose channels are neighbours and whose pixels
    are ``pitch`` apart. It runs along the axis whose results are neighbours."""
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
    """Vector by vector of channels."""
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
    """A vector of integer sums of channels, for all pixels of an axis; what is the same for all
    comes before the loop, which stands behind the pragma."""
    assert spec.split_epilogue is not None
    i = Index.of(0) if pixel.is_one else symbol(pixel.variable, pixel.count)
    ow = Body().let("ow", pixel.start + i)  # what it is called in the loop
    loads, statements = spec.split_epilogue("sum", count=bare(count), moving=(ow,), ow=ow, **place)
    body.put(loads)
    with body.loop(pixel.variable, pixel.count, pragma=pragma):
        body.let("ow", pixel.start + i)
        body.put(f"const int_vec sum = {element(i)};")
        body.put(statements)


def finish_beside(body: Body, spec: ConvSpec, pixel: Axis, channel: Axis, n: Index, oh: Index) -> None:
    """What is computed beside the result of a tile."""
    if spec.beside is not None:
        first = [n, oh, Index.of(pixel.start), Index.of(channel.start)]
        body.put(spec.beside.tile(Index.of(pixel.count), Index.of(channel.count), first))


def fetch(
    body: Body, spec: ConvSpec, size: tuple[Index, Index], place: Sequence[Index], channels: Size, count: Size
) -> None:
    """Fetch what the epilogue needs for ``count`` pixels of some channels from a place (n, k, oh,
    ow) of a result of this height and width on."""
    n, k, oh, ow = place
    height, width = size
    for array in spec.fetched:
        start = ((n * spec.k + k) * height + oh) * width + ow
        body.call("fetch_rows", channels, count, Pointer(array) + start, height * width)
