"""complex_products: products of complex matrices as real ones, interpreted and as C."""

from __future__ import annotations

import numpy as np
import pytest

import fxlite as fx
from fxlite import passes
from tests.graphs import anchors_of, ops_of
from tests.oracle import agree, compare

SHAPES = [((9, 10), (10, 11)), ((3, 9, 10), (10, 11)), ((2, 1, 9, 10), (3, 10, 11)), ((9, 10), (3, 10, 11))]


def arrays(*shapes: tuple[int, ...], dtype: str = "c8") -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [(rng.standard_normal(s) + 1j * rng.standard_normal(s)).astype(dtype) for s in shapes]


def is_real(gm: fx.GraphModule) -> bool:
    """Whether all its products are of real numbers."""
    products = [n for n in gm.graph.find_nodes(op="call_function") if n.target.is_matrix_product]
    assert products
    return not any(n.type.dtype.is_complex for n in products)


@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize("shapes", SHAPES)
def test_matrices_and_batches(shapes: tuple[tuple[int, ...], ...], dtype: str) -> None:
    given = arrays(*shapes, dtype=dtype)
    after = passes.complex_products(agree(lambda x, y: x @ y, *given))
    after.graph.lint()
    assert is_real(after)
    compare("graph", fx.Interpreter(after).run(*given), given[0] @ given[1])


def test_transposed_operands_named_sizes_and_a_constant() -> None:
    x, y = arrays((20, 9), (30, 20))
    module = fx.symbolic_trace(lambda x: (x.T @ y.T) * 2, "c64[20,M]")
    function = fx.compile(module)
    compare("C", function(x), (x.T @ y.T) * 2)
    assert is_real(function.optimized)
    kernels = anchors_of(function)
    assert kernels == ["matmul"] and len(function.kernels) == 3  # the parts, the product, and both together


def test_infinite_parts_stay_apart() -> None:
    x, y = arrays((8, 8), (8, 8))
    x[:] = 0
    x[0, 0] = 1
    y[0, 0] = complex(1, np.inf)
    found = fx.Interpreter(passes.complex_products(fx.symbolic_trace(lambda x, y: x @ y, x, y))).run(x, y)
    with np.errstate(all="ignore"):
        expected = x @ y
    np.testing.assert_array_equal(np.isfinite(found.real[1:, 1:]), np.isfinite(expected.real[1:, 1:]))
    assert np.isposinf(found[0, 0].imag)


@pytest.mark.parametrize(
    ("types", "said"),
    [
        (("c64[4,9]", "c64[9,9]"), True),
        (("c64[9,9]", "c64[9,2]"), True),
        (("c64[9,9]", "f32[9,9]"), False),
        (("c64[9,9]", "c64[9]"), False),
        (("f32[9,9]", "f32[9,9]"), False),
    ],
)
def test_what_is_left_alone(types: tuple[str, str], said: bool) -> None:
    after = passes.complex_products(fx.symbolic_trace(lambda x, y: x @ y, *types))
    assert ops_of(after) == ["matmul"]
    assert len(passes.ledger(after)) == said
