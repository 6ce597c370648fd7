"""Transposes: a square of an operand is copied at a time, for all types, sizes and orders of axes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.codegen.c import templates
from fxlite.codegen.c.emit import emit
from fxlite.codegen.kernel.kernel_ir import For, statements
from fxlite.codegen.kernel.schedule import schedule
from fxlite.codegen.program.program import optimize, plan
from tests.codegen.compiling import c_file
from tests.oracle import agree

#: Programs of two arrays, and the shapes of these.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "transposed": (lambda x, y: x.T, (70, 41), (1,)),
    "plus one in order": (lambda x, y: x.T * 2 + y, (70, 41), (41, 70)),
    "plus a row": (lambda x, y: abs(x.T) + y, (33, 64), (33,)),
    "two": (lambda x, y: x.T - y.T, (70, 41), (70, 41)),
    "channels last": (lambda x, y: x.transpose(0, 2, 3, 1) + y, (3, 33, 9, 11), (33,)),
    "axes turned round": (lambda x, y: x.transpose(3, 2, 1, 0), (10, 3, 4, 40), (1,)),
    "a part": (lambda x, y: x.transpose(0, 2, 1)[:, 3:, :] + y, (5, 33, 40), (33,)),
    "beside its triangle": (lambda x, y: np.triu(x.T) + x.T + y, (60, 60), (60,)),
    "less its triangle": (lambda x, y: x.T * 2 - np.tril(x.T) + y, (60, 60), (60,)),
    "windows": (lambda x, y: x.reshape(2, 4, 8, 4, 8, 16).transpose(0, 1, 3, 5, 2, 4), (2, 32, 32, 16), (1,)),
}


def arrays(name: str, dtype: str) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    return [(rng.normal(size=shape) * 50).astype(dtype) for shape in PROGRAMS[name][1:]]


def copied(program: Callable[..., Any], *types: Any) -> list[For]:
    """The loops that copy squares."""
    module, _ = optimize(fx.symbolic_trace(program, *types))
    groups = plan(module, templates.claims).groups
    found = (s for group in groups for s in statements(schedule(group, "kernel").body))
    return [s for s in found if isinstance(s, For) and s.kind == "transpose"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_ways_agree(name: str) -> None:
    given = arrays(name, "f4")
    assert copied(PROGRAMS[name][0], *given)
    agree(PROGRAMS[name][0], *given)


@pytest.mark.parametrize("dtype", ["f8", "i4", "i8", "i2", "u1", "c8", "c16", "f2", "?"])
def test_elements_of_all_types(dtype: str) -> None:
    x, _ = arrays("transposed", dtype)
    assert copied(lambda x: x.T, x)
    for given in (x, np.repeat(x, 14, 0)[:, :32]):
        np.testing.assert_array_equal(fx.compile(lambda x: x.T, given)(given), given.T)


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (31, 33), (32, 32), (100, 7), (0, 5)])
def test_named_sizes(shape: tuple[int, ...]) -> None:
    """One version for all sizes, also those of less than a square."""
    x = np.random.default_rng(4).normal(size=shape)
    program = fx.compile(lambda x: (x.T, x.T + 1), "f64[M,N]")
    for found, expected in zip(program(x), (x.T, x.T + 1)):
        np.testing.assert_array_equal(found, expected)


def test_squares_that_are_only_moved_need_no_local_array() -> None:
    for program, arrays in ((lambda x: x.T, 0), (lambda x: x.T * 2, 1), (lambda x: x.T.astype("f4"), 1)):
        source = emit(optimize(fx.symbolic_trace(program, "f64[70,41]"), False, templates.claims)[0]).functions
        assert source.count("tile[1024]") == arrays
        assert source.count("copy_transposed_double(") == 1


def test_an_index_is_transposed_and_not_what_it_reads() -> None:
    """As the windows of an image that are taken one axis after the other, and the two axes turned round."""
    rng = np.random.default_rng(6)
    x, places = rng.normal(size=(3, 50, 64)), rng.integers(0, 50, (40, 36))
    agree(lambda x, places: x[:, places.T, 5], x, places)
    agree(lambda x, places: np.take(np.take(x, places, 1), places, 3).transpose(1, 3, 0, 4, 2)[:3, :3], x, places)


@pytest.mark.parametrize("shape", [(4000, 3), (3, 4000), (20, 20)])
def test_few_rows_stay_loops(shape: tuple[int, ...]) -> None:
    assert not copied(lambda x: x.T, np.zeros(shape))


def test_what_is_read_under_a_condition_stays_in_loops() -> None:
    """Elements of padding are not there to be copied."""

    def program(x: Any) -> Any:
        return np.pad(x.T, ((1, 1), (1, 1)))

    x = np.random.default_rng(5).normal(size=(60, 50))
    agree(program, x)


@pytest.mark.parametrize(
    ("shape", "axes"), [((3, 1100, 4), (0, 2, 1)), ((1, 90, 80, 3), (0, 3, 1, 2)), ((2, 9000, 2), (2, 0, 1))]
)
def test_a_few_elements_side_by_side_are_taken_apart_block_by_block(shape: tuple[int, ...], axes: Any) -> None:
    """The channels of an image that come last: a block of pixels is read once from memory, for all of them."""
    x = np.arange(np.prod(shape), dtype="f8").reshape(shape)
    for program in (lambda x: x.transpose(axes), lambda x: np.sqrt(x.transpose(axes)) - 1):
        agree(program, x)
        assert re.search(r"< 512;|fx_min\(512, ", _text(program, x))
    assert "512" not in _text(lambda x: x.transpose(axes), x[:1, :12])


def _text(program: Any, x: np.ndarray) -> str:
    return emit(optimize(fx.symbolic_trace(program, x), False, templates.claims)[0]).functions


# -- short rows side by side -----------------------------------------------------------------------
def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_softmax(x: Any) -> Any:
    e = x - x.max(-1, keepdims=True)
    return e - np.log(np.exp(e).sum(-1, keepdims=True))


#: Rows that are reduced, of arrays of a few columns.
SHORT_ROWS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: softmax(x),
    "of a transposed matrix": lambda x: softmax(np.ascontiguousarray(x.T).T * 2),
    "logarithms": lambda x: log_softmax(x),
    "with weights of columns": lambda x: softmax(x * np.arange(1, x.shape[-1] + 1, dtype=x.dtype)) * x,
    "with weights of rows": lambda x: softmax(x * x[..., :1]) + x.sum(-1, keepdims=True),
    "masked": lambda x: softmax(np.where(x > 0, x, -np.inf)),
}


@pytest.mark.parametrize("name", SHORT_ROWS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
@pytest.mark.parametrize("shape", [(64, 3), (100, 10), (3, 70, 5), (129, 31), (65, 16), (1000, 2)])
def test_short_rows(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(8).standard_normal(shape).astype(dtype)
    x[0] = 3.0
    if name == "masked":
        x[..., 0] = 1.0
    agree(SHORT_ROWS[name], x)
    if dtype == "f4":
        agree(SHORT_ROWS[name], x, types=[f"f32[{','.join(('N', *map(str, shape[1:])))}]"])


def test_short_rows_are_computed_side_by_side() -> None:
    for name, program in SHORT_ROWS.items():
        text = c_file(program, x="f32[3000,10]")
        kernel = text[text.index("_softmax(") if "_softmax(" in text else text.index("static void k") :]
        assert "lane < 32" in kernel, f"{name}: {kernel}"
    for program in (lambda x: x / x.sum(1, keepdims=True), lambda x: x.sum(1)):  # to move them would take longer
        text = c_file(program, x="f32[3000,10]")
        assert "tile" not in text[text.index("static void k") : text.index("_check(void)")]
    columns = c_file(lambda x: softmax(x.T), x="f32[10,3000]")
    assert "k1" not in columns and columns.count("copy_transposed_float(count") == 0  # they are read in place
