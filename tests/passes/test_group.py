"""Groups of nodes that one kernel computes: what must not become the epilogue of a contraction."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops, passes
from fxlite.codegen.c.emit import emit
from fxlite.nn import functional as F
from fxlite.passes.group import group
from tests.codegen.compiling import c_file, emitted
from tests.oracle import agree, agree_on_all


class Joined(nn.Module):
    """A contraction is a part of what its reader stores: the first part, and in the middle."""

    def __init__(self, layer: nn.Module, first: bool) -> None:
        super().__init__()
        self.layer, self.first = layer, first

    def forward(self, x: Any, y: Any) -> Any:
        made = self.layer(x) + y
        return np.concatenate([made, y] if self.first else [y, made, y], axis=1)


@pytest.mark.parametrize("first", [True, False])
def test_a_part_of_a_concat_is_no_epilogue(first: bool) -> None:
    """Its loop runs over more elements than the product has."""
    rng = np.random.default_rng(0)
    rows, columns = rng.standard_normal((5, 8)), rng.standard_normal((5, 24))
    agree(Joined(nn.Linear(8, 24), first), rows.astype("f4"), columns.astype("f4"))
    image, other = rng.standard_normal((2, 3, 6, 5)), rng.standard_normal((2, 4, 4, 3))
    agree(Joined(nn.Conv2d(3, 4, 3), first), image.astype("f4"), other.astype("f4"))


def test_a_permute_of_joined_named_axes_is_an_epilogue() -> None:
    """A convolution over three axes is one over two, of images that its axis of depth joins to the batch: results are
    stored in order, and not stored and then copied, whether the sizes are known or named."""
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((20, 3, 2, 3, 2)).astype("f4")

    def program(x: Any) -> Any:
        return ops.conv3d(x, weight)

    for batch, depth, width in ((2, 5, 6), ("B", "Z", "Y"), ("B", 5, 6), (2, "Z", 6)):
        text = f"f32[{batch},3,{depth},7,{width}]"
        assert len(emitted(program, inputs={"x": text}).calls) == 2
        shapes = [(b, 3, d, 7, w) for b, d, w in ((1, 2, 2), (1, 9, 40), (3, 2, 3), (2, 5, 6))]
        sizes = (batch, depth, width)
        given = (s for s in shapes if all(isinstance(d, str) or d == n for d, n in zip(sizes, s[::2])))
        agree_on_all(program, [(rng.standard_normal(s).astype("f4"),) for s in given], types=[text])


def test_columns_are_not_divided_by_named_sizes() -> None:
    """Rows of a product whose columns two named axes share are stored as they are, and copied afterwards."""

    def program(x: Any, y: Any, z: Any) -> Any:
        return (x @ y.reshape(16, -1)).reshape(-1, z.shape[0], z.shape[1]).transpose(1, 0, 2) + z[:, None]

    rng, types = np.random.default_rng(3), ["f32[30,16]", "f32[16,H,D]", "f32[H,D]"]
    assert len(emitted(program, inputs=dict(zip("xyz", types))).calls) == 2
    agree(program, *(rng.standard_normal(s).astype("f4") for s in ((30, 16), (16, 3, 5), (3, 5))), types=types)


def test_heads_side_by_side_are_an_epilogue() -> None:
    """A reshape that joins axes reads each element once."""

    def program(a: Any, b: Any) -> Any:
        return (a @ b).transpose(0, 2, 1, 3).reshape(-1, 9, 16) * 2

    gm = fx.symbolic_trace(program, a="f32[B,2,9,5]", b="f32[B,2,5,8]")
    assert len(emitted(gm).calls) == 1


@pytest.mark.parametrize(
    ("program", "shape", "kernels"),
    [
        (lambda x: x.std(0), (40, 33), 2),
        (lambda x: np.ptp(x, 0), (40, 33), 2),
        (lambda x: x.std(1), (3, 40, 33), 2),
        (lambda x: x.std(-1), (40, 33), 1),
        (lambda x: x.std(0), (40, 4), 1),
        (lambda x: x.std(0), (4, 33), 1),
    ],
)
def test_reductions_of_rows_have_loops_of_their_own(program: Any, shape: tuple[int, ...], kernels: int) -> None:
    """Together they would read column by column; along the last axis, and of few rows, they do not."""
    module = agree(program, np.random.default_rng(0).standard_normal(shape).astype("f4"))
    assert len(emitted(module).calls) == kernels


def test_running_totals_read_what_is_cheap_where_it_is() -> None:
    """Views and a few operations are computed where a scan reads them, also of an axis with one element; what costs
    much is computed in vectors before."""
    programs = {
        "turned": (lambda x: np.cumsum(x[:, ::-1], axis=1), 1),
        "chosen": (lambda x: np.maximum.accumulate(np.where(x > 0, x, -x) * 2, axis=0), 1),
        "part": (lambda x: np.cumsum(x[:1] - x[-1:], axis=0), 1),
        "row": (lambda x: np.cumprod(x[np.argmax(x[:, 0])]), 2),
        "exponentials": (lambda x: np.cumsum(np.exp(x), axis=1), 2),
    }
    x = np.random.default_rng(0).normal(size=(5, 7))
    for program, kernels in programs.values():
        agree(program, x)
        agree(program, x, types=["f64[A,B]"])
        text = emit(fx.symbolic_trace(program, "f64[5,7]")).functions
        assert len(re.findall(r"^static void k\d", text, re.M)) == kernels, text


@pytest.mark.parametrize(("turned", "kernels"), [(True, 2), (False, 1)])
def test_windows_read_rows(turned: bool, kernels: int) -> None:
    """An image that is turned, so that the neighbours of a window would be far apart, is stored first; one of which
    every second row is read is not. A view that is read once for each result needs no kernel in any case."""

    def program(x: Any) -> Any:
        image = np.maximum(np.transpose(x, (0, 2, 3, 1)) if turned else x[:, ::2], 0)
        return ops.avg_pool2d(image, 3, stride=1, padding=1, layout="NHWC") - image

    x = np.random.default_rng(0).standard_normal((2, 7, 6, 5) if turned else (2, 14, 6, 5)).astype("f4")
    assert len(emitted(agree(program, x)).calls) == kernels
    assert len(emitted(agree(lambda x: np.transpose(x, (0, 2, 3, 1)) * 2, x)).calls) == 1


def test_long_rows_that_are_reduced_are_adjacent() -> None:
    """A layer norm of channels that come first is one of a copied image: the channels of a pixel would compete for a
    few lines of the cache, in each of its three passes. One pass is not worth a copy, nor is a small image."""

    def layer_norm(x: Any) -> Any:
        image = np.transpose(x, (0, 2, 3, 1))
        centred = image - image.mean(-1, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-6)

    for edge, kernels in ((16, 2), (8, 1)):
        x = np.random.default_rng(edge).standard_normal((1, 24, edge, edge)).astype("f4")
        assert len(emitted(agree(layer_norm, x)).calls) == kernels
        assert len(emitted(agree(lambda x: np.transpose(x, (0, 2, 3, 1)).mean(-1) * 2, x)).calls) == 1


@pytest.mark.parametrize(("rows", "kernels"), [(1024, 2), (1000, 1)])
def test_products_are_not_stored_in_columns_that_are_pages_apart(rows: int, kernels: int) -> None:
    """They are stored as they are computed, and brought into the other order by a kernel of its own."""
    x, y, z = (np.random.default_rng(0).standard_normal(s).astype("f4") for s in ((rows, 20), (20, 24), (24, rows)))
    assert len(emitted(agree(lambda x, y, z: (x @ y).T + z, x, y, z)).calls) == kernels
    heads = lambda x, y: (x @ y).reshape(rows, 3, 8).transpose(1, 2, 0) * 2  # noqa: E731
    assert len(emitted(agree(heads, x, y)).calls) == kernels


@pytest.mark.parametrize(("layout", "kernels"), [("NCHW", 2), ("NHWC", 1)])
def test_pixels_of_a_row_are_not_stored_between_others(layout: str, kernels: int) -> None:
    """What makes pixels of channels weaves rows that are stored; other orders of a convolution are its epilogue."""
    image, weight = (np.random.default_rng(0).standard_normal(s).astype("f4") for s in ((2, 16, 9, 7), (12, 16, 3, 3)))

    def woven(x: Any, w: Any) -> Any:
        made = ops.conv2d(x, w)
        if layout == "NHWC":
            return np.transpose(made, (0, 2, 3, 1)) * 2
        return np.maximum(made.reshape(2, 3, 2, 2, 7, 5).transpose(0, 1, 4, 2, 5, 3).reshape(2, 3, 14, 10), 0)

    assert len(emitted(agree(woven, image, weight)).calls) == kernels


TURNED: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "sum of rows": (lambda x: x.sum(0).T, (64, 80, 70), 2),
    "maximum of rows, computed with": (lambda x: np.exp(x.max(0)).T * 2, (64, 80, 70), 2),
    "windows of channels": (lambda x: ops.max_pool2d(x, 2, layout="NHWC").transpose(0, 3, 1, 2), (1, 20, 20, 64), 2),
    "windows of pixels": (lambda x: ops.max_pool2d(x, 2).transpose(0, 2, 3, 1), (1, 64, 20, 20), 2),
    "sum of each row": (lambda x: x.sum(2).T, (80, 70, 3), 1),
    "outer axes": (lambda x: x.sum(1).transpose(1, 0, 2), (40, 3, 30, 64), 1),
    "few": (lambda x: x.sum(0).T, (16, 8, 7), 1),
}


@pytest.mark.parametrize("name", TURNED)
def test_rows_that_are_combined_are_turned_afterwards(name: str) -> None:
    """In the order of the result, numbers that are combined in one loop would not be adjacent."""
    program, shape, kernels = TURNED[name]
    x = np.random.default_rng(4).standard_normal(shape).astype("f4")
    agree(program, x, rungs=("kernel", "c"))
    types = {"x": f"f32[{','.join(map(str, shape))}]"}
    assert len(emitted(fx.symbolic_trace(program, inputs=types)).calls) == kernels


def test_numbers_that_a_reduction_reads_twice_are_not_stored() -> None:
    """What reads nothing has no rows that could lie apart."""

    def program(x: Any) -> Any:
        places = np.arange(x.shape[1])
        return (x + places) / (x + places).sum(-1, keepdims=True)

    agree(program, np.ones((64, 80), "f8"), types=["f64[A,B]"])
    assert len(emitted(fx.symbolic_trace(program, "f64[A,B]")).calls) == 1


def test_a_difference_is_computed_where_several_groups_read_it() -> None:
    """It costs as much to read as what it is computed from: a log softmax of columns stores no array in between. What
    takes more than one array, or more than a few instructions, is stored."""
    programs: dict[str, tuple[Any, int]] = {
        "centred": (lambda x: x - x.max(1, keepdims=True), 3),
        "of two arrays": (lambda x: x - x[:, ::-1], 3),
        "exponentials": (lambda x: np.exp(x), 3),
    }
    x = np.random.default_rng(0).standard_normal((3, 40, 33)).astype("f4")
    for name, (program, kernels) in programs.items():

        def normalized(x: Any, program: Any = program) -> Any:
            value = program(x)
            return value / np.abs(value).sum(1, keepdims=True)

        stored = fx.compile(agree(normalized, x)).kernels
        assert len(stored) == kernels, name
        agree(normalized, x, types=["f32[A,B,C]"])


def test_edges_of_two_axes_are_one_kernel() -> None:
    """Rows before and behind an image, and then columns: each part of the result is a loop that reads the image."""
    x = np.random.default_rng(0).standard_normal((2, 3, 9, 10)).astype("f4")
    for mode in ("reflect", "symmetric", "edge", "wrap"):

        def program(x: Any, mode: Any = mode) -> Any:
            return np.pad(x, ((0, 0), (0, 0), (1, 1), (2, 2)), mode=mode)

        assert len(emitted(agree(program, x)).calls) == 1, mode
        agree(program, x, types=["f32[A,B,C+3,D+3]"])


def _distance(x: Any, centre: Any) -> Any:
    total = 0.0
    for k in range(20):
        total = total + (x[:, k] - centre[k]) ** 2 * 0.5
    return np.sqrt(total)


def test_what_is_read_in_place_joins_a_group_that_is_full() -> None:
    """A sum of so many terms that it takes several kernels, none of which copies a column."""
    rng = np.random.default_rng(2)
    agree(_distance, rng.standard_normal((7, 20)), rng.standard_normal(20), types=["f64[N,20]", "f64[20]"])
    module = passes.decompose(fx.symbolic_trace(_distance, "f64[N,20]", "f64[20]"))
    groups = group(module)
    assert 1 < len(groups) < 6
    assert not [found for found in groups if found.root.target.kind == "view"]


@pytest.mark.parametrize(("table", "kernels"), [("f64[64]", 2), ("f64[T]", 1), ("f64[50000]", 1)])
def test_a_small_table_that_is_looked_up_is_computed_once(table: str, kernels: int) -> None:
    """Not for each of many elements; of a large one perhaps only a few are needed."""

    def program(x: Any, k: Any) -> Any:
        return (np.exp(x) / (1 + np.exp(x)))[k]

    rng = np.random.default_rng(3)
    agree(program, rng.standard_normal(64), rng.integers(-64, 64, 200), types=["f64[64]", "i64[N]"])
    assert len(emitted(program, table, "i64[N]").calls) == kernels
    assert len(emitted(program, "f64[64]", "i64[5]").calls) == 1


def test_what_a_product_reads_is_not_computed_for_each_of_its_elements() -> None:
    """Also where the expensive part of it is not what the product reads itself."""

    def gradient(x: Any, w: Any, y: Any) -> Any:
        return x.T @ (1 / (1 + np.exp(-(x @ w))) - y)

    rng = np.random.default_rng(5)
    given = rng.standard_normal((40, 6)), rng.standard_normal(6), rng.standard_normal(40)
    agree(gradient, *given, types=["f64[N,K]", "f64[K]", "f64[N]"])
    for types in (["f64[400,6]", "f64[6]", "f64[400]"], ["f64[N,K]", "f64[K]", "f64[N]"]):
        groups = group(passes.decompose(fx.symbolic_trace(gradient, *types)))
        (product,) = (found for found in groups if found.root.target.name == "matmul" and found is groups[-1])
        assert not [m for m in product.members if m.target.name in ("exp", "div")]


def test_rows_of_joined_axes_are_not_stored_before_they_are_reduced() -> None:
    """A norm of the features of each head reads rows that lie side by side: there is nothing to copy."""

    def norm(x: Any) -> Any:
        y = x.reshape(64, 8, 256).transpose(1, 0, 2).reshape(8, 64, 4, 64)
        return (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5)

    agree(norm, np.random.default_rng(1).standard_normal((512, 256)).astype("f4"))
    text = c_file(norm, x="f32[512,256]")
    assert len(re.findall(r"^static void k\d", text, re.MULTILINE)) == 1


@pytest.mark.parametrize(("program", "kernels"), [(F.softmax, 2), (lambda x, axis: x - x.max(axis, keepdims=True), 1)])
def test_rows_of_moved_channels_are_copied_if_their_terms_are_costly(program: Any, kernels: int) -> None:
    """A reduction reads them in the order of memory, and the result is in another: exponentials would be computed for
    each, and with far loads."""

    def moved(x: Any) -> Any:
        return program(x.transpose(0, 3, 1, 2).reshape(4, -1), 1)

    assert len(fx.compile(moved, x="f64[4,5,64,16]").kernels) == kernels
    agree(moved, np.random.default_rng(0).standard_normal((4, 5, 64, 16)))


@pytest.mark.parametrize(
    "view, kernels", [("rolled", 2), ("joined", 2), ("padded", 2), ("reversed", 1), ("reshaped", 1)]
)
def test_loops_of_a_product_read_copies(view: str, kernels: int) -> None:
    """A product of integers has no template: what is not one strided access is stored before its loops, which would
    look for it once for each row of the result, but not if that has one row."""
    views = {
        "rolled": lambda y: np.roll(y, 3, 0),
        "joined": lambda y: np.concatenate([y[:7], y[5:]], 0)[:30],
        "padded": lambda y: np.pad(y[:27], [(1, 2), (0, 0)]),
        "reversed": lambda y: y[::-1],
        "reshaped": lambda y: y.reshape(3, 10, 20).reshape(30, 20),
    }

    def program(x: Any, y: Any) -> Any:
        return x @ views[view](y)

    rng = np.random.default_rng(0)
    for rows in (16, 1):
        x, y = rng.integers(-9, 9, (rows, 30)), rng.integers(-9, 9, (30, 20))
        made = fx.compile(program, x, y)
        assert len(made.kernels) == (kernels if rows > 1 else 1)
        agree(program, x, y)


@pytest.mark.parametrize(("rows", "steps", "kernels"), [(40, 5, 2), (4, 5, 1), (9, 200, 1), (40, 200, 2)])
def test_loops_of_a_product_read_adjacent_columns(rows: int, steps: int, kernels: int) -> None:
    """A transposed right operand of a product without a template is copied, if that takes less than what it saves."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(-9, 9, (rows, steps)), rng.integers(-9, 9, (30, steps))

    def program(x: Any, y: Any) -> Any:
        return x @ y.T

    assert len(fx.compile(program, x, y).kernels) == kernels
    agree(program, x, y)


@pytest.mark.parametrize("columns, kernels", [(4, 2), (100, 1)])
def test_rows_of_a_product_in_short_parts_are_stored_side_by_side(columns: int, kernels: int) -> None:
    """A product over the middle axis of an image reads rows that are adjacent only within the last axis: long parts are
    products of their own, which a template computes, and short ones are copied first."""
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((6, 9, columns)).astype("f4"), rng.standard_normal((9, 40)).astype("f4")

    def program(x: Any) -> Any:
        return np.einsum("ijk,jz->ikz", x, weight)

    made = fx.compile(program, x)
    assert len(made.kernels) == kernels and made.kernels[-1].how == "the template of matmul"
    agree(program, x)
