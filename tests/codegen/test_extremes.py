"""Positions of extremes in C: the first one, the first NaN, of numbers at the ends of their types, in rows of
any length, that are searched by two reductions with lanes, in parts, or one by one."""

from __future__ import annotations

import numpy as np
import pytest

import fxlite as fx
from tests.codegen.compiling import c_file
from tests.oracle import agree


def rows(dtype: str, size: int) -> np.ndarray:
    """Ties, and rows that hold nothing but the least or the largest number."""
    random = np.random.default_rng(size)
    kind = np.dtype(dtype)
    info = np.iinfo(kind) if kind.kind in "iu" else np.finfo(kind)
    made = random.integers(0, 9, (9, size)).astype(kind)
    made[1], made[2] = info.min, info.max
    made[3, -1], made[4, -1] = info.max, info.min
    if kind.kind == "f":
        made[5], made[6] = -np.inf, np.inf
        made[7] = np.where(random.random(size) < 0.5, 0.0, -0.0)
        made[8, size // 2 :: 3] = np.nan
    return made


SIZES = (1, 31, 32, 33, 70, 500, 1024, 1025, 3100)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "i1", "u1"])
def test_first_places(dtype: str) -> None:
    """Of rows of known sizes and of one with a name, whose parts of 1,024 numbers are searched first."""
    arrays = [rows(dtype, size) for size in SIZES]
    for size, x in zip(SIZES, arrays, strict=True):  # in the last part, which is shorter, and in two of them
        x[4, :] = x[4, 0] = x[0].max()
        x[4, [size - 1, size // 2]] += 1

    def program(*all_rows):
        return [(x.argmax(1), x.argmin(-1), (x + x).argmax(1), x.argmax(0)) for x in all_rows]

    with np.errstate(all="ignore"):
        agree(program, *arrays, rungs=("c",))
        named = fx.compile(lambda x: (x.argmax(1), x.argmin(1)), f"{fx.TensorType(x.shape, x.dtype).dtype}[B,N]")
        for x in arrays:
            for found, expected in zip(named(x), (x.argmax(1), x.argmin(1)), strict=True):
                np.testing.assert_array_equal(found, expected)


def test_long_rows_are_searched_in_lanes() -> None:
    """Both the value and its place have accumulators; only a part is computed twice, and no sum. One comparison finds
    the best number or NaN."""
    text = c_file(lambda x: x.argmax(1), x="f32[8,64]")
    assert text.count("lane < 16") == 2
    assert " <= limit) ?" in text and text.count("fx_isnan_f32") == 1
    costly = c_file(lambda x: (x.sum(1)[:, None] * np.exp(x)).argmax(1), x="f32[8,64]")
    assert "int64_t where = -1" in costly and "int64_t where = -1" not in text
    x = np.random.default_rng(3).standard_normal(5000).astype("f4")
    for size in (40, 1024, 5000):
        agree(lambda x: np.where(x * 3 + 1 > 0.3, np.exp(x) * 2 - x, np.sin(x) - x * 0.5).argmax(), x[:size])
        agree(lambda x: np.where(x * 3 + 1 > 0.3, np.exp(x) * 2 - x, np.sin(x) - x * 0.5).argmin(), x[:size])


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "i8", "u1"])
def test_places_across_rows(dtype: str) -> None:
    """Along other axes than the last one, of all axes, and of several: a row of results is compared with a row at a
    time, and axes that are adjacent in memory are one loop."""
    x = rows(dtype, 70)[:, :60].reshape(9, 5, 12).copy()
    x[:, 1, 3], x[4:, 2, 5] = x.min(), x.max()

    def program(x):
        return x.argmax(0), x.argmin(1), x.argmax(), x.argmin(-2), x.max((1, 2)), x.min(), x.max((0, 1)), x.min(1)

    agree(program, x)
    agree(
        lambda x: (x.argmax(0), x.argmin(1), x.argmax(), x.min()),
        x,
        types=[f"{fx.TensorType((), x.dtype).dtype}[A,B,C]"],
    )
    text = c_file(lambda x: x.argmax(1), x="f32[2,21,40,50]")
    assert "where[lane]" in text and "int32_t where[" in text
    text = c_file(lambda x: (x.argmax(), x.max()), x="f32[70,40]")
    assert "where = -1" not in text and text.count("< 2800; block += ") >= 1
    text = c_file(lambda x: x.max(0), x="i64[70,4000]")
    assert "r += 8" in text


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_many_accumulators(dtype: str) -> None:
    """The largest and least of long rows, a NaN wherever it stands; some numbers are left for fewer accumulators."""
    named = fx.compile(lambda x: (x.max(1), x.min(1)), f"{'f32' if dtype == 'f4' else 'f64'}[B,N]")
    assert f"lane < {256 // np.dtype(dtype).itemsize}" in "".join(named.sources.values())
    for size in (63, 255, 256, 300, 335):
        x = np.random.default_rng(size).normal(size=(size, size)).astype(dtype)
        for found, expected in zip(named(x), (x.max(1), x.min(1)), strict=True):
            np.testing.assert_array_equal(found, expected)
        np.fill_diagonal(x, np.nan)
        fixed = fx.compile(lambda x: x.max(1), x)
        assert np.isnan(fixed(x)).all() and np.isnan(named(x)).all()


def quotients(x):
    return x // 3, x % 3, x // 1, x // 7, x % 10, x // 2147483647, x // -3, x % -4, x % 1


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_integers_divided_by_constants(dtype):
    edge = np.iinfo(dtype.replace("i", "int"))
    near = [start + step for start in (edge.min, edge.max - 7, -8, 0) for step in range(8)]
    x = np.array(near, edge.dtype)
    compiled = fx.compile(quotients, inputs={"x": f"{dtype}[N]"}, threads=1)
    for ours, numpy in zip(compiled(x), quotients(x), strict=True):
        assert ours.tolist() == numpy.tolist()


#: Places of extremes among numbers that do not lie side by side in the order in which they are counted.
ORDERS = {
    "joined heads": lambda x: x.reshape(4, 30, 8, 32).transpose(0, 2, 1, 3).reshape(4, 8, 960).argmax(2),
    "joined heads, least": lambda x: x.reshape(8, 60, 4, 16).transpose(0, 2, 1, 3).reshape(8, 4, -1).argmin(-1),
    "repeated": lambda x: np.repeat(x, 3, 1).argmax(1),
    "tiled": lambda x: np.tile(x, (1, 2)).argmin(1),
    "reversed": lambda x: x[:, ::-1].argmax(1),
    "every second": lambda x: x[:, 1::2].argmin(1),
    "rolled": lambda x: np.roll(x, 5, 1).argmax(1),
    "of a matrix": lambda x: x.T.argmax(),
    "of few channels": lambda x: x.reshape(4, -1, 3).transpose(0, 2, 1).reshape(4, -1).argmax(1),
    "of several axes": lambda x: x.reshape(4, 60, 128).transpose(0, 2, 1).reshape(4, -1).argmax(1),
}


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1"])
def test_places_in_another_order(name: str, dtype: str) -> None:
    """Numbers are searched in the order of memory, and the first place is the first one in the order of the array."""
    ties = np.random.default_rng(5).integers(0, 40, (240, 128)).astype(dtype)
    agree(ORDERS[name], ties)
    if "heads" not in name and "axes" not in name:
        agree(ORDERS[name], ties, types=[f"{fx.TensorType((1,), ties.dtype).dtype}[240,N]"])
    if np.dtype(dtype).kind == "f":
        for special in (np.nan, np.inf, -np.inf):
            some = np.where(ties == 7, special, ties).astype(dtype)
            agree(ORDERS[name], some)
            agree(ORDERS[name], np.full_like(ties, special))
    text = c_file(ORDERS[name], x=f"{fx.TensorType((240, 128), np.dtype(dtype)).dtype}[240,128]")
    assert "where = -1" not in text[text.index("static void k") : text.index("_check(void)")]


def test_the_largest_and_the_least_have_loops_of_their_own_in_each_block() -> None:
    """Both read a block once from memory; in one loop, GCC makes slow code of their questions for NaN."""
    text = "".join(fx.compile(lambda x: np.ptp(x, 1), x="f32[600,1000]").sources.values())
    kernel = text[text.index("static void k0") : text.index("_check(void)")]
    blocks = kernel.split("block += 64")
    assert len(blocks) == 2 and blocks[1].index("fx_maximum") < blocks[1].index("fx_minimum"), kernel
    for body in kernel.split("#pragma omp simd")[1:]:
        inside = body[: body.index("        }\n")]
        assert not ("fx_maximum" in inside and "fx_minimum" in inside), kernel
    agree(
        lambda x: (np.ptp(x, 1), x.max(1) - x.mean(1)), np.random.default_rng(1).standard_normal((9, 300)).astype("f4")
    )
