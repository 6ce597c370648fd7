"""The code that runs beside the text people read, tables, and text of random graphs."""

from __future__ import annotations

import copy
import gc
import io
import linecache
import pickle
import re
import traceback
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from rich.console import Console

import fxlite as fx
from fxlite import nn, ops
from fxlite.base.console import show
from fxlite.base.errors import ParseError
from fxlite.files.serialize import from_bytes, to_bytes
from fxlite.graph.graph import Graph
from fxlite.show.text.pretty import executable_code, fitted_text, forward_code, node_table
from tests.core.test_parse_save import facts
from tests.strategies import Drawn, programs
from tests.zoo import ZOO, Program


# -- what runs and what is read --------------------------------------------------------------------
@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_executable_code_has_the_expressions_where_the_readable_has_them(program: Program) -> None:
    graph = program.trace()[0].graph
    readable, bare = (write(graph).splitlines() for write in (forward_code, executable_code))
    assert len(readable) == len(bare)
    for line, stripped in zip(readable, bare):
        stripped = stripped.partition("; del ")[0]
        if " = " not in stripped or line.startswith("def "):
            assert line.startswith(stripped)
            continue
        name, _, value = stripped.partition(" = ")
        assert line[len(name) :].startswith(f" = {value}") and line.startswith(name.rstrip())


def test_traceback_shows_the_readable_line_with_carets() -> None:
    gm = fx.symbolic_trace(lambda x, i: np.take(x * 2, i, axis=0), "f32[3]", "i64[2]")
    try:
        gm(np.ones(3, np.float32), np.array([0, 9]))
    except IndexError:
        shown = traceback.format_exc()
    line = next(t for t in gm.code.splitlines() if "ops.take" in t or "ops.gather" in t)
    assert line.strip() in shown
    before, after = shown.split(line.strip())
    carets = after.splitlines()[1]
    at = carets.index("^") - (len(before) - before.rindex("\n") - 1)
    assert line.strip()[at:].startswith("ops.") and carets.count("^") == len(re.findall(r"ops\.[^#]*\)", line)[0])


def test_values_nobody_reads_any_more_are_freed() -> None:
    alive: list[Any] = []
    most = 0

    def watch(x: Any) -> Any:
        nonlocal most
        gc.collect()
        most = max(most, sum(r() is not None for r in alive))
        out = np.array(x) + 1
        alive.append(weakref.ref(out))
        return out

    class Watch(nn.Module):
        def forward(self, x: Any) -> Any:
            return watch(x)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = nn.Sequential(*(Watch() for _ in range(10)))

        def forward(self, x: Any) -> Any:
            return self.steps(x)

    gm = fx.symbolic_trace(Outer(), "f32[3]", leaf=[Watch])
    alive.clear()  # of what was traced to find the types of the leaves
    gm(np.ones(3, np.float32))
    assert len(alive) == 10 and most <= 2


def test_the_code_of_a_forgotten_module_leaves_nothing_behind() -> None:
    before = len(linecache.cache)
    for _ in range(5):
        gm = fx.symbolic_trace(lambda x: x + 1, "f32[3]")
        gm(np.ones(3, np.float32))
        del gm
    gc.collect()
    assert not [name for name in list(linecache.cache)[before:] if name.startswith("<fxlite>")]


def test_very_deep_graphs() -> None:
    def program(x: Any) -> Any:
        for _ in range(10_000):
            x = np.maximum(x, 0) + 1
        return x

    gm = fx.symbolic_trace(program, "f32[1]", loops="unroll")
    assert len(gm.graph) == 20_002
    assert np.array_equal(gm(np.zeros(1, np.float32)), np.float32([10_000]))
    parsed = fx.parse(str(gm.graph))
    assert [n.name for n in parsed.nodes] == [n.name for n in gm.graph.nodes]
    for made in (copy.deepcopy(gm), from_bytes(to_bytes(gm)), pickle.loads(pickle.dumps(gm))):
        assert facts(made) == facts(gm)


# -- text that people edited -----------------------------------------------------------------------
@pytest.mark.parametrize("width", [40, 100])
@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_text_fitted_to_a_terminal_parses_back(program: Program, width: int) -> None:
    gm = program.trace()[0]
    parsed = fx.parse(fitted_text(gm.graph, width))
    assert parsed == gm.graph
    assert [n.scope for n in parsed.nodes if n.op == "call_function" and n.scope] == [
        n.scope for n in gm.graph.nodes if n.op == "call_function" and n.scope and n.scope.path
    ]


CARETS = {
    "y = ops.relux(x)": "ops.relux(x)",
    "y = ops.add(x, zz)": "zz",
    "y: f32[4] = ops.relu(x)": "f32[4]",
    "y: f33[3] = ops.relu(x)": "f33[3]",
    "y = ops.sum(x, axis=Q + 1)": "Q + 1",
    "µ = ops.add(x, zz)": "zz",
}


@pytest.mark.parametrize("line", CARETS)
def test_carets_are_under_what_is_wrong(line: str) -> None:
    with pytest.raises(ParseError) as raised:
        fx.parse(f"def forward(self, x: f32[3]):\n    {line}\n    return y")
    _, shown, carets = str(raised.value).splitlines()
    assert shown.strip() == line
    marked = "".join(c for c, mark in zip(shown, carets) if mark == "^")
    assert marked == CARETS[line]


def test_a_weight_read_twice_is_listed_once() -> None:
    graph = fx.Graph(fx.nn.Linear(4, 2))
    x = graph.placeholder("x", fx.parse_type("f32[3,4]"))
    weights = [graph.get_attr("weight") for _ in range(2)]
    graph.output(tuple(graph.call_function("linear", (x, w)) for w in weights))
    assert str(graph).count("weight f32[2,4]") == 1 and fx.parse(str(graph)) == graph


def test_arrays_that_calls_were_given_are_the_modules() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x", fx.parse_type("f32[3]"))
    y = graph.call_function("add", (x, np.arange(3, dtype=np.float32)))
    graph.output(graph.call_function("mul", (y, graph.get_attr("w", fx.parse_type("f32[3]")))))
    gm = fx.GraphModule({"w": np.full(3, 2, np.float32)}, graph)
    gm.graph.lint(full=True)
    assert gm(np.ones(3, np.float32)).tolist() == [2, 4, 6]


# -- random graphs ---------------------------------------------------------------------------------
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_random_graphs_survive_text_files_and_copies(drawn: Drawn) -> None:
    gm, graph = drawn.module, drawn.module.graph
    graph.lint(full=True)
    parsed = fx.parse(str(graph))
    assert parsed == graph
    unread = [n for n in graph.nodes if n.op == "get_attr" and not n.users]
    if not unread:  # the text has no line for them
        assert str(parsed) == str(graph)
        assert {n.name for n in parsed.nodes} == {n.name for n in graph.nodes}
    for made in (from_bytes(to_bytes(gm)), copy.deepcopy(gm)):
        made.graph.lint(full=True)
        assert facts(made) == facts(gm)
    assert to_bytes(from_bytes(to_bytes(gm))) == to_bytes(gm)
    compile(executable_code(graph), "code", "exec")


# -- modules ---------------------------------------------------------------------------------------
class Kinds(nn.Module):
    """A frozen parameter, tied ones, a buffer that state_dict leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Parameter(np.ones(3, np.float32), requires_grad=False)
        self.p = nn.Parameter(np.full(3, 2, np.float32))
        self.part = nn.Module()
        self.part.tied = self.p
        self.register_buffer("cache", np.zeros(3, np.float32), persistent=False)

    def forward(self, x: Any) -> Any:
        return x * self.frozen + self.part.tied + self.cache


@pytest.mark.parametrize(
    "again",
    [copy.deepcopy, lambda gm: from_bytes(to_bytes(gm)), lambda gm: pickle.loads(pickle.dumps(gm))],
    ids=["deepcopy", "save", "pickle"],
)
def test_kinds_of_weights_survive(again: Any) -> None:
    gm = fx.symbolic_trace(Kinds(), x="f32[3]")
    gm.set_attribute("p", gm.part.tied)
    gm.register_buffer("cache", gm.cache, persistent=False)
    made = again(gm)
    assert facts(made) == facts(gm) and list(made.state_dict()) == list(gm.state_dict())
    assert "cache" not in made.state_dict() and np.array_equal(made.cache, gm.cache)
    assert not made.frozen.requires_grad and made.p.requires_grad
    assert made.part.tied is made.p and made.p is not gm.p
    made.p[...] = 7
    assert gm.p[0] == 2


def test_a_module_that_calls_graph_modules_is_saved() -> None:
    inner = fx.symbolic_trace(nn.Linear(3, 2), x="f32[B,3]")
    graph = Graph()
    x = graph.placeholder("x", fx.types.parse_type("f32[B,3]"))
    call = graph.call_module("parts.first", (x,), {}, fx.types.parse_type("f32[B,2]"))
    graph.output(graph.call_function(ops.relu, (call,)))
    gm = fx.GraphModule({"parts.first": inner}, graph, "Outer")
    made = from_bytes(to_bytes(gm))
    assert facts(made) == facts(gm) and facts(made.parts.first) == facts(inner)
    value = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    assert np.array_equal(made(value), gm(value))


# -- tables ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_table_fits_and_holds_every_node(program: Program, width: int) -> None:
    graph = program.trace()[0].graph
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show(console, node_table(graph, width))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= width
    starts = [line for line in lines[1:] if line[:1].strip()]
    assert len(starts) >= len(graph)
    if width >= 80:  # words stay whole where there is room for them
        assert all(len(line.split("  ")[0]) > 5 for line in starts)
