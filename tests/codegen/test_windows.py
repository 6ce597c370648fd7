"""Pooling and sums over an axis, a row at a time: the loops have the form that becomes SIMD code,
and the right results, on fixed and named sizes, with windows that stick out on each side."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite.codegen.c import templates
from fxlite.codegen.kernel.kernel_ir import For, Store, statements
from fxlite.codegen.kernel.printer import kernel_text
from fxlite.codegen.kernel.schedule import schedule
from fxlite.codegen.program.program import optimize, plan
from fxlite.types import dtypes
from tests.codegen.compiling import c_file
from tests.oracle import agree, agree_on_all

POOLS = {
    "max 3x3 stride 2 padding 1": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max 2x2": lambda x: F.max_pool2d(x, 2),
    "max 9x9 padding 4": lambda x: F.max_pool2d(x, 9, 1, 4),
    "max dilated": lambda x: F.max_pool2d(x, 3, 2, 1, dilation=2),
    "mean 3x3 padding 1": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "mean of relu, plus one": lambda x: F.avg_pool2d(np.maximum(x, 0), (1, 4), (1, 3), (0, 2)) + 1,
    "ceil_mode": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
}


def kernel_of(program: Any, type_text: str) -> Any:
    module, _ = optimize(fx.symbolic_trace(program, type_text))
    (group,) = plan(module, templates.claims).groups
    return schedule(group, "pool")


@pytest.mark.parametrize("name", POOLS)
def test_rows(name: str) -> None:
    parts = list(statements(kernel_of(POOLS[name], "f32[2,3,9,40]").body))
    loops = [s for s in parts if type(s) is For]
    assert any(s.kind == "lanes" for s in loops)
    of_windows = [s for s in loops if s.kind == "serial" and s.var.name in ("r", "s")]
    assert not any(type(s) is Store for loop in of_windows for s in statements(loop.body))
    values = np.random.default_rng(0).standard_normal((2, 3, 9, 40)).astype(np.float32)
    values[0, 1, 4, 7] = np.nan
    values[1, 2, 0, 39] = np.inf
    agree(POOLS[name], values)


@pytest.mark.parametrize("shape", [(1, 1, 4, 4), (2, 3, 5, 17), (1, 2, 33, 6), (0, 2, 6, 6)])
@pytest.mark.parametrize("name", ["max 3x3 stride 2 padding 1", "mean 3x3 padding 1"])
def test_named_sizes(name: str, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    function = fx.compile(POOLS[name], "f32[B,C,H,W]")
    np.testing.assert_allclose(function(values), POOLS[name](values), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["max 3x3 stride 2 padding 1", "mean 3x3 padding 1", "max 9x9 padding 4"])
def test_several_rows_of_windows(name: str) -> None:
    """The rows of eight rows of windows, or of those that there are, are combined before the columns of any of them:
    all rows or some, and of one size or another."""
    of_names = fx.compile(POOLS[name], "f32[B,C,H,W]", threads=2)
    assert "block += 8" in "".join(of_names.sources.values())
    rng = np.random.default_rng(5)
    for height, width in ((1, 1), (2, 30), (7, 7), (8, 40), (9, 17), (16, 3), (34, 33), (5, 600)):
        values = rng.standard_normal((2, 2, height, width)).astype(np.float32)
        values[0, 1, 0, 0], values[1, 0, height // 2, width - 1] = np.nan, np.inf
        expected = POOLS[name](values)
        for function in (of_names, fx.compile(POOLS[name], values)):
            np.testing.assert_allclose(function(values), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("height, width, rolled", [(4, 4, 0), (5, 5, 0), (9, 9, 2), (8, 14, 2), (3, 40, 2)])
@pytest.mark.parametrize("size, stride", [(2, 1), (2, 2), (3, 2)])
def test_few_numbers_with_edges(size: int, stride: int, height: int, width: int, rolled: int) -> None:
    """Windows of few numbers with edges are added one by one in images of few columns, and by columns in others: where
    they are not adjacent, in loops over rows that are not unrolled."""

    def program(x: Any) -> Any:
        return F.avg_pool2d(x, size, stride, 1)

    kernel = kernel_of(program, f"f32[2,3,{height},{width}]")
    kinds = [s.kind for s in statements(kernel.body) if type(s) is For]
    assert kinds.count("rolled") == (rolled if stride > 1 else 0)
    assert kernel_text(kernel).count("#pragma GCC unroll 1\n") == kinds.count("rolled")
    agree(program, np.random.default_rng(4).standard_normal((2, 3, height, width)).astype(np.float32))


@pytest.mark.parametrize("function", [np.sum, np.max, np.mean])
def test_an_axis_before_the_last(function: Any) -> None:
    """Any number of elements, also a named one: one loop over them, one along the row."""

    def program(x: Any) -> Any:
        return function(np.exp(x), axis=1) + 1

    kernel = kernel_of(program, "f32[B,T,40]")
    kinds = [s.kind for s in statements(kernel.body) if type(s) is For]
    along = 2 if function is np.max else 3  # sums are of blocks of rows
    assert kinds[0] == "parallel" and kinds.count("lanes") == along and "serial" in kinds
    compiled = fx.compile(program, "f32[B,T,40]")
    for shape in ((2, 70, 40), (1, 1, 40), (0, 3, 40)):
        values = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(compiled(values), program(values), rtol=1e-5)
    agree(program, np.random.default_rng(3).standard_normal((2, 7, 40)).astype(np.float32))


def test_other_reductions_are_left_alone() -> None:
    """Reductions over the last axis and over far apart elements."""
    for program, text in (
        (lambda x: x.sum(axis=-1), "f32[6,5,200]"),
        (lambda x: np.swapaxes(x, 1, 3).sum(axis=1), "f32[6,200,5,7]"),
    ):
        kernel = kernel_of(program, text)
        stores = [s for s in statements(kernel.body) if type(s).__name__ == "Store"]
        assert len(stores) == 1


@pytest.mark.parametrize("count", [0, 7, 33, 197])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rows_of_a_table(count: int, dtype: str) -> None:
    """Each index is checked once for the whole row, which is a loop along memory; one out of range is an error."""

    def program(x: Any, i: Any) -> Any:
        return x[i].sum(1) + 1, (x[i] * 2).prod(1)

    rng = np.random.default_rng(3)
    x, i = rng.normal(size=(50, 300)).astype(dtype), rng.integers(-50, 50, (4, count))
    agree(program, x, i)
    for kinds in ((x, i), (f"f{8 * x.itemsize}[M,N]", "i64[B,K]")):
        function = fx.compile(lambda x, i: x[i].sum(1), *kinds)
        expected = x[i].sum(1, dtype="f8")
        np.testing.assert_allclose(function(x, i), expected, rtol=0, atol=2000 * np.finfo(dtype).eps)
        text = next(text for name, text in function.sources.items() if "static void k0" in text and name.endswith(".c"))
        after = text[text.index("fx_index(") :]
        assert after.index("if (t0 >= 0)") < after.index("lane")
        if count:
            i[-1, -1] = 50
            with pytest.raises(IndexError, match="index 50 is out of"):
                function(x, i)
            i[-1, -1] = 0


APART = {
    "whole": lambda x: F.max_pool2d(x, 5),
    "mean": lambda x: F.avg_pool2d(np.exp(x), 5),
    "seven by seven": lambda x: F.max_pool2d(x, 7, 5),
    "rows of a pixel": lambda x: F.max_pool2d(x, (5, 2), (3, 6)),
    "blocks": lambda x: x[:, :, :10].reshape(2, 3, 2, 5, 3, 7).min((3, 5)),
    "adaptive": lambda x: F.adaptive_max_pool2d(x[:, :, :10], (2, 3)),
}


@pytest.mark.parametrize("name", APART)
def test_windows_that_are_far_apart(name: str) -> None:
    """The rows of windows are combined in lanes first, then the columns of each window."""
    x = np.random.default_rng(5).standard_normal((2, 3, 13, 21)).astype("f4")
    x[0, 0, 2, 3], x[1, 1, 4, 5], x[1, 2] = np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        agree(APART[name], x, rungs=("kernel", "c"))
    text = c_file(APART[name], x="f32[2,3,13,21]")
    assert "columns[lane]" in text


@pytest.mark.parametrize("shape", [(1, 1, 5, 5), (1, 2, 11, 9), (1, 1, 5, 1300), (1, 3, 10, 1029)])
def test_windows_that_are_far_apart_of_named_sizes(shape: tuple[int, ...]) -> None:
    """In a row that is shorter than a block of columns, and in several blocks."""
    compiled = fx.compile(lambda x: F.max_pool2d(x, 5), x="f32[1,C,H,W]")
    x = np.random.default_rng(6).standard_normal(shape).astype("f4")
    np.testing.assert_array_equal(compiled(x), F.max_pool2d(x, 5))
    assert "columns[lane] =" in next(iter(compiled.sources.values()))


PRODUCTS = {
    "both transposed": (lambda a, b: a.T @ b.T, "MK NM"),
    "transposed result": (lambda a, b: (a @ b).T * 2 + 1, "KM MN"),
    "result in another order": (lambda a, b: np.einsum("ijk,jz->zik", a, b), "KMN MB"),
    "reversed": (lambda a, b: (a[:, ::-1] @ b).T, "KM MN"),
}


@pytest.mark.parametrize("dtype", ["i64", "u8", "bool", "i16"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_go_along_operands(name: str, dtype: str) -> None:
    """Where the last loop over the results of a product of integers is along no operand, another one is the innermost:
    operands are read for each term, and results are stored once."""
    program, letters = PRODUCTS[name]
    rng = np.random.default_rng(0)
    sets = []
    for m, n, k, b in ((24, 20, 31, 17), (9, 40, 8, 33), (1, 5, 3, 2)):
        sizes = {"M": m, "N": n, "K": k, "B": b}
        shapes = [[sizes[letter] for letter in word] for word in letters.split()]
        sets.append([rng.integers(0, 2, shape).astype(dtypes.dtype(dtype).numpy) for shape in shapes])
    agree(program, *sets[0])
    named = [f"{dtype}[{','.join(word)}]" for word in letters.split()]
    for types in (sets[0], named):
        (text,) = (t for name, t in fx.compile(program, *types).sources.items() if name.endswith(".c"))
        assert "total[lane]" in text.replace("total1[", "total[")
    agree_on_all(program, sets, types=named)


def test_products_stay_in_the_order_of_their_result() -> None:
    """Both operands are adjacent along the terms, or one is along the rows of the result; and rows that are looked up
    are, too."""
    for program, types in (
        (lambda a, b: a @ b.T, ("i64[30,40]", "i64[20,40]")),
        (lambda a, b: a @ b, ("i64[30,40]", "i64[40,20]")),
        (lambda a, i: (a[i] * a[i]).sum(1, keepdims=True) * a[i], ("f32[10,8]", "i64[40]")),
    ):
        text = "".join(fx.compile(program, *types).sources.values())
        assert re.search(r"\[[ij]\*\d+ \+ \w+\] = ", text)
