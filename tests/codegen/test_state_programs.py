"""Random programs that read, write and assign to states: what is stored over a state in C must not be
what is read later. The graph and C agree with the eager module, on results and states, over calls.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn

STATES = ("self.a", "self.b", "self.c")


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        numbers = np.random.default_rng(0)
        for name in "abc":
            self.register_buffer(name, numbers.standard_normal((4, 3)).astype(np.float32))
        self.register_buffer("n", np.zeros((), np.int64))
        self.w = nn.Parameter((np.eye(3) * 0.7 + 0.1).astype(np.float32))


def forward_text(seed: int) -> str:
    """The text of a ``forward`` of 3 to 9 statements."""
    choice = random.Random(seed)
    values, lines = ["x"], []

    def value() -> str:
        return choice.choice(values if choice.random() < 0.5 else STATES)

    for number in range(choice.randint(3, 9)):
        state, row = choice.choice(STATES), choice.randint(0, 3)
        statements = [
            f"{state} = {value()} * 0.5 + {value()}",
            f"{state}[{row}] = {value()}[{choice.randint(0, 3)}] + 1",
            f"{state}[self.n % 4] = {value()}[{row}]",
            f"{state}[1:] = {value()}[:-1].copy()",
            f"{state} += {value()} * 0.25",
            "self.a, self.b = self.b.copy(), self.a.copy()",
            "self.n = self.n + 1",
            f"{state} = {value()}[::-1] * 0.5",
            f"{state}[:, {row % 3}] = {value()}.sum(1) * 0.1",
            f"v{number} = {value()}{choice.choice(['.copy()', ' * 2', '.T.copy().T', ' @ self.w'])}",
        ]
        line = choice.choice(statements)
        lines.append(line)
        if line.startswith("v"):
            values.append(line.partition(" ")[0])
    ends = [f"{value()}{choice.choice(['', '.sum(0)', '[1] * 1', '.copy()'])}" for _ in range(choice.randint(1, 3))]
    return "\n    ".join(["def forward(self, x):", *lines, f"return ({', '.join(ends)},)"]) + "\n"


@pytest.mark.parametrize("seed", range(10))
def test_programs_with_state_agree(seed: int) -> None:
    text = forward_text(seed)
    space: dict[str, Any] = {}
    exec(text, space)
    kind = type("Program", (Stateful,), {"forward": space["forward"]})
    eager, graph = kind(), fx.symbolic_trace(kind(), "f32[4,3]")
    compiled = fx.compile(graph, backend="c", threads=1)
    for call in range(3):
        x = np.random.default_rng(call).standard_normal((4, 3)).astype(np.float32)
        expected = [np.array(v) for v in eager(x.copy())]
        for what, function, holder in (("graph", graph, graph), ("C", compiled, compiled.graph_module)):
            for one, other in zip(expected, function(x), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4, err_msg=f"{what}\n{text}")
            for _, path in graph.states:
                held = holder.get_buffer(path)
                np.testing.assert_allclose(getattr(eager, path), held, rtol=1e-4, atol=1e-4, err_msg=f"{what}\n{text}")
