"""The comparer: a value just beyond the bound is found, one inside is accepted, for each dtype."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite.show.node_cost import longest_chain
from fxlite.types import dtypes
from fxlite.types.agreement import LEAST, OPERAND, UNIT, USUAL, Chain, allclose, bound, compare, computed, exact

ROOT = Path(fx.__file__).resolve().parents[1]
FLOATS = ("f16", "bf16", "f32", "f64")
CHAINS = (Chain(1), USUAL, Chain(60, 20_000, 30), Chain(3, 512, 4, "medium"))


def array(name: str, *values: float) -> Any:
    return np.array(values, np.float64).astype(dtypes.dtype(name).numpy)


@pytest.mark.parametrize("name", FLOATS)
def test_units_are_those_of_the_dtype(name: str) -> None:
    one = np.ones((), dtypes.dtype(name).numpy)
    assert one + one.dtype.type(UNIT[name]) == one != one + one.dtype.type(1.5 * UNIT[name])
    half = one.dtype.type(LEAST[name] / 2)
    assert one.dtype.type(LEAST[name]) != half == 0


@pytest.mark.parametrize("chain", CHAINS, ids=str)
@pytest.mark.parametrize("name", FLOATS)
def test_the_bound_is_where_it_is_said_to_be(name: str, chain: Chain) -> None:
    """Beside a largest number of 1, in a number that is small enough to be any."""
    inside, beyond = (array(name, 1, float(bound(name, chain)) * factor) for factor in (1 - 2**-6, 1 + 2**-6))
    expected = array(name, 1, 0)
    found = compare(expected, inside, chain=chain)
    assert found.agrees and 0 < found.error <= found.bound
    found = compare(expected, beyond, chain=chain)
    assert (found.problem, found.place, found.wrong, found.size) == ("value", (1,), 1, 2)
    assert found.error > found.bound == bound(name, chain)
    assert compare(expected, -beyond, chain=chain).problem == "value"
    longer = Chain(chain.operations * 2, chain.terms * 2, chain.products * 2, chain.precision)
    assert compare(expected, beyond, chain=longer).agrees, "the bound grows with the operations"
    scaled = [array(name, *(v.astype(np.float64) * 64)) for v in (expected, inside, beyond)]
    assert compare(scaled[0], scaled[1], chain=chain).agrees, "it is a part of the largest number"
    assert not compare(scaled[0], scaled[2], chain=chain).agrees


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if not d.is_inexact], ids=str)
def test_integers_are_equal(dtype: Any) -> None:
    expected = np.array([0, 1, 1], dtype.numpy)
    assert compare(expected, expected.copy()).agrees and bound(dtype) == 0
    found = compare(expected, np.array([0, 0, 1], dtype.numpy), allclose(rtol=0.9, atol=1))
    assert (found.problem, found.place, found.wrong) == ("value", (1,), 1)


@pytest.mark.parametrize("name", FLOATS)
def test_nan_infinities_and_numbers_near_zero(name: str) -> None:
    nan, inf, least = np.nan, np.inf, LEAST[name]
    expected = array(name, nan, inf, -inf, 1)
    assert compare(expected, expected.copy()).agrees
    for wrong in (
        (0, inf, -inf, 1),
        (nan, -inf, -inf, 1),
        (nan, nan, -inf, 1),
        (nan, inf, -inf, nan),
        (nan, inf, -inf, inf),
        (inf, inf, -inf, 1),
    ):
        assert compare(expected, array(name, *wrong)).problem == "value"
    swapped = array(name, inf, nan, nan, 1)
    assert compare(expected, swapped, allclose()).agrees, "2 * inf - inf may be inf"
    assert not compare(expected, array(name, nan, 1, -inf, 1), allclose()).agrees
    assert compare(array(name, 0, 3 * least), array(name, 0, 2 * least)).agrees
    assert not compare(array(name, 0, 0), array(name, 0, 1e5 * least)).agrees
    assert compare(array(name, 0), array(name, -0.0)).agrees
    assert not compare(array(name, 0), array(name, -0.0), exact).agrees


@pytest.mark.parametrize(
    ("expected", "actual", "problem"),
    [
        ((1, 2), (1,), "structure"),
        ([1.0], (1.0,), "structure"),
        ({"a": 1}, {"b": 1}, "structure"),
        ({"a": 1}, (1,), "structure"),
        ((1, None), (1, 2), "structure"),
        (1, (1,), "structure"),
        ((1, None, {"a": [2.0]}), (1, None, {"a": [2.0]}), ""),
        ((), (), ""),
        (np.zeros(2), np.zeros((2, 1)), "type"),
        (np.zeros(2), np.zeros(2, np.float32), "type"),
        (np.zeros((0, 3)), np.zeros((0, 3)), ""),
    ],
)
def test_nesting_shapes_and_dtypes(expected: Any, actual: Any, problem: str) -> None:
    assert compare(expected, actual).problem == problem


def test_what_was_found_is_text_and_data() -> None:
    expected = (np.ones(3, np.float32), np.array([[1, 2], [4, 8]], np.float32))
    actual = (expected[0], np.array([[1, 2.5], [5, 8]], np.float32))
    found = compare(expected, actual)
    assert str(found) == (
        "result 1: expected 4.0, got 5.0 at [1, 0]; 2 of 4 elements differ by more than 7.8e-06 of "
        "the largest number, up to 0.125"
    )
    told = json.loads(json.dumps(found.data()))
    assert (told["result"], told["place"], told["error"]) == (1, [1, 0], 0.125)
    assert (told["expected"], told["actual"], told["wrong"]) == ("4.0", "5.0", 2)
    small = compare(expected[0], expected[0] * np.float32(1 + 2**-20))
    assert str(small) == "the largest error is 9.54e-07, allowed are 7.81e-06"


def test_a_measured_spread_is_allowed_beside_the_bound() -> None:
    expected, actual = np.array([1.0, 2, 3]), np.array([1.0, 2.5, np.inf])
    assert compare(expected, actual, spread=[np.array([0, 0.5, np.inf])]).agrees
    assert compare(expected, actual, spread=[np.array([0, 0.4, np.inf])]).place == (1,)
    assert compare(expected, actual, spread=[np.array([0, 0.5, 9.0])]).place == (2,)
    numbers = np.array([1, 2])
    assert compare(numbers, numbers + 1, spread=[np.array([np.inf, np.inf])]).agrees
    assert compare(numbers, numbers + 1, spread=[np.array([np.inf, 0])]).place == (1,)


def test_chains_are_counted() -> None:
    def chain(program: Any, *types: str, **dims: int) -> Chain:
        return longest_chain(fx.symbolic_trace(program, *types).graph.nodes, dims)

    assert chain(lambda x: x.T[1:], "f32[4,4]") == Chain()
    assert chain(lambda x: np.exp(x) + x, "f32[4]") == Chain(2, 2)
    assert chain(lambda x: (np.exp(x), x), "f32[4]") == Chain(1, 1)
    assert chain(lambda x, y: x @ y, "f32[2,K]", "f32[K,3]", K=100) == Chain(1, 200, 1)
    assert chain(lambda x: x.sum(), "f32[B,5]", B=8).terms == 40
    softmax = chain(lambda x: F.softmax(x, -1), "f32[2,300]")
    assert softmax.terms > 300 and softmax.operations >= 3, "what a composite is made of counts"
    deep = chain(lambda x, y: (x @ y) @ y, "f32[2,9]", "f32[9,9]")
    assert deep == Chain(2, 36, 2)


def test_a_precision_allows_what_rounded_operands_explain() -> None:
    for precision, unit in OPERAND.items():
        allowed = bound("f32", Chain(1, 64, 1, precision)) - bound("f32", Chain(1, 64, 1))
        assert allowed == pytest.approx(2 * unit, abs=1e-12)
        assert bound("f64", Chain(1, 64, 1, precision)) == bound("f64", Chain(1, 64, 1))


@pytest.mark.parametrize("terms", [8, 300, 5000, 100_000])
@pytest.mark.parametrize("name", FLOATS)
def test_sums_one_after_the_other_are_inside_and_a_lost_term_is_not(name: str, terms: int) -> None:
    """Terms of one sign and of both, added in their compute type in two orders."""
    kind = dtypes.dtype(name)
    rng = np.random.default_rng(terms)
    chain = Chain(1, terms)
    for low in (0.0, -1.0):
        x = rng.uniform(low, 1, (64, terms)).astype(kind.numpy).astype(kind.compute.numpy)
        one, other = (np.cumsum(v, axis=1)[:, -1].astype(kind.numpy) for v in (x, x[:, ::-1]))
        found = compare(one, other, computed, chain)
        assert found.agrees, str(found)
        if kind.compute is kind and found.bound * terms < 1:
            x[3, terms // 2] += kind.compute.numpy.type(terms)
            lost = np.cumsum(x, axis=1)[:, -1].astype(kind.numpy)
            assert not compare(one, lost, computed, chain).agrees


def test_nothing_else_has_tolerances() -> None:
    """Nor compares in a way of its own, but for weights by a tolerance that the caller gives."""
    own = re.compile(r"TOLERANCE|\b(allclose|isclose|assert_allclose)\(.*\d|rtol\s*=\s*\d.*e-")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("fxlite", "passes", "codegen")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.name != "agreement.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if own.search(line) and not line.lstrip().startswith('"')
    ]
    assert not found, "\n".join(found)
