"""Deep graphs: 100 000 nodes in a row are a normal input, and nothing recurses on depth.

They are traced, copied, checked and saved. Texts and passes run on a fifth of them, pictures and compilers on a chain
that is three times as deep as Python's stack.
"""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import passes
from fxlite.passes.group import is_of_places
from fxlite.show.text.reading import node_table
from fxlite.tracing import traced_program

DEEP, LONG = 100_000, 20_000
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def chain(nodes: int) -> fx.GraphModule:
    def program(x: Any) -> Any:
        for _ in range(nodes // 2):
            x = np.maximum(x, 0.5) - 0.25
        return x

    return fx.symbolic_trace(program, x="f32[B,4]", loops="unroll")


def test_tracing_copying_linting_saving() -> None:
    deep = chain(DEEP)
    assert len(deep.graph) == DEEP + 2
    deep.graph.lint(full=True)
    for made in (deep.copy(), copy.deepcopy(deep), pickle.loads(pickle.dumps(deep))):
        assert len(made.graph) == DEEP + 2
    fx.assert_same(deep, made)


def test_names_of_constants_are_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def has_attribute(module: Any, name: str) -> bool:
        asked.append(name)
        return found(module, name)

    found = traced_program.has_attribute
    monkeypatch.setattr(traced_program, "has_attribute", has_attribute)

    def program(x: Any) -> Any:
        for number in range(100):
            x = x * np.array([number, 1, 2, 3], np.float32)
        return x

    gm = fx.symbolic_trace(program, x="f32[B,4]", loops="unroll")
    assert len(list(gm.buffers())) == 100 and len(asked) <= 300


@pytest.fixture(scope="module")
def long() -> fx.GraphModule:
    return chain(LONG)


def test_text_runs_and_parses(long: fx.GraphModule) -> None:
    text = long.graph.text(full=True)
    assert text.count("\n") >= LONG
    assert (long(X) == 0.25).all()
    assert (fx.Interpreter(long).run(X) == 0.25).all()
    assert fx.parse(text) == long.graph


@pytest.mark.parametrize("name", ["simplify", "cse", "const_fold", "decompose", "dce"])
def test_passes(long: fx.GraphModule, name: str) -> None:
    done = passes.PassManager([name])(long)
    done.graph.lint()
    assert len(done.graph) == LONG + 2


def test_rewriting_undoing_and_comparing(long: fx.GraphModule) -> None:
    gm = long.copy()
    found = fx.replace_pattern(gm, lambda x: np.maximum(x, 0.5) - 0.25, lambda x: np.tanh(x))
    assert len(found) == LONG // 2 and len(gm.graph) == LONG // 2 + 2
    gm.undo()
    assert gm.graph == long.graph
    assert len(gm.graph.find("maximum > sub")) == LONG // 2


def test_a_change_of_type_goes_all_the_way() -> None:
    gm = chain(LONG)
    gm.graph.placeholders[0].type = fx.parse_type("f32[B,7]")
    assert str(gm.graph.output_node().type) == "f32[B,7]"


@pytest.fixture(scope="module")
def tall() -> fx.GraphModule:
    return chain(3 * sys.getrecursionlimit())


def test_pictures_and_tables(tall: fx.GraphModule, tmp_path: Path) -> None:
    tall.graph.draw(tmp_path / "tall.svg")
    assert tall.graph.to_dot(fold=False, depth=5).count("->") >= len(tall.graph) - 2
    assert node_table(tall.graph).row_count == len(tall.graph)
    assert not fx.diff(tall, tall.copy())


@pytest.mark.parametrize("backend", ["c", "python"])
def test_compiling(tall: fx.GraphModule, backend: str) -> None:
    compiled = fx.compile(tall, backend=backend)
    assert np.array_equal(compiled(X), tall(X))


def test_grouping_positions() -> None:
    """Masks and positions that are computed in thousands of steps."""

    def program(x: Any) -> Any:
        places = np.arange(4) + x[0, 0].astype(np.int64)
        for _ in range(1_500):
            places = np.maximum(places, 1) - 1
        return x * (places > 0)

    graph = fx.symbolic_trace(program, x="f32[B,4]", loops="unroll").graph
    (mask,) = graph.find_nodes(op="call_function", target="gt")
    assert not is_of_places(mask, {})
