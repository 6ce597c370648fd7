"""Control flow: conditions and loops on arrays and traced, as nodes with sub-graphs."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import ArgumentError, DTypeError, GraphError, ParseError, TraceError
from fxlite.show.node_cost import total_cost
from tests.fuzz.results import exact_difference
from tests.oracle import agree


class State(NamedTuple):
    x: Any
    steps: Any


def powers(x: Any, n: Any) -> Any:
    return fx.fori_loop(0, n, lambda i, total: total + x * i, x)


def halvings(x: Any, tol: Any) -> Any:
    def smaller(i: Any, s: Any) -> Any:
        return i + 1, fx.cond(i > 3, lambda s: s * 0.5, lambda s: s * 2.0, (s,))

    return fx.while_loop(lambda i, s: s > tol, smaller, (0, x.sum()))


def running(xs: Any) -> Any:
    return fx.scan(lambda total, x: (total + x, {"before": total, "product": total * x}), 0.0, xs)


def nested(x: Any, n: Any) -> Any:
    def outer(i: Any, state: State) -> State:
        def inner(j: Any, y: Any) -> Any:
            return y + x[0] * j - i

        y = fx.fori_loop(i, n, inner, state.x)
        enough = y.sum() > 50
        y = fx.cond(enough, lambda: y / 2, lambda: fx.cond(i > 2, lambda: y - 1, lambda: y))
        return State(y, state.steps + 1)

    return tuple(fx.fori_loop(0, n, outer, State(x, 0)))


def two_tests(x: Any) -> Any:
    return fx.while_loop(lambda a, n: (a.sum() < 100) & (n < 50), lambda a, n: (a * 2, n + 1), (x, 0))


def unread(x: Any) -> Any:
    """A carried value that the body does not read, one that it swaps, one that it hands through."""
    return fx.fori_loop(0, 3, lambda i, v: (v[1], v[0] + 1, i * 1.5, v[3]), (x, x * 2, 0.5, x - 1))


X = np.float32([1.0, 2.0, 0.5])
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "powers": (powers, ("f32[N]", "i64[]"), (X, np.int64(4))),
    "no iterations": (powers, ("f32[N]", "i64[]"), (X, np.int64(-1))),
    "halvings": (halvings, ("f32[B]", "f32[]"), (X, np.float32(0.1))),
    "running": (running, ("f32[T]",), (X,)),
    "nested": (nested, ("f32[N]", "i64[]"), (X, np.int64(5))),
    "two tests": (two_tests, ("f32[B]",), (X,)),
    "unread": (unread, ("f64[3]",), (X.astype(np.float64),)),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_program_does_its_graph_does(case: str) -> None:
    program, types, inputs = CASES[case]
    gm = agree(program, *inputs, types=types, rungs=("graph", "python"))
    kinds = [n.target.kind for n in gm.graph.find_nodes(op="call_function")]
    assert kinds.count("control") == 1


@pytest.mark.parametrize("case", CASES)
def test_text_files_copies_and_retraces(case: str, tmp_path: Path) -> None:
    program, types, inputs = CASES[case]
    gm = fx.symbolic_trace(program, *types)
    text = gm.graph.text(full=True)
    parsed = fx.parse(text)
    assert parsed == gm.graph
    assert parsed.text(full=True) == text
    fx.save(gm, tmp_path / "x.fxl")
    loaded = fx.load(tmp_path / "x.fxl")
    assert loaded.graph.text(full=True) == text
    expected = gm(*inputs)
    others = (
        loaded,
        copy.deepcopy(gm),
        pickle.loads(pickle.dumps(gm)),
        fx.Transformer(gm).transform(),
        fx.symbolic_trace(gm, *types),
    )
    for other in others:
        fx.assert_same(other, gm)
        other.graph.lint(full=True)
        assert exact_difference(expected, other(*inputs)) is None
    sizes = {name: len(inputs[0]) for name in gm.graph.input_dims}
    if sizes:
        fixed = gm.specialize(**sizes)
        assert not fixed.graph.input_dims
        assert not any(n.kwargs and fx.shapes.names(list(n.kwargs.values())) for n in fixed.graph.nodes)
        assert exact_difference(expected, fixed(*inputs)) is None


def test_it_reads_as_python() -> None:
    gm = fx.symbolic_trace(halvings, "f32[B]", "f32[]")
    lines = [line.partition("  #")[0] for line in gm.graph.text(full=True).splitlines()]
    assert lines[3:16] == [
        "    i, s = full, sum",
        "    while s > tol:",
        "        add: i64 = i + 1",
        "        gt_1: bool = i > 3",
        "        if gt_1:",
        "            mul: f32 = s * 0.5",
        "            cond: (f32,) = (mul,)",
        "        else:",
        "            mul_1: f32 = s * 2.0",
        "            cond: (f32,) = (mul_1,)",
        "        getitem: f32 = ops.getitem(cond, index=0)",
        "        i, s = add, getitem",
        "    while_loop: (i64, f32) = (i, s)",
    ]


def test_weights_in_a_body_are_captured() -> None:
    class Iterated(fx.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = fx.nn.Linear(3, 3)
            self.shift = np.float32([1, 2, 3])

        def forward(self, x: Any) -> Any:
            return fx.fori_loop(0, 3, lambda i, x: self.fc(x) * 0.5 + self.shift, x)

    model = Iterated()
    gm = fx.symbolic_trace(model, "f32[B,3]")
    (loop,) = gm.graph.find_nodes(op="call_function", target=fx.ops.fori_loop)
    assert [n.target for n in loop.args[3]] == ["fc.weight", "fc.bias", "shift"]
    x = np.float32([X, -X])
    np.testing.assert_allclose(gm(x), model(x), rtol=1e-6)
    assert "ops.linear(x_1, self.fc.weight, self.fc.bias)" in gm.graph.text(full=True)


def test_arrays_that_a_loop_carries_are_its_own() -> None:
    def program(x: Any, y: Any) -> Any:
        def body(i: Any, val: Any) -> Any:
            a, b = val
            a[i] = b[i] + 1
            b += 1
            return a, b

        a, b = fx.fori_loop(0, 3, body, (x, x))
        return a, b, x, y

    x = np.float64([5, 6, 7])
    agree(program, x, x + 1, rungs=("graph", "python"))
    np.testing.assert_array_equal(x, [5, 6, 7])


def test_python_numbers_give_way_to_types() -> None:
    def program(x: Any, k: Any) -> Any:
        def body(i: Any, val: Any) -> Any:
            total, count, _ = val
            return total + x[0] * i, count + 1, count / 4

        loop = fx.fori_loop(0, k, body, (0.0, 0, 0))
        return loop, x * loop[1], fx.cond(k > 2, lambda: x[1], lambda: 1)

    gm = agree(program, X, np.int32(4), rungs=("graph", "python"))
    types = gm.graph.output_node().type
    assert [str(t) for t in types[0]] == ["f32", "i64", "f64"]
    assert [str(t) for t in types[1:]] == ["f32[3]", "f32"]


def test_what_is_known_is_decided_while_tracing() -> None:
    gm = fx.symbolic_trace(lambda x: fx.cond(np.zeros(2).sum() > 1, lambda: x, lambda: x * 2), "f32[3]")
    assert not gm.graph.find_nodes(op="call_function", target=fx.ops.cond)


def test_undo_takes_back_an_edit_inside_of_a_body() -> None:
    gm = fx.symbolic_trace(powers, "f32[3]", "i64[]")
    (loop,) = gm.graph.find_nodes(op="call_function", target=fx.ops.fori_loop)
    before = gm.graph.text(full=True)

    def edit(graph: fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=fx.ops.mul):
            node.target = fx.ops.sub

    body = loop.kwargs["body_fn"].edited(edit)
    assert body != loop.kwargs["body_fn"]
    loop.update_kwarg("body_fn", body)
    gm.graph.lint()
    assert "x - cast" in gm.graph.text(full=True)
    assert "sub" in str(fx.diff(fx.symbolic_trace(powers, "f32[3]", "i64[]"), gm))
    gm.graph.undo()
    assert gm.graph.text(full=True) == before


def test_types_of_a_body_follow_those_of_operands() -> None:
    gm = fx.symbolic_trace(powers, "f32[3]", "i64[]")
    gm.graph.placeholders[0].type = fx.parse_type("f32[5]")
    gm.graph.lint(full=True)
    assert str(gm.graph.output_node().type) == "f32[5]"
    gm = fx.symbolic_trace(lambda x, z: fx.fori_loop(0, 3, lambda i, y: y + z, x), "f32[3]", "f32[3]")
    with pytest.raises(fx.errors.ShapeError, match=r"carried value 0 is f32\[3\] before .* f64"):
        gm.graph.placeholders[1].type = fx.parse_type("f64[3]")
    gm.graph.lint(full=True)


def test_an_interpreter_walks_into_bodies() -> None:
    seen: list[str] = []

    class Watching(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            seen.append(n.name)
            return super().run_node(n)

    gm = fx.symbolic_trace(powers, "f32[3]", "i64[]")
    Watching(gm).run(X, np.int64(2))
    assert seen.count("mul") == 2
    with pytest.raises(IndexError) as caught:
        wrong = fx.symbolic_trace(lambda x, n: fx.fori_loop(0, n, lambda i, t: t + x[i], 0.0), "f32[3]", "i64[]")
        fx.Interpreter(wrong).run(X, np.int64(4))
    assert any("while running node take" in note for note in caught.value.__notes__)


def test_a_transformer_builds_bodies_anew() -> None:
    class Scaled(fx.Transformer):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target is fx.ops.mul:
                return (args[0] - args[1]) * np.float32([1, 2, 3])
            return super().call_function(target, args, kwargs)

    gm = fx.symbolic_trace(powers, "f32[3]", "i64[]")
    made = Scaled(gm).transform()
    made.graph.lint(full=True)
    expected = fx.fori_loop(0, 3, lambda i, t: t + (X - i) * np.float32([1, 2, 3]), X)
    np.testing.assert_array_equal(made(X, np.int64(3)), expected)
    assert "x - cast" in made.graph.text(full=True)
    assert "mul" not in str(gm.graph.find_nodes(op="call_function", target=fx.ops.sub))


def test_cost_counts_iterations() -> None:
    def triangle(x: Any) -> Any:
        def outer(i: Any, y: Any) -> Any:
            return fx.fori_loop(0, i, lambda j, y: y + x, y)

        return fx.fori_loop(0, x.shape[0], outer, x)

    gm = fx.symbolic_trace(triangle, "f32[N]")
    flops = total_cost(gm.graph).flops
    assert str(fx.shapes.normalize(flops * 2)) == "N**3 - N**2"  # N*(N - 1)/2 rows of N
    gm = fx.symbolic_trace(lambda x: fx.fori_loop(0, 5, lambda i, y: y * x, x), "f32[4]")
    assert total_cost(gm.graph).flops == 20
    gm = fx.symbolic_trace(two_tests, "f32[4]")
    assert "while_loop_trips" in str(total_cost(gm.graph).flops)


# -- bad input -------------------------------------------------------------------------------------
BAD: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "type": (
        lambda x: fx.fori_loop(0, 3, lambda i, v: (v[0], v[1].astype("f8")), (x, x)),
        TraceError,
        r"(?s)the carried value v\[1\] of fori_loop is f32\[3\] before an iteration and f64\[3\] "
        r"after it.*test_control_flow.py:\d+.*instead: cast it in the body, .astype\('f32'\)",
    ),
    "shape": (
        lambda x: fx.while_loop(lambda a: a.sum() < 9, lambda a: (np.concatenate([a, a]),), (x,)),
        TraceError,
        r"is f32\[3\] before an iteration and f32\[6\] after it(?s:.*)final size",
    ),
    "structure": (
        lambda x: fx.fori_loop(0, 3, lambda i, v: v[0], (x, x)),
        TraceError,
        r"starts with tuple\(\*, \*\), but its body gives \*",
    ),
    "condition": (
        lambda x: fx.while_loop(lambda a: a < 9, lambda a: (a + 1,), (x,)),
        TraceError,
        r"the condition of while_loop is bool\[3\], not one bool",
    ),
    "pred": (
        lambda x: fx.cond(x.sum(), lambda: x, lambda: x),
        TraceError,
        r"the condition of cond is f32, not one bool",
    ),
    "branches": (
        lambda x: fx.cond(x.sum() > 0, lambda: x, lambda: x.sum()),
        TraceError,
        r"the result of cond is f32\[3\] if the condition is true, and f32 if not",
    ),
    "outside": (
        lambda x: fx.fori_loop(0, 3, lambda i, v: (x.__setitem__(i, v), v)[1], 1.0),
        TraceError,
        "changes x, a value from outside of fori_loop(?s:.*)let the loop carry it",
    ),
    "operand": (
        lambda x: fx.cond(x.sum() > 0, lambda y: (y.fill(1), y)[1], lambda y: y, (x,)),
        TraceError,
        "is an operand of cond",
    ),
    "text": (
        lambda x: fx.fori_loop(0, 3, lambda i, v: v, (x, object())),
        TraceError,
        r"\[1\] is a object, not an array or a number",
    ),
    "bound": (lambda x: fx.fori_loop(0, x[0], lambda i, v: v, x), DTypeError, "upper must be one integer"),
    "lengths": (lambda x: fx.scan(lambda c, v: (c, c), 0, (x, x[1:])), ArgumentError, "axes of one length"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_programs(case: str) -> None:
    program, kind, match = BAD[case]
    with pytest.raises(kind, match=match):
        fx.symbolic_trace(program, x="f32[3]")


def test_a_value_of_a_body_stays_inside() -> None:
    def program(x: Any) -> Any:
        kept = []

        def body(i: Any, y: Any) -> Any:
            kept.append(y * 2)
            return y + 1

        fx.fori_loop(0, 3, body, x)
        return kept[0]

    with pytest.raises(TraceError, match="inside a loop or condition that has ended"):
        fx.symbolic_trace(program, x="f32[3]")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("    for i in range(0, 3):\n        pass\n    return x", "carried values before it"),
        (
            "    a = x\n    for i in range(0, 3):\n        b: f32 = a + 1\n        c = b\n"
            "    l: (f32,) = (a,)\n    return x",
            "expected at the end of the loop: a = ",
        ),
        ("    a = x\n    while True:\n        a = a\n    l: (f32,) = (a,)\n    return x", "if not name: break"),
        ("    a = x\n    for i in x:\n        a = a\n    l: (f32,) = (a,)\n    return x", "expected range"),
        ("    if x:\n        a = (x,)\n    return x", "end of each branch: a ="),
        (
            "    if x:\n        a = (x,)\n    else:\n        a = (x,)\n    return x",
            r"pred must be bool\[\], one number, not f32",
        ),
        ("    a = x\n    for i in range(0, 3):\n        a = x\n    l: (i64,) = (a,)\n    return x", "is declared"),
    ],
)
def test_bad_texts(text: str, match: str) -> None:
    with pytest.raises(ParseError, match=match):
        fx.parse(f"def forward(self, x: f32):\n{text}")


def test_a_sub_graph_holds_no_weights() -> None:
    graph = fx.Graph()
    graph.output((graph.get_attr("w"),))
    with pytest.raises(GraphError, match="reads a weight, w"):
        fx.SubGraph(graph)


# -- looking at it ---------------------------------------------------------------------------------
def test_bodies_are_boxes_in_pictures(tmp_path: Path) -> None:
    gm = fx.symbolic_trace(halvings, "f32[B]", "f32[]")
    dot = gm.graph.to_dot()
    boxes = [line.strip() for line in dot.splitlines() if line.strip().startswith("label=")]
    assert 'label="while_loop (Loop)";' in boxes
    assert '"if (If)' in dot
    assert '"else (If)' in dot
    edges = {line.strip(" ;") for line in dot.splitlines() if "->" in line}
    assert {'"sum" -> "mul"', '"gt_1" -> "cond"', '"add" -> "while_loop"'} <= edges
    for case in CASES.values():
        graph = fx.symbolic_trace(case[0], *case[1]).graph
        for ending in ("svg", "html"):
            graph.draw(tmp_path / f"x.{ending}")


def test_queries_find_what_bodies_call() -> None:
    gm = fx.symbolic_trace(nested, "f32[N]", "i64[]")
    assert [m.last.name for m in gm.graph.find("(div|fori_loop)")] == ["fori_loop_1", "fori_loop", "div"]
    assert len(gm.graph.find("add > sub")) == 1


def test_files_of_classes_have_none() -> None:
    gm = fx.symbolic_trace(powers, "f32[3]", "i64[]")
    with pytest.raises(fx.errors.CodegenError, match=r"node fori_loop.*no loops and conditions"):
        gm.source()
