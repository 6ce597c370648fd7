"""The order of moves: against all plans of small cases, and at size."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fxlite.passes.quantize.planning.planner import Move, Option, moves

LAYER = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=3)


def options(choices: list[tuple[int, int]]) -> list[Option]:
    """Float, which costs 15 and loses nothing, and others of these losses and costs."""
    others = [Option(f"s{i}", loss, cost) for i, (loss, cost) in enumerate(choices)]
    return [Option("float", 0, 15), *others]


@given(st.lists(LAYER, min_size=1, max_size=4))
def test_no_plan_that_costs_as_little_loses_less(layers: list[list[tuple[int, int]]]) -> None:
    """Each prefix of the moves is a best plan for what it costs."""
    choices = {f"l{i}": options(layer) for i, layer in enumerate(layers)}
    every = [(sum(o.cost for o in plan), sum(o.loss for o in plan)) for plan in itertools.product(*choices.values())]
    chosen = {name: found[0] for name, found in choices.items()}
    slope = 0.0
    for move in [None, *moves(choices)]:
        if move is not None:
            assert move.slope >= slope
            slope = move.slope
            chosen[move.layer] = next(o for o in choices[move.layer] if o.scheme == move.scheme)
        cost, loss = (sum(getattr(o, what) for o in chosen.values()) for what in ("cost", "loss"))
        assert all(other_loss >= loss for other_cost, other_loss in every if other_cost <= cost)
    assert cost == min(other_cost for other_cost, _ in every)


def test_what_is_left_out() -> None:
    """Options dearer than float or of infinite loss; of equal ones the first is taken."""
    choices = [
        Option("float", 0, 10),
        Option("dear", 0, 11),
        Option("broken", math.inf, 1),
        Option("first", 1, 5),
        Option("second", 1, 5),
    ]
    assert moves({"a": choices}) == [Move("a", "first", 0.2)]


def test_many_layers() -> None:
    numbers = np.random.default_rng(0).uniform(1, 2, (20_000, 2))
    choices = {str(i): [Option("float", 0, 3), Option("int", loss, cost)] for i, (loss, cost) in enumerate(numbers)}
    assert len(moves(choices)) == 20_000
