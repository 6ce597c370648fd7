"""Captured programs: arrays that a program makes, Python's builtins on traced values, and values
that are known while tracing; and that nothing outside of the trace notices."""

from __future__ import annotations

import functools
import gc
import runpy
import threading
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.base.errors import TraceError
from fxlite.tracing.capture import capture
from tests.oracle import agree

RUNGS = ("graph", "python", "kernel", "c", "cuda")


def values(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


# -- arrays made inside ----------------------------------------------------------------------------
def filled_by_index(x: Any) -> Any:
    out = np.zeros((3, 4), dtype=x.dtype)
    for i in range(3):
        out[i] = x * i
    return out


def filled_through_a_view(x: Any) -> Any:
    out = np.empty((2, 2, 2), np.float32)
    flat = out.reshape(-1)
    flat[:4] = x
    out[1] = 7
    return out, flat.sum()


def filled_like_a_constant(x: Any) -> Any:
    table = np.arange(4.0)
    like = np.zeros_like(table)
    like += x
    return like.astype(np.float32)


def an_array_of_values(x: Any) -> Any:
    return np.array([x.sum(), x.max(), 1.0]), np.array([[x[0], x[1]], [0.0, x[2]]], np.float64)


def written_eye(x: Any) -> Any:
    c = np.eye(4, dtype=np.float32)
    c[1:4, 0] = c[0, 1:4] = x[1:]
    return c


def made_of_made_arrays(x: Any) -> Any:
    both = np.concatenate([np.zeros(2), np.ones(2)])
    both[1:3] *= x[:2]
    return both


def in_a_comprehension(x: Any) -> Any:
    rows = [np.full(2, i, np.float32) for i in range(3)]
    for row in rows:
        row[0] = x[1]
    return np.stack(rows)


def helper(n: int, x: Any) -> Any:
    buffer = np.zeros(n, np.float32)
    buffer[: len(x)] = x
    return buffer


def in_a_helper(x: Any) -> Any:
    return helper(6, x) + functools.partial(helper, 6)(x)


def in_a_lambda_and_a_closure(x: Any) -> Any:
    scale = 2.0

    def double(v: Any) -> Any:
        out = np.zeros(4, np.float32)
        out[...] = v * scale
        return out

    return (lambda v: double(v) + np.ones(4, np.float32))(x)


def by_ufunc_out(x: Any) -> Any:
    out = np.empty(4, np.float32)
    np.exp(x, out=out)
    np.copyto(out[1:], x[1:])
    return out


def outer_products(x: Any) -> Any:
    return np.add.outer(x, x[:2]), np.multiply.outer(x[:2], np.arange(3)), np.add.accumulate(x)


def scalars(x: Any) -> Any:
    return np.float64(x[0]) + np.float32(2), np.int32(x[1])


class Filter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        out = np.zeros((2, 4), x.dtype)
        out[0] = self.inner(x)
        out[1] = self.smooth(x)
        return super().__repr__() and out

    def smooth(self, x: Any) -> Any:
        kernel = np.array([0.25, 0.5, 0.25], np.float32)
        padded = np.zeros(6, np.float32)
        padded[1:-1] = x
        return sum(kernel[k] * padded[k : k + 4] for k in range(3))


PROGRAMS = [
    filled_by_index,
    filled_through_a_view,
    filled_like_a_constant,
    an_array_of_values,
    written_eye,
    made_of_made_arrays,
    in_a_comprehension,
    in_a_helper,
    in_a_lambda_and_a_closure,
    by_ufunc_out,
    outer_products,
    scalars,
    Filter(),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: getattr(p, "__name__", "module"))
def test_arrays_that_a_program_makes(program: Any) -> None:
    agree(program, values(4), rungs=RUNGS)


def test_with_no_traced_argument_near() -> None:
    agree(lambda x: (np.arange(3) * 2, x), values(2), rungs=RUNGS)


# -- named sizes -----------------------------------------------------------------------------------
def positions(x: Any) -> Any:
    return x + np.arange(x.shape[1])


def causal(x: Any) -> Any:
    T = len(x)
    return np.where(np.tril(np.ones((T, T), bool)), x, -1.0)


def sized_arrays(x: Any) -> Any:
    T = x.shape[0]
    out = np.zeros((T, 2 * T))
    out[:, :T] = x
    out[:, T:] = np.eye(T) + np.tri(T, k=-1) + np.full((T, T), 0.5) + np.identity(T)
    return out, np.linspace(0, 1, T), np.arange(1, T + 1, dtype=np.float32), np.empty(T).shape[0]


@pytest.mark.parametrize("program", [positions, causal, sized_arrays], ids=lambda p: p.__name__)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_sizes_are_numbers_of_the_program(program: Any, size: int) -> None:
    module = agree(program, np.float64(values(size, size)), types=("f64[T,T]",), rungs=RUNGS)
    assert "self." not in module.graph.text(full=True), "no size is baked in"


# -- what is known ---------------------------------------------------------------------------------
def decided_while_tracing(x: Any) -> Any:
    order = np.array([2, 0, 1])
    if order[0] > order[1] and order.any():
        x = x[order]
    for i in order:
        x = x * (int(i) + 1)
    return x[: order[0]], np.zeros(2 + order[1]).shape[0] + float(order.mean())


def test_what_depends_on_no_input_is_decided_while_tracing() -> None:
    module = agree(decided_while_tracing, values(4), rungs=RUNGS)
    assert not module.graph.find_nodes(op="call_function", target=fx.ops.gt), "asked for, not read"


def known_indices(x: Any) -> Any:
    places = np.zeros(3, int)
    places[1] = 2
    return x[places], x[places[1]], x[places > 0], [10, 20, 30][places[1]], x[places[0] : places[1]]


def test_known_arrays_are_indices_masks_and_bounds() -> None:
    agree(known_indices, values(3), rungs=RUNGS)


def test_what_an_input_was_written_into_is_known_no_more() -> None:
    def program(x: Any) -> Any:
        flags = np.zeros(3)
        flags[1] = x[0]
        return x if flags.any() else -x

    agree(program, np.float32([0, 1, 2]), rungs=("graph",))
    agree(program, np.float32([1, 1, 2]), rungs=("graph",))


# -- builtins --------------------------------------------------------------------------------------
def extremes(x: Any) -> Any:
    return max(x[0], x[1], 0.5), min([x[0], x[1]]), max(3, 4), min(x.shape[0], 2)


def test_extremes_as_python_compares() -> None:
    for given in (values(3), np.float32([np.nan, 1, 2]), np.float32([1, np.nan, 2])):
        module = fx.symbolic_trace(extremes, "f32[3]")
        for mine, eager in zip(module(given), extremes(given)):
            np.testing.assert_array_equal(mine, eager)


def truths(x: Any) -> Any:
    if isinstance(x, list) or not isinstance(x, np.ndarray):
        raise TypeError
    return all([x[0] > 0, x[1] > 0]), any(v > 0 for v in x), any([0, 1]), len(x), abs(x[2])


def test_truths_and_types() -> None:
    agree(truths, values(3), rungs=RUNGS)


# -- nothing else changes --------------------------------------------------------------------------
def test_places_are_those_of_the_program() -> None:
    module = fx.symbolic_trace(filled_by_index, "f32[4]")
    first = filled_by_index.__code__.co_firstlineno
    (multiplied, *_) = module.graph.find_nodes(op="call_function", target=fx.ops.mul)
    assert (multiplied.loc.line, multiplied.loc.expression) == (first + 3, "x * i")
    (made,) = module.graph.find_nodes(op="call_function", target=fx.ops.full)
    assert made.loc.expression == "np.zeros((3, 4), dtype=x.dtype)"


def test_numpy_and_other_threads_notice_nothing() -> None:
    before = {name: getattr(np, name) for name in np.__all__}
    inside: list[Any] = []

    def program(x: Any) -> Any:
        made = lambda: inside.append((np.zeros(2), helper(3, np.ones(2))))  # noqa: E731
        thread = threading.Thread(target=made)
        thread.start()
        thread.join()
        inside.append({n: getattr(np, n) for n in np.__all__} == before)
        raise LookupError("in the middle")

    with pytest.raises(LookupError, match="in the middle"):
        fx.symbolic_trace(program, "f32[4]")
    (zeros, helped), unpatched = inside
    assert type(zeros) is np.ndarray and type(helped) is np.ndarray and unpatched
    assert type(helper(3, np.ones(2))) is np.ndarray


def test_functions_without_source_run_as_they_are() -> None:
    space: dict[str, Any] = {"np": np}
    exec("def program(x):\n    return x + np.arange(3)", space)
    module = fx.symbolic_trace(space["program"], "f32[3]")
    assert [n.op for n in module.graph.nodes].count("get_attr") == 1


def test_functions_that_go_away_are_forgotten(tmp_path: Any) -> None:
    def known() -> int:
        gc.collect()
        return sum(map(len, capture._known.values()))

    before = known()
    for number in range(5):
        file = tmp_path / f"made_{number}.py"
        file.write_text("import numpy as np\ndef program(x):\n    return [x + y for y in np.ones(2, np.float32)][0]\n")
        fx.symbolic_trace(runpy.run_path(str(file))["program"], "f32[3]")
    assert known() == before


def test_source_that_changed_since_the_import_is_not_taken(tmp_path: Any, monkeypatch: Any) -> None:
    import importlib.util
    import linecache

    file = tmp_path / "changing.py"
    file.write_text("import numpy as np\ndef program(x):\n    return x + np.ones(3)\n")
    spec = importlib.util.spec_from_file_location("changing", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    file.write_text("import numpy as np\ndef program(x):\n    return x * np.ones(3) * 3\n")
    linecache.checkcache()
    x = np.arange(3.0)
    np.testing.assert_array_equal(fx.symbolic_trace(module.program, "f64[3]")(x), x + 1)


def test_numbers_of_values_that_do_not_exist_are_refused() -> None:
    def program(x: Any) -> Any:
        return x + np.random.default_rng(int(x[0])).random(3)

    with pytest.raises(TraceError, match=r"needs the value of|needs values that|no attribute"):
        fx.symbolic_trace(program, "f32[3]")
