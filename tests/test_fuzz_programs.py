"""Programs as people write them: with which the fuzzer found something, and a short run of it.

``python -m tests.fuzz --programs 20000`` is the long one.
"""

from __future__ import annotations

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite.base.errors import ShapeError, TraceError
from fxlite.types.tensor_type import parse_type
from tests.codegen.compiling import c_file
from tests.fuzz.programs.check import Measured, check
from tests.fuzz.programs.program import Program, from_json
from tests.fuzz.programs.run import Worker, program_of
from tests.fuzz.programs.shrink import shrunk


def found(result: str, *statements: str, sizes=({},), **inputs: str) -> Program:
    """A program of one finding."""
    return Program((0, 0), tuple(inputs.items()), (), statements, result, tuple(sizes))


SIZES = ({"B": 5}, {"B": 2}, {"B": 33})
FINDINGS = {
    "a constant mask": found(
        "x[:, np.array([True, False, True])], x[1:, [True, True, False], None]", x="f32[B,3]", sizes=SIZES
    ),
    "a mask of two axes": found("x[np.eye(3, dtype=bool)] + 1", x="f32[3,3,B]", sizes=SIZES),
    "the smallest of three sizes": found("x[5:, -100:2, 5:], x[:, -100:2]", x="f64[4,B,4]", sizes=SIZES),
    "joined flat": found("np.concatenate([x, y], axis=None)", x="f32[B,3]", y="i32[2]", sizes=SIZES),
    "a triangle of a product": found(
        "np.triu(x @ x.T, 1), np.tril(F.linear(x, y) + 1), np.tril(F.softmax(x @ x.T, -1) @ x, -1)",
        x="f32[B,3]",
        y="f32[5,3]",
        sizes=SIZES,
    ),
    "a triangle of a product of integers": found(
        "np.triu(fx.ops.int_matmul(x, x.T)), np.tril(fx.ops.int_matmul(x, x.T) * 2, -1)", x="i8[B,3]", sizes=SIZES
    ),
    "a triangle of a convolution": found(
        "np.tril(F.conv2d(x, np.ones((2, 3, 3, 3), np.float32), padding=1) - 1)", x="f32[B,3,6,7]", sizes=SIZES
    ),
    "a variance of too few": found(
        "np.std(x, -1, ddof=1), x.var(0, ddof=3), y.var(1, ddof=2)",
        x="f32[3,B]",
        y="f32[B,1]",
        sizes=({"B": 0}, {"B": 1}, {"B": 5}),
    ),
    "powers of bools": found("x**2, np.power(x, 2), x**1, x**x, 2**x, x**True", x="bool[B]", sizes=SIZES),
    "a narrow einsum": found("np.einsum('ab->a', x), np.einsum('ab,cb->ac', x, x)", x="u8[B,3]", sizes=SIZES),
    "the dtype of a variance": found("x.var(0, dtype=np.float64), np.std(x, dtype='f8')", x="f32[B,3]", sizes=SIZES),
    "a part of what is empty at some sizes": found(
        "y[-100:2, -1][0:1, :-1, None], np.tanh(y[-100:2][0:1]), np.concatenate([y[-100:2][0:1] * 2, y])",
        y="f32[B,3,5]",
        sizes=({"B": 0}, {"B": 1}, {"B": 50}, {"B": 101}, {"B": 102}, {"B": 103}),
    ),
    "a part that may be empty, divided by its size": found(
        "np.concatenate([np.concatenate([a[:1] * 0, a[1:] * 1], 0), x], axis=None)",
        "a = x[-3:-1, :-1, ..., 1:3]",
        x="i64[7,B,8]",
        sizes=({"B": 1}, {"B": 2}, {"B": 5}),
    ),
    "a product of one row, backwards": found(
        "(b @ b.T)[-1::-1, ...], F.linear(b, y)[::-1] * 2, np.triu(b @ b.T)[::-1, 0:1]",
        "b = z[0:1]",
        z="f64[T,B]",
        y="f64[1,B]",
        sizes=({"B": 0, "T": 1}, {"B": 3, "T": 2}, {"B": 40, "T": 5}),
    ),
    "a depth that is a sum": found(
        "a[..., 1:, :] @ a.swapaxes(-2, -1)[..., ::2], b @ b.T",
        "a = np.pad(z, ((1, 0), (0, 0), (1, 1)))",
        "b = np.pad(z[0], ((0, 0), (3, 2)))",
        z="f32[3,T,T]",
        sizes=({"T": 1}, {"T": 40}, {"T": 130}),
    ),
    "an index that no loop reads": found(
        "x[c % x.shape[0]], x[c % x.shape[0]].sum(), np.tanh(x[c % x.shape[0]]).sum(0) + x.sum()",
        "c = np.ones_like(x, dtype=np.int64)",
        x="f32[B]",
        sizes=({"B": 0}, {"B": 1}, {"B": 5}),
    ),
    "what is looked up, joined": found(
        "np.concatenate([x[i.astype(int)], y]), np.concatenate([y, np.exp(x[i.astype(int)])])",
        x="f32[B,3]",
        y="f32[4,3]",
        i="bool[B]",
        sizes=({"B": 0}, {"B": 2}, {"B": 5}),
    ),
    "a value for all steps of loops of other lengths": found(
        "(x * y[0]).sum() + np.tanh(y[0]) * z, np.tanh(y[0]) * z, (np.tanh(y[0]) * x).sum() + z",
        x="f32[B]",
        y="f32[3]",
        z="f32[2]",
        sizes=({"B": 0}, {"B": 1}, {"B": 5}),
    ),
    "a bool that is added to scores": found(
        "F.softmax(x @ x.T + z[0], -1) @ x, F.softmax(x @ x.T + (y > 0), -1) @ x",
        x="f32[B,5]",
        y="f32[B,1]",
        z="bool[5]",
        sizes=SIZES,
    ),
    "scores beyond float32": found(
        "F.scaled_dot_product_attention(x * 1e15, x * 1e15, x), F.scaled_dot_product_attention(x * 1e20, x * 1e20, x)",
        x="f32[B,5]",
        sizes=SIZES,
    ),
    "NumPy's scalars as operands": found(
        "b.var(), (b - b.mean()) / (b.std() + 1e-5), e",
        "b = np.add(x, np.int32(3))",
        "e = y + np.float16(1.5)",
        "e[-1] *= np.float64(2.5)",
        x="f32",
        y="f64[B]",
        sizes=SIZES,
    ),
    "loops over a triangle": found(
        "F.avg_pool1d(np.tril(y, 2)[::-1, 0, 1:-1, :100], 3, 1)",
        y="f64[2,2,16,B]",
        sizes=({"B": 3}, {"B": 9}, {"B": 101}),
    ),
    "the least of many near ones": found(
        "c == c.min(0, keepdims=True), c <= c.max(0)",
        "b = F.layer_norm(x, (4,))",
        "c = np.sqrt(b * b + 1e-6) - b",
        x="f32[B,4]",
        sizes=({"B": 130},),
    ),
    "bits of a part": found(
        "np.concatenate([x, x & 7, 5 & x]), np.stack([x, x | 1, x & y]), np.roll(x & 6, 1, 0)",
        x="i64[B,4]",
        y="i64[4]",
        sizes=SIZES,
    ),
    "lanes that begin where a row says": found("np.triu(y.sum(0), -1), np.tril(y.max(1), 1)", y="f64[16,4,2]"),
    "what -1 is for no elements": found("y.reshape(y.shape[0], -1).sum()", y="f32[T,8,8]", sizes=({"T": 0}, {"T": 3})),
    "many cells that are written one by one": found(  # in the time that a program has
        "F.softmin(y, -3)", x="f64[N,N,8]", y="f64[N,N,8]", sizes=({"N": 130},)
    ),
    "the truth of what is nearly zero": found(
        "np.all(c), c.all(0), np.logical_not(c)", "c = F.gelu(x * 8)", x="f32[B,4]", sizes=({"B": 130},)
    ),
}


def test_findings_stay_mended() -> None:
    names = {program: name for name, program in FINDINGS.items()}
    outcomes = check(list(names), rungs=("graph", "python", "kernel", "c", "cuda"))
    wrong = [f"{names[o.program]}: {o.stage}: {o.text}" for o in outcomes if o.kind != "ok"]
    assert len(outcomes) == len(FINDINGS) and not wrong, "\n".join(wrong)


def test_what_is_computed_before_a_choice_divides_by_no_zero() -> None:
    """Division by zero ends a process, where the compiler does not move it behind the choice."""

    def program(x):
        a = x[-3:-1, :-1, ..., 1:3]
        b = np.concatenate([a[:1] * 0, a[1:] * 1], 0)
        return np.concatenate([b, x], axis=None)

    source = c_file(program, x="i64[7,B,8]")
    before = [line for line in source.splitlines() if "const bool" in line and " / " in line]
    assert before and all("/ fx_max(" in line for line in before)


def test_a_panel_is_as_large_as_a_depth_that_is_a_sum() -> None:
    def program(x):
        y = np.pad(x, ((1, 1), (0, 0)))
        return y.T @ np.tanh(y)

    source = c_file(program, x="f32[T,64]")
    sizes = [line for line in source.splitlines() if "t panel_size = " in line]
    assert any("panel_size = (T + 2)*32;" in line for line in sizes)
    assert not any("panel_size = T + 2*32" in line for line in sizes)


def test_what_no_op_rounds_is_compared_bit_by_bit() -> None:
    x, y = np.float32([1, 2, np.nan]), np.float32([3, -1, np.nan])

    def program(x, y):
        return np.nextafter(x, y)[::-1], np.nextafter(x * 2, y), np.copysign(3, y)

    reference = Measured(fx.symbolic_trace(program, x="f32[3]", y="f32[3]"), [x, y], program(x, y))
    first, second, third = program(x, y)
    near = np.nextafter(second, np.float32(0))
    assert reference.close_difference((first, near, np.copysign(third, np.float32([1, -1, -1])))) is None
    nearest = np.nextafter(first, np.float32(0))
    assert "rounds" in str(reference.close_difference((nearest, second, third)))
    assert "result 2" in str(reference.close_difference((first, second, -third)))


def test_what_cancels_within_an_op_may_differ() -> None:
    x = np.linspace(1e-4, 9e-4, 7)
    module = fx.symbolic_trace(F.tanhshrink, x="f64[7]")
    reference = Measured(module, [x], F.tanhshrink(x))
    nearly = np.tanh(x) * (1 + 2e-16)
    assert reference.close_difference(x - nearly) is None
    assert reference.close_difference(x - np.tanh(x) * (1 + 1e-13)) is not None


def test_a_short_run_finds_nothing() -> None:
    programs = [program_of((1, number)) for number in range(40, 72)]
    assert len({p.source for p in programs}) == 32
    assert from_json(programs[0].to_json()).source == programs[0].source
    outcomes = check(programs, rungs=("graph", "python", "c"))
    failed = [f"{o.stage}: {o.text}\n{o.program.source}" for o in outcomes if o.kind == "failed"]
    assert not failed, "\n\n".join(failed)
    assert sum(o.kind == "ok" for o in outcomes) > 24 and sum(o.cases for o in outcomes) > 100


def test_a_crash_is_a_finding_of_its_program_alone() -> None:
    crashing = found("x", "x.__class__ is np.ndarray or __import__('os').abort()", x="f32[2]")
    programs = [program_of((1, 40)), crashing, program_of((1, 41))]
    worker = Worker(programs, sanitized=False)
    while not worker.is_over():
        worker.read()
    outcomes, left = worker.finish()
    assert [o.program for o in outcomes if o.stage == "crash"] == [crashing]
    assert {o.program.seed for o in outcomes} | {p.seed for p in left} == {p.seed for p in programs}


def test_what_fails_is_made_small() -> None:
    program = found(
        "a, b, c",
        "a = x * 2",
        "b = a + y",
        "c = np.zeros(2) if b.__class__ is np.ndarray else 1 / 0",
        "b = b - c.sum()",
        x="f32[B,3]",
        y="f32[3]",
        sizes=({"B": 9}, {"B": 4}),
    )
    (outcome,) = check([program])
    assert (outcome.kind, outcome.stage) == ("failed", "trace")
    small = shrunk(outcome).program
    assert len(small.statements) <= 2 and "1 / 0" in small.source
    assert "fx.compile(program" in small.script(small.sizes[0])


W = np.ones((2, 1, 5), np.float32)


@pytest.mark.parametrize(
    "program, text, least",
    [
        (lambda x: F.conv1d(x, W).sum(), "f32[2,1,L]", 5),
        (lambda x: F.conv1d(F.conv1d(x, W, stride=2)[:, :1], W).sum(), "f32[2,1,L]", 13),
        (lambda x: F.max_pool1d(x, 3, 2, ceil_mode=True), "f32[2,1,L]", 2),
        (lambda x: F.avg_pool2d(x, 3, 1, layout="NHWC").sum(), "f32[1,4,L,2]", 3),
        (lambda x: F.interpolate(x, scale_factor=2), "f32[1,1,L]", 1),
        (lambda x: F.adaptive_max_pool1d(x, 2), "f32[1,1,L]", 1),
        (lambda x: np.squeeze(x) + 1, "f32[4,L]", 2),
        (lambda x: np.split(x, [1, 2], -1)[0], "f32[4,L]", 1),
    ],
)
def test_a_size_for_which_there_is_no_window_is_refused(program, text: str, least: int) -> None:
    """Without a guard, intermediate values have negative sizes, or none that NumPy's have."""
    module = fx.symbolic_trace(program, x=text)
    refused = least - 1
    zeros = np.zeros(parse_type(text).substitute({"L": refused}).shape, np.float32)
    with pytest.raises(ShapeError, match="is required by"):
        module(zeros)
    fits = parse_type(text).substitute({"L": least + 1})
    assert module(np.zeros(fits.shape, np.float32)).shape is not None
    # in terms of the input's size
    assert {str(guard.left) for guard in module.graph.guards} == {"L"}


@pytest.mark.parametrize(
    "program, said",
    [
        (lambda x: x.var(dtype=int), "ndarray.var: a variance"),
        (lambda x: x.reshape(12, order="Z"), "ndarray.reshape: order must be one of"),
        (lambda x: x.clip(1, 2, 3, 4, 5), "ndarray.clip: "),
        (lambda x: np.pad(x, 1, mode="wraps"), "np.pad: "),
    ],
)
def test_what_a_method_refuses_names_the_line(program, said: str) -> None:
    with pytest.raises(TraceError, match=f"(?s){said}.*test_fuzz_programs.py:"):
        fx.symbolic_trace(program, x="f32[3,4]")


def test_what_takes_too_long_is_a_finding(monkeypatch) -> None:
    monkeypatch.setattr("tests.fuzz.programs.check.PATIENCE", 0.05)
    text = "while x.__class__ is not np.ndarray:\n    pass"
    (outcome,) = check([found("x", text, x="f32[2]")])
    assert (outcome.kind, outcome.stage) == ("failed", "hang")
