"""(all passes) x (the zoo): the graph after each pass gives what the program gives."""

from __future__ import annotations

import numpy as np
import pytest

import fxlite as fx
from fxlite import passes
from fxlite.show.comparison.compare import first_difference
from fxlite.types import agreement
from tests.oracle import compare, flatten
from tests.zoo import ZOO, Program

PIPELINE = ("fuse_conv_bn", "decompose", "simplify", "const_fold", "cse", "dce")
#: Passes that cannot run on any program by themselves (they need options) would be named here.
ALONE = sorted(set(passes.PASSES))


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_pass_keeps_results(program: Program, name: str) -> None:
    gm, eager, inputs = program.trace()
    before, weights = gm.copy(), {k: np.array(v) for k, v in gm.state_dict().items()}
    expected = eager(*inputs)
    done = passes.PASSES[name](gm)
    done.graph.lint()
    promise = passes.PASSES[name].exactness
    if promise.kind == "changes":
        pass  # it means to
    elif promise.kind == "sqnr":
        assert agreement.compare(flatten(expected), flatten(done(*inputs)), promise).agrees
    else:
        compare(f"{name}, regenerated Python", done(*inputs), expected)
    compare(f"{name}, interpreted", fx.Interpreter(done).run(*inputs), done(*inputs))
    if promise.kind == "exact":
        for got, want in zip(flatten(done(*inputs)), flatten(gm(*inputs))):
            assert got.tobytes() == want.tobytes(), f"{name} is declared exact"
    assert first_difference(gm, before) is None, f"{name} changed its input"
    assert [n.name for n in gm.graph.nodes] == [n.name for n in before.graph.nodes]
    for key, value in gm.state_dict().items():
        assert value.tobytes() == weights[key].tobytes(), f"{name} changed the weight {key}"


@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_pipeline_keeps_results_and_origin(program: Program) -> None:
    gm, eager, inputs = program.trace()
    manager = passes.PassManager(PIPELINE)
    done = manager(gm)
    compare("pipeline", fx.Interpreter(done).run(*inputs), eager(*inputs))
    calls = [n for n in done.graph.nodes if n.op == "call_function"]
    assert all(n.target.has_body or not n.target.has_expansion for n in calls), "still composites"
    places = {n.loc for n in gm.graph.nodes}
    assert all(n.loc in places for n in calls), "a node lost its location"
    assert len(manager.report) == len(PIPELINE)


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_pass_twice_is_pass_once(program: Program, name: str) -> None:
    if passes.PASSES[name].exactness.kind == "changes":
        pytest.skip("it changes what it finds, each time")
    gm, _, _ = program.trace()
    once = passes.PASSES[name](gm)
    twice = passes.PASSES[name](once)
    assert first_difference(once, twice) is None
