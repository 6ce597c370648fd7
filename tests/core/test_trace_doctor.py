"""The trace doctor: all problems in one run, each with place, origin and a ready fix."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn
from fxlite.base.errors import ArgumentError, ShapeError, TraceError
from fxlite.cli import main
from fxlite.tracing.doctor import Diagnosis, Problem
from tests.oracle import agree
from tests.zoo import ZOO


def fixes(program: Any, *types: Any, **named: Any) -> dict[str, str]:
    """expression -> fix, for all problems."""
    return {p.expression: p.fix for p in fx.trace_doctor(program, *types, **named)}


def everything(x: Any, n: Any) -> Any:
    locals()  # a function that asks for its variables is not rewritten
    if x.sum() > 0:
        y = x * 2
    else:
        y = np.linalg.eig(x)
    z = float(x.mean())
    for i in range(n):
        y = y + i
    w = np.zeros((x.shape[0], 4)) + x
    a = np.asarray(x)
    b = x @ x
    c = b[0] + np.exp(b).sum(axis=7)  # follows from x @ x: no problem of its own
    if c > 0:
        return c
    x[0] = 1
    return y + z + w + a


def test_all_problems_in_one_run() -> None:
    diagnosis = fx.trace_doctor(everything, x="f32[B,4]", n="i64[]")
    assert not diagnosis
    assert [p.expression for p in diagnosis] == [
        "x.sum() > 0",
        "np.linalg.eig(x)",
        "float(x.mean())",
        "range(n)",
        "x @ x",
    ]
    first = diagnosis.problems[0]
    line = everything.__code__.co_firstlineno + 2
    assert first.location == f"{__file__}:{line}"
    assert first.origin.endswith(f":{line}: x.sum() > 0")
    assert first.fix == "y = np.where(x.sum() > 0, x * 2, np.linalg.eig(x))"
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.fix = ""  # type: ignore[misc]


def test_fixes_are_in_the_names_of_the_program() -> None:
    found = fixes(everything, x="f32[B,4]", n="i64[]")
    assert found["float(x.mean())"].startswith("x.mean()")
    assert "compute it before tracing" in found["np.linalg.eig(x)"]
    assert "fixed number of steps" in found["range(n)"]


def branches(x: Any) -> Any:
    locals()
    s = x.sum()
    y = x
    if s > 1:
        y += 1
    z = x if s > 2 else -x
    if s > 3 and s > 4:
        z = z * 2
    while s > 5:
        s = s - 1
    if not s > 7:
        return z
    return y + s + x[0, 0].item()


def test_branches() -> None:
    found = fixes(branches, x="f32[3,3]")
    assert found["s > 1"] == "y = np.where(s > 1, y + 1, y)"
    assert found["s > 2"] == "np.where(s > 2, x, -x)"
    assert found["s > 3"] == "z = np.where(np.logical_and(s > 3, s > 4), z * 2, z)"
    assert "fixed number of steps" in found["s > 5"]
    assert found["s > 7"].startswith("return np.where(np.logical_not(s > 7), z, y + s + ")
    assert found["x[0, 0].item()"] == "x[0, 0], which stays an array"


def early_return(x: Any) -> Any:
    locals()
    if x.min() < 0:
        return np.abs(x)
    return np.is_busday(x)


def test_early_return_and_what_comes_after_it() -> None:
    found = fixes(early_return, x="f32[3]")
    assert found["x.min() < 0"] == "return np.where(x.min() < 0, np.abs(x), np.is_busday(x))"
    assert "np.is_busday(x)" in found


def test_without_types() -> None:
    def program(x: Any, y: Any) -> Any:
        rows, columns = x.shape
        flat = x.reshape(rows * columns)
        first, second = y
        return flat[:2] + len(y) + first + second

    found = fixes(program)
    assert found["x.shape"] == 'fx.symbolic_trace(program, x="f32[...]", y="f32[...]")'
    assert "types" in found["first, second"]
    assert not fx.trace_doctor(program)
    assert fx.trace_doctor(program, x="f32[3,2]", y="f32[2]")


def test_an_error_has_no_follow_up() -> None:
    def program(x: Any, y: Any) -> Any:
        z = x + y
        a, b = z.shape
        for row in z:
            a = a + row.sum(axis=3)
        u, v = np.split(z, 2)
        z[0] = 1
        z += u @ v
        return F.softmax(np.stack([z, x]), dim=9), float(z), b

    (problem,) = fx.trace_doctor(program, x="f32[3,4]", y="f32[5]")
    assert problem.expression == "x + y"
    assert "broadcast" in problem.problem


class Half(nn.Module):
    def __init__(self, good: bool) -> None:
        super().__init__()
        self.good = good
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return F.relu(x) if self.good else F.softmax(x)  # softmax without dim


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = Half(False), Half(True), Half(False)

    def forward(self, x: Any) -> Any:
        return self.c(self.b(x) + self.a(x)) + np.is_busday(self.b(x))


def test_modules_go_on_behind_one_that_fails() -> None:
    model = Net()
    diagnosis = fx.trace_doctor(model, x="f32[2,3]")
    texts = [p.problem for p in diagnosis]
    assert any("needs dim=" in t for t in texts)
    assert any("np.is_busday" in t for t in texts)
    assert model.b.calls >= 2
    assert set(model.__dict__["_modules"]) == {"a", "b", "c"}


@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_no_problems_where_there_are_none(program: Any) -> None:
    made, types, _ = program.make()
    diagnosis = fx.trace_doctor(made, *types)
    assert diagnosis, str(diagnosis)
    assert len(diagnosis) == 0


def test_the_error_of_symbolic_trace_lists_all() -> None:
    with pytest.raises(TraceError) as caught:
        fx.symbolic_trace(everything, x="f32[B,4]", n="i64[]")
    text = str(caught.value)
    assert text.startswith("if, while, and, or")
    assert "instead: y = np.where(x.sum() > 0, x * 2, np.linalg.eig(x))" in text
    assert "and 4 more problems:\n2. " in text
    assert "float(x.mean())" in text
    assert "x @ x" in text

    def program(x: Any) -> Any:
        return x.reshape(5), np.is_busday(x)

    with pytest.raises(ShapeError, match=r"(?s)12 elements.*and 1 more problem:\n2\. np\.is_busday"):
        fx.symbolic_trace(program, x="f32[12]")

    def one(x: Any) -> Any:
        return np.is_busday(x)

    with pytest.raises(TraceError) as caught:
        fx.symbolic_trace(one, x="f32[3]")
    assert "more problem" not in str(caught.value)


def test_control_flow_that_is_captured_is_no_problem() -> None:
    def program(x: Any, n: Any) -> Any:
        if x.sum() > 0 and not x[0] > 3:
            x = x * 2
        for i in range(n):
            x = np.is_busday(x) + i
        return x + float(x[0])

    assert [p.expression for p in fx.trace_doctor(program, "f32[3]", "i64[]")] == ["np.is_busday(x)"]

    def generated(x: Any) -> Any:
        def parts() -> Any:
            if x[0] > 0:
                yield x
            else:
                yield -x

        return next(parts())

    (problem,) = fx.trace_doctor(generated, "f32[3]")
    assert problem.problem.endswith("is a generator, so that its control flow cannot be captured")


def test_errors_of_the_program_itself() -> None:
    def program(x: Any) -> Any:
        return x + undefined_name  # type: ignore[name-defined]  # noqa: F821

    (problem,) = fx.trace_doctor(program, x="f32[3]")
    assert "NameError" in problem.problem
    assert problem.location.startswith(__file__)
    with pytest.raises(ArgumentError, match="no parameter"):
        fx.trace_doctor(program, q="f32[3]")


def test_hasattr_is_no_problem() -> None:
    def program(x: Any) -> Any:
        return x * 2 if hasattr(x, "todense") else x + 1

    assert fx.trace_doctor(program, x="f32[3]")


def test_printing() -> None:
    problem = Problem("model.py:3", "float(x)", "float() needs a value", "x was made", "x")
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(Diagnosis((problem,)))
    text = console.export_text()
    for part in ("1. float() needs a value", "model.py:3", "float(x)", "x was made", "instead: x"):
        assert part in text
    assert str(Diagnosis((problem,))).startswith("1 problem\n1. float() needs")
    assert "can be traced" in str(Diagnosis(()))


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.py"
    file.write_text(
        "import numpy as np\n\n\ndef f(x):\n    assert x.sum() > 0 and locals()\n"
        "    return float(np.is_busday(x) + x.sum())\n"
    )
    assert main(["trace", f"{file}:f", "-i", "x=f32[3]", "--doctor"]) == 1
    out = capsys.readouterr().out
    assert "np.is_busday" in out
    assert "model.py:6" in out
    assert "take the assert out" in out
    file.write_text("def f(x):\n    return x + 1\n")
    assert main(["trace", f"{file}:f", "-i", "x=f32[3]", "--doctor"]) == 0
    assert "can be traced" in capsys.readouterr().out


def test_sizes_in_numpy_functions() -> None:
    """np.maximum(x, B), np.sqrt(D) and NumPy's numbers beside a named size."""

    def program(x: Any) -> Any:
        rows, columns = x.shape
        scaled = np.maximum(x, rows) / np.sqrt(columns)
        assert (np.int64(2) * rows).expr == 2 * rows.expr if not isinstance(rows, int) else True
        return scaled, np.minimum(columns, x) + np.float32(0.5) * x

    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32) * 4
    agree(program, x, types=("f32[B,D]",))


def test_softmax_takes_axis() -> None:
    def program(x: Any) -> Any:
        return F.softmax(x, axis=0), F.log_softmax(x, axis=-1), F.softmin(x, 1)

    agree(program, np.arange(6, dtype=np.float32).reshape(2, 3))
    with pytest.raises(ArgumentError, match="two names"):
        F.softmax(np.ones(3), 0, axis=0)


def test_stacking_after_a_problem_comes_to_an_end() -> None:
    """A value that stands in for what could not be traced has the same rank after every call."""

    def program(x: Any) -> Any:
        y = np.einsum("ab->a", x)
        z = x.T
        z[::2] = -1  # a write into the caller's array
        return np.vstack([y, z[0]]), np.hstack([y, y])

    diagnosis = fx.trace_doctor(program, "f32[3,5]")
    assert len(diagnosis.problems) >= 1
