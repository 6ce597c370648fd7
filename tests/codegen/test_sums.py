"""The error of reductions of any length: four times NumPy's bound for pairwise sums, on data that
is made to break it.

``python -m tests.codegen.test_sums`` tries lengths up to 3e7, too (a minute)."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.types import dtypes
from tests.codegen.compiling import c_file
from tests.oracle import RUNGS, agree

Array = np.ndarray[Any, Any]

LENGTHS = (1, 2, 96, 97, 127, 128, 129, 1000, 1025, 4099, 65537)
LONG = (1_000_001, 30_000_000)


def bound(n: int) -> float:
    """Largest error of a sum of n numbers, in units of u * sum(abs(x)): docs/numerics.md."""
    return 4 * (25 + max(0.0, math.log2(max(n, 1) / 128)))


def adversarial(n: int, dtype: Any, seed: int = 0) -> dict[str, Array]:
    """Rows of n numbers whose sums go wrong in one accumulator, each in a way of its own."""
    rng = np.random.default_rng(seed)
    u = float(np.finfo(dtype).eps) / 2
    rows = {
        "equal": np.full(n, 0.1),
        "ones": np.ones(n),
        "one and crumbs": np.full(n, 0.9 * u),
        "large and small": np.where(np.arange(n) % 2, 1e-3, 1e3),
        "positive": rng.uniform(0, 1, n),
        "normal": rng.standard_normal(n),
    }
    rows["one and crumbs"][0] = 1
    return {name: row.astype(dtype) for name, row in rows.items()}


def exact(row: Array) -> float:
    """The sum, rounded once."""
    return math.fsum(row) if row.dtype == np.float64 else float(row.astype(np.longdouble).sum())


def sums(x: Any, y: Any) -> tuple[Any, ...]:
    """All ways to add the rows of x: along rows, along columns (y is x transposed), and in a middle
    axis; the mean; and the sum of squares."""
    middle = y.reshape(1, y.shape[0], y.shape[1])
    return (
        x.sum(-1),
        y.sum(0),
        middle.sum(1)[0],
        (y * 1).sum(0, keepdims=True)[0],
        x.reshape(x.shape[0], x.shape[1], 1).sum((1, 2)),
        x.mean(1),
        (x * x).sum(1),
    )


def check(x: Array, results: Any) -> Iterator[tuple[str, float]]:
    """Errors as parts of the bound, by the number of the result and the row."""
    n = x.shape[1]
    u = float(np.finfo(x.dtype).eps) / 2
    for (number, result), (row, values) in itertools.product(enumerate(results), enumerate(x)):
        terms = values.astype(np.longdouble)
        scale = float(np.abs(terms).sum())
        want, roundings = exact(values), 1.0
        if number == 5:
            want, scale, roundings = want / n, scale / n, 2.0
        elif number == 6:
            want, roundings = float((terms * terms).sum()), 2.0
            scale = want
        assert result.dtype == x.dtype and result.shape == (len(x),)
        error = abs(float(result[row]) - want) / (u * scale)
        yield f"result {number}, row {row}, n {n}", error / (bound(n) + roundings)


def worst(function: Any, lengths: tuple[int, ...], dtype: Any) -> tuple[str, float]:
    """The largest part of the bound that errors take."""
    found = [("", 0.0)]
    for n in lengths:
        x = np.array(list(adversarial(n, dtype).values()))
        found += check(x, function(x, np.ascontiguousarray(x.T)))
    return max(found, key=lambda item: item[1])


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    return {t: fx.compile(sums, f"{t}[A,N]", f"{t}[N,A]") for t in ("f32", "f64")}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_any_length(compiled: dict[str, Any], dtype: str) -> None:
    where, part = worst(compiled[dtype], LENGTHS, dtypes.dtype(dtype).numpy)
    assert part <= 1, where


def test_known_lengths() -> None:
    """What is chosen when compiling: one accumulator, sixteen, or blocks of them."""
    for n in (96, 1024, 1040):
        function = fx.compile(sums, f"f32[6,{n}]", f"f32[{n},6]")
        where, part = worst(function, (n,), np.float32)
        assert part <= 1, where


@pytest.mark.parametrize("rung", ["kernel", "cuda"])
def test_other_ways_to_run(rung: str) -> None:
    """The loops in NumPy, and CUDA, in which a thread adds many numbers alone."""
    n = 300 if rung == "kernel" else 4099
    for dtype in ("f32", "f64"):
        module = fx.symbolic_trace(sums, f"{dtype}[A,N]", f"{dtype}[N,A]")

        def run(*inputs: Array, module: Any = module) -> Any:
            return RUNGS[rung](module)(inputs)

        where, part = worst(run, (n,), dtypes.dtype(dtype).numpy)
        assert part <= 1, where


def of_short_rows(x: Any) -> tuple[Any, ...]:
    part = x[:, 1:-1, 2:12]
    return part.sum((1, 2)), part.max((1, 2)), np.abs(part).max((1, 2)), (part * part).sum((1, 2)), part.min((1, 2))


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "c64"])
@pytest.mark.parametrize("rows", [4, 38, 90, 300])
def test_short_rows(dtype: str, rows: int) -> None:
    """Rows that do not lie one after the other are reduced in one accumulator for each place of a row, and infinities
    and NaN stay."""
    x = (np.random.default_rng(0).standard_normal((5, rows + 2, 14)) * 9).astype(dtypes.dtype(dtype).numpy)
    if dtype != "i32":
        x[1, 3, 4], x[2, 2, 2], x[3, 1, 11] = np.nan, np.inf, -np.inf
    function = fx.compile(of_short_rows, f"{dtype}[5,{rows + 2},14]")
    with np.errstate(invalid="ignore"):
        for found, wanted in zip(function(x), of_short_rows(x)):
            np.testing.assert_allclose(found, wanted, rtol=1e-5 if dtype in ("f32", "c64") else 1e-12)
    text = "\n".join(function.sources.values())
    exceeds = rows + 10 > 96 and dtype != "i32"  # numbers in sequence
    assert "lanes[10]" in text and (not exceeds or "wide" in text)


def test_magnitudes_of_complex_rows() -> None:
    """Their maximum has no step of its own, as that of floats has."""
    x = np.arange(80).reshape(2, 40) * (1 - 2j)
    found = fx.compile(lambda x: np.abs(x).max(1), "c64[2,N]")(x.astype(np.complex64))
    np.testing.assert_allclose(found, np.abs(x).max(1), rtol=1e-6)


def test_more_ones_than_a_float_counts(compiled: dict[str, Any]) -> None:
    """A sum of ones stops at 2**24 in one float."""
    n = 2**24 + 1000
    total = fx.compile(lambda x: (x.sum(0), x.mean()), "f32[N,1]")
    ones, mean = total(np.ones((n, 1), np.float32))
    assert float(ones[0]) == n and float(mean) == 1


def test_infinities_and_nans_stay(compiled: dict[str, Any]) -> None:
    """The numbers that a wide total keeps beside the sum are not in their way."""
    for dtype, function in compiled.items():
        x = np.ones((4, 3000), dtypes.dtype(dtype).numpy)
        x[0, 7], x[1, 2999], x[2, 5], x[2, 2000], x[3, 1] = np.inf, -np.inf, np.inf, -np.inf, np.nan
        for result in function(x, np.ascontiguousarray(x.T))[:6]:
            np.testing.assert_array_equal(result, [np.inf, -np.inf, np.nan, np.nan])


def test_variance_of_many(compiled: dict[str, Any]) -> None:
    """As exact as NumPy's, which adds twice, too."""
    x = (np.random.default_rng(0).standard_normal(2_000_003) + 10).astype(np.float32)
    var = fx.compile(lambda x: (x.var(), x.std()), "f32[N]")
    want = float(x.astype(np.float64).var())
    got, deviation = (float(v) for v in var(x))
    assert abs(got - want) / want < 1e-6 and abs(deviation - math.sqrt(want)) < 1e-6


SOFTMAX: dict[str, tuple[Any, int]] = {
    "softmax": (lambda x: fx.ops.softmax(x, -1), 1),
    "of scores under a mask": (lambda x: fx.ops.softmax(np.where(x > -0.5, x, np.float32(-1e30)), -1), 1),
    "by hand": (lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True), 1),
    "its terms twice": (lambda x: np.exp(x) * 2 + np.exp(x) / np.exp(x).sum(-1, keepdims=True), 1),
    "beside its operand": (lambda x: x * fx.ops.softmax(x, -1), 2),  # x may lie where the result does
    "of gathered columns": (lambda x: fx.ops.softmax(x[:, np.arange(x.shape[1]) * 3 % 5], -1), 1),
    "of a part": (lambda x: np.exp(x[:, 1:]) / np.exp(x).sum(-1, keepdims=True), 2),
}


def test_exponentials_of_repeated_and_reversed_rows() -> None:
    """Where they are stored depends on loops that the sum does not, or on the order in which it is computed."""

    def softmax(x: Any) -> Any:
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    x = np.random.default_rng(1).normal(size=(40, 16)).astype("f4")
    for program in (
        lambda x: softmax(np.repeat(x[:1], 2, 0)),
        lambda x: softmax(np.broadcast_to(x[3], (5, 16))),
        lambda x: softmax(np.flip(x, 1)),
        lambda x: softmax(np.flip(x.T, 1)),
        lambda x: softmax(np.roll(x, 3, 0) * 2),
        lambda x: softmax(np.roll(x.T, 3, 0) * 2),
        lambda x: softmax(np.pad(x.T, ((0, 0), (2, 3)))),
        lambda x: softmax(np.pad(x, ((1, 0), (2, 3)), constant_values=-7)),
        lambda x: softmax(np.concatenate([np.zeros((16, 3), x.dtype), x.T, np.ones((16, 1), x.dtype)], 1)),
        lambda x: softmax(np.repeat(x.T, 2, 1)),
        lambda x: softmax(np.repeat(x.T, 3, 1)[:, 1:]),
        lambda x: softmax(x.T[:, np.arange(60) * 7 % 40]),
        lambda x: softmax(np.roll(x.T, 3, 1)),
        lambda x: softmax(x.reshape(5, 8, 16).transpose(2, 1, 0).reshape(16, 40)),
    ):
        agree(program, x)


@pytest.mark.parametrize("name", SOFTMAX)
@pytest.mark.parametrize("shape", [(5, 7), (6, 1000)])
def test_exponentials_are_computed_once(name: str, shape: tuple[int, int]) -> None:
    """Those that are added are stored where the result will stand, if nothing else along the row is read."""
    program, times = SOFTMAX[name]
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    module = fx.symbolic_trace(program, x)
    expected = module(x)
    for rung in ("kernel", "c", "cuda"):
        made = np.asarray(RUNGS[rung](module)((x,))).reshape(expected.shape)
        np.testing.assert_allclose(made, expected, rtol=2e-6, atol=1e-7)
    text = c_file(module)
    loops = 2 if shape[1] > 32 else 1  # of a sum, which may have a rest
    assert len(re.findall(r"fx_exp(_weight)?_f32\(", text)) == times + loops - 1


if __name__ == "__main__":
    for name in ("f32", "f64"):
        built = fx.compile(sums, f"{name}[A,N]", f"{name}[N,A]")
        for length in (*LENGTHS, *LONG):
            place, share = worst(built, (length,), dtypes.dtype(name).numpy)
            print(f"{name}, n = {length}: {share:.3f} of the bound ({place})")
            assert share <= 1


@pytest.mark.parametrize("size", [1, 255, 256, 4031, 4032, 4033, 4032 + 63, 2 * 4032 + 80])
def test_counts(size: int) -> None:
    """Accumulators of a byte that count conditions are emptied before they overflow."""
    draw = np.random.default_rng(size)
    named = fx.compile(lambda x: (x.sum(), np.count_nonzero(x), (~x).sum()), "bool[N]")
    known = fx.compile(lambda x: (x.sum(), x[None].sum(axis=1)), f"bool[{size}]")
    for x in (np.ones(size, bool), np.zeros(size, bool), draw.random(size) > 0.3):
        assert tuple(named(x)) == (x.sum(), x.sum(), (~x).sum())
        assert tuple(found.item() for found in known(x)) == (x.sum(), x.sum())


def test_rows_in_one_page_are_read_one_after_the_other() -> None:
    """Processors follow one stream of reads through a page. Longer rows are read together, those of unknown length
    either way; all give the same sums."""
    for type_, together in (("f64[5000,64]", False), ("f64[5000,3000]", True), ("f64[N,C]", True)):
        source = c_file(lambda x: x.sum(0), x=type_)
        assert ("r += 8" in source) == together, type_
        assert ("count <= 512 ? 0" in source) == (type_ == "f64[N,C]"), type_
    for shape in ((203, 5), (203, 600), (17, 9000), (3, 0)):
        x = np.random.default_rng(1).standard_normal(shape)
        for function in (lambda x: x.sum(0), lambda x: x.max(0)):
            kept = fx.compile(function, x=f"f64[{shape[0]},{shape[1]}]")(x)
            named = fx.compile(function, x="f64[N,C]")(x)
            np.testing.assert_allclose(kept, function(x), rtol=1e-13, atol=1e-13)
            np.testing.assert_allclose(named, kept, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "i4", "u1", "b1"])
@pytest.mark.parametrize("shape", [(140_001,), (700, 301), (3_001, 70), (5, 7), (0, 3)])
def test_threads_share_reductions_outside_of_loops(dtype: str, shape: tuple[int, ...]) -> None:
    """How a reduction is divided depends on sizes alone: one thread and two give the same bits."""
    x = (np.random.default_rng(1).standard_normal(shape) * 3).astype(dtype)
    functions = [lambda x: x.sum(), lambda x: x.sum(0), lambda x: x[::2].sum(), lambda x: (x != 0).sum()]
    if x.size and not np.iscomplexobj(x):
        functions += [lambda x: x.max(), lambda x: x.min(), lambda x: x.all()]
    if x.size and np.isrealobj(x) and x.dtype.kind == "f":
        functions += [lambda x: x - x.mean(), lambda x: x.std(0)]

    def program(x: Any) -> Any:
        return tuple(function(x) for function in functions)

    type_ = fx.TensorType(shape, x.dtype)
    for given in (type_, f"{type_.dtype}[{', '.join('NC'[: x.ndim])}]"):
        one, two = (fx.compile(program, given, threads=threads)(x) for threads in (1, 2))
        for found, same, expected in zip(one, two, program(x.astype("f8") if dtype == "f2" else x)):
            np.testing.assert_array_equal(found, same)
            rtol = {"f2": 2e-2, "f4": 1e-4, "c8": 1e-4}.get(dtype, 1e-10)
            np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * max(1, x.size) ** 0.5)


def test_long_reductions_are_divided() -> None:
    x = np.random.default_rng(1).standard_normal((2500, 60)).astype("f4")
    agree(lambda x: (x.sum(), x.max(), (x > 0).sum(), x.sum(0), x[:, ::2].mean()), x)
    agree(lambda x: (x.sum(), x.max(), (x > 0).sum(), x[:, ::2].mean()), x, types=["f32[N,C]"])
    for function in (lambda x: x.sum(), lambda x: x.max(), lambda x: (x > 0).sum(), lambda x: x.sum(0)):
        for type_, divided in (("f32[9000,64]", True), ("f32[N,64]", True), ("f32[30,64]", False)):
            source = c_file(function, x=type_)
            assert ("#pragma omp parallel for num_threads" in source and "totals[part" in source) == divided, source


#: Reductions of axes that were permuted and joined, over images with channels last, of which some have groups.
JOINED = {
    "mean of all": lambda x: x.transpose(0, 3, 1, 2).reshape(len(x), -1).mean(1),
    "variance of groups": lambda x: x.transpose(0, 3, 1, 2).reshape(len(x), 4, -1).var(2),
    "largest of groups": lambda x: x.transpose(0, 3, 1, 2).reshape(len(x), 4, -1).max(2),
    "place of the largest": lambda x: x.transpose(0, 3, 1, 2).reshape(len(x), -1).argmax(1),
    "sum of a transposed matrix": lambda x: x[0, 0].T.sum(),
    "spread of a transposed matrix": lambda x: np.std(x[0].reshape(len(x[0]), -1).T),
}


@pytest.mark.parametrize("name", JOINED)
@pytest.mark.parametrize("shape", [(1, 14, 14, 64), (2, 7, 7, 32), (3, 5, 2, 8), (1, 40, 3, 4)])
def test_reductions_follow_memory(name: str, shape: tuple[int, ...]) -> None:
    """Reduced axes are divided and ordered so that adjacent elements are read together, and no address is divided."""
    x = np.random.default_rng(1).standard_normal(shape).astype("f4")
    agree(JOINED[name], x)
    agree(JOINED[name], x, types=[f"f32[B,{shape[1]},{shape[2]},{shape[3]}]"])
    text = c_file(JOINED[name], x=f"f32[{','.join(map(str, shape))}]")
    kernels = text[text.index("static void k0") : text.index("_workspace_bytes")]
    if name != "place of the largest" and shape[3] >= 32:
        assert "lanes[lane]" in kernels and "% 7" not in kernels and "% 14" not in kernels, kernels


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "i4", "b1", "f2"])
def test_reversed_rolled_and_joined_rows(dtype: str) -> None:
    """What is read backwards is reduced forwards, and each part of what is joined or rolled in a loop of its own."""
    x = (np.random.default_rng(2).standard_normal((6, 300)) * 2).astype(dtype)
    programs = [
        lambda x: np.flip(x, 1).sum(1),
        lambda x: x[::-1, ::-1].any(),
        lambda x: np.roll(x, 7, 1).sum(1),
        lambda x: np.concatenate([x, x[:, 20:]], 1).sum((0, 1)),
        lambda x: np.concatenate([x[::-1], x[:2]], 0).any(0),
    ]
    if dtype != "c8":
        programs += [lambda x: np.roll(x[0], 40).max(), lambda x: np.roll(x, 2, 0).min((0, 1))]
    for program in programs:
        agree(program, x)
        agree(program, x, types=[f"{fx.TensorType(x.shape, x.dtype).dtype}[N,300]"])


def test_columns_of_parts_and_strides() -> None:
    """They are summed side by side, and a softmax of parts computes its sums once for all of them."""
    x = np.random.default_rng(4).standard_normal((60, 90)).astype("f4")
    programs = [
        lambda x: np.roll(x, 5, 1).sum(0),
        lambda x: np.concatenate([x, x * 2], 1).max(0),
        lambda x: x[:, 1::2].mean(0),
        lambda x: np.pad(x, ((0, 0), (2, 40))).min(0),
    ]
    for program in programs:
        agree(program, x)
        agree(program, x, types=["f32[N,90]"])
        agree(program, x, types=["f32[N,M]"])
    for program in programs[:3]:
        text = c_file(program, x="f32[60,90]")
        kernel = text[text.index("static void k0") : text.index("_workspace_bytes")]
        assert "[lane] " in kernel and "?" not in kernel, kernel
    rolled = lambda x: np.exp(np.roll(x, 40, 1)) / np.exp(x).sum(1, keepdims=True)  # noqa: E731
    agree(rolled, x)
    text = c_file(rolled, x="f32[60,90]")
    assert text.count("lanes[16] = {0}") <= 2, text


def test_padding_is_not_asked_for_in_rows() -> None:
    """The largest of padded rows, and the exponentials of them, are those of three parts."""
    x = np.random.default_rng(6).standard_normal((9, 150)).astype("f4")
    softmax = lambda x: fx.ops.softmax(np.pad(x, ((0, 0), (1, 2))), -1)  # noqa: E731
    for program in (
        lambda x: np.pad(x, ((0, 0), (3, 2))).max(1),
        lambda x: np.pad(x, ((0, 0), (0, 9))).prod(1),
        softmax,
    ):
        agree(program, x)
        agree(program, x, types=["f32[N,150]"])
        agree(program, x, types=["f32[9,M]"])
        text = c_file(program, x="f32[9,150]")
        kernel = text[text.index("static void k0") : text.index("_workspace_bytes")]
        assert "lane < 16" in kernel and "? v[" not in kernel and "lane - " not in kernel, kernel


def test_the_largest_of_repeated_numbers_is_that_of_the_numbers() -> None:
    text = c_file(lambda x: np.repeat(x, 4, 1).max(1), x="f32[90,64]")
    kernel = text[text.index("static void k0") : text.index("_workspace_bytes")]
    assert "< 4;" not in kernel.replace("lane < 4;", ""), kernel


def test_reductions_of_permuted_axes_follow_memory() -> None:
    """Results that lie in another order than the rows they are computed from: the rows are combined in their own order,
    whatever the axes of the result."""
    x = np.random.default_rng(7).standard_normal((20, 8, 12, 6)).astype("f4")
    programs = [
        lambda x: x.T.swapaxes(3, 1).max(1),
        lambda x: x.T.swapaxes(3, 1).sum(1) * 2,
        lambda x: x.transpose(3, 0, 1, 2).mean(1),
        lambda x: x.transpose(3, 2, 0, 1).min(2, keepdims=True),
        lambda x: np.exp(x.transpose(2, 0, 3, 1)).sum(1) + 1,
        lambda x: np.ptp(x.T, 3),
        lambda x: x[:, ::-1, ::-1, ::-1].sum(0),
        lambda x: np.flip(x.transpose(0, 2, 3, 1), 2).max(0),
        lambda x: x.reshape(-1, 6).T.reshape(6, 20, 96).max(1),
        lambda x: x.reshape(-1, 6).T.reshape(6, 20, 96).prod(1),
    ]
    for program in programs:
        agree(program, x)
    for program in programs[:-2]:
        agree(program, x, types=["f32[N,8,12,6]"])
        agree(program, x, types=["f32[20,8,N,6]"])
    for program in programs[:3]:
        text = "".join(fx.compile(program, x="f32[20,8,12,6]").sources.values())
        kernel = text[text.index("static void k0") : text.index("_workspace_bytes")]
        assert "lane < 576" in kernel or "block < 576" in kernel, kernel


def test_columns_of_joined_and_padded_rows_are_combined_side_by_side() -> None:
    """One part of the rows after the other, and the columns in the padding apart."""
    x, y = (np.random.default_rng(n).standard_normal((n, 600)).astype("f8") for n in (5, 128))

    def softmax(x: Any) -> Any:
        e = np.exp(x - x.max(0))
        return e / e.sum(0)

    programs = [
        lambda x, y: np.concatenate([x, y], 0).T.sum(1),
        lambda x, y: np.concatenate([x, y, x], 0).mean(0),
        lambda x, y: np.concatenate([y, x * 2], 0).max(0) * 2 + 1,
        lambda x, y: softmax(np.concatenate([x, y], 0)),
        lambda x, y: np.pad(y, ((1, 0), (2, 1))).sum(0) + np.pad(x, ((0, 0), (2, 1)), constant_values=2).min(0),
        lambda x, y: np.pad(y, ((0, 0), (2, 1))).var(0),
        lambda x, y: np.roll(y, 5, 0).prod(0),
    ]
    for program in programs:
        agree(program, x, y)
        agree(program, x, y, types=["f64[K,600]", "f64[M,600]"])
        agree(program, x, y, types=["f64[5,N]", "f64[128,N]"])
    for program in programs[:3]:
        text = "".join(fx.compile(program, "f64[5,600]", "f64[128,600]").sources.values())
        kernel = text[text.index("static void k0") : text.index("_workspace_bytes")]
        assert "lane]" in kernel and "?" not in kernel.replace("fx_isnan_f64(left[lane]) ?", ""), kernel


def test_what_is_rolled_is_cut() -> None:
    for program in (
        lambda x: np.roll(x, 1024).sum(),
        lambda x: np.concatenate([x, x * 2]).max(),
        lambda x: np.flip(x * 2).mean(),
    ):
        text = c_file(program, x="f32[5120]")
        kernel = text[text.index("static void k0") : text.index("_workspace_bytes")]
        assert "lanes[lane]" in kernel and "?" not in kernel and "- r" not in kernel, kernel


def test_blocks_of_short_rows() -> None:
    """Rows of fewer numbers than a block are added in the same accumulators: they are emptied once a block."""
    for shape in ((3000, 4, 32), (2999, 4, 24), (70, 1, 1000), (1, 3, 40)):
        x = np.random.default_rng(1).standard_normal(shape).astype("f4")
        agree(lambda x: (x * x).sum((0, 2)), x)
        agree(lambda x: (x * x).sum((0, 2)), x, types=[f"f32[N,{shape[1]},{shape[2]}]"])


def test_short_rows_that_fill_no_vector_keep_the_bound() -> None:
    """What is left of each row has one accumulator, which takes no more numbers than the others."""
    for columns in (17, 24, 31, 33, 47, 500):
        x = np.full((3000, 2, columns), 0.1, "f4")
        function = fx.compile(lambda x: (x.sum((0, 2)), np.sin(x.astype("f8")).sum((0, 2))), x)
        for found, of_sines, terms in zip(*function(x), x.swapaxes(0, 1)):
            want = exact(terms.ravel())
            assert abs(float(found) - want) <= bound(terms.size) * 2.0**-24 * want
            want = exact(np.sin(terms.astype("f8")).ravel())
            assert abs(float(of_sines) - want) <= (bound(terms.size) + 4) * 2.0**-53 * want


def test_a_reduction_of_one_value_is_that_value() -> None:
    """Loops around it are then vectorized, as if it were not there."""
    x = np.random.default_rng(1).standard_normal((40, 1, 70)).astype("f4")
    x[0, 0, :2] = -0.0, np.nan
    for program in (lambda x: np.log(np.exp(x).sum(1)), lambda x: x.max(1) - x.mean(1), lambda x: (x > 0).any(1)):
        agree(program, x)
        text = c_file(program, x)
        assert "total" not in text[text.index("static void k0") : text.index("_workspace_bytes")]
    agree(
        lambda x: (x.astype("i1").sum(1), x.astype("f2").sum(1), x.argmax(1), x.prod((1,))), np.nan_to_num(x, posinf=3)
    )


def _of_columns(x: Any, y: Any) -> Any:
    return x.sum(0), x.max(0), (x * x - x).mean(0), (x > 1).any(0), (x + y).sum(0), (x + np.arange(x.shape[1])).min(0)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "u1"])
def test_short_rows_of_unknown_size_are_combined_several_at_a_time(dtype: str) -> None:
    """As if eight of them were one row, if each begins where the one before it ends, and nothing else of their size is
    read with each."""
    rng = np.random.default_rng(0)
    name = fx.TensorType((1,), np.dtype(dtype)).dtype
    for rows, columns in itertools.product((1, 7, 8, 97, 200), (1, 2, 17, 64, 65)):
        x, y = (rng.normal(size=size).astype(dtype) * 9 for size in ((rows, columns), (columns,)))
        x[rows // 2, columns // 2] = 77
        rungs = ("graph", "kernel", "c") if rows == 97 else ("c",)
        agree(_of_columns, x.astype(dtype), y.astype(dtype), types=[f"{name}[M,N]", f"{name}[N]"], rungs=rungs)
    three = rng.normal(size=(3, 40, 5)).astype("f4")
    agree(lambda x: (x.sum(1), x.max(1), x.sum((0, 1))), three, types=["f32[B,M,N]"])
    agree(lambda x: (x[:, :3].sum(0), x[:, 1:].max(0), x.T[::2].sum(1)), three[0], types=["f32[M,N]"])


def test_which_short_rows_are_combined() -> None:
    for program, count in ((lambda x: x.sum(0), 1), (lambda x: x.max(0), 1), (lambda x: x[:, 1:].sum(0), 0)):
        assert c_file(program, x="f32[M,N]").count("<= 64 ? 8 : 1") == count
    assert "? 8 : 1" not in c_file(lambda x: x.sum(0), x="f32[M,3]")


def test_rows_of_several_axes_are_combined() -> None:
    """The largest and the smallest of a middle axis: rows are what follows it, however short the last axis is."""
    x = np.random.default_rng(1).standard_normal((5, 70, 7, 16, 2)).astype("f4")
    agree(lambda x: np.ptp(x, 1), x)
    text = c_file(lambda x: np.ptp(x, 1), x)
    assert text.count("total[lane]") >= 4, text
