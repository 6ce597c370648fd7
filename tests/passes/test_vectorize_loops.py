"""Loops whose iterations do not depend on each other become operations on whole arrays; the others stay, and the
ledger says why."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import passes
from fxlite.codegen.c.emit import emit
from fxlite.ops.op import lookup
from tests.graphs import ops_of
from tests.oracle import agree, flatten


def values(*shape: int, dtype: Any = np.float64) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


def vectorized(function: Callable[..., Any], *types: str) -> fx.GraphModule:
    gm = fx.symbolic_trace(function, *types, loops="keep")
    assert "fori_loop" in ops_of(gm)
    return passes.dce(passes.simplify(passes.vectorize_loops(gm)))


def same_as_numpy(gm: fx.GraphModule, function: Callable[..., Any], arrays: Any) -> None:
    """The results, and what is written into the arguments."""
    mine, his = ([a.copy() for a in arrays] for _ in range(2))
    found, expected = gm(*mine), function(*his)
    for a, b in zip(mine + flatten(found), his + flatten(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


# -- loops that become operations ------------------------------------------------------------------
def rows(x: Any, w: Any) -> Any:
    out = np.zeros((x.shape[0], w.shape[1]))
    for i in range(x.shape[0]):
        out[i] = x[i] @ w
    return out


def product(x: Any, w: Any) -> Any:
    out = np.zeros((x.shape[0], w.shape[1]))
    for i in range(x.shape[0]):
        for j in range(w.shape[1]):
            out[i, j] = x[i] @ w[:, j]
    return out


def product_of_columns(x: Any, w: Any) -> Any:
    out = np.zeros((x.shape[0], w.shape[1]))
    for j in range(w.shape[1]):
        out[:, j] = x @ w[:, j]
    return out


def images(x: Any, w: Any) -> Any:
    out = np.zeros((x.shape[0] - 2, x.shape[1] - 4))
    for i in range(x.shape[0] - 2):
        for j in range(x.shape[1] - 4):
            out[i, j] = np.sum(x[i : i + 3, j : j + 5] * w)
    return out


def pooling(x: Any) -> Any:
    out = np.zeros((x.shape[0], x.shape[1] // 2, x.shape[2] // 3))
    for j in range(x.shape[2] // 3):
        for i in range(x.shape[1] // 2):
            out[:, i, j] = np.max(x[:, 2 * i : 2 * i + 2, 3 * j : 3 * j + 3], axis=(1, 2))
    return out


def neighbours(x: Any) -> Any:
    y = np.zeros_like(x)
    for i in range(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            y[i, j] = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])
    return y


def heat(x: Any) -> Any:
    out = np.zeros_like(x)
    for i in range(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            for k in range(1, x.shape[2] - 1):
                beside = x[i - 1, j, k] + x[i + 1, j, k] + x[i, j - 1, k] + x[i, j + 1, k]
                out[i, j, k] = beside + x[i, j, k - 1] + x[i, j, k + 1] - 6 * x[i, j, k]
    return out


def in_place(x: Any) -> Any:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] = np.sqrt(np.abs(x[i, j])) + i * j
    return x.sum()


def backwards(x: Any) -> Any:
    out, n = np.zeros_like(x), x.shape[0]
    for i in range(n):
        out[i] = x[n - 1 - i] * 2
    return out


def softmax(x: Any) -> Any:
    out = np.zeros_like(x)
    for i in range(x.shape[0]):
        e = np.exp(x[i])
        out[i] = e / np.sum(e)
    return out


def distances(a: Any, b: Any) -> Any:
    out = np.zeros((a.shape[0], b.shape[0]))
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            d = a[i] - b[j]
            out[i, j] = np.sqrt(np.sum(d * d))
    return out


def two_columns(x: Any) -> Any:
    out = np.zeros((x.shape[0], 2))
    for i in range(x.shape[0]):
        out[i, 0] = x[i]
        out[i, 1] = x[i] ** 2
    return out


def two_arrays(x: Any) -> Any:
    low, high = np.zeros(x.shape[0]), np.zeros(x.shape[0])
    for i in range(x.shape[0]):
        low[i] = x[i].min()
        high[i] = x[i, 0] * i
    return low, high


def every_other(x: Any) -> Any:
    out = np.zeros(2 * x.shape[0])
    for i in range(x.shape[0]):
        out[2 * i + 1] = x[i] + 1
    return out


def batched(a: Any, b: Any) -> Any:
    out = np.zeros((a.shape[0], a.shape[1], b.shape[2]))
    for i in range(a.shape[0]):
        out[i] = a[i] @ b[i]
    return out


def constant_rows(x: Any) -> Any:
    out = np.zeros(x.shape)
    for i in range(x.shape[0]):
        out[i] = x[0]
    return out


def transposed(x: Any) -> Any:
    out = np.zeros(x.shape)
    for i in range(x.shape[0]):
        out[i] = x[i].T  # square, so that no shape tells the order of axes
    return out


def turned_and_cut(x: Any) -> Any:
    out = np.zeros((x.shape[1], x.shape[0], x.shape[2]))
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[j, i] = x[i, j][::-1] + np.roll(x[i, j], 1) + np.expand_dims(x[i, j], 0)[0]
    return out


def triangles(x: Any) -> Any:
    out = np.zeros((x.shape[0], x.shape[1], x.shape[1]))
    for i in range(x.shape[0]):
        out[i] = np.tril(np.outer(x[i], x[i] + 1))
    return out


def rows_by_matrices(a: Any, b: Any) -> Any:
    out = np.zeros((a.shape[0], a.shape[2]))
    for i in range(a.shape[0]):
        out[i] = b @ a[i]
    return out


def added_to(x: Any) -> Any:
    out = np.ones_like(x)
    for i in range(x.shape[0]):
        out[i] += x[i] * i
    return out


def upper_products(x: Any) -> Any:
    out = np.zeros((x.shape[1], x.shape[1]))
    for i in range(x.shape[1]):
        out[i, i:] = x[:, i] @ x[:, i:]
    return out


def lower_products(x: Any) -> Any:
    out = np.full((x.shape[1], x.shape[1]), 5.0)
    for i in range(x.shape[1]):
        found = x[:, i] @ x[:, : i + 1]
        out[: i + 1, i] = found
        out[i, : i + 1] = found * i
    return out


def covariances(x: Any) -> Any:
    out = np.zeros((x.shape[1], x.shape[1]))
    for i in range(x.shape[1]):
        out[i:, i] = out[i, i:] = x[:, i] @ x[:, i:] / 3
    return out


def correlations(x: Any) -> Any:
    out = np.eye(x.shape[1])
    for i in range(x.shape[1] - 1):
        out[i + 1 :, i] = out[i, i + 1 :] = x[:, i] @ x[:, i + 1 :]
    return out


INDEPENDENT: dict[Callable[..., Any], tuple[Any, ...]] = {
    rows: (values(6, 3), values(3, 4)),
    product: (values(6, 3), values(3, 4)),
    product_of_columns: (values(6, 3), values(3, 4)),
    images: (values(8, 11), values(3, 5)),
    pooling: (values(2, 8, 9),),
    neighbours: (values(7, 6),),
    heat: (values(6, 7, 8),),
    in_place: (values(5, 4),),
    backwards: (values(6),),
    softmax: (values(5, 7),),
    distances: (values(5, 3), values(4, 3)),
    two_columns: (values(6),),
    two_arrays: (values(6, 4),),
    every_other: (values(6),),
    batched: (values(4, 3, 5), values(4, 5, 2)),
    constant_rows: (values(5, 3),),
    transposed: (values(3, 4, 4),),
    turned_and_cut: (values(3, 4, 5),),
    triangles: (values(3, 4),),
    rows_by_matrices: (values(3, 4, 4), values(4)),
    added_to: (values(4, 3),),
    upper_products: (values(7, 9),),
    lower_products: (values(7, 9),),
    covariances: (values(6, 9),),
    correlations: (values(7, 9),),
}


@pytest.mark.parametrize("function", INDEPENDENT, ids=lambda f: f.__name__)
@pytest.mark.parametrize("named", [True, False], ids=["named", "numbers"])
def test_independent(function: Callable[..., Any], named: bool) -> None:
    arrays = INDEPENDENT[function]
    letters: dict[int, str] = {}
    for size in sorted({n for a in arrays for n in a.shape}):
        letters[size] = f"N{size}+5" if named and size > 5 else str(size)  # sizes that are surely long enough
    types = [f"f64[{','.join(letters[n] for n in a.shape)}]" for a in arrays]
    gm = vectorized(function, *types)
    assert not {"fori_loop", "while_loop"} & set(ops_of(gm)), passes.ledger(gm)
    same_as_numpy(gm, function, arrays)
    agree(function, *arrays, types=types, loops="keep")


def test_a_nest_of_products_is_one_product() -> None:
    assert ops_of(vectorized(product, "f64[N,K]", "f64[K,M]")) == ["matmul"]
    assert ops_of(vectorized(rows, "f64[N,K]", "f64[K,M]")) == ["matmul"]


def test_windows_are_views() -> None:
    """A filter reads its windows where they lie, and no array of positions is made."""
    gm = vectorized(images, "f64[H+2,W+4]", "f64[3,5]")
    assert "unfold" in ops_of(gm)
    assert not {"take", "arange", "full"} & set(ops_of(gm))
    assert "for" in (text := emit(gm).functions)
    assert "index" not in text


def test_parts_of_several_axes_are_in_order() -> None:
    """The elements x[i, j, k] of three loops are parts of x as they lie in memory, and in C the loops inside of the
    borders neither test where they are nor read a copy."""
    gm = vectorized(heat, "f64[A+3,B+3,C+3]")
    assert not {"permute", "take"} & set(ops_of(gm))
    text = emit(gm).functions
    assert text.count("static void k") == 1
    assert "?" not in text[text.index("{") :]


def test_no_iteration() -> None:
    """Where no iteration runs, nothing is computed, and nothing is read."""
    gm = fx.symbolic_trace(distances, "f64[N,K]", "f64[M,K]", loops="keep")
    compiled = fx.compile(gm, backend="c")
    assert compiled(np.zeros((0, 3)), np.zeros((4, 3))).shape == (0, 4)
    assert compiled(np.zeros((4, 3)), np.zeros((0, 3))).shape == (4, 0)


def test_cuda_has_them() -> None:
    """What has no loop left compiles for devices that have none."""
    agree(neighbours, values(7, 6), types=["f64[N+2,M+2]"], loops="keep", rungs=("cuda",))


# -- loops inside of loops that stay ---------------------------------------------------------------
def triangular(a: Any, b: Any) -> Any:
    for i in range(b.shape[0]):
        for j in range(b.shape[1]):
            b[i, j] += np.dot(a[i + 1 :, i], b[i + 1 :, j])
    return b * 2


def downwards(a: Any, b: Any) -> Any:
    for i in range(b.shape[0] - 1):
        for j in range(b.shape[1]):
            b[i + 1, j] = b[i, j] * a[i, 0] + b[i + 1, j]
    return b + 0


@pytest.mark.parametrize("function", [triangular, downwards], ids=lambda f: f.__name__)
@pytest.mark.parametrize("sizes", [(7, 5), (200, 70)], ids=str)
def test_inner_loops(function: Callable[..., Any], sizes: tuple[int, int]) -> None:
    """A loop whose iterations read and write one computed row, each its own column, is one operation."""
    arrays = values(sizes[0], sizes[0]) / 50, values(*sizes)
    for types in (["f64[N+3,N+3]", "f64[N+3,M+1]"], [f"f64[{sizes[0]},{sizes[0]}]", f"f64[{sizes[0]},{sizes[1]}]"]):
        gm = vectorized(function, *types)
        (loop,) = gm.graph.find_nodes(op="call_function", target=lookup("fori_loop"))
        assert "fori_loop" not in [call.target.name for call in loop.kwargs["body_fn"].calls], passes.ledger(gm)
        same_as_numpy(gm, function, arrays)
        rungs = ("graph", "python", "kernel", "c") if sizes[0] < 10 else ("c",)  # the others take minutes
        agree(function, *arrays, types=types, loops="keep", rungs=rungs)


def test_masks_of_bounds_stay_in_their_loops() -> None:
    """A sum up to a bound visits only what is below it, also where the bound is that of a loop around."""

    def eliminated(a: Any) -> Any:
        for i in range(a.shape[0]):
            for j in range(i, a.shape[0]):
                a[i, j] -= a[i, :i] @ a[:i, j]
        return a + 0

    a = values(40, 40) / 9
    agree(eliminated, a, loops="keep")
    text = emit(fx.symbolic_trace(eliminated, a, loops="keep")).functions
    text = text.replace("lane >= 16 - left ? t0 : lanes[lane]", "")  # the last whole vector
    assert "?" not in text and "left = (i % 16);" in text


# -- loops that stay -------------------------------------------------------------------------------
def running(x: Any) -> Any:
    out = np.zeros(x.shape[0] + 1)
    for i in range(x.shape[0]):
        out[i + 1] = out[i] * 0.5 + x[i]
    return out


def total(x: Any) -> Any:
    s = 0.0
    for i in range(x.shape[0]):
        s = s * 0.5 + x[i]
    return s


def shifted_in_place(x: Any) -> Any:
    for i in range(x.shape[0] - 1):
        x[i + 1] = x[i]
    return x + 0


def prefixes(x: Any) -> Any:
    out = np.zeros_like(x)
    for i in range(x.shape[0]):
        out[i] = np.sum(x[:i])
    return out


def one_place(x: Any) -> Any:
    out = np.zeros(3)
    for i in range(x.shape[0]):
        out[1] = x[i]
    return out


def diagonal(x: Any) -> Any:
    out = np.zeros_like(x)
    for i in range(x.shape[0]):
        out[i, i] = x[i, i]
    return out


def looked_up(x: Any, k: Any) -> Any:
    out = np.zeros_like(x)
    for i in range(x.shape[0]):
        out[k[i]] = x[i]
    return out


def two_reductions(x: Any) -> Any:
    out = np.zeros_like(x)
    for i in range(x.shape[0]):
        out[i] = (x[i] - x[i].mean()) / x[i].max()
    return out


def perhaps_negative(x: Any) -> Any:
    out = np.zeros_like(x)
    for i in range(x.shape[0] - 3):
        out[i] = x[i]
    return out


def rows_and_elements(x: Any) -> Any:
    out = x.copy()
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = np.max(out[i])
    return out


def crossing(x: Any) -> Any:
    out = np.zeros(x.shape[0] + 1)
    for i in range(x.shape[0]):
        out[i] = x[i]
        out[i + 1] = 2 * x[i]
    return out


def one_triangle(x: Any) -> Any:
    out = np.zeros((x.shape[1], x.shape[1]))
    for i in range(x.shape[1]):
        out[i, : i + 1] = x[:, i] @ x[:, : i + 1]
        out[i:, i] = out[i:, i] * 2
    return out


def overlapping(x: Any) -> Any:
    out = np.zeros((x.shape[1] + 1, x.shape[1] + 1))
    for i in range(x.shape[1]):
        out[i + 1, i:-1] = out[i:-1, i] = x[:, i] @ x[:, i:]
    return out


DEPENDENT: dict[Callable[..., Any], tuple[str, tuple[Any, ...]]] = {
    running: ("at places of others", (values(6),)),
    total: ("others may have written", (values(6),)),
    shifted_in_place: ("may be negative", (values(6),)),
    prefixes: ("between bounds that change", (values(6),)),
    one_place: ("at one place", (values(6),)),
    diagonal: ("along a diagonal|changes with the iteration", (values(5, 5),)),
    looked_up: ("places that are not its own", (values(5), np.array([3, 1, 0, 4, 2]))),
    two_reductions: ("would be held", (values(5, 4),)),
    perhaps_negative: ("may be negative", (values(6),)),
    rows_and_elements: ("several iterations|others may have written", (values(5, 4),)),
    crossing: ("at places of others", (values(6),)),
    one_triangle: ("others may have written|between bounds that change", (values(6, 5),)),
    overlapping: ("at places of others|between bounds that change", (values(6, 5),)),
}


@pytest.mark.parametrize("function", DEPENDENT, ids=lambda f: f.__name__)
def test_dependent(function: Callable[..., Any]) -> None:
    why, arrays = DEPENDENT[function]
    types = [f"{'i64' if a.dtype.kind == 'i' else 'f64'}[{','.join(f'N{n}' for n in a.shape)}]" for a in arrays]
    gm = vectorized(function, *types)
    assert "fori_loop" in ops_of(gm)
    same_as_numpy(gm, function, arrays)
    agree(function, *arrays, types=types, loops="keep")
    reasons = [refusal.reason for refusal in passes.ledger(gm) if refusal.pass_name == "vectorize_loops"]
    assert any(re.search(why, reason) for reason in reasons), reasons


def test_an_inner_loop_of_one_that_stays() -> None:
    """What is independent inside of a loop that is not becomes operations there."""

    def smooth(x: Any) -> Any:
        for _ in range(3):
            y = x.copy()
            for i in range(1, x.shape[0] - 1):
                y[i] = (x[i - 1] + x[i] + x[i + 1]) / 3
            x = y
        return x

    gm = vectorized(smooth, "f64[N+2]")
    (loop,) = gm.graph.find_nodes(op="call_function", target=fx.ops.fori_loop)
    assert all(call.target.kind != "control" for call in loop.kwargs["body_fn"].calls)
    same_as_numpy(gm, smooth, (values(9),))
    agree(smooth, values(9), types=["f64[N+2]"], loops="keep")
