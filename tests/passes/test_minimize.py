"""The delta minimizer and the files that reproduce what it finds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fxlite as fx
from fxlite import nn, passes
from fxlite.base.errors import ArgumentError, GraphError
from fxlite.passes.checking.minimize import ddmin, write_repro
from fxlite.types.agreement import allclose, compare, exact
from tests.graphs import ops_of, trace
from tests.zoo import ZOO, Program

ROOT = Path(__file__).resolve().parents[2]


def run(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        cwd=path.parent,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )


@settings(max_examples=300, deadline=None)
@given(st.sets(st.integers(0, 30), min_size=1), st.integers(0, 10))
def test_ddmin_finds_what_is_needed(needed: set[int], more: int) -> None:
    tried = []

    def is_bad(items: list[int]) -> bool:
        tried.append(len(items))
        return needed <= set(items)

    assert ddmin(range(31 + more), is_bad) == sorted(needed)
    assert len(tried) <= (31 + more) ** 2 + 3 * (31 + more), "the bound of the paper"


def test_ddmin_of_alternatives_leaves_no_item_that_can_go() -> None:
    def is_bad(items: list[int]) -> bool:
        return {3, 17} <= set(items) or {5} <= set(items)

    assert ddmin(range(20), is_bad) in ([3, 17], [5])


@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_each_op_of_the_zoo_is_found(program: Program) -> None:
    gm, _, inputs = program.trace()
    wanted = ops_of(gm)[len(ops_of(gm)) // 2]

    def is_bad(part: fx.GraphModule, values: Any) -> bool:
        part(*values)  # the recorded values are what the part takes
        return wanted in ops_of(part)

    found = passes.minimize(gm, inputs, is_bad)
    found.module.graph.lint()
    assert [c for c in ops_of(found.module) if c != "getitem" or wanted == "getitem"].count(wanted) == 1
    assert len([c for c in ops_of(found.module) if c != "getitem"]) <= 1 + (wanted == "getitem")
    assert is_bad(found.module, found.inputs)


def test_the_values_of_the_whole_are_kept() -> None:
    def program(x: Any) -> Any:
        return np.sqrt(np.exp(x) - 2) + 1, x * 3

    gm = trace(program, "f32[N]")
    x = np.array([0, 1, 2], np.float32)

    def makes_nan(part: fx.GraphModule, values: Any) -> bool:
        with np.errstate(invalid="ignore"):
            results = part(*values)
        results = results if isinstance(results, tuple) else (results,)
        return any(np.isnan(r).any() for r in results) and "sqrt" in ops_of(part)

    with np.errstate(invalid="ignore"):
        found = passes.minimize(gm, {"x": x}, makes_nan)
    assert ops_of(found.module) == ["sqrt"]
    assert np.array_equal(found.inputs[0], np.exp(x) - 2)
    assert str(found.module.graph.placeholders[0].type) == "f32[N]"
    assert "bisect the end: 5 -> " in str(found)


def test_two_calls_that_are_bad_together() -> None:
    def program(x: Any) -> Any:
        y = np.exp(x)
        for _ in range(6):
            y = np.tanh(y) * 2
        return np.sin(y), np.cos(y), np.log(x)

    gm = trace(program)

    def is_bad(part: fx.GraphModule, values: Any) -> bool:
        return {"exp", "sin"} <= set(ops_of(part))

    found = passes.minimize(gm, (np.ones((3, 4), np.float32),), is_bad)
    assert sorted(ops_of(found.module)) == ["exp", "sin"]


def test_not_bad_at_all() -> None:
    with pytest.raises(ArgumentError, match="does not show"):
        passes.minimize(trace(lambda x: x + 1), (np.ones((3, 4), np.float32),), lambda *_: False)


def wrong_pass(gm: fx.GraphModule) -> fx.GraphModule:
    """Takes relu for abs."""
    copied = gm.copy()
    for node in copied.graph.find_nodes(op="call_function", target="relu"):
        with copied.graph.inserting_before(node):
            new = copied.graph.call_function("abs", node.args)
        node.replace_all_uses_with(new)
        copied.graph.erase_node(node)
    copied.recompile()
    return copied


def test_a_wrong_pass_is_reduced_and_reproduced(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4), nn.Softmax(-1)).eval()
    gm = trace(model, "f32[B,64]")
    x = np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)

    def is_bad(part: fx.GraphModule, values: Any) -> bool:
        return not compare(part(*values), wrong_pass(part)(*values), exact).agrees

    found = passes.minimize(gm, (x,), is_bad)
    assert ops_of(found.module) == ["relu"]
    after = wrong_pass(found.module)
    path = write_repro(tmp_path / "small.py", found.module, after, found.inputs, "relu is not abs")
    done = run(path)
    assert done.returncode == 1, done.stderr
    assert "expected 0.0, got " in done.stdout and "at [0, " in done.stdout
    assert not (tmp_path / "small.safetensors").exists(), "small arrays stand in the file"
    path = write_repro(tmp_path / "large.py", gm, wrong_pass(gm), (x,), "with weights")
    assert (tmp_path / "large.safetensors").exists()
    done = run(path)
    assert done.returncode == 1 and "elements differ" in done.stdout, done.stderr
    path = write_repro(tmp_path / "same.py", gm, gm.copy(), (x,), promise=allclose(rtol=1e-6))
    assert "run_repro(before, after, INPUTS, allclose(rtol=1e-06))" in path.read_text()
    done = run(path)
    assert (done.returncode, done.stdout) == (0, "no difference\n"), done.stderr


def test_repro_of_an_expression(tmp_path: Path) -> None:
    gm = trace(lambda x: np.exp(x) + np.exp(x))
    found = passes.minimize(gm, (np.ones((3, 4), np.float32),), lambda part, values: "exp" in ops_of(part))
    done = run(found.write_repro(tmp_path / "a.py", expression="passes.cse(before)"))
    assert (done.returncode, done.stdout) == (0, "no difference\n"), done.stderr
    done = run(found.write_repro(tmp_path / "b.py", expression="passes.cse(before, wrong=1)"))
    assert done.returncode == 1 and "PassError" in done.stderr


@pytest.mark.parametrize(
    "value",
    [
        np.array([np.nan, np.inf, -0.0, 0.1], np.float32),
        np.array([[0.1, -1e-40]], np.float16),
        np.array([1 / 3], ml_dtypes.bfloat16),
        np.array([2**63 - 1]),
        np.array([True, False]),
        np.array(0.1),
        np.zeros((0, 3), np.float32),
        np.arange(100, dtype=np.uint8),
    ],
    ids=lambda v: f"{v.dtype}{v.shape}",
)
def test_arrays_are_written_exactly(tmp_path: Path, value: Any) -> None:
    gm = fx.symbolic_trace(lambda x: x.reshape(-1), value)
    path = write_repro(tmp_path / "r.py", gm, None, (value,), expression="lambda x: x.copy()")
    names: dict[str, Any] = {"__name__": "repro", "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), names)
    read = names["INPUTS"]["x"]
    assert (read.dtype, read.shape, read.tobytes()) == (value.dtype, value.shape, value.tobytes())


def test_split_modules_are_written_flat_and_leaf_modules_refused(tmp_path: Path) -> None:
    class Leaf(nn.Module):
        def forward(self, x: Any) -> Any:
            return x

    gm = trace(lambda x: np.exp(x))
    split = passes.split_module(gm, lambda n: 0)
    x = np.ones((3, 4), np.float32)
    path = write_repro(tmp_path / "r.py", split, gm, (x,), 'a """ message \\ here')
    assert run(path).returncode == 0
    leafy = fx.symbolic_trace(nn.Sequential(Leaf()), leaf=[Leaf])
    with pytest.raises(GraphError, match="leaf module"):
        write_repro(tmp_path / "r.py", leafy, None, (x,))
