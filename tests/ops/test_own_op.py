"""Ops that a program registers with ``fx.op``: they are ops as any other, on every back end and in
every tool, and what does not fit together is refused by name."""

from __future__ import annotations

import copy
import importlib
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import ArgumentError, CodegenError, DTypeError, FxliteError, GraphError, ShapeError
from fxlite.codegen.python.source import python_source
from fxlite.passes import quantize as q
from fxlite.show.query.search import find
from tests.graphs import ops_of
from tests.oracle import agree

pytestmark = pytest.mark.usefixtures("registry")
ALL = ("graph", "python", "kernel", "c", "cuda")


def values(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


# -- everywhere ------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_all_back_ends_agree(own_ops: ModuleType, dtype: str) -> None:
    numpy = fx.dtypes.dtype(dtype).numpy
    x, gate = values(4, 6, dtype=numpy), values(6, dtype=numpy)
    program = own_ops.on_all_back_ends
    if dtype in ("f16", "bf16"):  # sums that round
        program = lambda x, gate: own_ops.skew(own_ops.swiglu(x, gate, 2.0))  # noqa: E731
    agree(program, x, gate, types=(f"{dtype}[B,6]", f"{dtype}[6]"), rungs=ALL)


def test_small_devices(own_ops: ModuleType) -> None:
    x, gate = values(4, 6), values(6)
    fn = fx.compile(own_ops.on_all_back_ends, "f32[4,6]", "f32[6]", backend="embedded")
    np.testing.assert_allclose(fn(x, gate), own_ops.on_all_back_ends(x, gate), rtol=1e-5, atol=1e-6)


def test_a_call_is_a_node_or_runs(own_ops: ModuleType) -> None:
    x, gate = values(3, 6), values(6)
    gm = fx.symbolic_trace(own_ops.in_python, "f32[B,6]", "f32[6]")
    assert ops_of(gm) == [
        "extent",
        "getitem",
        "getitem",
        "swiglu",
        "rms",
        "skew",
        "sub",
        "unsqueeze",
        "add",
        "flipped",
        "one_by_one",
    ]
    node = gm.graph.find_nodes(op="call_function", target="swiglu")[0]
    assert node.kwargs == {"beta": 2.0} and str(node.type) == "f32[B,6]"
    assert gm.graph.find_nodes(op="call_function", target="rms")[0].kwargs == {"axis": 1}
    np.testing.assert_array_equal(gm(x, gate), own_ops.in_python(x, gate))
    np.testing.assert_array_equal(own_ops.swiglu(gate=gate, x=x), x * gate / (1 + np.exp(-1.0 * gate)))
    assert fx.ops.swiglu is own_ops.swiglu and repr(fx.ops.swiglu) == "fx.ops.swiglu"
    with pytest.raises(ArgumentError, match="has no argument 'alpha'"):
        own_ops.swiglu(x, gate, alpha=1)
    with pytest.raises(ArgumentError, match="beta is an attribute, a plain value"):
        fx.symbolic_trace(lambda x: own_ops.swiglu(x, x, x.sum()), "f32[3]")


def test_types_follow(own_ops: ModuleType) -> None:
    def types(program: Any, *given: str) -> str:
        return str(fx.symbolic_trace(program, *given).graph.output_node().args[0].type)

    assert types(own_ops.swiglu, "f32[B,1]", "i32[6]") == "f64[B,6]"  # as NumPy promotes
    assert types(own_ops.swiglu, "f16[B,1]", "f32[6]") == "f32[B,6]"
    assert types(own_ops.rms, "i32[B,4]") == "f64[B,4]"
    assert types(own_ops.flipped, "i8[B,4]") == "i8[B,4]"
    with pytest.raises(ShapeError, match=r"swiglu\(f32\[3\], f32\[4\]\).*do not broadcast"):
        types(own_ops.swiglu, "f32[3]", "f32[4]")
    with pytest.raises(ShapeError, match="skew takes a matrix"):
        types(own_ops.skew, "f32[3]")


def test_text_files_and_copies(own_ops: ModuleType, tmp_path: Path) -> None:
    gm = fx.symbolic_trace(own_ops.in_python, "f32[B,6]", "f32[6]")
    assert fx.parse(gm.graph.text(full=True)).text(full=True) == gm.graph.text(full=True)
    assert len(find(gm.graph, "swiglu > rms")) == 1
    fx.save(gm, tmp_path / "a.fxl")
    x, gate = values(3, 6), values(6)
    for again in (fx.load(tmp_path / "a.fxl"), copy.deepcopy(gm), pickle.loads(pickle.dumps(gm)), gm.copy()):
        assert again.graph == gm.graph
        np.testing.assert_array_equal(again(x, gate), gm(x, gate))
    assert pickle.loads(pickle.dumps(own_ops.swiglu)) is own_ops.swiglu
    gm.graph.draw(tmp_path / "a.svg")
    assert "swiglu" in (tmp_path / "a.svg").read_text()


def test_passes_and_costs(own_ops: ModuleType) -> None:
    def program(x: Any, gate: Any) -> Any:
        same = own_ops.swiglu(x, gate) + own_ops.swiglu(x, gate=gate, beta=1.0)
        own_ops.flipped(x)
        return same * own_ops.swiglu(np.ones(6, np.float32), np.ones(6, np.float32))

    gm = fx.symbolic_trace(program, "f32[B,6]", "f32[6]")
    merged = fx.passes.PassManager(["const_fold", "cse", "dce"])(gm)
    names = ops_of(merged)
    assert names == ["swiglu", "add", "mul"]
    assert merged.undo() is not None or len(merged.graph.find_nodes(target="swiglu")) == 2
    found = fx.passes.cost(fx.symbolic_trace(own_ops.swiglu, "f32[B,6]", "f32[6]"))
    assert str(found.total.flops) == "30*B"  # two products, exp, sum, quotient
    replaced = fx.symbolic_trace(own_ops.swiglu, "f32[B,6]", "f32[6]")
    matches = fx.replace_pattern(
        replaced, lambda x, g: own_ops.swiglu(x, g), lambda x, g: own_ops.swiglu(g, x, beta=3.0)
    )
    assert len(matches) == 1 and "ops.swiglu(gate, x, beta=3.0)" in replaced.graph.text(full=True)


def test_quantized_beside_products(own_ops: ModuleType) -> None:
    class Net(fx.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = fx.nn.Linear(8, 16), fx.nn.Linear(16, 4)

        def forward(self, x: Any) -> Any:
            h = self.up(x)
            return self.down(own_ops.swiglu(h, h))

    gm = fx.symbolic_trace(Net().eval(), x="f32[B,8]")
    data = [values(16, 8, seed=s) for s in range(3)]
    quantized = q.quantize(gm, q.QConfigMapping().set_global(q.static_int8()), data)
    assert quantized.graph.find_nodes(op="call_function", target="int_linear")
    expected = gm(data[0])
    error = np.abs(quantized(data[0]) - expected).max()
    assert error < 0.1 * np.abs(expected).max()
    np.testing.assert_allclose(fx.compile(quantized, backend="c")(data[0]), quantized(data[0]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dialect", ["fxlite", "numpy"])
def test_source_imports_what_it_cannot_say(own_ops: ModuleType, dialect: str) -> None:
    gm = fx.symbolic_trace(own_ops.in_python, "f32[B,6]", "f32[6]")
    source = python_source(gm, "Net", dialect)
    assert "from tests.ops.own_ops import" in source
    # element-wise ops and those with an expansion are NumPy there
    assert ("swiglu(x, gate, beta=2.0)" in source) == (dialect == "fxlite")
    names: dict[str, Any] = {"__name__": "net"}
    exec(source, names)
    x, gate = values(3, 6), values(6)
    np.testing.assert_allclose(names["Net"]()(x, gate), gm(x, gate), rtol=1e-6)


def test_source_for_torch(own_ops: ModuleType) -> None:
    gm = fx.symbolic_trace(lambda x, g: own_ops.rms(own_ops.swiglu(x, g)), "f32[2,6]", "f32[6]")
    source = python_source(gm, "Net", "torch")
    assert "torch.exp" in source and "own_ops" not in source
    gm = fx.symbolic_trace(own_ops.skew, "f32[2,6]")
    with pytest.raises(CodegenError, match=r"skew.* give it an expansion \(@skew.expansion\)"):
        python_source(gm, "Net", "torch")


@pytest.mark.parametrize("backend", ["c", "cuda", "embedded"])
def test_a_reference_alone_runs_in_python(own_ops: ModuleType, backend: str) -> None:
    options = {"device": "shim"} if backend == "cuda" else {}
    with pytest.raises(CodegenError) as caught:
        fx.compile(own_ops.in_python, "f32[4,6]", "f32[6]", backend=backend, **options)
    assert "node flipped: f32[4,6]" in str(caught.value)
    assert "own_ops.py:" in str(caught.value)
    assert "give it a body (@flipped.scalar, @flipped.body) or an expansion" in str(caught.value)
    x, gate = values(4, 6), values(6)
    fn = fx.compile(own_ops.in_python, "f32[4,6]", "f32[6]", backend="python")
    np.testing.assert_array_equal(fn(x, gate), own_ops.in_python(x, gate))


def test_what_a_program_writes_into_is_its_own(own_ops: ModuleType) -> None:
    @fx.op
    def turned(x: fx.Tensor) -> Any:
        return x[::-1]

    turned.expansion(turned.reference)

    def program(x: Any) -> Any:
        y = turned(x)
        y[0] = 5
        return x + y

    agree(program, values(4))


# -- parameters ------------------------------------------------------------------------------------
def define(annotations: str, **names: Any) -> Any:
    """The op of a function whose parameters are ``annotations``, in a file without and one with
    annotations that are text."""
    made = []
    for number, first in enumerate(("", "from __future__ import annotations\n")):
        space = {"np": np, "fx": fx, "Any": Any, "Tensor": fx.Tensor, **names}
        exec(f"{first}def f({annotations}): return x", space)
        made.append(fx.op(name=f"own_{number}")(space["f"]))
    assert made[0].tensor_kinds == made[1].tensor_kinds
    return made[0]


@pytest.mark.parametrize(
    ("annotations", "kinds"),
    [
        ("x: Tensor", {"x": "Tensor"}),
        ("x: fx.Tensor, k: int = 1", {"x": "Tensor"}),
        ("x: np.ndarray, y: 'np.ndarray'", {"x": "Tensor", "y": "Tensor"}),
        ("x: fx.Tensor, bias: fx.OptionalTensor = None", {"x": "Tensor", "bias": "OptionalTensor"}),
        ("x: fx.Tensor, bias: 'fx.Tensor | None' = None", {"x": "Tensor", "bias": "OptionalTensor"}),
        ("x: fx.Tensors", {"x": "Tensors"}),
        ("x: list[np.ndarray], axis: int = 0", {"x": "Tensors"}),
        ("x, axis=-1, mode='a', scale=2.0, sizes=(1, 2)", {"x": "Tensor"}),
        ("x, bias=None", {"x": "Tensor", "bias": "OptionalTensor"}),
        ("x: fx.Tensor, sizes: tuple[int, ...], *, flag: bool = False", {"x": "Tensor"}),
    ],
)
def test_annotations(annotations: str, kinds: dict[str, str]) -> None:
    assert define(annotations).tensor_kinds == kinds


def test_an_operand_that_may_be_missing() -> None:
    @fx.op
    def scaled(x: fx.Tensor, factor: fx.OptionalTensor = None, by: float = 2.0) -> Any:
        return x * by if factor is None else x * factor * by

    scaled.scalar(lambda x, factor=None, by=2.0: x * by if factor is None else x * factor * by)
    agree(lambda x: scaled(x) + scaled(x, x, by=3.0) + scaled(x, 2), values(3, 4), rungs=ALL)


def test_a_list_of_operands() -> None:
    @fx.op
    def mixed(parts: fx.Tensors, weights: tuple[float, ...]) -> Any:
        return sum(w * p for w, p in zip(weights, parts, strict=True))

    mixed.scalar(lambda parts, weights: sum(w * p for w, p in zip(weights, parts, strict=True)))
    agree(lambda x, y: mixed([x, y, x], (1.0, -2.0, 0.5)), values(3, 4), values(4), rungs=ALL)


# -- bodies ----------------------------------------------------------------------------------------
def test_scalar_language() -> None:
    @fx.op
    def mess(x: fx.Tensor, n: fx.Tensor, low: float = -1.0) -> Any:
        a = np.where((x > 0) & (n % 3 != 1), np.sqrt(np.abs(x)), np.maximum(x, low) ** 2)
        return a + np.where(~(n >= 2), n // 2, n / 4) - np.clip(x, low, 0.5) + (n == 1)

    @mess.scalar
    def _(x: Any, n: Any, low: float = -1.0) -> Any:
        e = fx.expr
        a = e.where((x > 0) & (n % 3 != 1), e.sqrt(abs(x)), e.maximum(x, low) ** 2)
        return a + np.where(~(n >= 2), n // 2, n / 4) - np.clip(x, low, 0.5) + (n == 1)

    n = np.arange(-3, 9, dtype=np.int32).reshape(3, 4)
    agree(lambda x, n: mess(x, n, low=-0.25), values(3, 4), n, rungs=ALL)
    agree(lambda x, n: mess(x, n), values(3, 4, dtype=np.float64), n, rungs=ALL)
    source = python_source(fx.symbolic_trace(mess, "f32[B]", "i32[B]"), "Net", "numpy")
    assert "np.where" in source  # the same function says it for arrays


def test_reductions_and_padding() -> None:
    @fx.op(infer=lambda x, weight: fx.TensorType((x.shape[0],), x.dtype))
    def smooth(x: fx.Tensor, weight: fx.Tensor) -> Any:
        """A 1-d filter with zeros outside."""
        return np.convolve(np.pad(x, len(weight) // 2), weight[::-1], "valid")[: len(x)]

    @smooth.body
    def _(i: Any, x: Any, weight: Any) -> Any:
        size = weight.shape[0]
        return fx.expr.sum(size, lambda k: x[i[0] + k - size // 2] * weight[k])

    agree(smooth, values(17), values(5, seed=1), types=("f32[N]", "f32[5]"), rungs=ALL)

    @fx.op
    def nearest(x: fx.Tensor, table: fx.Tensor) -> Any:
        """The row of ``table`` that is nearest to each row of x."""
        return table[((x[:, None] - table) ** 2).sum(-1).argmin(-1)]

    nearest.infer(lambda x, table: fx.TensorType((x.shape[0], table.shape[1]), table.dtype))

    @nearest.body
    def _(i: Any, x: Any, table: Any) -> Any:
        row, column = i

        def distance(r: Any) -> Any:
            return fx.expr.sum(x.shape[1], lambda k: (x[row, k] - table[r, k]) ** 2)

        return table[fx.expr.argmin(table.shape[0], distance), column]

    agree(nearest, values(5, 3), values(7, 3, seed=1), types=("f32[B,3]", "f32[7,3]"), rungs=ALL)

    @fx.op(infer=lambda x: x)
    def slower(x: fx.Tensor) -> Any:
        at = (np.arange(len(x)) - 3) // 2
        turned = x[(np.arange(len(x)) - 2) % len(x)]
        return np.where(at >= 0, x[at], 0) + turned

    @slower.body  # quotients and remainders of what may be negative
    def _(i: Any, x: Any) -> Any:
        return x[(i[0] - 3) // 2] + x[(i[0] - 2) % x.shape[0]]

    agree(slower, values(9), types=("f32[N]",), rungs=ALL)

    @fx.op(infer=lambda x: x)
    def first_and_last(x: fx.Tensor) -> Any:
        return x * 0 + x[0] - x[-1]

    first_and_last.body(lambda i, x: x[i] * 0 + x[0] - x[-1])
    agree(first_and_last, values(9), types=("f32[N]",), rungs=ALL)

    @fx.op(infer=lambda x, i: fx.TensorType(i.shape, x.dtype))
    def looked_up(x: fx.Tensor, i: fx.Tensor) -> Any:
        return x[i]

    looked_up.body(lambda place, x, i: x[i[place]])
    agree(looked_up, values(9), np.array([[0, 8, -9], [3, -1, 2]]), types=("f32[N]", "i64[A,B]"), rungs=ALL)
    with pytest.raises(IndexError, match=r"x of looked_up|index 9"):
        fx.compile(looked_up, "f32[N]", "i64[A]", backend="c")(values(9), np.array([9]))

    @fx.op(infer=lambda x: x)
    def upper(x: fx.Tensor) -> Any:
        return np.where(np.arange(x.shape[0])[:, None] <= np.arange(x.shape[1]), x, -1)

    @upper.body
    def _(i: Any, x: Any) -> Any:
        return fx.expr.where(i[0] <= i[1], x[i], -1)

    agree(upper, values(4, 5), types=("f32[B,C]",), rungs=ALL)


def test_a_body_knows_no_values() -> None:
    def op_of(scalar: Any) -> Any:
        return fx.op(name="mine", scalar=scalar)(lambda x: x)

    with pytest.raises(ArgumentError, match=r"mine.* if, while, .* fx.expr.where"):
        fx.symbolic_trace(op_of(lambda x: 1.0 if x > 0 else x), "f32[3]")
    with pytest.raises(ArgumentError, match=r"an array of shape \(3,\); make it an op"):
        fx.symbolic_trace(op_of(lambda x: x * np.arange(3)), "f32[3]")
    with pytest.raises(ArgumentError, match="Python's"):
        fx.symbolic_trace(op_of(lambda x: float(x)), "f32[3]")
    with pytest.raises(ArgumentError, match=r"np.cumsum cannot be used in a body|one number"):
        fx.symbolic_trace(op_of(lambda x: np.cumsum(x)), "f32[3]")
    with pytest.raises(ArgumentError, match=r"np.spacing cannot be used in a body"):
        fx.symbolic_trace(op_of(lambda x: np.spacing(x)), "f32[3]")
    with pytest.raises(ArgumentError, match="a body gives one number, not NoneType"):
        fx.symbolic_trace(op_of(lambda x: None), "f32[3]")
    with pytest.raises(ArgumentError, match=r"its scalar body: .*test_own_op.py"):
        fx.symbolic_trace(op_of(lambda x: x.real), "f32[3]")
    with pytest.raises(AttributeError, match="did you mean sqrt"):
        fx.expr.sqr  # noqa: B018
    with pytest.raises(DTypeError):
        fx.symbolic_trace(op_of(lambda x: x << 1), "f32[3]")
    with pytest.raises(ArgumentError, match="2 axes, and is read with 1"):
        bad = fx.op(name="bad", infer=lambda x: x, body=lambda i, x: x[i[0]])(lambda x: x)
        fx.symbolic_trace(bad, "f32[3,4]")


# -- what does not fit together --------------------------------------------------------------------
def test_a_name_that_is_taken() -> None:
    with pytest.raises(ArgumentError, match=r'softmax is the name of an op of fxlite.*name="'):
        fx.op(name="softmax")(lambda x: x)
    with pytest.raises(ArgumentError, match="absolute is the name of an op"):
        fx.op(name="absolute")(lambda x: x)
    with pytest.raises(ArgumentError, match="cannot be the name of an op"):
        fx.op(lambda x: x)
    with pytest.raises(ArgumentError, match="cannot be the name of an op"):
        fx.op(name="a.b")(lambda x: x)
    with pytest.raises(ArgumentError, match=r"fx.op takes a function"):
        fx.op("swiglu")  # type: ignore[call-overload]

    def one(x: Any) -> Any:
        return x

    def other(x: Any) -> Any:
        return x + 1

    fx.op(name="mine")(one)
    with pytest.raises(ArgumentError, match=r"two ops named mine: at .*:\d+ and at .*:\d+"):
        fx.op(name="mine")(other)
    assert fx.ops.mine.function is one


def test_rules_that_do_not_fit() -> None:
    def mine(x: fx.Tensor, axis: int = 0) -> Any:
        return x

    op = fx.op(mine)
    for attach in (op.scalar, op.expansion, op.infer, op.cost):
        with pytest.raises(ArgumentError, match=r"must take \(x, axis=0\), as the op does.*\n  at "):
            attach(lambda x: x)
    with pytest.raises(ArgumentError, match=r"must take \(i, x, axis=0\)"):
        op.body(lambda x, axis=0: x)
    with pytest.raises(ArgumentError, match="no 'nonegative'; did you mean nonnegative"):
        fx.op(name="other", nonegative=True)(lambda x: x)
    with pytest.raises(ArgumentError, match="kind is one of"):
        fx.op(name="other", kind="pointy")(lambda x: x)
    with pytest.raises(ArgumentError, match="give every argument a name"):
        fx.op(name="other")(lambda *x: x)
    with pytest.raises(ArgumentError, match="operands come before attributes; move 'axis'"):
        exec("def f(axis: int, x: Tensor): return x", space := {"Tensor": fx.Tensor})
        fx.op(name="other")(space["f"])
    assert "other" not in fx.ops.__dir__()


def test_a_type_rule_that_is_wrong() -> None:
    @fx.op(infer=lambda x: fx.TensorType(x.shape, "f64"))
    def mine(x: fx.Tensor) -> Any:
        return x * 2

    message = r"for \(f32\[3\]\) its reference gives f32\[3\], but its type rule f64\[3\]\n  at "
    with pytest.raises(ArgumentError, match=rf"{message}.*test_own_op"):
        mine(values(3))
    mine.scalar(lambda x: x * 2)
    with pytest.raises(ArgumentError, match=r"gives f64\[B\], but its body elements of f32; .*f64"):
        fx.symbolic_trace(mine, "f32[B]")
    mine.infer(lambda x: "f32[2]")
    with pytest.raises(ArgumentError, match=r"element-wise on its operands it has the shape \(3\)"):
        fx.symbolic_trace(mine, "f32[3]")
    mine.infer(lambda x: 7)
    with pytest.raises(ArgumentError, match="gives 7, which is not a type"):
        fx.symbolic_trace(mine, "f32[3]")

    @fx.op(infer=lambda x: x)
    def wrong(x: fx.Tensor) -> Any:
        return x

    wrong.expansion(lambda x: x[:1])
    with pytest.raises((GraphError, FxliteError), match=r"the expansion of wrong gives f32\[1\]"):
        fx.compile(wrong, "f32[3]", backend="c")


def test_a_scalar_body_of_other_types_than_the_reference() -> None:
    @fx.op
    def all_ones(x: fx.Tensor) -> Any:
        return np.ones_like(x)

    all_ones.scalar(lambda x: 1)
    with pytest.raises(
        ArgumentError,
        match=r"its scalar body gives i64\[B\], but its reference "
        r"elements of f32",
    ):
        fx.symbolic_trace(all_ones, "f32[B]")

    @fx.op
    def total(x: fx.Tensor) -> Any:
        return x.sum(axis=-1)

    total.scalar(lambda x: x)
    with pytest.raises(ArgumentError, match=r"gives f32\[B,3\], but .* f32\[2\] where .* \[2, 2\]"):
        fx.symbolic_trace(total, "f32[B,3]")


def test_lists_are_arrays(own_ops: ModuleType) -> None:
    np.testing.assert_array_equal(own_ops.rms([3.0, 3.0]), [1, 1])


def test_a_type_rule_that_does_not_follow(own_ops: ModuleType) -> None:
    @fx.op
    def mine(x: fx.Tensor) -> Any:
        return x if float(x.sum()) > 0 else -x

    np.testing.assert_array_equal(mine(-np.ones(3)), np.ones(3))  # arrays need no rule
    with pytest.raises(
        ArgumentError,
        match=r"no type rule, and none follows from its reference.*"
        r"(?s:.*)give one: @mine.infer",
    ):
        fx.symbolic_trace(mine, "f32[3]")
    gm = fx.symbolic_trace(mine)  # no types, no rule
    np.testing.assert_array_equal(gm(-np.ones(3)), np.ones(3))


def test_a_reference_that_writes_numbers() -> None:
    @fx.op(infer="f64[]")
    def total(x: fx.Tensor) -> Any:
        return float(x.sum())

    found = total(np.ones(3, np.float32))
    assert isinstance(found, np.float64) and found == 3
    agree(lambda x: total(x) * x, values(3), rungs=("graph", "python"))


# -- again -----------------------------------------------------------------------------------------
SOURCE = """\
import fxlite as fx
@fx.op
def mine(x: fx.Tensor):
    return x + {number}
@mine.scalar
def _(x):
    return x + {number}
"""


def test_a_cell_that_runs_again() -> None:
    def cell(number: int, name: str) -> Any:
        space: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(SOURCE.format(number=number), name, "exec"), space)
        return space["mine"]

    first = cell(1, "<cell 1>")
    gm = fx.symbolic_trace(lambda x: first(x), "f32[3]")
    again = cell(1, "<cell 2>")
    assert again is first and gm.graph.find_nodes(target=again)
    changed = cell(2, "<cell 3>")
    assert changed is first and fx.ops.mine is changed
    for run in (gm, fx.Interpreter(gm).run, fx.compile(gm, backend="c")):  # as a function would
        np.testing.assert_array_equal(run(np.zeros(3, np.float32)), np.full(3, 2))
    agree(lambda x: changed(x), values(3))


def test_a_module_that_is_reloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "reloaded_ops.py"
    file.write_text(SOURCE.format(number=1))
    module = importlib.import_module("reloaded_ops")
    first = module.mine
    assert importlib.reload(module).mine is first
    file.write_text("# moved\n\n" + SOURCE.format(number=1))
    importlib.invalidate_caches()
    assert importlib.reload(module).mine is first
    agree(lambda x: first(x), values(3))
    file.write_text(SOURCE.format(number=25))
    importlib.invalidate_caches()
    assert importlib.reload(module).mine is first
    assert module.mine(np.zeros(1))[0] == 25
    file.write_text(SOURCE.format(number=25) + SOURCE.format(number=3))
    importlib.invalidate_caches()
    with pytest.raises(ArgumentError, match="there are two ops named mine"):
        importlib.reload(module)
    del sys.modules["reloaded_ops"]
