"""Rule-set analysis: loops, rules that never fire, pairs whose order matters; each is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite.nn.functional as F
from fxlite import ops, passes
from fxlite.passes.rewrite.rule import Rule
from fxlite.passes.rewrite.rule_set import analyze_rules

pytestmark = pytest.mark.usefixtures("registry")


def made(name: str, pattern: Any, replacement: Any, *examples: Any) -> Rule:
    rule = passes.rule(name=name, exactness="allclose")(pattern)
    rule.replacement(replacement)
    for example in examples:
        rule.example(example, x="f32[4]")
    return rule


def silu() -> Rule:
    return made("silu", lambda x: x * ops.sigmoid(x), lambda x: F.silu(x), lambda x: x * F.sigmoid(x))


def twice() -> Rule:
    return made("twice", lambda x: np.negative(-x), lambda x: x, lambda x: -np.negative(x))


def test_rules_that_get_along() -> None:
    found = analyze_rules([silu(), twice()])
    assert found and found.programs >= 6
    assert str(found).startswith("0 loops, 0 rules that never fire, 0 pairs whose order matters")


def test_a_loop_is_named() -> None:
    there = made("there", lambda x: np.exp(x), lambda x: np.expm1(x) + 1, lambda x: np.exp(x))
    back = made("back", lambda x: np.expm1(x) + 1, lambda x: np.exp(x), lambda x: np.expm1(x) + 1)
    found = analyze_rules([there, silu(), back])
    (loop,) = found.loops
    assert set(loop.rules) == {"there", "back"} and "exp(x)" in loop.program
    assert "there -> back" in str(found) or "back -> there" in str(found)


def test_a_rule_that_can_never_fire_is_named_with_the_one_before_it() -> None:
    any_product = made("any_product", lambda x, y: x * y, lambda x, y: ops.exp(x + y), lambda x: x * np.cos(x))
    found = analyze_rules([any_product, silu()])
    (never,) = found.never_fire
    assert never.rules == ("silu",) and "any_product comes first" in never.text
    (order,) = found.order_matters
    assert set(order.rules) == {"any_product", "silu"} and "sigmoid" in order.program
    assert not analyze_rules([silu(), any_product]).never_fire


def test_a_rule_whose_example_does_not_fire_and_one_without() -> None:
    wrong = made("wrong", lambda x: np.tan(x), lambda x: np.sin(x), lambda x: np.cos(x))
    bare = made("bare", lambda x: np.tan(x), lambda x: np.sin(x))
    texts = {f.rules[0]: f.text for f in analyze_rules([wrong, bare]).never_fire}
    assert texts == {
        "wrong": "it does not fire on its own example",
        "bare": "it has no example, so nothing is known of it",
    }


def test_order_that_matters_only_where_two_rules_meet() -> None:
    def square_of_neg(x: Any) -> Any:
        y = -x
        return y * y

    square = made("square", lambda x: x * x, lambda x: ops.square(x), lambda x: x * x)
    negs = made("negs", square_of_neg, lambda x: x * x * 1.0, square_of_neg)
    found = analyze_rules([negs, square])
    assert [set(f.rules) for f in found.order_matters] == [{"square", "negs"}]
    assert "the two orders give" in str(found)
