"""One C artifact for all sizes of the named dims: results, refusals, and the arena's formula."""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn
from fxlite.scalar.index import Index, extremum
from fxlite.show.node_cost import longest_chain
from fxlite.types import shapes
from tests import models
from tests.oracle import compare


class Encoder(nn.Module):
    """Convolutions with strides and skips on images of any size, and what pools them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.same, self.norm = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.depthwise, self.point = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 12, 1)
        self.pool, self.head = nn.MaxPool2d(3, stride=2, padding=1), nn.Linear(12, 5)

    def forward(self, x: Any) -> Any:
        x = np.maximum(self.stem(x), 0)
        x = np.maximum(self.norm(self.same(x)) + x, 0)
        y = self.point(self.pool(self.depthwise(x)))
        return y, self.head(y.mean(axis=(2, 3)))


_LENGTHS = (1, 2, 5, 15, 16, 17, 33, 65)
TOKENS = [*itertools.product((1, 3, 16), _LENGTHS), (0, 7), (2, 0), (0, 0)]
IMAGES = [
    (1, 1, 1),
    (2, 1, 9),
    (1, 2, 2),
    (3, 5, 4),
    (2, 8, 8),
    (1, 15, 17),
    (2, 16, 16),
    (1, 31, 33),
    (5, 7, 32),
    (1, 64, 5),
    (2, 33, 3),
    (0, 4, 4),
    (4, 3, 1),
    (1, 48, 20),
    (2, 17, 17),
    (7, 2, 6),
    (1, 1, 65),
    (3, 12, 13),
    (2, 9, 31),
    (1, 40, 40),
]

#: Name -> (makes the model, types of its inputs, names of the dims, sizes to call it with)
CASES: dict[str, Any] = {
    "gpt_block": (models.GptBlock, ("f32[B,T,64]",), "BT", TOKENS),
    "bert": (lambda: models.Bert(layers=1), ("i64[B,T]", "i64[B,T]"), "BT", TOKENS),
    "encoder": (Encoder, ("f32[B,3,H,W]",), "BHW", IMAGES),
}


def inputs(types: tuple[str, ...], sizes: dict[str, int]) -> list[Any]:
    rng = np.random.default_rng(sum(sizes.values()))
    arrays: list[Any] = []
    for type in (fx.parse_type(text).substitute(sizes) for text in types):
        if type.dtype is fx.int64:
            arrays.append(np.maximum(rng.integers(0, 100, type.shape), len(arrays)))
        else:
            arrays.append(rng.standard_normal(type.shape).astype(np.float32))
    return arrays


@functools.cache
def compiled(name: str) -> tuple[nn.Module, Any]:
    """The model, and its C."""
    make, types, _, _ = CASES[name]
    model = make().eval()
    return model, fx.compile(model, *types, threads=2)


@pytest.mark.parametrize("name", CASES)
def test_one_artifact_for_all_sizes(name: str) -> None:
    _, types, letters, tried = CASES[name]
    model, function = compiled(name)
    assert len(set(tried)) >= 20
    for values in tried:
        sizes = dict(zip(letters, values, strict=True))
        arrays = inputs(types, sizes)
        with np.errstate(all="ignore"):
            expected = model(*arrays)
        chain = longest_chain(function.graph_module.graph.nodes, sizes)
        compare(f"C at {sizes}", function(*arrays), expected, chain)


@pytest.mark.parametrize("name", CASES)
def test_the_arena_is_as_large_as_its_formula_says(name: str) -> None:
    """The C's own number, without the scratch space of the templates, is the printed formula."""
    _, _, letters, tried = CASES[name]
    function = compiled(name)[1]
    formula = function.memory_plan(**dict.fromkeys(letters, 1)).formula
    assert shapes.names(formula) == set(letters)
    for values in tried:
        sizes = dict(zip(letters, values, strict=True))
        plan = function.memory_plan(**sizes)
        assert plan.peak == sum(plan.slots) == shapes.substitute(formula, sizes)
        assert function.workspace_bytes(sizes) >= plan.peak


def test_the_workspace_without_scratch_space_is_the_formula() -> None:
    """Softmax twice needs no template, so that what the C asks for is the arena alone."""

    def program(x: Any) -> Any:
        first = F.softmax(x, -1)
        return F.softmax(first.transpose(0, 2, 1) - first.sum(axis=1, keepdims=True).mean(), -1)

    function: Any = fx.compile(program, "f32[B,T,2*T]", threads=1)
    formula = function.memory_plan(B=1, T=1).formula
    assert shapes.names(formula) == {"B", "T"}
    for batch, length in itertools.product((0, 1, 2, 5), (0, 1, 3, 8, 33, 100)):
        sizes = {"B": batch, "T": length}
        assert function.workspace_bytes(sizes) == shapes.substitute(formula, sizes)


def test_bad_sizes_are_refused_with_the_rule() -> None:
    low, high = fx.dims("B", min=1), fx.dims("T", max=64, multiple_of=4)
    type = fx.TensorType((low, high, 8), fx.float32)
    function: Any = fx.compile(lambda x: np.exp(x), type, threads=1)
    assert function(np.zeros((1, 64, 8), np.float32)).shape == (1, 64, 8)
    for shape, rule in (
        ((0, 4, 8), r"B >= 1 is required"),
        ((1, 68, 8), r"T <= 64 is required"),
        ((1, 6, 8), r"T % 4 == 0 is required"),
        ((1, 4, 7), r"8"),
        ((4, 8), r"3 dimensions"),
    ):
        with pytest.raises(ValueError, match=rule):
            function(np.zeros(shape, np.float32))
    pair: Any = fx.compile(lambda x, y: x @ y, "f32[B,T]", "f32[T,2*B]", threads=1)
    assert pair(np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)).shape == (2, 4)
    with pytest.raises(ValueError, match=r"axis 1 must be B\*2 = 4"):
        pair(np.ones((2, 3), np.float32), np.ones((3, 5), np.float32))


def test_what_depends_on_sizes_is_written_in_the_source() -> None:
    """Where a kernel works in another way for other sizes, a reader sees the condition."""
    function = compiled("gpt_block")[1]
    (source,) = (text for name, text in function.sources.items() if name.endswith(".c"))
    assert re.search(r"if \(B\*T\S* >= PARALLEL_OPERATIONS\)", source)
    assert re.search(r"if \(n_threads > 1 && .*\bT\b.* > PARALLEL_PRODUCTS\)", source)
    assert "offset[1] = offset[0] + B*T*" in source


def grid(x: Any) -> Any:
    n = len(x)
    z = np.zeros((n, n, 3))
    z[:, :, 0] = x.reshape(-1, 1)
    z[:, :, 1] = x
    return z.reshape(n * n, 3)


def repeated(x: Any) -> Any:
    y = np.empty(21 * len(x))
    y[: len(x)] = x
    y[len(x) :] = np.repeat(x, 20)
    return y


def rolled(x: Any) -> Any:
    return np.roll(x, 1) - np.roll(x, -1)


@pytest.mark.parametrize("program", [grid, repeated, rolled])
def test_no_loop_divides_its_variable_by_a_size(program: Any) -> None:
    """Behind a reshape, a loop over joined axes is a loop for each of them; and a place that is moved
    by 1 is within a size that is known to be larger."""
    n = fx.dims("N", min=2)
    function: Any = fx.compile(program, fx.float64[n], threads=1)
    (source,) = (text for name, text in function.sources.items() if name.endswith(".c"))
    kernels = re.findall(r"^static void k\d.*?^}", source, re.M | re.S)
    assert kernels
    assert not any(re.search(r" [/%] |fx_floor_mod|\?[^:]*\? ", kernel) for kernel in kernels)
    for size in (2, 3, 17):
        x = np.arange(float(size))
        np.testing.assert_array_equal(function(x), program(x))


def test_proofs_know_the_lowest_size() -> None:
    n, one = Index.of(fx.dims("N", min=2)), Index.of(1)
    assert one % n == one
    assert -one % n == n - 1
    assert -one // n == Index.of(-1)
    assert extremum("max", n, 1) == n
    assert one <= n - 1
    assert not Index.of(2) < n
    assert one % Index.of(fx.dims("M", min=1)) != one
