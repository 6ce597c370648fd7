"""Templates' claims are total: what one claims builds and agrees, or falls back on loops.

The programs are those of the fuzzer that try what templates claim (:mod:`tests.fuzz.programs`):
``python -m tests.fuzz --programs N`` has one of them in five.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import passes
from fxlite.base.errors import CodegenError
from fxlite.codegen.c import templates
from fxlite.codegen.c.calls import planned_calls
from fxlite.codegen.cuda import emit as cuda
from fxlite.codegen.program.program import optimize
from fxlite.types import agreement
from fxlite.types.tensor_type import parse_type
from tests.codegen.compiling import QUICK
from tests.fuzz.programs.check import Case, Failed, compare, compiled
from tests.fuzz.programs.templates import write_template
from tests.graphs import anchors_of
from tests.oracle import agree

Q = ("f32[2,2,5,4]", "f32[2,2,57,4]", "f32[2,2,57,3]")


def scores(bias: Any) -> Any:
    """Attention written out, with something added to the scores."""
    return lambda q, k, v: F.softmax(q @ k.transpose(0, 1, 3, 2) * 0.5 + bias, -1) @ v


@pytest.mark.parametrize(
    "program",
    [
        scores(np.float32(1)),
        scores(np.array([2], np.float32)),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, np.array(True)),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, np.float32(0.5)),
    ],
)
def test_a_number_is_a_mask(program) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(parse_type(t).shape).astype("f4") for t in Q]
    module = agree(program, *arrays)
    function = fx.compile(module)
    assert anchors_of(function) == ["scaled_dot_product_attention"]


@pytest.mark.parametrize(
    ("rows", "keys", "is_few"), [("5", 56, True), ("5", 57, False), ("T", 16, True), ("T", 17, False)]
)
def test_attention_over_few_keys_is_two_products(rows, keys, is_few) -> None:
    types = {"q": f"f32[2,{rows},8]", "k": f"f32[2,{keys},8]", "v": f"f32[2,{keys},8]"}
    module = fx.symbolic_trace(F.scaled_dot_product_attention, *types.values())
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, size, 8)).astype("f4") for size in (5, keys, keys)]
    function = fx.compile(module)
    anchors = anchors_of(function)
    assert ("scaled_dot_product_attention" in anchors) == (not is_few)
    assert agreement.compare(F.scaled_dot_product_attention(*arrays), function(*arrays)).agrees


@pytest.mark.parametrize(
    ("program", "shapes"),
    [
        (lambda x, y: x @ y, ((5, 33), (33, 1))),
        (lambda x, y: x @ y, ((40, 1), (1, 70))),
        (lambda x, y: np.maximum(x.T @ y, 0), ((33, 5), (33, 1))),
        (lambda x, y: np.einsum("ij,ij->i", x, y), ((5, 33), (5, 33))),
        (lambda x, y: F.linear(x, y), ((2, 5, 130), (1, 130))),
        (lambda x, y: x @ y.swapaxes(-1, -2), ((6, 2, 130), (6, 7, 130))),
        (lambda x, y: x @ y, ((6, 7, 33), (6, 33, 2))),
    ],
)
def test_a_product_of_few_columns_fills_no_panels(program, shapes) -> None:
    rng = np.random.default_rng(0)
    module = agree(program, *(rng.standard_normal(s).astype("f4") for s in shapes))
    assert [k.anchor for k in fx.compile(module).kernels] == [None]


def test_a_stride_that_is_a_quotient_of_named_sizes_is_a_stride() -> None:
    """Rows lie as far apart as there are windows."""
    function = fx.compile(lambda w, x: w @ F.max_pool1d(x, 2), w="f32[5,6]", x="f32[2,6,H]")
    rng = np.random.default_rng(0)
    for size in (2, 7, 90):
        w, x = (rng.standard_normal(s).astype("f4") for s in ((5, 6), (2, 6, size)))
        np.testing.assert_allclose(function(w, x), w @ F.max_pool1d(x, 2), rtol=1e-5, atol=1e-5)
    assert anchors_of(function) == ["matmul"]


def test_generated_claims_build_and_agree() -> None:
    cases, anchors = [], Counter[str]()
    with np.errstate(all="ignore"):
        for number in range(84):
            try:
                cases.append(Case(write_template((12, number)), number))
            except Failed as failed:
                assert (failed.kind, failed.stage) == ("refused", "trace"), failed
        for case in cases:
            groups = (c.group for c in case.emitted.calls)
            anchors.update(g.anchor.target.name for g in groups if g.anchor is not None)
        ran = [c for c in cases if any(call.group.anchor for call in c.emitted.calls)][:24]
        for case, library in zip(ran, compiled(ran, (QUICK,)), strict=True):
            assert not isinstance(library, Exception), library
            try:
                compare(case, library, ("c",))
            except Failed as failed:
                assert failed.kind == "refused", f"{failed}\n{case.program.source}"
    assert len(cases) > 40 and len(anchors) > 6, anchors


def declines(*arguments: Any, **options: Any) -> Any:
    """A template that takes nothing."""
    raise CodegenError("an operand is odd")


def test_cuda_computes_what_a_template_declines_by_loops(monkeypatch) -> None:
    monkeypatch.setattr("fxlite.codegen.cuda.emit.render", declines)
    module = optimize(fx.symbolic_trace(lambda x: np.tanh(x @ x.T), "f32[B,3]"))[0]
    emitted = cuda.emit(module)
    assert "tile" not in emitted.source
    assert [e.reason for e in passes.ledger(module) if e.pass_name == "template"] == ["an operand is odd"]


def test_what_a_template_declines_is_computed_without_it(monkeypatch) -> None:
    right = np.ones((3, 7), np.float32)

    def program(q: Any, k: Any, v: Any) -> Any:
        made = F.scaled_dot_product_attention(np.tanh(q), k, v) @ right + 1
        weight, start = np.ones((28, 7), np.float32), np.zeros((5, 7), np.float32)
        gates = np.concatenate([made[0]] * 4, -1)
        return fx.ops.recurrence(gates, weight, start, start), made

    module = fx.symbolic_trace(program, *Q)
    ops = ("matmul", "scaled_dot_product_attention", "recurrence")
    for name in ops:
        of_nodes = templates.TEMPLATES[name].declines
        monkeypatch.setitem(templates.TEMPLATES, name, templates.Template(of_nodes, declines))
    function = fx.compile(module)
    rendered = [c.group.anchor for c in function.program.calls if c.kernel is None]
    assert not {a.target.name for a in rendered if a is not None}.intersection(ops)
    said = [entry for entry in passes.ledger(function.optimized) if entry.pass_name == "template"]
    assert {entry.reason for entry in said} == {"an operand is odd"} and len(said) >= len(ops)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(parse_type(t).shape).astype("f4") for t in Q]
    for given, wanted in zip(function(*arrays), program(*arrays), strict=True):
        assert agreement.compare(wanted, given).agrees


def test_products_without_elements_are_loops() -> None:
    """Sizes that are the number 0, by which templates would divide."""

    def program(x: Any, y: Any, u: Any, v: Any) -> Any:
        return x @ y + 1, np.tanh(y.T @ x.T), fx.ops.int_matmul(u, v, x_zero_point=3)

    for rows, columns, depth in [(0, 3, 3), (3, 0, 3), (3, 3, 0), (0, 0, 3), (0, 0, 0)]:
        x, y = np.ones((rows, depth), np.float32), np.ones((depth, columns), np.float32)
        u, v = np.ones((2, rows, depth), np.uint8), np.ones((2, depth, columns), np.int8)
        agree(program, x, y, u, v, rungs=("c", "cuda"))


OPTIONS: list[dict[str, Any]] = [{}, {"padding": 1, "stride": 2}, {"groups": 2, "padding": 1, "dilation": 2}]
IMAGES = {1: ("B,{c},L", "3"), 2: ("B,{c},9,L", "3,2"), 3: ("B,{c},6,7,L", "3,2,3")}
SIZES = {"B": "2", "L": "11", "C": "3", "K": "5"}


def convolutions(dtype: str) -> Iterator[tuple[Any, list[str]]]:
    """Programs of one convolution over one axis to three, transposed or not, in groups or not, with types of image and
    weight, whose sizes are named."""
    for axes, options, is_back in product(IMAGES, OPTIONS, (False, True)):
        groups, op = options.get("groups", 1), getattr(F, f"conv_transpose{axes}d" if is_back else f"conv{axes}d")
        image, kernel = IMAGES[axes]
        channels = f"{groups}*C,K" if is_back else f"{groups}*K,C"
        given = [f"{dtype}[{image.format(c=f'{groups}*C')}]", f"{dtype}[{channels},{kernel}]"]
        yield partial(_applied, op, options), given


def _applied(op: Any, options: dict[str, Any], x: Any, w: Any) -> Any:
    return op(x, w, **options)


@pytest.mark.parametrize(
    ("dtype", "how"), [("f32", "constant"), ("f32", "argument"), ("f32", "named"), ("f64", "named")]
)
def test_no_convolution_is_left_to_loops(dtype: str, how: str) -> None:
    """A template computes each product of a convolution, whatever is named in it and whether its weight is known,
    and the result is NumPy's."""
    rng = np.random.default_rng(0)
    for number, (program, named) in enumerate(convolutions(dtype)):
        fixed = [re.sub(r"[BCKL]", lambda found: SIZES[found[0]], t) for t in named]
        x, w = (rng.standard_normal(parse_type(t).shape).astype(parse_type(t).dtype.numpy) for t in fixed)
        given = [x] if how == "constant" else [x, w]
        called = partial(program, w=w) if how == "constant" else program
        module = fx.symbolic_trace(called, *(named if how == "named" else fixed)[: len(given)])
        optimized, _ = optimize(module, keep=templates.claims)
        anchors = [call.group.anchor for call in planned_calls(optimized).calls if call.kernel is None]
        products = [n for n in optimized.graph.find_nodes(op="call_function") if n.target.kind == "contraction"]
        assert products and all(node in anchors for node in products), (named, how)
        if number % 3 == 0 or how == "named":
            expected = program(x, w)
            chain = agreement.Chain(1, 2 * w[0].size, 1)
            assert agreement.compare(expected, fx.compile(module)(*given), chain=chain).agrees, (named, how)


@pytest.mark.parametrize(
    ("rows", "steps", "columns", "batch", "by_loops"),
    [
        ("9", "6", "2", "16", True),
        ("9", "2", "40", "3", True),
        ("9", "64", "64", "16", False),
        ("R", "K", "N", "B", False),
    ],
)
def test_a_batch_that_lies_side_by_side(rows: str, steps: str, columns: str, batch: str, by_loops: bool) -> None:
    """Products of few columns or steps are computed for a vector of the batch at a time, which turns no operand."""

    def program(x: Any, y: Any) -> Any:
        return np.einsum("ikb,kjb->ijb", x, y)

    types = {"x": f"f32[{rows},{steps},{batch}]", "y": f"f32[{steps},{columns},{batch}]"}
    function = fx.compile(program, inputs=types)
    assert all((kernel.anchor is None) == by_loops for kernel in function.kernels)
    m, k, n, b = (int(d) if d.isdigit() else 5 for d in (rows, steps, columns, batch))
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((m, k, b)).astype("f4"), draw.standard_normal((k, n, b)).astype("f4")
    agree(program, x, y, types=list(types.values()))
