"""Named dims with facts: what they declare, what they decide, and that a graph has one of each."""

from __future__ import annotations

import copy
import pickle
import time
from typing import Any

import numpy as np
import pytest
import sympy

import fxlite as fx
from fxlite.base.errors import ArgumentError, FxliteError, ShapeError, TraceError
from fxlite.scalar.index import Index
from fxlite.types import shapes, symbols
from fxlite.types.facts import NO_FACTS, Facts, parse_facts
from fxlite.types.symbols import symbol

B, T = fx.dims("B T", min=1, max=512, multiple_of={"T": 8})


# -- declaring -------------------------------------------------------------------------------------
def test_facts_are_part_of_a_dim() -> None:
    assert str(B) == "B" and B.facts == Facts(1, 512) and T.facts == Facts(1, 512, 8)
    assert fx.dims("T", min=1, max=512, multiple_of=8) is T
    assert fx.dims("T") != T and hash(fx.dims("T")) != hash(T)
    assert fx.float32[B, T] is not fx.parse_type("f32[B,T]")
    for copied in (copy.deepcopy(T), pickle.loads(pickle.dumps(T))):
        assert copied == T and copied.facts == T.facts
    assert pickle.loads(pickle.dumps(fx.float32[B, 2 * T])) is fx.float32[B, 2 * T]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min": 5, "max": 3}, "min=5 is larger than max=3"),
        ({"multiple_of": 0}, "multiple_of=0 must be at least 1"),
        ({"min": -1}, "a size cannot be negative"),
        ({"min": 9, "max": 15, "multiple_of": 8}, "no multiple of 8 lies between 9 and 15"),
        ({"max": 2.5}, "max of a named dim must be an int, not 2.5"),
        ({"max": {"Z": 3}}, "max names Z, not in 'T'"),
    ],
)
def test_facts_that_nothing_fulfils_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        fx.dims("T", **options)


@pytest.mark.parametrize(
    ("text", "facts"),
    [("1..512%8", Facts(1, 512, 8)), ("1..", Facts(1)), ("..64", Facts(0, 64)), ("%4", Facts(0, None, 4))],
)
def test_facts_from_text(text: str, facts: Facts) -> None:
    assert parse_facts(text) == facts


def test_text_that_says_no_facts() -> None:
    for text in ("", "8", "a..b", "1..2..3", "%"):
        with pytest.raises(ArgumentError, match="does not say facts"):
            parse_facts(text)


def test_types_by_subscript() -> None:
    assert str(fx.float32[B, 4 * T, 3]) == "f32[B,4*T,3]"
    assert fx.int64[7] is fx.parse_type("i64[7]") and fx.bool_[()] is fx.parse_type("bool")
    with pytest.raises(ShapeError, match="negative size -1"):
        fx.float32[-1]


# -- proving ---------------------------------------------------------------------------------------
def test_what_facts_prove() -> None:
    plain = fx.dims("P")
    assert shapes.equal(shapes.floordiv(T, 8) * 8, T)
    assert not shapes.equal(shapes.floordiv(T, 16) * 16, T)
    assert shapes.at_least(T, 8) and not shapes.at_least(T, 9)
    assert shapes.at_least(512, T) and not shapes.at_least(511, T)
    assert shapes.at_least(B * T, B) and shapes.at_least(512 * 512, B * T)
    assert shapes.at_least(T, shapes.floordiv(T, 2))
    assert shapes.minimum(T, 5) == 5 and shapes.maximum(T, 600) == 600
    assert shapes.remainder(T, 4) == 0 and shapes.remainder(T, 3) != 0
    assert not shapes.at_least(plain, 1) and not shapes.at_least(plain, B)
    assert shapes.equal(shapes.floordiv(shapes.floordiv(plain, 3), 2), shapes.floordiv(plain, 6))
    # an equality that would need more than sizes in general have
    assert not shapes.equal(shapes.floordiv(plain, 8) * 8, plain)


@pytest.mark.parametrize("seed", range(40))
def test_bounds_hold_for_all_values(seed: int) -> None:
    generator = np.random.default_rng(seed)
    u = symbol("u", Facts(int(generator.integers(0, 3)), int(generator.integers(5, 9))))
    v = symbol("v", Facts(0, 12, int(generator.integers(1, 4))))
    parts = [u, v, u * v, shapes.floordiv(u + v, 2), shapes.minimum(u, v), shapes.remainder(v, 5)]
    dim = sum(int(generator.integers(-3, 4)) * part for part in parts) + int(generator.integers(-5, 20))
    if type(dim) is int:
        return
    values = [
        int(shapes.substitute(dim, {"u": a, "v": b}))
        for a in range(u.facts.lowest, u.facts.highest + 1)
        for b in range(0, 13, v.facts.multiple_of)
    ]
    low, high = symbols.interval(dim)
    assert low <= min(values) and max(values) <= high
    assert not symbols.never_negative(dim) or min(values) >= 0


def test_nearest_values() -> None:
    facts = Facts(5, 40, 8)
    assert [facts.nearest(v) for v in (0, 8, 9, 39, 100)] == [8, 8, 16, 40, 40]
    assert NO_FACTS.nearest(7) == 7
    assert [facts.broken_by(v) for v in (8, 4, 48, 9)] == [None, "at least 5", "at most 40", "a multiple of 8"]


# -- in programs -----------------------------------------------------------------------------------
def test_facts_decide_sizes_and_branches() -> None:
    def program(x: Any) -> Any:
        if x.shape[1] > 512:
            return x
        if x.shape[1] % 8 == 0 and x.shape[0] >= 1:
            return x[:, :5].reshape(x.shape[0], -1) + x.reshape(x.shape[0], -1, 8)[:, 0, :5]
        return x

    gm = fx.symbolic_trace(program, fx.float32[B, T])
    assert str(gm.graph.output_node().type) == "f32[B,5]"
    assert str(gm.graph.find_nodes(op="call_function", target="reshape")[1].type) == "f32[B,T//8,8]"
    assert gm.graph.guards == ()
    x = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    np.testing.assert_array_equal(gm(x), program(x))


def test_a_graph_has_one_dim_of_each_name() -> None:
    def program(x: Any, y: Any) -> Any:
        return x + y + fx.ops.zeros((fx.dims("T"),)) + (x.shape[1] + fx.dims("T"))

    gm = fx.symbolic_trace(program, x="f32[B,T]", y=fx.float32[B, T])
    found = {s for n in gm.graph.nodes for s in _symbols(n)}
    assert found == {B, T}
    assert gm.graph.declared_dims == {"B": B, "T": T}
    added = gm.graph.call_function("zeros", ((fx.dims("T"), 4),))
    assert added.type is fx.float64[T, 4] or added.type is fx.float32[T, 4]
    added.kwargs = {**added.kwargs, "shape": (fx.dims("B"), 4)}
    assert _symbols(added) == {B}


def _symbols(node: fx.Node) -> set[Any]:
    values = [*getattr(node.type, "shape", ()), *node.kwargs.values()]
    flat = [w for v in values for w in (v if isinstance(v, tuple) else (v,))]
    return {s for v in flat if hasattr(v, "free_symbols") for s in v.free_symbols}


def test_two_declarations_of_one_name_are_an_error() -> None:
    def program(x: Any, y: Any) -> Any:
        return x + y

    other = fx.dims("T", max=6)
    with pytest.raises(ArgumentError, match=r"T is declared twice.* in the input x.* in y"):
        fx.symbolic_trace(program, x=fx.float32[T], y=fx.float32[other])
    graph = fx.Graph()
    graph.placeholder("x", fx.float32[T])
    with pytest.raises(ArgumentError, match=r"declared twice: in the input x .* 0 to 6"):
        graph.placeholder("y", fx.float32[other])


def test_a_fact_that_is_missing_is_named_as_a_way_out() -> None:
    def program(x: Any) -> Any:
        return x if x.shape[0] > 5 else 2 * x

    class Uncaptured(fx.Tracer):
        captures = False

    with pytest.raises(TraceError, match=r"(?s)T > 5.*test_dims.py.*bounds in fx.dims"):
        fx.symbolic_trace(program, "f32[T]", tracer=Uncaptured())


def test_facts_are_checked_in_a_call() -> None:
    gm = fx.symbolic_trace(lambda x: x + 1, x=fx.float32[B, 2 * T])
    gm(np.zeros((1, 16), np.float32))
    for shape, message in (
        ((1, 14), "x: axis 1 of f32.*is 14, so T is 7, but T must be a multiple of 8"),
        ((0, 16), r"x: axis 0 is 0, but B must be at least 1 \(declared by fx.dims\)"),
        ((513, 16), "B must be at most 512"),
    ):
        for run in (gm, fx.Interpreter(gm).run):
            with pytest.raises(ShapeError, match=message):
                run(np.zeros(shape, np.float32))


def test_other_facts_are_another_program() -> None:
    def program(x: Any) -> Any:
        return np.exp(x)

    gm = fx.symbolic_trace(program, fx.float32[T])
    assert gm.graph == fx.symbolic_trace(program, fx.float32[T]).graph
    plain = fx.symbolic_trace(program, "f32[T]")
    assert gm.graph != plain.graph
    with pytest.raises(AssertionError, match="only the first graph says T >= 1"):
        fx.assert_same(gm, plain)


def test_a_retrace_keeps_facts_and_requires_them() -> None:
    gm = fx.symbolic_trace(lambda x, y: (x[:, :5], y), fx.float32[B, T], fx.float32[T])
    other = fx.dims("S")
    renamed = fx.symbolic_trace(gm, "f32[B,S]", "f32[S]")
    assert {n: d.facts for n, d in renamed.graph.declared_dims.items()} == {"B": B.facts, "S": T.facts}
    swapped = fx.symbolic_trace(gm, "f32[T,B]", "f32[B]")
    assert swapped.graph.declared_dims["B"].facts == T.facts
    assert swapped.graph.declared_dims["T"].facts == B.facts
    doubled = fx.symbolic_trace(gm, fx.float32[B, 8 * other], fx.float32[8 * other])
    assert set(map(str, doubled.graph.guards)) == {"8*S >= 1", "8*S <= 512"}
    with pytest.raises(FxliteError, match=r"T % 8 == 0 is required \(declared.*got T=9"):
        fx.symbolic_trace(gm, "f32[B,9]", "f32[9]")


def test_runs_of_axes_that_match_in_a_reshape() -> None:
    def runs(a: Any, b: Any) -> Any:
        found = shapes.matching_runs(a, b)
        return found and [([*one], [*other]) for one, other in found]

    B, T = fx.dims("B T")
    assert runs((3 * B, 2), (B, 3, 2)) == [([0], [0, 1]), ([1], [2])]
    assert runs((1, 512, 56 * 56), (1, 512, 56, 56)) == [([0], [0]), ([1], [1]), ([2], [2, 3])]
    assert runs((3, 2, 35), (6, 5, 7)) == [([0, 1], [0]), ([2], [1, 2])]
    assert runs((B, T, 1, 1), (B, T)) == [([0], [0]), ([1], [1]), ([2, 3], [])]
    assert runs((), ()) == [] and runs((1,), ()) == [([0], [])]
    assert runs((B, 4), (4, B)) == [([0, 1], [0, 1])] and runs((2, 3), (2, 4)) is None and runs((B,), (T,)) is None


def test_divisions_of_divisions_are_one() -> None:
    """Halves of halves, as in a recursive FFT, stay short; in both normal forms, and equal to what Python computes."""
    n = symbols.symbol("n")
    half: Any = n
    for _ in range(5):
        half = shapes.floordiv(half + 1, 2)
    assert str(half) == "(n + 31)//32" and str(shapes.floordiv(shapes.floordiv(n, 3) - 2, 5)) == "(n - 6)//15"
    draw = np.random.default_rng(5)
    for _ in range(200):
        steps = [(int(draw.integers(-5, 6)), int(draw.integers(1, 6))) for _ in range(draw.integers(1, 5))]
        dim: Any = n
        index = Index.of(n)
        for more, by in steps:
            dim, index = shapes.floordiv(shapes.normalize(dim + more), by), (index + more) // by
        assert Index.of(dim) == index
        for value in range(0, 60, 7):
            expected = value
            for more, by in steps:
                expected = (expected + more) // by
            assert int(dim.subs(n, value)) == expected


def test_a_proof_about_many_minima_takes_no_time() -> None:
    """The sizes of a beam search: ``min(3, n * min(3, ...))``."""
    size: Any = symbol("n", Facts(2))
    n, before = size, time.process_time()
    for _ in range(7):
        size = n * sympy.Min(3, size)
        assert shapes.at_least(size + 1, 0)
        shapes.at_least(size, sympy.Min(3, size))
    assert time.process_time() - before < 0.7
