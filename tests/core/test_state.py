"""State: modules that write into or assign to their buffers in forward are graphs with state in and
out. Eager NumPy, the graph, its copies and files, regenerated Python, NumPy kernels, C and CUDA
agree over several calls, on results and on what the buffers hold afterwards.
"""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.base.errors import DTypeError, FxliteError, GraphError, TraceError
from fxlite.codegen.c import templates
from fxlite.codegen.program.calls import call_nested
from fxlite.codegen.program.program import optimize, plan
from fxlite.codegen.program.run import run_program
from fxlite.codegen.python.source import python_program
from fxlite.compiler import standard_passes
from fxlite.nn import functional as F


class Cache(nn.Module):
    """Writes one row of a buffer in each call, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", np.zeros((6, 3), np.float32))
        self.register_buffer("count", np.zeros((), np.int64))
        self.w = nn.Parameter(np.arange(9, dtype=np.float32).reshape(3, 3) / 4)

    def forward(self, x: Any) -> Any:
        self.cache[self.count] = x @ self.w
        self.count = self.count + 1
        return self.cache.sum(0) + x


class Recurrent(nn.Module):
    """Assigns to its state, and returns what it was and what it is."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("h", np.full(3, 0.5, np.float32))

    def forward(self, x: Any) -> Any:
        before = self.h
        self.h = np.tanh(self.h + x)
        return before, self.h


class OneBranch(nn.Module):
    """State that is written on one branch only, by assignment and in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", np.zeros((), np.int64))
        self.register_buffer("last", np.zeros(3, np.float32))
        self.register_buffer("big", np.zeros((4, 3), np.float32))

    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            self.seen += 1
            self.last = x
            self.big[1] += x
        return x + self.last


class Swap(nn.Module):
    """Two states that take each other's values."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", np.zeros(3, np.float32))
        self.register_buffer("b", np.ones(3, np.float32))

    def forward(self, x: Any) -> Any:
        self.a, self.b = self.b, self.a
        return self.a * x


class Shift(nn.Module):
    """A window of the last inputs: each call moves it by one row, over itself."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", np.zeros((4, 3), np.float32))

    def forward(self, x: Any) -> Any:
        self.window[:-1] = self.window[1:].copy()
        self.window[-1] = x
        return self.window.mean(0)


class Anew(nn.Module):
    """A state that is computed anew, of other elements, and then written into in part."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", np.arange(12, dtype=np.float32).reshape(4, 3))

    def forward(self, x: Any) -> Any:
        self.table = self.table[::-1] * 0.5
        self.table[1] = x
        self.table[0] = self.table[2]  # of what stands there now
        return self.table.sum(0)


class Nested(nn.Module):
    """Layers with states, one of which has several calls in a row; a state that a loop changes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Recurrent(), Recurrent(), Recurrent()])
        self.register_buffer("total", np.zeros(3, np.float32))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)[1]
        i = 0
        while np.abs(x).max() > 0.25:
            x = x / 2
            self.total += x
            i = i + 1
        return self.total * i


def batch_norm() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(3), nn.ReLU(), nn.BatchNorm1d(3, momentum=None))


PROGRAMS: dict[str, tuple[Any, str]] = {
    "cache": (Cache, "f32[3]"),
    "recurrent": (Recurrent, "f32[3]"),
    "one_branch": (OneBranch, "f32[3]"),
    "swap": (Swap, "f32[3]"),
    "shift": (Shift, "f32[3]"),
    "anew": (Anew, "f32[3]"),
    "nested": (Nested, "f32[3]"),
    "batch_norm": (batch_norm, "f32[B,3]"),
}


def calls(declared: str, count: int = 4) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(3)
    shape = (5, 3) if "B" in declared else (3,)
    return [random.standard_normal(shape).astype(np.float32) for _ in range(count)]


def flat(value: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(v) for v in (value if isinstance(value, tuple) else (value,))]


def same(one: Any, other: Any, what: str) -> None:
    for a, b in zip(flat(one), flat(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5, err_msg=what)


def kernels(module: fx.GraphModule) -> Any:
    """Calls of the kernels in NumPy, which keep the states between them."""
    module = optimize(module, keep=templates.claims)[0]
    program = plan(module, templates.claims)
    return lambda x: call_nested(module, lambda given: run_program(program, given), (x,), {}), module


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_ways_to_run_agree_over_several_calls(name: str, tmp_path: Any) -> None:
    make, declared = PROGRAMS[name]
    program = make()
    graph = fx.symbolic_trace(program, declared)
    graph.graph.lint()
    has_control = any(n.op == "call_function" and n.target.kind == "control" for n in graph.graph.nodes)
    fx.save(graph, tmp_path / "m.fxl")
    interpreted = graph.copy()
    interpreter = fx.Interpreter(interpreted)
    runs: dict[str, tuple[Any, Any]] = {
        "copy": (graph.copy(),) * 2,
        "deep copy": (copy.deepcopy(graph),) * 2,
        "pickled": (pickle.loads(pickle.dumps(graph)),) * 2,
        "loaded": (fx.load(tmp_path / "m.fxl"),) * 2,
        "parsed": (fx.GraphModule(graph, fx.parse(graph.graph.text(full=True))),) * 2,
        "retraced": (fx.symbolic_trace(graph, declared),) * 2,
        "interpreted": (interpreter.run, interpreted),
    }
    if not has_control:
        runs["kernels"] = kernels(graph)
        runs["source"] = python_program(graph), None
    others = () if has_control else ("cuda",) if "B" in declared else ("cuda", "embedded")
    for backend in ("c", "python", *others):
        options = {"device": "shim"} if backend == "cuda" else {}
        function = fx.compile(graph, backend=backend, **options)
        runs[backend] = function, getattr(function, "holder", function.graph_module)
    runs["graph"] = graph, graph
    for x in calls(declared):
        expected = program(x)
        for what, (call, _) in runs.items():
            same(expected, call(x), what)
    for what, (_, holder) in runs.items():
        for _, path in graph.states if holder is not None else ():
            same(program.get_attribute(path), holder.get_attribute(path), f"{what}: {path}")


def test_the_program_and_copies_keep_their_own_state() -> None:
    program = Cache()
    graph = fx.symbolic_trace(program, "f32[3]")
    other = graph.copy()
    compiled = fx.compile(graph, backend="c")
    result = graph(np.ones(3, np.float32))
    assert graph.get_buffer("count") == 1 and program.count == 0 and other.get_buffer("count") == 0
    before = result.copy()
    compiled(np.ones(3, np.float32))
    graph(np.ones(3, np.float32))
    np.testing.assert_array_equal(result, before)
    assert graph.get_buffer("count") == 2


def test_jit_changes_the_module_itself() -> None:
    for backend in ("c", "python"):
        program, eager = Nested(), Nested()
        fast = fx.jit(program, backend=backend)
        for x in calls("f32[3]"):
            same(eager(x), fast(x), backend)
            same(eager.total, program.total, backend)
        assert len(fast.versions) == 1
        program.total = np.zeros(3, np.float32)
        eager.total = np.zeros(3, np.float32)
        x = calls("f32[3]", 1)[0]
        same(eager(x), fast(x), backend)
        assert len(fast.versions) == 1


def test_a_state_is_an_input_and_a_result_of_a_graph_without_an_interface() -> None:
    graph = fx.symbolic_trace(Recurrent(), "f32[3]")
    assert graph.states == (("h", "h"),)
    graph.graph.interface = None
    x, h = np.ones(3, np.float32), np.zeros(3, np.float32)
    (before, after), new = graph(x, h)
    np.testing.assert_array_equal(before, h)
    np.testing.assert_array_equal(after, new)


def test_passes_keep_states() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)
            self.norm = nn.BatchNorm1d(3)
            self.register_buffer("unused_result", np.zeros(3, np.float32))

        def forward(self, x: Any) -> Any:
            y = F.relu(self.norm(self.fc(x)))
            self.unused_result = y.max(0)  # nobody reads it
            return y

    nn.init.manual_seed(0)
    program = Model()
    graph = fx.symbolic_trace(program, "f32[B,3]")
    made = fx.passes.PassManager(standard_passes(), check="all")(graph)
    outlined = fx.passes.outline_modules(graph)
    for x in calls("f32[B,3]"):
        expected = program(x)
        same(expected, made(x), "passes")
        same(expected, outlined(x), "outlined")
    same(program.unused_result, made.get_buffer("unused_result"), "state")
    same(program.norm.running_var, made.get_buffer("norm.running_var"), "state")


class Grows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", np.zeros((0, 3), np.float32))

    def forward(self, x: Any) -> Any:
        self.cache = np.concatenate([self.cache, x[None]])
        return self.cache.sum(0)


class Widens(Recurrent):
    def forward(self, x: Any) -> Any:
        self.h = self.h.astype(np.float64) + x
        return x


class WidensOnOneBranch(Recurrent):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            self.h = (self.h + x).astype(np.float64)
        return x


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (Grows(), r"self.cache, a state, is f32\[0,3\] before a call and would be f32\[1,3\] after it"),
        (Widens(), r"self.h, a state, is f32\[3\] before a call and would be f64\[3\] after it"),
        (WidensOnOneBranch(), r"self.h, a state, is f32\[3\] before a call and would be f64\[3\] after it"),
    ],
)
def test_a_state_keeps_its_type(program: Any, message: str) -> None:
    with pytest.raises(TraceError, match=message) as raised:
        fx.symbolic_trace(program, "f32[3]")
    assert "test_state.py" in str(raised.value)


def test_a_graph_with_state_is_a_part_of_another() -> None:
    inner = fx.symbolic_trace(Nested(), "f32[3]")

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return self.inner(self.inner(x))

    graph, program = fx.symbolic_trace(Outer(), "f32[3]"), Nested()
    assert len(graph.states) == 4 and graph.states[0] != inner.states[0]
    for x in calls("f32[3]"):
        same(program(program(x)), graph(x), "nested graph")


def test_state_of_a_module_outside_of_the_program_is_refused() -> None:
    inner = Recurrent()
    with pytest.raises(TraceError, match="trace the module that holds it"):
        fx.symbolic_trace(lambda x: inner(x)[1], "f32[3]")


class PlainCounter(nn.Module):
    """Counts in a number of its own, which no graph would see change."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x: Any) -> Any:
        self.count = self.count + 1
        return x * self.count


class PlainNote(PlainCounter):
    """Sets a number before it reads it: a graph computes the same in every call."""

    def forward(self, x: Any) -> Any:
        self.count = 2
        return x * self.count


def test_a_counter_that_is_no_buffer_is_refused() -> None:
    with pytest.raises(TraceError, match=r"(?s)changes count, a number of its own.*test_state.py.*register_buffer"):
        fx.symbolic_trace(PlainCounter(), "f32[3]")
    program = PlainNote()
    graph = fx.symbolic_trace(program, "f32[3]")
    assert program.count == 0
    np.testing.assert_array_equal(graph(np.ones(3, np.float32)), np.full(3, 2, np.float32))


def test_lint_knows_what_a_state_must_be() -> None:
    graph = fx.symbolic_trace(Recurrent(), "f32[3]")
    graph.set_attribute("h", np.zeros(3, np.float64))
    with pytest.raises(GraphError, match=r"self.h is f64\[3\], but its input h is f32\[3\]"):
        graph.graph.lint()
    with pytest.raises(DTypeError, match=r"self.h must be f32\[3\], got float64"):
        graph(np.ones(3, np.float32))
    graph = fx.symbolic_trace(Recurrent(), "f32[3]")
    output = graph.graph.output_node()
    output.args = (output.args[0][:1],)
    with pytest.raises(GraphError, match=r"the output must be \(result, new h\)"):
        graph.graph.lint()


def test_a_file_whose_state_is_no_buffer(tmp_path: Any) -> None:
    graph = fx.symbolic_trace(Recurrent(), "f32[3]")
    interface = graph.graph.interface
    assert interface is not None
    graph.graph.interface = replace(interface, states=(("h", "elsewhere.h"),))
    with pytest.raises(FxliteError, match="elsewhere"):
        fx.save(graph, tmp_path / "m.fxl")
        fx.load(tmp_path / "m.fxl")
