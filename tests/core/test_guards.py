"""Guards: checks that a program makes of its own sizes, kept by the graph and made in calls."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, passes
from fxlite.base.errors import FileFormatError, ParseError, ShapeError, TraceError
from fxlite.passes.cutting.inline_modules import flattened
from fxlite.passes.cutting.split_module import split_module
from fxlite.passes.cutting.subgraph import extract_subgraph
from fxlite.types import guards
from fxlite.types.guards import Guard
from fxlite.types.shapes import decide
from tests.oracle import agree
from tests.work import assert_linear

B, T = fx.dims("B T")


class Net(nn.Module):
    """Checks its input in the ways that programs have."""

    max_len = 64

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        assert x.shape[1] <= self.max_len, "too long"
        if x.shape[0] % 2 or x.shape[1] == 3:
            message = f"{x.shape}"
            raise ValueError(message)
        return np.maximum(self.fc(x), 0) + x.shape[1]


CONDITIONS = ["T <= 64", "B % 2 == 0", "T != 3"]
BAD = [
    ((2, 65, 4), "T <= 64 is required by test_guards.py:.*assert x.shape.1. <= self.max_len.*65"),
    ((3, 5, 4), r"B % 2 == 0 is required by test_guards.py:.*if x.shape.0. % 2.*raise.*3"),
    ((2, 3, 4), "T != 3 is required"),
]


def traced() -> fx.GraphModule:
    return fx.symbolic_trace(Net(), x="f32[B,T,4]")


def conditions(graph: fx.Graph) -> list[str]:
    return [str(guard) for guard in graph.guards]


# -- recording -------------------------------------------------------------------------------------
def test_the_checks_of_a_program_are_recorded() -> None:
    gm = traced()
    assert conditions(gm.graph) == CONDITIONS
    place = gm.graph.guards[0].loc
    assert place is not None and place.file == __file__ and place.function == "forward"
    assert place.expression == "assert x.shape[1] <= self.max_len"


def _chain(x: Any) -> Any:
    assert 1 <= x.shape[0] <= 9 and not x.shape[1] % 4
    return x


def _negated(x: Any) -> Any:
    if not (x.shape[0] > 2 and x.shape[1] > 5):
        raise ValueError
    return x


def _equal_sizes(x: Any) -> Any:
    assert x.shape[0] == x.shape[1]
    assert x.shape[0] == x.shape[1]  # the same once more
    return x


def _truth(x: Any) -> Any:
    if not x.shape[0]:
        raise ValueError("empty")
    assert x.shape[1]
    return x


def _known_from_then_on(x: Any) -> Any:
    assert x.shape[0] <= 8
    if x.shape[0] > 8 or x.shape[0] >= 10:
        return -x
    return x if x.shape[0] < 9 else -x


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (_chain, ["B >= 1", "B <= 9", "T % 4 == 0"]),
        (_negated, ["B > 2", "T > 5"]),
        (_equal_sizes, ["B == T"]),
        (_truth, ["B != 0", "T != 0"]),
        (_known_from_then_on, ["B <= 8"]),
    ],
)
def test_what_counts_as_a_check(program: Callable[..., Any], expected: list[str]) -> None:
    gm = fx.symbolic_trace(program, "f32[B,T]")
    assert conditions(gm.graph) == expected
    assert gm.graph.output_node().args == (gm.graph.placeholders[0],)


def _either(x: Any) -> Any:
    assert x.shape[0] > 2 or x.shape[1] > 2
    return x


def _both_wrong(x: Any) -> Any:
    if x.shape[0] > 2 and x.shape[1] > 2:
        raise ValueError
    return x


def _outside_a_chain(x: Any) -> Any:
    if 2 < x.shape[0] < 5:
        raise ValueError
    return x


def _returns(x: Any) -> Any:
    if x.shape[0] > 2:
        return -x
    return x


def _falls_back(x: Any) -> Any:
    try:
        assert x.shape[0] > 2
    except AssertionError:
        return -x
    return x


def _raises_sometimes(x: Any) -> Any:
    if x.shape[0] > 2:
        if x.shape[1] != 2:
            print("odd")
        raise ValueError
    return x


def _in_a_call(x: Any) -> Any:
    assert all(size > 2 for size in x.shape)
    return x


def _is_larger(x: Any) -> bool:
    return bool(x.shape[0] > 2)


def _elsewhere(x: Any) -> Any:
    assert _is_larger(x)
    return x


@pytest.mark.parametrize("program", [_either, _falls_back, _in_a_call, _elsewhere])
def test_everything_else_is_an_error(program: Callable[..., Any]) -> None:
    with pytest.raises(TraceError, match=r"(?s)> 2 needs a number.*test_guards.py:\d+.*instead:"):
        fx.symbolic_trace(program, "f32[B,T]")


@pytest.mark.parametrize("program", [_both_wrong, _outside_a_chain, _raises_sometimes])
def test_what_raises_on_a_condition_of_sizes_is_an_error(program: Callable[..., Any]) -> None:
    with pytest.raises(TraceError, match=r"(?s)a branch raises ValueError.*test_guards.py:\d+"):
        fx.symbolic_trace(program, "f32[B,T]")


def test_a_condition_of_sizes_is_one_of_the_graph() -> None:
    for rows in (2, 3):
        agree(_returns, np.ones((rows, 2), np.float32), types=("f32[B,T]",), rungs=("graph",))


def test_a_check_that_can_never_pass_runs_as_it_stands() -> None:
    def program(x: Any) -> Any:
        assert x.shape[0] >= 2, "too small"
        return x

    with pytest.raises(AssertionError, match="too small"):
        fx.symbolic_trace(program, fx.float32[fx.dims("B", max=1)])
    assert not fx.symbolic_trace(program, fx.float32[fx.dims("B", min=2)]).graph.guards


def test_the_doctor_knows_checks() -> None:
    def program(x: Any) -> Any:
        assert x.shape[0] <= 8
        return np.asarray(x)

    with pytest.raises(TraceError) as caught:
        fx.symbolic_trace(program, "f32[B]")
    assert "needs a number" not in str(caught.value)


# -- checking --------------------------------------------------------------------------------------
@pytest.mark.parametrize(("shape", "message"), BAD)
def test_a_call_is_refused_everywhere(shape: tuple[int, ...], message: str) -> None:
    gm = traced()
    runs = [gm, fx.Interpreter(gm).run, lambda x: gm.run_flat({"x": x})]
    for run in runs:
        with pytest.raises(ShapeError, match=message):
            run(np.zeros(shape, np.float32))
    with pytest.raises(AssertionError):
        gm.forward(np.zeros(shape, np.float32))
    gm(np.zeros((2, 5, 4), np.float32))


@pytest.mark.parametrize(
    ("left", "relation", "right", "expected"),
    [
        (T, "<=", T + 1, True),
        (T, ">", T, False),
        (T, ">=", 0, True),
        (T, "<", 0, False),
        (T, "==", 5, None),
        (2 * T, "==", T + T, True),
        (T, "!=", T + 1, True),
        (T, "<", B, None),
    ],
)
def test_decide(left: Any, relation: str, right: Any, expected: bool | None) -> None:
    assert decide(left, relation, right) is expected


@pytest.mark.parametrize("relation", list(guards.OPPOSITE))
@pytest.mark.parametrize("known", ["T <= 5", "T < 5", "T >= 5", "T > 5", "T == 5", "T != 5", "5 <= T"])
def test_decisions_from_guards_hold_for_all_values(relation: str, known: str) -> None:
    given = guards.parse(known)
    for right in range(3, 8):
        answer = decide(T, relation, right, [given])
        values = {Guard(T, relation, right).holds({"T": t}) for t in range(12) if given.holds({"T": t})}
        assert answer is None or values == {answer}


def test_text_of_a_guard() -> None:
    for text in ("T <= 512", "(B + 1) % 8 == 0", "T//2 != 3", "Min(3, T) >= 2*B"):
        guard = guards.parse(text)
        assert str(guard) == text and guards.parse(str(guard)) == guard
    for text in ("T", "T <= ", "1 < T < 5", "T in B", "f(T) == 1"):
        with pytest.raises(ParseError):
            guards.parse(text)


# -- surviving -------------------------------------------------------------------------------------
DECLARED = fx.dims("B T", min=2, max=256)


def declared() -> fx.GraphModule:
    return fx.symbolic_trace(Net(), x=fx.float32[(*DECLARED, 4)])


def test_text_files_and_copies_keep_conditions(tmp_path: Path) -> None:
    gm = declared()
    text = gm.graph.text(full=True)
    assert "assert 2 <= T <= 256  # declared" in text
    assert re.search(r"assert T <= 64  # test_guards.py:\d+: assert x.shape\[1\] <= self.m", text)
    parsed = fx.parse(text)
    assert parsed == gm.graph and parsed.text(full=True) == text
    fx.save(gm, tmp_path / "net.fxl")
    loaded = fx.load(tmp_path / "net.fxl")
    for other in (
        loaded,
        gm.copy(),
        copy.deepcopy(gm),
        pickle.loads(pickle.dumps(gm)),
        fx.symbolic_trace(gm),
        fx.GraphModule(gm, fx.Tracer().trace(gm)),
        fx.Transformer(gm).transform(),
    ):
        assert other.graph == gm.graph and other.graph.text(full=True) == text
        with pytest.raises(ShapeError, match=r"T <= 64 is required by test_guards.py"):
            other(np.zeros((2, 65, 4), np.float32))


def test_text_with_other_conditions_is_another_graph() -> None:
    gm = declared()
    for old, new in (("T <= 64", "T <= 65"), ("2 <= T", "3 <= T"), ("B % 2 == 0", "B % 4 == 0")):
        other = fx.parse(gm.graph.text(full=True).replace(old, new))
        assert other != gm.graph
        with pytest.raises(AssertionError, match="only the first graph says"):
            fx.assert_same(gm.graph, other)
    for wrong in ("assert Z <= 5", "assert T", "assert T <= 5 or T > 9"):
        text = gm.graph.text(full=True).replace("assert T <= 64", wrong)
        with pytest.raises(ParseError):
            fx.parse(text)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    import zipfile

    fx.save(declared(), tmp_path / "net.fxl")
    with zipfile.ZipFile(tmp_path / "net.fxl") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    for old, new in ((b'"T <= 64"', b'"T <= "'), (b"[2,256,1]", b"[9,3,1]"), (b'"T <= 64"', b'"Z <= 64"')):
        assert any(old in data for data in files.values()), old
        with zipfile.ZipFile(tmp_path / "bad.fxl", "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data.replace(old, new))
        with pytest.raises(FileFormatError):
            fx.load(tmp_path / "bad.fxl")


@pytest.mark.parametrize("name", sorted(passes.PASSES))
def test_passes_keep_conditions(name: str) -> None:
    gm = declared()
    done = passes.PASSES[name](gm)
    assert done.graph.guards == gm.graph.guards
    assert done.graph.declared_dims == gm.graph.declared_dims
    done.graph.lint(full=True)
    assert all(n.type.shape[:2] == DECLARED for n in done.graph.placeholders)


def test_checked_passes_draw_sizes_that_are_allowed() -> None:
    def program(x: Any) -> Any:
        return (x.reshape(x.shape[0], -1, 8).sum(axis=2) * 1 + 0)[:, :2]

    b, t = fx.dims("b t", multiple_of={"t": 8}, min={"t": 16})
    gm = fx.symbolic_trace(program, fx.float32[b, t])
    manager = passes.PassManager(["simplify", "decompose", "cse"], check=True)
    assert manager(gm).graph.declared_dims == gm.graph.declared_dims


def test_parts_keep_the_conditions_on_their_sizes() -> None:
    gm = declared()
    part = extract_subgraph(gm, [n for n in gm.graph.nodes if n.name == "linear"])
    assert conditions(part.graph) == CONDITIONS
    halves = split_module(gm, lambda node: int(node.name != "linear"))
    assert conditions(halves.graph) == CONDITIONS
    assert conditions(flattened(halves).graph) == CONDITIONS


def test_a_called_module_hands_its_conditions_on() -> None:
    gm = traced()
    outer = fx.symbolic_trace(lambda y: gm(y) * 2, y="f32[2*N,S,4]")
    assert conditions(outer.graph) == ["S <= 64", "S != 3"]
    with pytest.raises(ShapeError, match=r"T <= 64 is required by test_guards.*got B=2, T=99|T=99"):
        fx.symbolic_trace(lambda y: gm(y) * 2, y="f32[2,99,4]")


def test_guards_can_be_undone() -> None:
    gm = traced()
    before = gm.graph.guards
    with gm.graph.transaction("another guard"):
        gm.graph.guards = (*before, guards.parse("T >= 2"))
    assert conditions(gm.graph) == [*CONDITIONS, "T >= 2"]
    gm.undo()
    assert gm.graph.guards == before
    gm.redo()
    assert len(gm.graph.guards) == 4


def test_a_replacement_for_some_sizes_only() -> None:
    def pattern(x: Any) -> Any:
        return np.exp(x)

    def replacement(x: Any) -> Any:
        assert x.shape[0] % 2 == 0
        return np.exp(x * 1.0)

    rule = passes.Rule(pattern, "for_even_sizes", "exact")
    rule.replacement(replacement)
    gm = fx.symbolic_trace(lambda x: np.exp(x), "f32[T]")
    assert passes.RuleSet([rule])(gm).graph == gm.graph  # a rule keeps what a program accepts
    assert len(fx.replace_pattern(gm, pattern, replacement)) == 1  # an edit does what it says
    assert conditions(gm.graph) == ["T % 2 == 0"]


def test_sizes_that_fit() -> None:
    facts = {"T": fx.dims("T", min=8, max=64, multiple_of=8)}
    found = guards.fitting_sizes(facts, [guards.parse("T > B")], {"T": 3, "B": 20})
    assert found is not None and found["T"] > found["B"] and found["T"] % 8 == 0
    assert guards.fitting_sizes(facts, [guards.parse("T == 9")], {"T": 3}) is None


def test_time_is_linear_in_the_checks_of_a_file(tmp_path: Path) -> None:
    """The text of a check is looked for when it is shown, not that of each check in the file."""

    def make(count: int) -> Any:
        path = tmp_path / f"checks_{count}.py"
        path.write_text("".join(f"def f{k}(x):\n    assert x.shape[0] > {k}\n    return x\n" for k in range(count)))
        space: dict[str, Any] = {}
        exec(compile(path.read_text(), str(path), "exec"), space)
        return space[f"f{count - 1}"]

    def work(program: Any) -> None:
        (condition,) = fx.symbolic_trace(program, "f32[B]").graph.conditions()
        assert "assert x.shape[0] > " in str(condition.reason)

    assert_linear(make, work, 100)
