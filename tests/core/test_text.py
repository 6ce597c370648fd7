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
from itertools import pairwise
from pathlib import Path
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
from fxlite.show.text.pretty import executable_code, forward_code
from fxlite.show.text.reading import links, node_table, print_graph, text_of
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
    most = 0
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
    parsed = fx.parse(gm.graph.text(full=True))
    assert [n.name for n in parsed.nodes] == [n.name for n in gm.graph.nodes]
    for made in (copy.deepcopy(gm), from_bytes(to_bytes(gm)), pickle.loads(pickle.dumps(gm))):
        assert facts(made) == facts(gm)


# -- text that people edited -----------------------------------------------------------------------
@pytest.mark.parametrize("width", [40, 80, 100])
@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_text_for_a_reader_parses_back_or_says_that_it_leaves_out_something(program: Program, width: int) -> None:
    gm = program.trace()[0]
    text = gm.graph.text(width=width, weights=True)
    if re.search(r"^ *# ×", text, re.M):
        assert len(text) < len(gm.graph.text(full=True)) or width < 100
        with pytest.raises(ParseError, match=r"leaves out something.*full=True"):
            fx.parse(text)
        return
    parsed = fx.parse(text)
    assert parsed == gm.graph
    assert [n.scope for n in parsed.nodes if n.op == "call_function" and n.scope] == [
        n.scope for n in gm.graph.nodes if n.op == "call_function" and n.scope and n.scope.path
    ]
    if width == 100:  # what cannot be broken may stick out: comments, names of a long path, types
        assert all(len(line) <= width or "# " in line or "(" not in line[:-1] for line in text.splitlines())


@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_code_is_whole_and_runs(program: Program) -> None:
    gm = program.trace()[0]
    assert fx.parse(gm.code) == gm.graph
    namespace = gm.graph.python_code().globals
    exec(gm.graph.python_code().src, namespace)
    assert callable(namespace["forward"])


class Layers(nn.Module):
    """Equal layers, one of another size, and an equal one again."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(8, w), nn.GELU(), nn.Linear(w, 8)) for w in widths))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = x + layer(x) * 2
        return x


def test_equal_layers_are_printed_once() -> None:
    graph = fx.symbolic_trace(Layers((16,) * 12), x="f32[B,8]").graph
    text = graph.text(width=80)
    assert "# ×12: the 5 nodes above occur 12 times; the last gives add_11" in text
    assert text.count("ops.gelu") == 1 and "return add_11" in text
    assert max(map(len, text.splitlines())) <= 80
    assert graph.text(full=True).count("ops.gelu") == 12
    assert fx.parse(graph.text(full=True)) == graph


def test_equal_modules_are_named() -> None:
    graph = fx.symbolic_trace(nn.Sequential(*(Layers((4, 4, 5)) for _ in range(4))), x="f32[B,8]").graph
    text = str(graph)
    assert "# ×4: 1 … 3 are the same; the last gives add_11" in text
    assert "# ×2" not in text  # five nodes more are not worth a fold of no module
    assert text.count("ops.gelu") == 3


def test_different_layers_are_all_printed() -> None:
    text = str(fx.symbolic_trace(Layers((4, 5, 6, 7)), x="f32[B,8]").graph)
    assert text.count("ops.gelu") == 4 and "×" not in text


def test_many_weights_are_counted_and_few_are_listed() -> None:
    many = fx.symbolic_trace(Layers(tuple(range(4, 24))), x="f32[B,8]").graph
    elements = sum(8 * w * 2 + w + 8 for w in range(4, 24))
    assert str(many).splitlines()[-1].strip() == (
        f"# 80 weights with {elements:,} elements, not listed: weights=True lists them"
    )
    assert "f32[B,8]" in str(many).splitlines()[0] and "=" in str(many).splitlines()[2]  # ops come first
    assert many.text(weights=True).count(".weight f32[") == 40
    with pytest.raises(ParseError, match="full=True"):
        fx.parse(str(many))
    few = fx.symbolic_trace(nn.Linear(3, 2), x="f32[B,3]").graph
    assert str(few).splitlines()[-1].strip() == "# weights: weight f32[2,3], bias f32[2]"


def test_names_and_types_stand_in_columns() -> None:
    def program(x: Any, y: Any) -> Any:
        return np.maximum(x, 0) @ y + np.exp(y).sum()

    text = str(fx.symbolic_trace(program, "f32[B,8]", "f32[8,3]").graph)
    lines = [line for line in text.splitlines() if " = ops" in line or " @ " in line or " + " in line]
    assert len(lines) == 5
    assert len({line.index("f32") for line in lines}) == len({line.index(" = ") for line in lines}) == 1


def test_width_is_that_of_the_output(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    graph = fx.symbolic_trace(Layers((4, 4)), x="f32[B,8]").graph
    monkeypatch.delenv("COLUMNS", raising=False)
    wide = str(graph)  # no terminal
    assert wide == graph.text(width=100) != graph.text(width=60)
    monkeypatch.setenv("COLUMNS", "60")
    assert str(graph) == graph.text(width=60)
    graph.print()
    assert capsys.readouterr().out == f"{graph}\n"
    graph.print(full=True)
    assert capsys.readouterr().out == f"{graph.text(full=True)}\n"


def test_a_terminal_gets_colours_and_links(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = fx.symbolic_trace(Layers((4,)), x="f32[B,8]").graph

    def printed(**options: Any) -> str:
        console = Console(file=io.StringIO(), width=80, highlight=False, **options)
        print_graph(graph, console=console)
        return str(console.file.getvalue())  # type: ignore[attr-defined]

    (place,) = {n.loc.short for n in graph.nodes if n.loc and n.target is ops.gelu} or [""]
    assert links(graph)[place] == f"{Path(__file__).as_uri()}#{place.partition(':')[2]}"
    coloured = printed(force_terminal=True, color_system="standard", legacy_windows=False)
    assert f";{links(graph)[place]}\x1b\\" in coloured and "\x1b[94" in coloured
    text = re.sub(r"\x1b\[[\d;]*m|\x1b\]8;[^\x1b]*\x1b\\", "", coloured)
    assert text.rstrip() == graph.text(width=80)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[\d;]*[349]\d", printed(force_terminal=True))
    assert printed() == graph.text(width=80) + "\n"


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
    assert graph.text(full=True).count("weight f32[2,4]") == 1 and fx.parse(graph.text(full=True)) == graph


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
    parsed = fx.parse(graph.text(full=True))
    assert parsed == graph
    unread = [n for n in graph.nodes if n.op == "get_attr" and not n.users]
    if not unread:  # the text has no line for them
        assert parsed.text(full=True) == graph.text(full=True)
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
    assert len(lines) == 1 + len(graph)  # a line for each


class Stateful(nn.Module):
    """Results that are written into states with long names, and lines in bodies that do not fit."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("positions_of_keys", np.zeros((4, 8), np.float32))
        self.register_buffer("number_of_calls", np.zeros((), np.int64))

    def forward(self, x: Any, n: Any) -> Any:
        self.positions_of_keys[0] = x
        self.number_of_calls += 1
        while n > 0:
            n = n - 1
            x = np.clip(x, 0.125, 0.875) * np.float32(3.0)
        return x


@pytest.mark.parametrize("width", [40, 80, 200])
def test_comments_that_do_not_fit_stand_above_and_are_read(width: int) -> None:
    graph = fx.symbolic_trace(Stateful(), x="f32[8]", n="i64").graph
    text = text_of(graph, width=width)
    if width > 40:  # where names alone do not fill the line
        assert max(map(len, text.splitlines())) <= width, text
    lines = text.splitlines()
    for above, below in pairwise(lines):
        if above.strip().startswith("# ") and below.strip() and not below.strip().startswith("#"):
            assert len(above) - len(above.lstrip()) == len(below) - len(below.lstrip()), text
    assert fx.parse(text).interface.writes == graph.interface.writes, text
