"""Rules about one node, alone and in sets beside rules with patterns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import passes
from fxlite.base.errors import ArgumentError
from fxlite.passes import Call, NodeRule, RuleSet, node_rule, rule
from fxlite.passes.rewrite.rule import Answer, is_call
from tests.graphs import ops_of, trace


@node_rule("neg", register=False)
def twice(node: fx.Node) -> Answer:
    """neg(neg(x)) is x."""
    x = node.args[0]
    return x.args[0] if is_call(x, "neg") else None


@node_rule("relu", "abs", register=False)
def of_exp(node: fx.Node) -> Answer:
    """relu(exp(x)) is exp(x); of a square it would be, too, but this rule is shy."""
    x = node.args[0]
    if is_call(x, "square"):
        return "squares are left to others"
    return x if is_call(x, "exp") else None


@node_rule("square", register=False)
def written_out(node: fx.Node) -> Answer:
    """square(x) is x * x."""
    return Call("multiply", node.args[0], node.args[0])


@rule(register=False)
def half_of_product(x: Any) -> Any:
    """x * x / 2 is x * (x / 2)."""
    return x * x / 2


half_of_product.replacement(lambda x: x * (x * 0.5))


def test_it_reads_what_others_read_too() -> None:
    done = twice(trace(lambda x: (-np.negative(np.exp(x)), -np.exp(x) * 2)))
    assert ops_of(done) == ["exp", "exp", "neg", "mul"]
    shared = twice(trace(lambda x: [y := -np.exp(x), -y]))
    assert ops_of(shared) == ["exp", "neg"]
    shared.graph.lint(full=True)


def test_what_only_the_replaced_node_read_goes() -> None:
    assert ops_of(twice(trace(lambda x: -np.negative(np.exp(x))))) == ["exp"]
    kept = twice(trace(lambda x: -np.negative(F.dropout(x, 0.5))))
    assert ops_of(kept) == ["dropout"]


def test_call_keeps_scope_place_and_origin() -> None:
    gm = trace(lambda x: np.square(x) + 1)
    done = written_out(gm)
    (mul,) = done.graph.find_nodes(op="call_function", target="mul")
    (square,) = gm.graph.find_nodes(op="call_function", target="square")
    assert (mul.loc, mul.scope) == (square.loc, square.scope)
    assert mul.meta["from"] == (("written_out", "square"),)


def test_an_answer_of_another_type_is_not_used() -> None:
    @node_rule("cast", register=False)
    def careless(node: fx.Node) -> Answer:
        """A cast is its input."""
        return node.args[0]

    gm = trace(lambda x: x.astype(np.float64) + 1)
    assert careless(gm).graph == gm.graph and not passes.ledger(careless(gm))
    assert "would change the type from f64[3,4] to f32[3,4]" in str(careless.explain(gm))


def test_reason_goes_to_the_ledger() -> None:
    gm = trace(lambda x: F.relu(np.square(x)) + F.relu(np.exp(x)))
    done = of_exp(gm)
    assert ops_of(done) == ["square", "relu", "exp", "add"]
    (entry,) = passes.ledger(done)
    assert (entry.pass_name, entry.node) == ("of_exp", "relu")
    assert entry.reason == "squares are left to others"


def test_in_a_set_with_patterns() -> None:
    both = RuleSet([twice, written_out, half_of_product], name="both")
    gm = trace(lambda x: -np.negative(np.square(x) / 2))
    done = both(gm)
    assert ops_of(done) == ["mul", "mul"]
    assert {name: c.hits for name, c in both.statistics.items()} == {"twice": 1, "written_out": 1, "half_of_product": 1}
    x = np.float32([[1, -2, 3, np.nan]] * 3)
    np.testing.assert_array_equal(done(x), gm(x))


def test_a_reader_that_goes_lets_a_pattern_match() -> None:
    """The pattern's inner value has a second reader until the other rule removes it."""

    @rule(register=False)
    def log_of_exp(x: Any) -> Any:
        """log(exp(x)) is x here."""
        return np.log(np.exp(x))

    log_of_exp.replacement(lambda x: x)

    def shared(x: Any) -> Any:
        y = np.exp(np.tanh(x))
        return np.log(y), F.relu(y) - F.relu(y)

    @node_rule("sub", register=False)
    def nothing_left(node: fx.Node) -> Answer:
        """Not true, but it drops two readers."""
        a, b = node.args
        if is_call(a, "relu") and is_call(b, "relu") and a.args[0] is b.args[0]:
            return node.graph.placeholders[0]
        return None

    assert ops_of(log_of_exp(trace(shared))) == ["tanh", "exp", "log", "relu", "relu", "sub"]
    assert ops_of(RuleSet([log_of_exp, nothing_left])(trace(shared))) == ["tanh"]


def test_calls_of_calls() -> None:
    """What an answer reads may be calls, in a tuple, too."""

    @node_rule("sub", register=False)
    def joined(node: fx.Node) -> Answer:
        a, b = node.args
        return Call("sum", Call("stack", (a, Call("neg", b)), axis=0), axis=0)

    gm = trace(lambda x: np.exp(x) - x)
    done = joined(gm)
    assert ops_of(done) == ["exp", "neg", "stack", "sum"]
    done.graph.lint()
    x = np.random.default_rng(0).standard_normal((3, 4)).astype("f4")
    np.testing.assert_allclose(fx.Interpreter(done).run(x), np.exp(x) - x, rtol=1e-6)


def test_explain() -> None:
    gm = trace(lambda x: F.relu(np.square(x)) + F.relu(np.exp(x)) + np.abs(x))
    text = str(of_exp.explain(gm))
    assert text.splitlines()[0] == "of_exp fires at relu_1"
    assert "squares are left to others" in text and "test_node_rule.py" in text
    assert "the rule's function has no answer here" in text
    (place,) = gm.graph.find_nodes(op="call_function", target="exp")
    assert "the rule looks at relu or abs, this is exp" in str(of_exp.explain(gm, place))
    with pytest.raises(ArgumentError, match="no node 'relo'; did you mean relu"):
        of_exp.explain(gm, "relo")
    empty = str(twice.explain(gm))
    assert empty == "twice does not fire: the graph has no neg"


def test_registration_and_unknown_ops() -> None:
    @node_rule("neg", name="node_rule_of_this_test")
    def registered(node: fx.Node) -> Answer:
        """Says nothing."""

    try:
        assert passes.PASSES["node_rule_of_this_test"] is registered
        assert isinstance(registered, NodeRule) and str(registered.exactness) == "exact"
    finally:
        del passes.PASSES["node_rule_of_this_test"]
    with pytest.raises(ArgumentError, match="no op 'negg'; did you mean neg"):
        node_rule("negg")(lambda node: None)


def test_own_rule_in_simplify() -> None:
    @node_rule("exp", register=False)
    def exp_of_log(node: fx.Node) -> Answer:
        """exp(log(x)) is x, roughly."""
        return node.args[0].args[0] if is_call(node.args[0], "log") else None

    gm = trace(lambda x: np.exp(np.log(x * 1)) + 1)
    try:
        passes.simplify.rules.append(exp_of_log)
        assert ops_of(passes.simplify(gm)) == ["add"]
    finally:
        passes.simplify.rules.remove(exp_of_log)
    assert ops_of(passes.simplify(gm)) == ["log", "exp", "add"]
