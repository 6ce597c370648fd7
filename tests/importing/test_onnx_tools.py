"""ONNX models as converters and other tools write them, and cases of the specification that no official case covers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import ModelImportError, ShapeError

onnx = pytest.importorskip("onnx")

from onnx import parser  # noqa: E402

HEAD = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>\n'
RNG = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def right(text: str, expected: Callable[..., Any], *inputs: Any) -> None:
    """Check that the model in ``text`` gives the expected results in the graph and in C."""
    gm = fx.from_onnx(parser.parse_model(HEAD + text))
    want = expected(*inputs)
    for run in (gm, fx.compile(gm, backend="c")):
        found = run(*inputs)
        for value, wanted in zip(*([v] if not isinstance(v, tuple) else v for v in (found, want)), strict=True):
            assert value.dtype == wanted.dtype
            np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-5)


LOOP = """g (bool go, float[2] x) => (float[2] y) {
    most = Constant<value_int=%s>()
    y = Loop(most, go, x)<body = b (int64 i, bool before, float[2] a) => (bool after, float[2] c) {
        c = Add(a, x)
        %s
    }>
}"""


@pytest.mark.parametrize("go", [True, False])
@pytest.mark.parametrize("most", [3, 2**63 - 1])
def test_a_loop_heeds_its_first_condition(go: bool, most: int) -> None:
    """Also where the number of rounds is known. Converters of while loops write the largest integer for it."""
    after = "after = Identity(before)" if most == 3 else "last = Constant<value_int=2>() after = Less(i, last)"

    def expected(go: Any, x: Any) -> Any:
        return x * np.float32(4) if go else x

    right(LOOP % (most, after), expected, np.array(go), floats(2))


@pytest.mark.parametrize("after", ["i", "total"])
def test_a_loop_without_a_limit_ends_by_its_condition(after: str) -> None:
    """The condition is known while importing, or not."""
    test = {
        "i": "last = Constant<value_int=4>() after = Less(i, last)",
        "total": "s = ReduceSum<keepdims=0>(c) most = Constant<value_float=20.0>() after = Less(s, most)",
    }[after]
    text = LOOP.replace("bool go, ", "").replace("y = Loop", "go = Constant<value = bool {1}>() y = Loop")

    def expected(x: Any) -> Any:
        found, i = x + x, 0
        while i < 4 if after == "i" else found.sum() < 20:
            found, i = found + x, i + 1
        return found

    right(text % (2**63 - 1, test), expected, np.array([1.5, 0.5], np.float32))


@pytest.mark.parametrize(
    ("start", "end", "first"), [(-10, -100, True), (-4, -100, True), (-3, -4, True), (-3, -3, False), (-10, 0, False)]
)
def test_slices_backwards_from_before_the_first_element(start: int, end: int, first: bool) -> None:
    """ONNX moves the start to the first element; Python finds nothing."""
    text = f"""g (float[2,3] x) => (float[2,n] y) <int64[1] s = {{{start}}}, int64[1] e = {{{end}}}, int64[1] a = {{1}},
        int64[1] by = {{-1}}> {{ y = Slice(x, s, e, a, by) }}"""
    right(text, lambda x: x[:, :1] if first else x[:, :0], floats(2, 3))


def test_a_slice_backwards_requires_its_start() -> None:
    text = """g (float[2,T] x) => (float[2,n] y) <int64[1] s = {-3}, int64[1] e = {-9}, int64[1] a = {1},
        int64[1] by = {-1}> { y = Slice(x, s, e, a, by) }"""
    right(text, lambda x: x[:, -3::-1], floats(2, 5))
    with pytest.raises(ShapeError, match=r"T >= 3 is required"):
        right(text, lambda x: x[:, :1], floats(2, 2))


@pytest.mark.parametrize(
    ("divided", "by", "expected"),
    [
        ("Mul(t, m1)", 2, lambda t: -(t // 2)),
        ("Identity(t)", -2, lambda t: -(t // 2)),
        ("Mul(t, m1)", -2, lambda t: t // 2),
        ("Sub(t, four)", 3, lambda t: (t - 4) // 3),
        ("Sub(m1, t)", 3, lambda t: -((t + 1) // 3)),
    ],
)
def test_quotients_of_sizes_round_toward_zero(divided: str, by: int, expected: Callable[[int], int]) -> None:
    """Python's round down. A sign that depends on a size is required not to be there."""
    text = f"""g (float[T] x) => (int64[1] y) <int64[1] m1 = {{-1}}, int64[1] four = {{4}}, int64[1] by = {{{by}}}> {{
        t = Shape(x)  n = {divided}  y = Div(n, by) }}"""
    for t in (5, 6, 9):
        right(text, lambda x: np.array([expected(x.size)]), floats(t))
    if divided == "Sub(t, four)":
        with pytest.raises(ShapeError, match=r"T - 4 >= 0 is required.*Div\(n, by\)"):
            right(text, lambda x: np.array([0]), floats(2))


def test_a_size_that_must_be_a_number_is_named() -> None:
    text = """g (float[1,T] x) => (float[1,n] y) <float[1] factor = {1.3}, int64[1] z = {0}, int64[1] a = {1}> {
        s = Shape<start=1>(x)  f = Cast<to=1>(s)  m = Mul(f, factor)  i = Cast<to=7>(m)
        o = Concat<axis=0>(a, i)  y = Resize(x, , , o) }"""
    with pytest.raises(ModelImportError, match=r"computed from T; give the value: sizes=\{'T': number\}"):
        fx.from_onnx(parser.parse_model(HEAD + text))
    assert fx.from_onnx(parser.parse_model(HEAD + text), sizes={"T": 10})(floats(1, 10)).shape == (1, 13)


SEQUENCE = """g (float[4, 2] x) => (float[A, B] y) {
    split = Constant<value=%s>()
    s = SplitToSequence<axis=0>(x, split)
    p = Constant<value=int64 {%s}>()
    y = %s
}"""


@pytest.mark.parametrize(("position", "kept"), [(0, [1, 2, 3]), (1, [0, 3]), (2, [0, 1, 2]), (-1, [0, 1, 2])])
def test_positions_in_sequences(position: int, kept: list[int]) -> None:
    """Of parts of 1, 2 and 1 rows, one is left out."""
    call = "ConcatFromSequence<axis=0>(e)\n"
    text = SEQUENCE % ("int64[3] {1, 2, 1}", position, call)
    right(text.replace("y = ", "e = SequenceErase(s, p) y = "), lambda x: x[kept], floats(4, 2))


@pytest.mark.parametrize(
    ("split", "position", "call", "said"),
    [
        ("int64[1] {2}", 0, "SequenceAt(s, p)", r"sizes \[2\] do not make up an axis of size 4"),
        ("int64[2] {5, -1}", 0, "SequenceAt(s, p)", r"sizes \[5, -1\] do not make up"),
        ("int64 {0}", 0, "SequenceAt(s, p)", "parts of 0 elements"),
        ("int64 {2}", 2, "SequenceAt(s, p)", "has 2 elements, and no position 2"),
        ("int64 {2}", -3, "SequenceAt(s, p)", "has 2 elements, and no position -3"),
    ],
)
def test_sequences_without_such_parts(split: str, position: int, call: str, said: str) -> None:
    with pytest.raises(ModelImportError, match=said):
        fx.from_onnx(parser.parse_model(HEAD + SEQUENCE % (split, position, call)))


def test_parts_of_constants_make_up_their_axis() -> None:
    text = "g (float[2] x) => (float[A] y) { c = Constant<value=float[4] {1, 2, 3, 4}>() "
    text += "n = Constant<value=int64[2] {1, 1}>() a, b = Split<axis=0>(c, n) y = Add(x, b) }"
    with pytest.raises(ModelImportError, match=r"sizes \[1, 1\] do not make up an axis of size 4"):
        fx.from_onnx(parser.parse_model(HEAD + text))


@pytest.mark.parametrize("largest", [0, 1])
def test_topk_takes_nan_for_the_largest(largest: int) -> None:
    text = f"""g (float[1,6] x) => (float[1,4] y, int64[1,4] at) <int64[1] k = {{4}}> {{
        y, at = TopK<largest={largest}>(x, k) }}"""
    x = np.array([[3, np.nan, 1, 3, -np.inf, 2]], np.float32)
    order = np.array([[1, 0, 3, 5] if largest else [4, 2, 5, 0]])
    right(text, lambda x: (x[[0], order], order), x)


def test_nodes_that_a_tool_appended() -> None:
    """Nodes need not be in order, as ONNX Runtime takes them; inside of a branch as well."""
    text = """g (bool go, float[3] x) => (float[3] y) {
        y = Add(b, c)
        c = If(go)<
            then_branch = t () => (float[3] r) { r = Exp(q) q = Neg(a) },
            else_branch = e () => (float[3] r) { r = Neg(b) }>
        b = Mul(a, x)
        a = Neg(x)
    }"""
    for go in (True, False):
        right(text, lambda go, x: -x * x + (np.exp(x) if go else x * x), np.array(go), floats(3))


@pytest.mark.parametrize("batches", ["", "A", "B", "AB"])
@pytest.mark.parametrize("turned", ["", "A", "B", "AB"])
def test_products_fused_with_transposes(batches: str, turned: str) -> None:
    """ONNX Runtime writes these for attention, where the rows come before the heads."""
    given = {"A": floats(2, 6, 3, 4), "B": floats(2, 6, 4, 5)}
    held = {k: v.swapaxes(-1, -2) if k in turned else v for k, v in given.items()}
    held = {k: np.ascontiguousarray(np.moveaxis(v, -2, 0) if k in batches else v) for k, v in held.items()}
    types = [f"float[{','.join(map(str, v.shape))}] {k}" for k, v in held.items()]
    flags = [f"trans{k}={int(k in turned)}, transBatch{k}={int(k in batches)}" for k in held]
    text = f"g ({', '.join(types)}) => (float[2,6,3,5] y) {{ y = com.microsoft.FusedMatMul<{', '.join(flags)}>(A, B) }}"
    right(text, lambda a, b: given["A"] @ given["B"], *held.values())


def test_ops_of_a_runtime_of_its_own() -> None:
    text = "g (float[1,8,4,4] x) => (float[1,8,4,4] y) { y = com.microsoft.nchwc.ReorderInput(x) }"
    message = (
        r"ReorderInput, opset \d+: neither fxlite nor the model .*com.microsoft.nchwc; .*import the model from before"
    )
    with pytest.raises(ModelImportError, match=message):
        fx.from_onnx(parser.parse_model(HEAD + text))
