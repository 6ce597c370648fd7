"""Programs that write into their arguments: a call writes the caller's arrays, as NumPy does, on
every rung; the graph stays one of values."""

from __future__ import annotations

import pickle
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.base.errors import ArgumentError, GraphError, TraceError
from fxlite.codegen.python.source import python_source
from tests.oracle import agree

RUNGS = ("graph", "python", "kernel", "c", "cuda")


def values(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def all_of_it(x: Any) -> Any:
    x[...] *= 2
    return x


def a_part(x: Any) -> Any:
    x[1:, 0] += 1
    return x.sum()


def through_a_view(x: Any) -> Any:
    row = x.T[0]
    row += 1
    return x[0]


def and_nothing_else(x: Any) -> None:
    np.multiply(x, x, out=x)


def in_a_loop(x: Any) -> None:
    for i in range(1, x.shape[1]):
        x[:, i] = x[:, i - 1] + x[:, i]


def what_stood_there(x: Any) -> Any:
    before = x.copy()
    x.fill(3)
    return before, x - before


def swapped_rows(x: Any) -> None:
    x[[0, 1]] = x[[1, 0]]


def where_a_mask_is(x: Any) -> None:
    x[x < 0] = 0


@pytest.mark.parametrize(
    "program",
    [all_of_it, a_part, through_a_view, and_nothing_else, in_a_loop, what_stood_there, swapped_rows, where_a_mask_is],
    ids=lambda p: p.__name__,
)
def test_the_arrays_of_the_caller_change(program: Any) -> None:
    agree(program, values(4, 3), rungs=RUNGS)


def two(a: Any, b: Any, c: Any) -> Any:
    a += c
    b[0] = a.sum()
    return a @ b


def test_several_inputs_of_named_sizes() -> None:
    types = ("f32[N,3]", "f32[3,M]", "f32[3]")
    module = agree(two, values(4, 3), values(3, 2), values(3), types=types, rungs=RUNGS)
    assert module.written_inputs() == ("a", "b")
    assert "# writes" in module.graph.text(full=True)


def exchanged(a: Any, b: Any) -> None:
    before = a.copy()
    a[...] = b
    b[...] = before


def test_inputs_that_become_each_other() -> None:
    agree(exchanged, values(4, 3), values(4, 3) + 1, rungs=RUNGS)


def cache_step(token: Any, caches: Any) -> Any:
    for cache in caches:
        cache["k"][1] = token
        token = token + cache["k"].sum(axis=0)
    return token


def test_nested_inputs() -> None:
    module = fx.symbolic_trace(cache_step, "f32[3]", [{"k": "f32[4,3]"}, {"k": "f32[4,3]"}])
    for call in (module, fx.compile(module, backend="c"), fx.compile(module, backend="python")):
        given = [{"k": values(4, 3)}, {"k": values(4, 3) + 1}]
        eager = [{"k": cache["k"].copy()} for cache in given]
        expected = cache_step(values(3), eager)
        np.testing.assert_allclose(call(values(3), given), expected, rtol=1e-5)
        for one, other in zip(given, eager):
            np.testing.assert_array_equal(one["k"], other["k"])


class Counts(nn.Module):
    def forward(self, x: Any, total: Any) -> Any:
        total += x.sum(axis=0)
        return x - total


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = Counts()

    def forward(self, x: Any, total: Any) -> Any:
        return self.count(self.count(x, total), total)


def test_modules_write_into_what_they_are_given() -> None:
    agree(Twice(), values(4, 3), values(3), rungs=RUNGS)


def test_a_traced_module_writes_in_another_program() -> None:
    inner = fx.symbolic_trace(and_nothing_else, "f32[4,3]")

    def program(x: Any) -> Any:
        y = x + 1
        inner(y)
        return y

    def written_through(x: Any) -> None:
        inner(x)

    agree(program, values(4, 3), rungs=RUNGS)
    agree(written_through, values(4, 3), rungs=RUNGS)


def test_it_stays_so_when_saved_copied_and_traced_again(tmp_path: Path) -> None:
    module = fx.symbolic_trace(a_part, "f32[N,3]")
    fx.save(module, tmp_path / "a.fxl")
    for other in (
        fx.load(tmp_path / "a.fxl"),
        module.copy(),
        pickle.loads(pickle.dumps(module)),
        fx.symbolic_trace(module, "f32[4,3]"),
        module.specialize(N=4),
        fx.Transformer(module).transform(),
    ):
        x, y = values(4, 3), values(4, 3)
        assert other(x) == pytest.approx(a_part(y), rel=1e-5)
        np.testing.assert_array_equal(x, y)


def test_the_regenerated_source_writes(tmp_path: Path) -> None:
    module = fx.symbolic_trace(Twice(), "f32[4,3]", "f32[3]")
    text = python_source(module)
    assert "[...] = " in text
    for dialect in ("fxlite", "numpy"):
        module.to_folder(str(tmp_path / dialect), "again", dialect=dialect)
        space = runpy.run_path(str(tmp_path / dialect / "again.py"))
        x, total, eager = values(4, 3), values(3), values(3)
        made = space["Again"]()
        expected = Twice()(x, eager)
        np.testing.assert_allclose(made(x, total), expected, rtol=1e-5)
        np.testing.assert_allclose(total, eager, rtol=1e-6)


def test_passes_keep_what_is_written() -> None:
    def program(x: Any) -> Any:
        x *= 1.0  # simplify takes it away
        y = x + 0
        x += np.exp(y) + np.exp(y)

    module = fx.symbolic_trace(program, "f32[4,3]")
    passed = fx.passes.PassManager(["simplify", "cse", "dce"], check=True)(module)
    x, y = values(4, 3), values(4, 3)
    assert passed(x) is None
    program(y)
    np.testing.assert_allclose(x, y, rtol=1e-6)
    assert module.run_flat({"x": y})[0] is None, "the flat call gives values and writes nothing"


def test_arrays_that_cannot_be_written_or_overlap() -> None:
    module = fx.symbolic_trace(two, "f32[2,2]", "f32[2,2]", "f32[2]")
    memory = values(8)
    a, b, c = memory[:4].reshape(2, 2), memory[4:].reshape(2, 2), values(2)
    for call in (module, fx.compile(module, backend="c"), fx.Interpreter(module).run):
        kept = memory.copy()
        with pytest.raises(ArgumentError, match=r"a, which shares memory with c; pass c.copy"):
            call(a, b, memory[:2])
        with pytest.raises(ArgumentError, match=r"writes into b, and the array is read-only"):
            call(a, np.broadcast_to(c, (2, 2)), c)
        np.testing.assert_array_equal(memory, kept), "nothing is half-done"
        call(a, b, c)  # side by side in one array


def test_numbers_and_values_without_types_are_no_place_to_write() -> None:
    def add(x: Any) -> Any:
        x += 1
        return x

    with pytest.raises(TraceError, match=r"(?s)an immutable number.*x = x.copy\(\)"):
        fx.symbolic_trace(add, "f32[]")
    with pytest.raises(TraceError, match="may be an immutable number"):
        fx.symbolic_trace(add)


def test_an_edit_that_takes_the_values_away_is_an_error() -> None:
    module = fx.symbolic_trace(and_nothing_else, "f32[4,3]")
    output = module.graph.output_node()
    output.args = (output.args[0][1],)
    with pytest.raises(GraphError, match=r"its output must be \(result, new x\)"):
        module(values(4, 3))
    module.graph.interface = None
    np.testing.assert_array_equal(module(values(4, 3)), values(4, 3) ** 2)
    module.graph.undo()
    assert module.written_inputs() == ("x",) and module.graph.interface is not None
    x = values(4, 3)
    assert module(x) is None
    np.testing.assert_array_equal(x, values(4, 3) ** 2)


def test_a_written_input_cannot_be_baked_in() -> None:
    module = fx.symbolic_trace(cache_step, "f32[3]", [{"k": "f32[4,3]"}])
    with pytest.raises(ArgumentError, match="must stay an input"):
        fx.symbolic_trace(module, "f32[3]", concrete_args={"caches": [{"k": values(4, 3)}]})
