"""docs/numpy.md says of every public name of NumPy what it is here, and is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import FxliteError
from tests.oracle import agree
from tests.table import numpy_page
from tests.table.numpy_page import Name

CALLS = [*numpy_page.calls()]
#: Programs with so many calls each are compiled.
TOGETHER = 64


def label(name: Name) -> str:
    return f"{name.room}.{name.name}"


def test_every_public_name_has_a_line() -> None:
    listed: dict[str, set[str]] = {}
    for name in numpy_page.names():
        assert name.name not in listed.setdefault(name.room, set()), name
        listed[name.room].add(name.name)
    for room, names in numpy_page.public().items():
        assert listed[room] >= names, sorted(names - listed[room])
    assert len(CALLS) > 380


def test_the_page_is_made_of_these() -> None:
    found = numpy_page.PAGE.read_text()
    assert found == numpy_page.page(), "python -m tests.table.numpy_page writes it"


@pytest.mark.parametrize("name", CALLS, ids=label)
def test_call(name: Name) -> None:
    program, inputs = numpy_page.program(name.call)
    agree(program, *inputs, rungs=("graph", "python", "kernel"))


@pytest.mark.parametrize("backend", ["c", "cuda"])
@pytest.mark.parametrize("start", range(0, len(CALLS), TOGETHER))
def test_calls_compiled(start: int, backend: str) -> None:
    programs = [numpy_page.program(name.call) for name in CALLS[start : start + TOGETHER]]
    counts = [len(inputs) for _, inputs in programs]
    names = [f"x{number}" for number in range(sum(counts))]

    def together(given: Any) -> Any:
        result, position = [], 0
        for (program, _), count in zip(programs, counts):
            result.append(program(*given[position : position + count]))
            position += count
        return result

    whole = numpy_page.function_of(names, f"together([{', '.join(names)}])", together=together)
    inputs = [array for _, arrays in programs for array in arrays]
    agree(whole, *inputs, rungs=(backend,))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("np.pad(x, 1, mode='median', stat_length=0)", "stat_length must be 1"),
        ("np.pad(x, 5, mode='reflect', reflect_type='odd')", "widths up to 2"),
        ("np.pad(x, -1)", "0 or more"),
        ("np.pad(x, 1, mode=lambda *a: None)", "is not traced"),
        ("np.quantile(x, 1.5)", "between 0 and 1"),
        ("np.quantile(x, 0.5, method='mean')", "is none of"),
        ("np.bincount(i * i)", "minlength="),
        ("np.histogram(v, bins='auto')", "give a number"),
        ("np.histogram(v, bins=[3, 1])", "must ascend"),
        ("np.convolve(v, w, 'all')", 'mode is "valid"'),
        ("np.linalg.solve(x, x)", "must be square"),
        ("np.linalg.norm(x, 3)", "fro, nuc, 1, -1"),
        ("np.linalg.qr(v)", "takes matrices"),
        ("np.linalg.qr(x, mode='full')", "mode must be"),
        ("np.linalg.eigh(x)", "must be square"),
        ("np.max(x, where=z)", "needs initial="),
        ("np.select([x], [y])", "arrays of bools"),
        ("np.partition(v, 9)", "out of bounds"),
        ("np.power.at(x.copy(), i % 3, 2)", "is traced for add"),
    ],
)
def test_what_is_refused_is_said(call: str, message: str) -> None:
    program, inputs = numpy_page.program(call)
    with pytest.raises(FxliteError, match=message):
        fx.symbolic_trace(program, *inputs)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("np.linalg.cholesky(-s)", np.linalg.LinAlgError),
        ("np.linalg.inv(m * 0)", np.linalg.LinAlgError),
        ("np.unravel_index(i - 3, (2, 2))", IndexError),
        ("np.choose(i, [v, w])", IndexError),
        ("np.bincount(i, minlength=2)", IndexError),
        ("np.nanargmax(h * np.nan)", IndexError),
    ],
)
def test_what_values_forbid_is_an_error_when_it_runs(call: str, error: type[Exception]) -> None:
    program, inputs = numpy_page.program(call)
    module = fx.symbolic_trace(program, *inputs)
    for function in (module, fx.compile(module)):
        with pytest.raises(error):
            function(*inputs)
