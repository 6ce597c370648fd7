"""Groups of one form call one C function: when they may, and that results stay right."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn
from fxlite.codegen.c.emit import CProgram
from tests import models
from tests.oracle import compare


def compiled(program: Any, *inputs: Any, types: Any = None) -> CProgram:
    """The program's C; fails if it does not compute what NumPy computes."""
    function = fx.compile(program, *(types or inputs))
    compare("c", function(*inputs), program(*inputs))
    return function.program


def counts(program: CProgram) -> list[int]:
    """How often each function is called."""
    return sorted(Counter(call.function for call in program.calls).values())


def array(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_the_steps_of_a_loop_share_their_kernels() -> None:
    model = models.LstmCells().eval()
    program = compiled(model, array(12, 3, 16), types=["f32[12,B,16]"])
    # the product of the inputs is one for all steps: merge_steps
    assert counts(program)[-4:] == [1, 11, 11, 12]
    assert len(program.sources["lstm_cells.c"]) < 50_000
    assert re.search(r"Also computes \w+, .*\.\.\.", program.functions)
    assert len({call.name for call in program.calls}) == len(program.calls)


class Stack(nn.Module):
    """Layers of one form with weights of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = np.tanh(layer(x)) + 1
        return x


def test_equal_layers_share_a_kernel_and_keep_their_weights() -> None:
    program = compiled(Stack().eval(), array(5, 8), types=["f32[B,8]"])
    assert counts(program) == [4]
    packed = [a for call in program.calls for a in call.arguments if a.endswith("_packed")]
    assert len(set(packed)) == 4


@pytest.mark.parametrize(
    ("read", "functions"),
    [
        (lambda x, y, t: x[t], 1),
        (lambda x, y, t: x[5 - t], 1),
        (lambda x, y, t: x[:, t], 1),
        (lambda x, y, t: x[t] + y[t], 2),
        (lambda x, y, t: x[t - 1 : t + 1].sum(axis=0), 2),
        (lambda x, y, t: x[t] + y[5 - t], 5),  # one is cut before the other's
        (lambda x, y, t: x[t] + x[t - 1], 5),  # the operand is read twice
        (lambda x, y, t: x[t] + t, 5),
        (lambda x, y, t: x[t] * np.asarray(t, np.float32), 5),  # written as a number
    ],
)
def test_operands_may_start_further_on(read: Any, functions: int) -> None:
    """Four products share one function; what they multiply may be computed by another."""

    def program(x: Any, y: Any, total: Any) -> Any:
        for t in range(1, 5):
            total = read(x, y, t) @ total
        return total

    inputs = array(9, 9, 9), array(9, 9, 9), array(9, 9)
    assert len(counts(compiled(program, *inputs))) == functions


def test_an_index_out_of_range_is_found_in_a_shared_kernel() -> None:
    def program(x: Any, y: Any, table: Any) -> Any:
        return [F.embedding(v, table).sum(axis=-1) for v in (x, y)]

    table, good = array(5, 3), np.zeros((2, 4), np.int64)
    function = fx.compile(program, good, good, table)
    assert counts(function.program) == [2]
    compare("c", function(good, good, table), program(good, good, table))
    with pytest.raises(IndexError, match="index 7 is out of bounds for size 5"):
        function(good, good + 7, table)


def test_values_over_different_operands_have_functions_of_their_own() -> None:
    """Of ``where(c, new, a)`` and ``where(c, b, new)``, each lies over another operand."""

    def program(a: Any, b: Any) -> Any:
        one = a if a.sum() > b[0] else b
        one[::2] = 0
        return one

    for sign in (1, -1):
        eager, own = ([array(6), sign * (abs(array(7)[:6]) + 5)] for _ in range(2))
        function = fx.compile(program, *own)
        compare("c", function(*own), program(*eager))
        compare("what is written", own, eager)
