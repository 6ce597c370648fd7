"""Whole programs of which random channels go compute what they did with zeros in their place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import ArgumentError
from fxlite.passes.surgery.axes import AxisGraph, Slot
from fxlite.passes.surgery.axis_rules import axis_graph
from fxlite.passes.surgery.resize import remove_groups
from tests.models import MODELS
from tests.passes.surgery.test_axis_rules import COUNT, zeroed
from tests.zoo import ZOO
from tests.zoo.registry import fill

RNG = np.random.default_rng(3)
WORDS = np.array([[1, 4, 2, 0, 3, 1], [2, 2, 1, 5, 0, 3]])
#: Inputs for the whole models, of small sizes.
INPUTS: dict[str, tuple[tuple[str, ...], tuple[Any, ...]]] = {
    "resnet18": (("f32[B,3,32,32]",), (RNG.standard_normal((1, 3, 32, 32)).astype("f4"),)),
    "bert": (("i64[B,T]", "i64[B,T]"), (WORDS, (WORDS > 0).astype(np.int64))),
    "lstm_tagger": (("i64[B,T]",), (WORDS,)),
    "lstm_cells": (("f32[3,B,16]",), (RNG.standard_normal((3, 2, 16)).astype("f4"),)),
    "unet": (("f32[B,3,16,16]",), (RNG.standard_normal((1, 3, 16, 16)).astype("f4"),)),
    "gpt_block": (("f32[B,T,64]",), (RNG.standard_normal((1, 5, 64)).astype("f4"),)),
}
#: How many of the groups that are tried can go at least; of others none can, or few.
LEAST = {
    "resnet18": 6,
    "bert": 3,
    "lstm_tagger": 3,
    "unet": 6,
    "gpt_block": 3,
    "cnn": 2,
    "resnet_block": 5,
    "mlp": 5,
    "unet_piece": 5,
    "transformer_block": 3,
}


def free_groups(gm: fx.GraphModule, found: AxisGraph) -> list[int]:
    """The groups of axes of weights that can go, by themselves."""
    weights = gm.graph.find_nodes(op="get_attr")
    every = {int(g) for n in weights for a in range(n.type.rank) for g in found.groups(Slot(n, a))}
    return sorted(g for g in every if not found.reason(g))


def counts(gm: fx.GraphModule, kept: dict[Slot, Any]) -> bool:
    """Whether an op that counts what goes reads it."""
    cut = {slot.node for slot in kept}
    calls = gm.graph.find_nodes(op="call_function")
    return any(
        n.target.name in COUNT or n.arguments.get("training") for n in calls if cut.intersection(n.all_input_nodes)
    )


def try_program(name: str, gm: fx.GraphModule, inputs: tuple[Any, ...]) -> None:
    found = axis_graph(gm)
    groups = free_groups(gm, found)
    chosen = np.random.default_rng(len(groups)).permutation(groups)[:8]
    done = 0
    for group in chosen.tolist():
        made = gm.copy()
        try:
            remove_groups(made, axis_graph(made), np.array([group]), "resize")
        except ArgumentError as error:
            assert "take the same number from each" in str(error) or "nothing would" in str(error)
            continue
        done += 1
        made.graph.lint(full=True)
        kept = found.kept(np.array([group]))
        with np.errstate(all="ignore"):
            results = [m(*[np.array(x) for x in inputs]) for m in (made, zeroed(gm, found, group))]
        small, whole = (np.concatenate([np.ravel(v) for v in flat(r)]) for r in results)
        assert small.shape == whole.shape
        if not counts(gm, kept):
            scale = np.abs(whole[np.isfinite(whole)]).max(initial=1.0)
            tolerance = 1e-5 if small.dtype.itemsize >= 4 else 2e-2
            np.testing.assert_allclose(small, whole, rtol=1e-3, atol=tolerance * scale)
    assert done >= LEAST.get(name, 0), (name, done, len(groups))


def flat(result: Any) -> list[Any]:
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in flat(part)]
    return [result]


@pytest.mark.parametrize("entry", ZOO, ids=lambda p: p.name)
def test_the_zoo(entry: Any) -> None:
    gm, _, inputs = entry.trace()
    try_program(entry.name, gm, inputs)


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    make = MODELS[name][0]
    types, inputs = INPUTS[name]
    try_program(name, fx.symbolic_trace(fill(make()), *types), inputs)
