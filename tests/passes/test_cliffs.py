"""``Profile.cliffs``: what is far below its roof, and why; ``explain_template``: what computes a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import ops, passes
from fxlite.base.errors import ArgumentError
from fxlite.codegen.c.templates import TEMPLATES, claims, explain_template
from fxlite.passes.profiling.cliffs import SHORT, Cliffs
from fxlite.passes.profiling.record import Profile
from fxlite.show.node_cost import Limits
from tests.roofs import ROOFS

WEIGHT = np.ones((4, 3, 3, 3), np.float32)
MATRIX = np.ones((70, 70), np.float32)


def slow(program: Callable[..., Any], seconds: float = 1e-3, **types: str) -> Cliffs:
    """The cliffs of a program each of whose kernels takes so long, and reaches a tenth of its roof."""
    gm = fx.symbolic_trace(program, **types)
    made = passes.profile(gm, backend="c", roofs=ROOFS, repeat=2, threads=1)
    limits = Limits(0.0, seconds / 10, "memory")
    rows = tuple(replace(row, seconds=(seconds, seconds), limits=limits) for row in made.rows)
    return replace(made, rows=rows).cliffs()


def reasons(cliffs: Cliffs) -> list[str]:
    return [reason for cliff in cliffs for reason, _ in cliff.reasons]


@pytest.mark.parametrize(
    ("program", "types", "expected"),
    [
        (lambda x: x + np.float64(0.5) * x, {"x": "f32[40,50]"}, "makes float64 of x, which is float32"),
        (lambda x: np.fmod(x, 9) + x % 0.7, {"x": "f64[40,50]"}, "fmod of f64 and remainder of f64 call the C library"),
        (lambda x: x // 0.7, {"x": "f64[40,50]"}, "floor_divide of f64 calls the C library"),
        (lambda x: x.T + 1, {"x": "f32[40,50]"}, "permute reads x in another order"),
        (lambda x: x[:, ::2] + 1, {"x": "f32[40,50]"}, "slice reads x in another order"),
        (lambda x, i: x[i] + 1, {"x": "f32[40,50]", "i": "i64[30]"}, "takes elements from places that are computed"),
        (lambda x, y: x @ y, {"x": "i32[40,50]", "y": "i32[50,60]"}, "declines matmul: it takes f32 or f64, not i32"),
        (lambda x: np.exp(x) + 1, {"x": "f32[40,50]"}, "no reason is known"),
    ],
)
def test_the_reason_is_said(program: Callable[..., Any], types: Mapping[str, str], expected: str) -> None:
    found = slow(program, **types)
    assert any(expected in reason for reason in reasons(found)), str(found)
    assert all(len(line) <= 100 for line in str(found).splitlines())
    assert "test_cliffs.py:" in str(found)  # the user's line


@pytest.mark.parametrize(
    ("program", "types"),
    [
        (lambda x: np.sqrt(x) * 0.5, {"x": "f32[40,50]"}),
        (lambda x: np.sin(x), {"x": "f32[40,50]"}),
        (lambda x: np.exp(x) * 2, {"x": "f64[40,50]"}),
        (lambda x: x.reshape(50, 40) + x[:40].reshape(50, 40), {"x": "f32[40,50]"}),
        (lambda x: x @ MATRIX, {"x": "f32[40,70]"}),
    ],
)
def test_what_is_as_it_should_be_is_no_reason(program: Callable[..., Any], types: Mapping[str, str]) -> None:
    assert set(reasons(slow(program, **types))) <= {"no reason is known"}


def test_short_kernels_are_said_to_be_short() -> None:
    found = slow(lambda x: np.exp(x), seconds=SHORT / 2, x="f32[4]")
    assert "so short" in reasons(found)[0]


def _profile(times: list[float], reached: list[float]) -> Profile:
    gm = fx.symbolic_trace(lambda x: np.tanh(x) + np.exp(x) * 2, "f32[20]")
    made = passes.profile(gm, repeat=2, roofs=ROOFS)
    pairs = zip(made.rows, times, reached)
    rows = tuple(replace(r, seconds=(t, t), limits=Limits(t * part, 0.0, "memory")) for r, t, part in pairs)
    return replace(made, rows=rows)


def test_what_counts_as_a_cliff() -> None:
    profile = _profile([0.02, 0.58, 0.4], [0.1, 0.4, 0.2])
    found = profile.cliffs()
    assert [round(c.share, 2) for c in found] == [0.58, 0.4]  # the most to gain first; 2 % are too little
    assert [round(c.gain, 2) for c in found] == [0.35, 0.32]
    assert len(profile.cliffs(share=0.01)) == 3
    assert [c.reached for c in profile.cliffs(reached=0.3)] == [pytest.approx(0.2)]
    nothing = str(_profile([1.0, 1.0, 1.0], [0.9, 0.8, 0.7]).cliffs())
    assert nothing.endswith("no node with over 3% of the time and below 50% of a roof")
    assert "--backend c" in str(found) and "2 cliffs" in repr(found)


def test_errors() -> None:
    profile = _profile([1.0, 1.0, 1.0], [0.9, 0.8, 0.7])
    with pytest.raises(ArgumentError, match="share must be a part of the whole, from 0 to 1, not 3"):
        profile.cliffs(share=3)
    with pytest.raises(ArgumentError, match="without roofs"):
        replace(profile, roofs=None).cliffs()
    with pytest.raises(ArgumentError, match="is a placeholder, which computes nothing"):
        explain_template(fx.symbolic_trace(lambda x: x + 1, "f32[2]").graph.placeholders[0])


@pytest.mark.parametrize(
    ("program", "types", "expected"),
    [
        (lambda x: ops.conv2d(x, WEIGHT), ("f32[1,3,8,8]",), "the template of conv2d"),
        (lambda x, w: ops.conv2d(x, w), ("f16[1,3,8,8]", "f16[4,3,3,3]"), "conv2d: it takes f32 or f64, not f16"),
        (lambda x, y: x @ y, ("f64[9,9]", "f32[9,9]"), "matmul: operands and result are f32 and f64"),
        (lambda x, y: x @ y, ("f32[9]", "f32[9,9]"), "matmul: x is not a matrix"),
        (lambda x, y: x @ y, ("f32[9,9]", "f32[9]"), "matmul: of rows of 9 elements, loops are as fast"),
        (lambda x, y: (x + 1) @ y, ("f32[9,99]", "f32[99]"), "matmul: loops compute add where they read it"),
        (lambda x, y: x @ y, ("f32[9,9]", "f32[9,1]"), "matmul: of one column"),
        (lambda x, y: x @ y, ("f32[2,9]", "f32[9,3]"), "matmul: of 2 x 3 elements"),
        (lambda x: np.sort(x), ("f16[9]",), "sort: it takes no f16: cast to f32"),
        (
            lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
            ("f32[2,5,4]", "f32[2,7,4]", "f32[2,7,3]", "f64[5,7]"),
            "the mask is f64, and must be bool or f32",
        ),
        (lambda x: np.tanh(x), ("f32[9]",), "tanh has no template"),
    ],
)
def test_explain_template(program: Callable[..., Any], types: tuple[str, ...], expected: str) -> None:
    gm = fx.symbolic_trace(program, *types)
    found = {node: explain_template(node) for node in gm.graph.nodes if node.op == "call_function"}
    assert any(expected in text for text in found.values()), found
    for node, text in found.items():  # what is said is what is done
        assert text.startswith("the template") == claims(node)
        assert (node.target.name in TEMPLATES) == ("has no template" not in text)


def test_the_command_line(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from fxlite.cli import main

    path = tmp_path / "program.py"
    path.write_text("import numpy as np\n\n\ndef f(x):\n    return np.sin(x) * np.sin(2 * x)\n")
    command = ["profile", f"{path}:f", "-i", "x=f64[200,300]", "--backend", "c", "--threads", "1", "--repeat", "3"]
    assert main([*command, "--cliffs"]) == 0
    assert "below 50% of a roof" in capsys.readouterr().out
    assert main([*command, "--cliffs", "--by", "op"]) == 1
    assert "leave out one of them" in capsys.readouterr().err
