"""Every pass, and every rule of simplify, brings examples, and does on them what they show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.passes import ExampleError, Pass, check_examples, graph_pass
from fxlite.passes.base import PASSES
from fxlite.passes.checking.verify import VerificationError, run_example, source_of
from fxlite.passes.gallery import own_passes
from fxlite.passes.rules.simplify import simplify
from fxlite.types.agreement import allclose, compare
from tests.oracle import RUNGS, flatten

RULES = [rule for rule in simplify.rules if isinstance(rule, Pass)]
SHIPPED = [*own_passes(), *RULES]


def test_nothing_is_left_out() -> None:
    assert len(RULES) == len(simplify.rules) and len(own_passes()) >= 8
    assert {p.name for p in own_passes()} <= PASSES.keys()
    assert len({p.name for p in SHIPPED}) == len(SHIPPED)


@pytest.mark.parametrize("item", SHIPPED, ids=lambda p: p.name)
def test_examples(item: Pass) -> None:
    check_examples(item)
    assert item.__doc__ and all(e.about for e in item.counterexamples)


@pytest.mark.parametrize("rung", ["graph", "python", "kernel"])
@pytest.mark.parametrize("item", SHIPPED, ids=lambda p: p.name)
def test_oracle_agrees(item: Pass, rung: str) -> None:
    """On numbers, before and after, in every way to run a program that needs no compiler."""
    for example in item.examples:
        before, after = run_example(item, example)
        inputs = [_numbers(node.type.substitute({"B": 3}), seed) for seed, node in enumerate(before.graph.placeholders)]
        expected, actual = fx.Interpreter(before).run(*inputs), RUNGS[rung](after)(inputs)
        assert len(flatten(expected)) == len(flatten(actual))
        for one, other in zip(flatten(expected), flatten(actual)):
            promise = item.exactness
            if rung == "kernel" and promise.kind == "exact":
                promise = allclose()  # its exp is not NumPy's
            assert compare(one, other, promise).agrees, (item.name, after.graph)


@pytest.mark.parametrize("item", SHIPPED, ids=lambda p: p.name)
def test_what_a_pass_makes_names_its_origin(item: Pass) -> None:
    for example in item.examples:
        before, after = run_example(item, example)
        old = {n.name for n in before.graph.nodes}
        for node in after.graph.nodes:
            if node.name not in old:
                (name, origin), *_ = node.meta["from"]
                assert name and origin in old, (node, node.meta)


def _numbers(type: fx.TensorType, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if type.dtype.is_float:
        return rng.standard_normal(type.shape).astype(type.dtype.numpy)
    return rng.integers(0, 2 if type.dtype.is_bool else 9, type.shape).astype(type.dtype.numpy)


# -- the helper itself -----------------------------------------------------------------------------
@pytest.fixture
def halve() -> Any:
    """A pass that is right for x * 0.5 only, without examples."""

    def halve(gm: fx.GraphModule) -> None:
        for node in gm.graph.find_nodes(op="call_function", target="mul"):
            x, number = node.args
            if number != 1:
                with gm.graph.inserting_before(node):
                    node.replace_all_uses_with(gm.graph.call_function("div", (x, 2)))
                gm.graph.erase_node(node)

    yield graph_pass(name="halve")(halve)
    del PASSES["halve"]


def test_a_pass_without_examples_fails(halve: Pass) -> None:
    with pytest.raises(ExampleError, match=r"halve has no example: add one with halve.example"):
        check_examples(halve)
    halve.example(lambda x: x * 0.5, x="f32[4]")
    with pytest.raises(ExampleError, match="halve has no counterexample"):
        check_examples(halve)
    halve.counterexample(lambda x: x * 1, "one is left", x="f32[4]")
    check_examples(halve)


def test_a_wrong_example_fails(halve: Pass) -> None:
    halve.example(lambda x: x * 0.5, x="f32[4]")
    halve.counterexample(lambda x: x * 0.25, "it should know", x="f32[4]")
    with pytest.raises(ExampleError, match=r"changes its counterexample 1 \(it should know\)"):
        check_examples(halve)
    halve.example(lambda x: x + 0.5, x="f32[4]")
    with pytest.raises(ExampleError, match="leaves its example 2 as it is"):
        check_examples(halve)


def test_a_wrong_result_fails(halve: Pass) -> None:
    halve.example(lambda x: x * 0.25, x="f32[4]")
    halve.counterexample(lambda x: x * 1, "one is left", x="f32[4]")
    with pytest.raises(VerificationError):
        check_examples(halve)


def test_source_of_a_lambda() -> None:
    programs = (lambda x: x + 1, lambda x, y=(1, 2): [f(x) for f in (np.exp,)] + [y])
    assert source_of(programs[0]) == "def program(x):\n    return x + 1"
    assert source_of(programs[1]).splitlines()[0] == "def program(x, y=(1, 2)):"
    assert source_of(programs[1]).endswith("+ [y]")
    assert source_of(_numbers).startswith("def _numbers(type: fx.TensorType")
