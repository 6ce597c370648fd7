"""Rules, conditions, sets of rules, and the ledger of what they refused."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import passes
from fxlite.base.errors import ArgumentError
from fxlite.passes import PassError, RuleSet, ledger, predicates, rule
from fxlite.passes.rewrite.predicates import constant, is_float, only_use, same_shape
from tests.graphs import ops_of
from tests.oracle import agree, compare

pytestmark = pytest.mark.usefixtures("registry")


def make(pattern: Any, replacement: Any, **facts: Any) -> passes.Rule:
    made = rule(name=facts.pop("name", "made"), **facts)(pattern)
    made.replacement(replacement)
    return made


def silu_rule() -> passes.Rule:
    @rule(exactness="allclose")
    def silu(x: Any) -> Any:
        """x * sigmoid(x) is silu(x)."""
        return x * F.sigmoid(x)

    @silu.replacement
    def _(x: Any) -> Any:
        return F.silu(x)

    @silu.where
    def _(x: Any) -> Any:
        return is_float(x) or "x is not a float tensor"

    return silu


# -- one rule --------------------------------------------------------------------------------------
def test_rule_is_a_registered_pass() -> None:
    silu = silu_rule()
    assert passes.PASSES["silu"] is silu and silu.summary == "x * sigmoid(x) is silu(x)"

    def program(x: Any, y: Any) -> Any:
        return F.sigmoid(x) * x + y * F.sigmoid(x)

    gm = fx.symbolic_trace(program, x="f32[4]", y="f32[4]")
    done = passes.PassManager(["silu"])(gm)
    assert ops_of(done) == ["silu", "sigmoid", "mul", "add"] and "silu" not in ops_of(gm)
    x, y = np.float32([-1, 0, 1, 2]), np.float32([1, 2, 3, 4])
    compare("silu", done(x, y), program(x, y))
    agree(done, x, y)


def test_rule_does_not_match_what_it_put_in() -> None:
    grow = make(lambda x: np.exp(x), lambda x: np.exp(x) + 1)
    assert ops_of(grow(fx.symbolic_trace(lambda x: np.exp(x), x="f32[3]"))) == ["exp", "add"]


def test_ledger_says_why_and_what_it_costs_dearest_first() -> None:
    def program(x: Any, y: Any, z: Any) -> Any:
        s, t = F.sigmoid(x), F.sigmoid(y)
        return s * x, s + 1, t * y, t + 1, z * F.sigmoid(z)

    gm = fx.symbolic_trace(program, x="f32[4]", y="f32[B,8]", z="f32[4]")
    done = silu_rule()(gm)
    first, second = ledger(done)
    assert (first.node, first.nodes) == ("mul_1", ("mul_1", "sigmoid_1"))
    assert str(first.bytes) == "32*B" and second.bytes == 16 and second.flops > 4
    assert second.reason.startswith("sigmoid has a second reader: add at test_rule.py:")
    text = str(ledger(done))
    assert "why not" in text and "32*B" in text and text.index("mul_1") < text.index("second")
    assert str(ledger(gm)) == "nothing was refused"


def test_condition_with_a_reason() -> None:
    made = make(lambda x: x + x, lambda x: x * 2)
    made.where(lambda x: is_float(x) or "x is not a float tensor")
    done = made(fx.symbolic_trace(lambda x, y: (x + x, y + y), x="i32[3]", y="f32[3]"))
    assert ops_of(done) == ["add", "mul"]
    assert [(r.node, r.reason) for r in ledger(done)] == [("add", "x is not a float tensor")]


def test_condition_on_the_match_and_without_a_reason() -> None:
    made = make(lambda x: np.exp(x), lambda x: x)
    made.where(lambda match, x: match.anchor.type.rank == 1 and x.op == "placeholder")
    done = made(fx.symbolic_trace(lambda x, y: (np.exp(x), np.exp(y)), x="f32[3]", y="f32[3,3]"))
    assert ops_of(done) == ["exp"] and "not met" in ledger(done)[0].reason


def test_condition_that_gives_nothing_is_an_error() -> None:
    made = make(lambda x: np.exp(x), lambda x: x)
    made.where(lambda x: None)
    with pytest.raises(PassError, match="gives None"):
        made(fx.symbolic_trace(lambda x: np.exp(x), x="f32[3]"))


def test_condition_chooses_the_order_of_operands() -> None:
    """x * c where c is known: whichever side it stands on, and the first one that fits."""
    made = make(lambda x, c: x * c, lambda x, c: x / c)
    made.where(lambda x, c: constant(c) and not constant(x))
    weight = np.float32([1, 2, 3])

    def program(x: Any) -> Any:
        return weight * x + x * weight + 3 * x

    done = made(fx.symbolic_trace(program, x="f32[3]"))
    assert ops_of(done).count("div") == 3
    assert all(n.args[0].name == "x" for n in done.graph.nodes if n.target == fx.ops.div)


def test_replacement_of_another_type_is_refused() -> None:
    made = make(lambda x: np.exp(x), lambda x: x.astype(np.float64))
    done = made(fx.symbolic_trace(lambda x: np.exp(x) + 1, x="f32[3]"))
    assert ops_of(done) == ["exp", "add"]
    assert ledger(done)[0].reason == "the replacement gives f64[3], what it replaces is f32[3]"


def test_replacement_that_does_not_fit_is_refused() -> None:
    made = make(lambda x, y: x + y, lambda x, y: x @ y)
    done = made(fx.symbolic_trace(lambda x, y: x + y, x="f32[2,3]", y="f32[2,3]"))
    assert ops_of(done) == ["add"] and "does not fit" in ledger(done)[0].reason


def test_no_place_is_refused_with_the_reason() -> None:
    def program(x: Any) -> Any:
        return x * np.exp(x + 1)

    made = make(lambda x, y: (x + 1, x * y), lambda x, y: (x - 1, x / y))
    done = made(fx.symbolic_trace(program, x="f32[3]"))
    assert ops_of(done) == ["add", "exp", "mul"]
    assert "no place in the order" in ledger(done)[0].reason


def test_weights_may_be_read_later_than_the_first_result() -> None:
    first, second = np.ones((2, 3), np.float32), np.full((4, 3), 2, np.float32)

    def program(x: Any) -> Any:
        one = np.tanh(F.linear(x, first))
        return one, F.linear(x, second)

    def joined(x: Any, a: Any, b: Any) -> Any:
        both = F.linear(x, np.concatenate((a, b)))
        return both[..., : a.shape[0]], both[..., a.shape[0] :]

    made = make(lambda x, a, b: (F.linear(x, a), F.linear(x, b)), joined)
    done = made(fx.symbolic_trace(program, x="f32[B,3]"))
    done.graph.lint(full=True)
    assert ops_of(done).count("linear") == 1 and not ledger(done)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for expected, actual in zip(program(x), done(x)):
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_error_in_a_pattern_names_its_line_and_no_node() -> None:
    made = rule(name="made")(lambda x: x.reshape(x.shape[0], -1))
    with pytest.raises(PassError) as caught:
        made(fx.symbolic_trace(lambda x: np.exp(x), x="f32[3]"))
    message = str(caught.value)
    assert "pass made failed" in message and ": x.shape\n" in message
    assert "a pattern stands for values of any shape" in message and "at node" not in message


def test_rule_without_replacement_and_with_wrong_parameters() -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x), x="f32[3]")
    alone = rule(name="alone")(lambda x: np.exp(x))
    with pytest.raises(PassError, match="rule alone has no replacement"):
        alone(gm)
    with pytest.raises(PassError, match="same names"):
        make(lambda x: np.exp(x), lambda y, z: y)(gm)
    with pytest.raises(ArgumentError, match="a condition takes"):
        alone.where(lambda a, b: True)


def test_raising_condition_names_rule_node_and_line_and_keeps_the_graph() -> None:
    made = make(lambda x: np.exp(x), lambda x: np.abs(x), name="careless")

    @made.where
    def _(match: Any, x: Any) -> bool:
        if x.op != "placeholder":
            raise KeyError("missing")
        return True

    gm = fx.symbolic_trace(lambda x: np.exp(np.exp(x)), x="f32[3]")
    before = gm.graph.text(full=True)
    with pytest.raises(PassError, match=r"(?s)pass careless failed.*missing.*test_rule.py:\d+: np.exp"):
        made(gm)
    assert gm.graph.text(full=True) == before


def test_rule_in_place_of_a_whole_block_keeps_names_of_origin() -> None:
    gm = silu_rule()(fx.symbolic_trace(lambda x: x * F.sigmoid(x), x="f32[3]"))
    (new,) = gm.graph.find_nodes(op="call_function", target="silu")
    assert new.meta["from"] == (("silu", "mul"),) and new.loc is not None
    assert new.loc.short.startswith("test_rule.py")


# -- predicates ------------------------------------------------------------------------------------
def test_predicates() -> None:
    weight = np.float32([1, 2, 3])
    gm = fx.symbolic_trace(lambda x, y: (x + y) * weight, x="f32[B,3]", y="i64[B,3]")
    x, y = gm.graph.placeholders
    (w,) = gm.graph.find_nodes(op="get_attr")
    assert same_shape(x, y) and not predicates.same_type(x, y) and not same_shape(x, 1)
    assert predicates.dtype(x) == fx.float32 and predicates.dtype(2) is None
    assert is_float(x) and not is_float(y) and is_float(2.0) and not is_float(2)
    assert predicates.is_integer(y) and predicates.is_integer(2) and not predicates.is_integer(True)
    assert predicates.rank(x) == 2 and predicates.rank(2) == 0
    assert str(predicates.dim(x, 0)) == "B" and predicates.dim(x, -1) == 3
    assert predicates.dim(x, 2) is None
    assert constant(w) and constant(2) and not constant(x)
    assert only_use(w) and only_use(x) and not only_use(2)


# -- sets ------------------------------------------------------------------------------------------
def test_rule_set_runs_to_the_end_and_counts() -> None:
    merge = make(lambda x: np.floor(np.floor(x)), lambda x: np.floor(x), name="merge")
    drop = make(lambda x: np.negative(-x), lambda x: x, name="drop")

    def program(x: Any) -> Any:
        for _ in range(40):
            x = np.floor(np.negative(-x))
        return x

    rules = RuleSet([merge, drop])
    done = rules(fx.symbolic_trace(program, x="f32[3]"))
    assert ops_of(done) == ["floor"]
    assert rules.statistics["merge"].hits == 39 and rules.statistics["drop"].hits == 40
    assert rules.statistics["merge"].tries >= 40 and "hits" in str(rules.statistics)
    assert str(rules.exactness) == "exact"
    assert str(RuleSet([merge, silu_rule()]).exactness) == "allclose"


def test_a_set_keeps_no_wrapped_function_alive() -> None:
    def simplified() -> weakref.ref[Any]:
        @fx.wrap(infer="f32[3]")
        def halved(x: Any) -> Any:
            return x / 2

        passes.simplify(fx.symbolic_trace(lambda x: halved(x) + 0.0, x="f32[3]"))
        return weakref.ref(halved.wrapped_op)

    op = simplified()
    gc.collect()
    assert op() is None


def test_rule_set_returns_to_nodes_that_lost_a_reader() -> None:
    """exp is read twice until the later rewrite takes one reader away."""
    fold = make(lambda x: np.exp(x) + 1, lambda x: np.expm1(x) + 2, name="fold")
    drop = make(lambda x: x * 0 + x, lambda x: x, name="drop")

    def program(x: Any, y: Any) -> Any:
        e = np.exp(x)
        return e + 1, np.sin(y * e)

    ignore = make(lambda x, y: np.sin(y * x), lambda x, y: np.sin(y), name="ignore")
    rules = RuleSet([fold, drop, ignore])
    done = rules(fx.symbolic_trace(program, x="f32[3]", y="f32[3]"))
    assert rules.statistics["fold"].refused == 0
    assert "expm1" in ops_of(done) and "exp" not in ops_of(done)
    assert not ledger(done), "what was refused at first and done later is no refusal"


def test_loop_is_named() -> None:
    there = make(lambda x: np.exp(x), lambda x: np.log2(x), name="there")
    back = make(lambda x: np.log2(x), lambda x: np.exp(x), name="back")
    sine = make(lambda x: np.sin(x), lambda x: np.cos(x), name="sine")
    gm = fx.symbolic_trace(lambda x: np.exp(np.sin(x)), x="f32[3]")
    before = gm.graph.text(full=True)
    with pytest.raises(PassError, match="does not end: there -> back -> there") as caught:
        RuleSet([sine, there, back], limit=50)(gm)
    assert "sine" not in str(caught.value) and gm.graph.text(full=True) == before


def test_rule_that_feeds_itself_is_named() -> None:
    grow = make(lambda x: np.exp(x), lambda x: np.exp(x) * np.exp(x), name="grow")
    with pytest.raises(PassError, match="does not end: grow -> grow"):
        RuleSet([grow], limit=30)(fx.symbolic_trace(lambda x: np.exp(x), x="f32[3]"))


def test_long_cascade_is_no_loop() -> None:
    merge = make(lambda x: np.floor(np.floor(x)), lambda x: np.floor(x), name="merge")

    def program(x: Any) -> Any:
        for _ in range(300):
            x = np.floor(x)
        return x

    done = RuleSet([merge], limit=20)(fx.symbolic_trace(program, x="f32[3]"))
    assert ops_of(done) == ["floor"]


def test_examples_of_a_rule_fire_and_counterexamples_do_not() -> None:
    silu = silu_rule()
    silu.example(lambda x: x * F.sigmoid(x), x="f32[4]")
    silu.counterexample(lambda x, y: x * F.sigmoid(y), x="f32[4]", y="f32[4]")
    assert silu.find(silu.examples[0].trace())
    assert not silu.find(silu.counterexamples[0].trace())
