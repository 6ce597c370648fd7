"""Random graphs and random rules that keep results: lint, values and undo after every rewrite."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import fxlite as fx
from fxlite import passes
from fxlite.passes import PassError, Rule, RuleSet

#: Pattern and replacement, equal on integers.
RULES: dict[str, tuple[Any, Any]] = {
    "cancel": (lambda x, y: x + y - y, lambda x, y: x * 1 + y * 0),
    "twice": (lambda x: np.negative(-x), lambda x: x),
    "factor": (lambda x, y, z: x * y + x * z, lambda x, y, z: x * (y + z)),
    "turn": (lambda a, b, c: np.maximum(np.maximum(a, b), c), lambda a, b, c: np.maximum(c, np.maximum(b, a))),
    "pair": (lambda x, y: (x + y, x - y), lambda x, y: (np.negative(-x - y), x + -y)),
    "sign": (lambda x: (-x, np.abs(x)), lambda x: (0 - x, np.maximum(x, 0 - x))),
    "halves": (lambda x, *, c: x * c, lambda x, *, c: x * (c // 2) + x * (c - c // 2)),
    "join": (lambda *xs: np.concatenate(xs), lambda *xs: -np.concatenate([-v for v in xs])),
    "double": (lambda x: x + x, lambda x: 2 * x),
}


def program(seed: int) -> Any:
    source = random.Random(seed)
    drawn = iter([source.random() for _ in range(1000)])  # a program that is traced may not draw

    def between(low: int, high: int) -> int:
        return low + int(next(drawn) * (high - low + 1))

    def one_of(values: Any) -> Any:
        return values[between(0, len(values) - 1)]

    def run(x: Any, y: Any) -> Any:
        values = [x, y]
        for _ in range(between(3, 25)):
            a, b = one_of(values), one_of(values)
            calls = (
                lambda a=a, b=b: a + b,
                lambda a=a, b=b: a - b,
                lambda a=a, b=b: np.maximum(a, b),
                lambda a=a: -a,
                lambda a=a: np.abs(a),
                lambda a=a: a * between(1, 3),
                lambda a=a, b=b: (a + b) - b,
                lambda a=a, b=b: np.maximum(a, np.maximum(b, x)),
                lambda a=a, b=b: np.minimum(a, b) * x + y * np.minimum(a, b),
            )
            values.append(one_of(calls)())
        results = [one_of(values) for _ in range(between(1, 3))]
        joined = np.concatenate([one_of(values) for _ in range(between(1, 4))])
        return (*results, joined)

    return run


def rules(seed: int, count: int) -> list[Rule]:
    made = []
    for name in random.Random(seed).sample(sorted(RULES), count):
        pattern, replacement = RULES[name]
        made.append(Rule(pattern, name, "exact"))
        made[-1].replacement(replacement)
    return made


X, Y = np.array([1, -2, 3]), np.array([4, 5, -6])


def check(gm: fx.GraphModule, expected: Any, what: str) -> None:
    gm.graph.lint(full=True)
    for got, want in zip(fx.Interpreter(gm).run(X, Y), expected):
        assert np.array_equal(got, want), f"{what}:\n{gm.graph}"


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=80, deadline=None)
def test_random_rewrites_keep_results(seed: int, merged: bool) -> None:
    gm = fx.symbolic_trace(program(seed), x="i64[3]", y="i64[3]")
    expected = fx.Interpreter(gm).run(X, Y)
    gm = passes.cse(gm) if merged else gm
    for rule in rules(seed, 4):
        check(rule(gm), expected, rule.name)
        before = gm.graph.text(full=True)
        if fx.replace_pattern(gm, *RULES[rule.name]):
            gm.undo()
            assert gm.graph.text(full=True) == before
            gm.graph.redo()
        check(gm, expected, f"replace_pattern {rule.name}")
        assert "match" in str(rule.explain(gm))


@given(st.integers(0, 10**6))
@settings(max_examples=80, deadline=None)
def test_random_rule_sets_end_or_name_a_loop(seed: int) -> None:
    gm = fx.symbolic_trace(program(seed), x="i64[3]", y="i64[3]")
    expected = fx.Interpreter(gm).run(X, Y)
    try:
        done = RuleSet(rules(seed, 3), limit=60)(gm)
    except PassError as error:
        assert "does not end: " in str(error)
    else:
        check(done, expected, "rule set")
