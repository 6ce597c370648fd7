"""promote_operands: products of operands of two dtypes become products of one, where that pays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from tests.codegen.compiling import emitted
from tests.graphs import ops_of
from tests.oracle import agree

PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "matmul": (lambda x, y: x @ y, ((9, 11), (11, 10))),
    "batched": (lambda x, y: x @ y, ((2, 9, 11), (11, 10))),
    "transposed": (lambda x, y: x.T @ y.T, ((11, 9), (10, 11))),
    "linear": (lambda x, w, b: F.linear(x, w, b), ((9, 11), (10, 11), (10,))),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, padding=1), ((2, 3, 6, 7), (4, 3, 3, 3), (4,))),
    "conv1d": (lambda x, w: F.conv1d(x, w), ((2, 3, 9), (4, 3, 2))),
}


def _drawn(shapes: tuple[tuple[int, ...], ...], kinds: str) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [draw.integers(-4, 5, s).astype(k) for s, k in zip(shapes, kinds.split(), strict=True)]


@pytest.mark.parametrize("kinds", ["f4 f8", "f8 f4", "i4 f4", "f4 i8", "c8 f4", "f8 c8", "i1 i4", "?  f4"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_all_products_of_two_dtypes(name: str, kinds: str) -> None:
    program, shapes = PRODUCTS[name]
    if "c8" in kinds and name.startswith(("linear", "conv")):
        pytest.skip("layers are of real numbers")
    arrays = _drawn(shapes, kinds + (" f4" if len(shapes) == 3 else ""))
    done = passes.promote_operands(fx.symbolic_trace(program, *arrays))
    (product,) = [n for n in done.graph.nodes if n.op == "call_function" and n.target.kind == "contraction"]
    assert {n.type.dtype for n in product.all_input_nodes} == {product.type.dtype}
    agree(program, *arrays, rungs=("graph", "kernel", "c"))


def test_a_template_computes_them() -> None:
    made = emitted(lambda x, y: x @ y, x="f64[M,16]", y="f32[16,N]")
    assert "multiply_tile_double" in "".join(made.sources.values())


@pytest.mark.parametrize("rows, expected", [(1, 0), (7, 0), (8, 1), ("M", 1)])
def test_few_vectors_read_a_matrix_as_it_is(rows: Any, expected: int) -> None:
    gm = fx.symbolic_trace(lambda x, y: x @ y, x=f"f64[{rows},16]", y="f32[16,16]")
    assert ops_of(passes.promote_operands(gm)).count("cast") == expected


@pytest.mark.parametrize("rows, expected", [(1, 0), (2, 1)])
def test_a_constant_is_converted_once(rows: int, expected: int) -> None:
    weight = np.arange(256, dtype="f4").reshape(16, 16)
    done = passes.promote_operands(fx.symbolic_trace(lambda x: x @ weight.T, x=f"f64[{rows},16]"))
    assert ops_of(done).count("cast") == expected
    assert ops_of(passes.const_fold(done)) == ["matmul"]


class _Woven(nn.Module):
    """A weight of which each step reads both values of the step before: 2**40 ways lead to the first."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(np.ones((8, 8), "f4"))

    def forward(self, x: Any) -> Any:
        a, b = self.weight, -self.weight
        a, b = functools.reduce(lambda pair, _: (pair[0] + pair[1], pair[0] - pair[1]), range(40), (a, b))
        return x @ (a + b)


def test_constants_of_many_ways_are_found_at_once() -> None:
    gm = fx.symbolic_trace(_Woven(), x="f64[2,8]")
    assert ops_of(gm).count("add") >= 40
    assert ops_of(passes.promote_operands(gm)).count("cast") == 1


def test_wider_products_of_integers_stay() -> None:
    gm = fx.symbolic_trace(lambda x, y: fx.ops.cast(x, "i32") @ y, x="i8[9,9]", y="i32[9,9]")
    assert passes.promote_operands(gm).code == gm.code


@pytest.mark.parametrize(
    ("program", "permutes"),
    [
        (lambda x, y: (x @ y).swapaxes(-1, -2), 2),
        (lambda x, y: (x.reshape(2, 20, 9).swapaxes(-1, -2) @ y).swapaxes(-1, -2), 1),
        (lambda x, y: np.einsum("...k,kn->n...", x[0], y[0]), 2),
        (lambda x, y: (x @ y).swapaxes(0, 1), 0),
    ],
)
def test_transposed_products(program: Any, permutes: int) -> None:
    """Of integers they are products of the transposed operands; of floats they stay."""
    rng = np.random.default_rng(0)
    for dtype in (np.int64, np.uint8, np.bool_, np.float32):
        x, y = (rng.integers(0, 255, shape).astype(dtype) for shape in ((2, 9, 20), (2, 20, 30)))
        gm = passes.decompose(fx.symbolic_trace(program, x, y))
        done = passes.simplify(passes.transposed_products(gm))
        if dtype is np.float32:
            assert ops_of(done) == ops_of(passes.simplify(gm))
        elif permutes:
            assert ops_of(done)[-1] == "matmul" and ops_of(done).count("permute") == permutes
        agree(program, x, y)


def test_a_product_that_others_read_is_not_transposed() -> None:
    gm = fx.symbolic_trace(lambda x, y: ((x @ y).T, (x @ y).sum()), "i64[9,20]", "i64[20,30]")
    gm = passes.cse(gm)
    assert ops_of(passes.transposed_products(gm)) == ops_of(gm)
