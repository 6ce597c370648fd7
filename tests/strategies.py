"""Hypothesis strategies for random typed graphs, shared by the property tests and the fuzzer.

In: hypothesis' ``draw``. Out: a :class:`Drawn`: a GraphModule in inference mode with weights,
several inputs of concrete and named sizes (0 and 1 among them), and all it takes to draw arrays for
it. Every family of ops occurs: pointwise ops with broadcasting and literals, reductions, views,
joins, contractions, composites, gathers, creation, casts, and each op of the registry on its own
samples. What a type rule refuses is left out; any other error of the core comes through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import fxlite as fx
from fxlite import ops
from fxlite.base.location import Location, Scope
from fxlite.ops.op import REGISTRY
from fxlite.ops.samples import Random
from fxlite.types import shapes
from fxlite.types.tensor_type import parse_type
from tests.graph_builder import LARGEST, NAMED, Builder, axis_of, elements

INPUT_TYPES = (
    "f32[B,4]",
    "f32[3,4]",
    "f32[B,T]",
    "f32[4]",
    "f32",
    "f32[B,1,4]",
    "f32[0,4]",
    "f32[1]",
    "f64[B,3]",
    "i64[B,T]",
    "i32[3,4]",
    "bool[B,4]",
    "f32[T,2,4]",
    "f16[4]",
    "bf16[3,1]",
    "u8[5]",
    "f32[B,2,4,5]",
    "u16[4]",
    "u32[3,4]",
    "u64[B,T]",
    "c64[B,4]",
    "c128[3,1]",
)
ORIGINS = (None, Scope("", "Model"), Scope("layers.0", "Block"), Scope("layers.1.attn", "Attn"))
#: Ops that the samples leave to the other families: they draw numbers, or need no tensor.
NOT_SAMPLED = ("dropout", "getitem", "split")


@dataclass(frozen=True)
class Drawn:
    """A random program. ``sources`` make its inputs, by target; ``sizes`` are those of the named
    dims; with ``special`` the inputs hold NaN, infinities and signed zeros."""

    module: fx.GraphModule
    sources: Mapping[str, Random]
    sizes: Mapping[str, int]
    seed: int
    special: bool

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """Inputs, in the order of the placeholders; the same ones each time."""
        rng = np.random.default_rng(self.seed)
        made = []
        for node in self.module.graph.placeholders:
            source = self.sources[node.target]
            if self.special and source.low is None and source.type.dtype.is_float:
                source = Random(source.type, special=True)
            made.append(source.make(rng, self.sizes))
        return made

    def __repr__(self) -> str:
        drawn = f"sizes {dict(self.sizes)}, seed {self.seed}, special {self.special}"
        return f"{drawn}\n{self.module.graph}"


# -- pointwise -------------------------------------------------------------------------------------
UNARY = (
    "neg",
    "relu",
    "exp",
    "abs",
    "sigmoid",
    "tanh",
    "sin",
    "cos",
    "sqrt",
    "square",
    "log",
    "erf",
    "rsqrt",
    "reciprocal",
    "floor",
    "ceil",
    "round",
    "trunc",
    "sign",
    "expm1",
    "log1p",
    "atan",
    "isnan",
    "isfinite",
    "logical_not",
    "bitwise_not",
    "real",
    "imag",
    "conj",
)
ACTIVATIONS = (
    "gelu",
    "silu",
    "elu",
    "softplus",
    "hardswish",
    "leaky_relu",
    "relu6",
    "mish",
    "selu",
    "celu",
    "hardtanh",
    "logsigmoid",
    "softsign",
    "tanhshrink",
    "hardsigmoid",
    "softshrink",
)
BINARY = (
    "add",
    "mul",
    "sub",
    "maximum",
    "minimum",
    "div",
    "pow",
    "atan2",
    "eq",
    "lt",
    "le",
    "gt",
    "ge",
    "ne",
    "logical_and",
    "logical_or",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "floor_divide",
    "remainder",
)
LITERALS = (1, 2, 0, 0.5, -1.0, -0.0, 1.0, 3, -2.5, float("inf"), 1e-300, True, 2j, 1 - 0.5j)


def pointwise_one(b: Builder) -> None:
    """One operand."""
    x = b.value()
    b.call(b.choose(UNARY + ACTIVATIONS), x)


def pointwise_two(b: Builder) -> None:
    """Two operands that broadcast, or one and a number."""
    name, x, y = b.choose(BINARY), b.value(), b.value()
    floating = x.type.dtype.is_float and y.type.dtype.is_float
    if name == "pow" and not floating:
        name = "mul"  # an integer to a negative integer power is an error of NumPy's
    if b.chance():
        b.call(name, x, y) or b.call(name, x, x)
        return
    literal = b.choose(LITERALS if x.type.dtype.is_float else (1, 2, 3))
    b.call(name, *((x, literal) if b.chance() else (literal, x)))


def chosen(b: Builder) -> None:
    """where, with a comparison as condition; clip."""
    x, y = b.value(), b.value()
    condition = b.value(lambda t: t.dtype.is_bool) or b.call(b.choose(("gt", "le", "eq")), x, 0)
    if condition is not None:
        b.call("where", condition, x, y) or b.call("where", condition, x, x)
    if x.type.dtype.is_float:
        b.call("clip", x, b.choose((None, -1.0, 0.0)), b.choose((1.0, None, 0.5)))


def cast(b: Builder) -> None:
    """A cast whose result NumPy defines: no integers from NaN or from what is too large."""
    x = b.value()
    target = b.choose(("f32", "f64", "i64", "f16", "i32", "bool", "bf16"))
    if x.type.dtype.is_float and target.startswith("i"):
        finite = b.call("isfinite", x)
        x = b.call("clip", b.call("where", finite, x, 0.0), -100.0, 100.0)
    b.call("cast", x, dtype=target)


# -- reductions ------------------------------------------------------------------------------------
def reduction(b: Builder) -> None:
    """Over some axes; maxima only where there is something to compare."""
    name = b.choose(("sum", "mean", "max", "min", "prod", "any", "all", "argmax", "var", "argmin"))
    full = name in ("max", "min", "argmax", "argmin")
    x = b.value(lambda t: t.rank > 0 and (not full or all(type(d) is int and d > 0 for d in t.shape)))
    if x is None:
        return
    axis: Any = b.choose((axis_of(b, x), None))
    if axis is not None and x.type.rank > 1 and not name.startswith("arg") and b.chance():
        axis = tuple(sorted({axis % x.type.rank, b.number(0, x.type.rank - 1)}))
    b.call(name, x, axis=axis, keepdims=b.chance())


def along_axis(b: Builder) -> None:
    """What computes along one axis and keeps the shape."""
    x = b.floats(1)
    if x is None:
        return
    name = b.choose(("softmax", "log_softmax", "cumsum", "layer_norm", "rms_norm", "logsumexp"))
    last, axis = x.type.shape[-1], axis_of(b, x)
    if name != "cumsum" and not all(type(d) is int and d for d in (last, x.type.shape[axis])):
        return  # expanded, they take a maximum, which an axis of size 0 does not have
    if name in ("layer_norm", "rms_norm"):
        weights = []
        if b.chance():
            text = f"{x.type.dtype.name}[{last}]"
            weights = [b.random_weight(text) for _ in range(2 if name == "layer_norm" else 1)]
        b.call(name, x, *weights, normalized_shape=(last,))
    else:
        b.call(name, x, axis=axis)


# -- views -----------------------------------------------------------------------------------------
def view(b: Builder) -> None:
    """Views of one value."""
    kind = b.choose(
        (
            "permute",
            "reshape",
            "slice",
            "unsqueeze",
            "squeeze",
            "flip",
            "select",
            "expand",
            "roll",
            "pad",
            "tril",
            "flatten",
            "merge",
            "unmerge",
        )
    )
    x = b.value(lambda t: t.rank > 0)
    if x is None:
        return
    rank, axis = x.type.rank, axis_of(b, x)
    size = x.type.shape[axis]
    if kind == "permute":
        b.call("permute", x, axes=tuple(b.draw(st.permutations(range(rank)))))
    elif kind == "reshape":
        b.call("reshape", x, shape=b.choose(((-1,), (1, -1), (-1, 1), (2, -1), x.type.shape)))
    elif kind == "merge" and rank > 1:
        b.call("reshape", x, shape=(x.type.shape[0] * x.type.shape[1], *x.type.shape[2:]))
    elif kind == "unmerge" and size == 4:
        shape = list(x.type.shape)
        shape[axis % rank : axis % rank + 1] = [2, 2]
        b.call("reshape", x, shape=tuple(shape))
    elif kind == "slice":
        b.call("slice", x, axis=axis, start=b.number(-3, 2), stop=b.choose((None, 3, -1, 1)), step=b.choose((1, 2)))
    elif kind == "unsqueeze":
        b.call("unsqueeze", x, axis=b.number(-rank - 1, rank))
    elif kind == "squeeze" and size == 1:
        b.call("squeeze", x, axis=axis)
    elif kind == "select" and type(size) is int and size:
        b.call("select", x, axis=axis, index=b.number(-size, size - 1))
    elif kind == "expand":
        b.call("expand", x, shape=tuple(2 if d == 1 else -1 for d in x.type.shape))
        b.call("expand", x, shape=(b.choose((2, 1)), *x.type.shape))
    elif kind == "roll":
        b.call("roll", x, shift=b.number(-2, 3), axis=axis)
    elif kind == "pad":
        padding = tuple((b.number(0, 1), b.number(0, 2)) for _ in range(rank))
        b.call("pad", x, padding=padding, value=b.choose((0, 1)))
    elif kind == "tril":
        b.call(b.choose(("tril", "triu")), x, k=b.number(-1, 1))
    elif kind == "flatten":
        b.call("flatten", x, start_dim=b.number(0, rank - 1))
    else:
        b.call("flip", x, axis=axis)


def joined(b: Builder) -> None:
    """concat, stack, and split, which has several results."""
    x = b.value(lambda t: t.rank > 0)
    if x is None:
        return
    axis = axis_of(b, x)
    y = b.value(lambda t: t == x.type) or x
    kind, size = b.choose(("concat", "stack", "split")), x.type.shape[axis]
    if kind != "split":
        b.call(kind, tuple([x, y, x][: b.number(1, 3)]), axis=axis)
    elif type(size) is int:
        first = b.number(0, size)
        parts = b.call("split", x, sizes=(first, size - first), axis=axis)
        if parts is not None:
            for index in b.choose(((0, 1), (1,), (0,))):
                b.call("getitem", parts, index=index)


# -- contractions, weights -------------------------------------------------------------------------
def contraction(b: Builder) -> None:
    """matmul of two values or with a weight, linear, convolution (maybe with batch norm). Not of
    halves: NumPy's ``@`` rounds each step of the sum, the op the result."""
    x = b.value(lambda t: t.rank > 0 and t.dtype.name in ("f32", "f64"))
    if x is None:
        return
    dtype, last = x.type.dtype.name, x.type.shape[-1]
    kind = b.choose(("linear", "matmul", "square", "conv"))
    if kind == "square":
        axes = (*range(x.type.rank - 2), x.type.rank - 1, x.type.rank - 2)
        if x.type.rank > 1:
            b.call("matmul", x, b.call("permute", x, axes=axes))
    elif kind == "conv":
        conv_bn(b)
    elif type(last) is int:
        width = b.number(1, 3)
        shape = f"[{width},{last}]" if kind == "linear" else f"[{last},{width}]"
        operands = [x, b.random_weight(dtype + shape)]
        if kind == "linear" and b.chance():
            operands.append(b.random_weight(f"{dtype}[{width}]"))
        b.call(kind, *operands)


def conv_bn(b: Builder) -> None:
    """A convolution and its batch norm; now and then another reader in between."""
    x = b.value(lambda t: str(t.dtype) == "f32" and t.rank == 4 and type(t.shape[1]) is int)
    x = x or b.placeholder(Random(parse_type("f32[B,2,4,5]")))
    made = b.call("conv2d", x, b.random_weight(f"f32[2,{x.type.shape[1]},3,3]"), padding=1)
    if made is not None:
        positive = b.random_weight("f32[2]", 0.2, 3)
        b.call(
            "batch_norm",
            made,
            b.random_weight("f32[2]"),
            positive,
            *([b.random_weight("f32[2]")] * 2 if b.chance() else ()),
        )
        if not b.chance():
            b.values.remove(made)


def weighted(b: Builder) -> None:
    """An operand that is a weight, read once or twice; a weight computed with alone."""
    node = b.random_weight(b.choose(("f32[4]", "f32[3,1]", "f64", "i64[4]", "bool[4]")))
    if b.chance():
        b.call("add", node, node)
        b.call(b.choose(("neg", "abs", "square")), node)
    x = b.value()
    b.call(b.choose(("mul", "add", "where")), *((x, node) if b.chance() else (node, x)))
    b.values.append(node)


def gathered(b: Builder) -> None:
    """take and gather with indices in range, embedding, one_hot."""
    x = b.value(lambda t: t.rank > 0)
    if x is None:
        return
    axis = axis_of(b, x)
    size = x.type.shape[axis]
    if type(size) is not int or size == 0:
        return
    rng = np.random.default_rng(b.number(0, 3))
    kind = b.choose(("take", "gather", "embedding", "one_hot"))
    if kind == "take":
        index = b.weight(rng.integers(-size, size, b.choose(((2,), (), (2, 2), (0,)))))
        b.call("take", x, index, axis=axis)
    elif kind == "gather":
        shape = [1] * x.type.rank
        shape[axis] = 2
        b.call("gather", x, b.weight(rng.integers(-size, size, shape)), axis=axis)
    else:
        source = Random(parse_type(b.choose(("i64[B]", "i32[2,1]"))), 0, 3)
        index = b.placeholder(source) if len(b.sources) < 5 else b.weight(np.array([0, 2, 1]))
        if index in b.values:
            b.values.remove(index)  # its range must stay what it is
        if kind == "embedding":
            b.call("embedding", index, b.random_weight("f32[3,2]"))
        else:
            b.call("one_hot", index, num_classes=3)


def created(b: Builder) -> None:
    """Values made of nothing, of concrete or named sizes."""
    x = b.value()
    shape = b.choose((x.type.shape, (4,), ()))
    kind = b.choose(("zeros", "full", "ones", "arange"))
    if kind == "arange":
        made = b.call("arange", b.choose((4, 0, *x.type.shape[-1:])))
    elif kind == "full":
        made = b.call("full", shape, b.choose((2.5, 1, True)), dtype=x.type.dtype.name)
    else:
        made = b.call(kind, shape, dtype=x.type.dtype.name)
    if made is not None and b.chance():
        b.call("add", x, made)


def dropped(b: Builder) -> None:
    """Dropout, which does nothing in inference."""
    b.call("dropout", b.floats() or b.values[0], b.choose((0.5, 0.0)))


def sampled(b: Builder) -> None:
    """Any op of the registry on one of its own samples: weights, now and then a value that fits."""
    op = REGISTRY[b.choose([n for n in sorted(REGISTRY) if n not in NOT_SAMPLED])]
    if not op.samples:
        return
    sample = b.choose(op.samples)
    if sum(elements(t.substitute(sample.dims)) for t in sample.types()) > 2 * LARGEST:
        return
    operands = []
    for source, array in zip(sample._leaves(), sample.arrays()):
        kind = source.type.substitute(sample.dims)
        fitting = [v for v in b.values if v.type == kind]
        if fitting and kind.dtype.is_float and source.low is None and b.chance():
            operands.append(b.choose(fitting))
        else:
            operands.append(b.weight(array))
    sample.call(
        lambda *a, **k: b.call(op.name, *shapes.substitute(a, sample.dims), **shapes.substitute(k, sample.dims)),
        operands,
    )


FAMILIES: tuple[Callable[[Builder], None], ...] = (
    pointwise_one,
    pointwise_two,
    view,
    reduction,
    joined,
    chosen,
    cast,
    contraction,
    along_axis,
    weighted,
    gathered,
    created,
    dropped,
    sampled,
    sampled,
)


def result(b: Builder) -> Any:
    """What the program returns: a value, or values in a tuple, a list or nested dicts."""
    values = [b.choose(b.values[::-1]) for _ in range(b.number(1, 4))]
    first = values[0]
    return b.choose((first, tuple(values), values, {"out": first, "rest": values[1:]}, (first, {"a": (first,)})))


@st.composite
def programs(draw: Any, largest: int = 14) -> Drawn:
    """Random programs of up to ``largest`` steps, a few calls each."""
    b = Builder(draw)
    for text in draw(st.lists(st.sampled_from(INPUT_TYPES), min_size=1, max_size=3)):
        b.placeholder(Random(parse_type(text)))
    for _ in range(draw(st.integers(1, largest))):
        line = draw(st.integers(1, 4))
        place = Location(resolved=("model.py", line, "forward", f"y{line} = ..."))
        b.graph.current_origin = (b.choose(ORIGINS), place)
        before = len(b.values)
        draw(st.sampled_from(FAMILIES))(b)
        if len(b.values) > before and draw(st.integers(0, 5)) == 5:
            b.values[-1].meta["note"] = [before, {"of": b.values[0]}]
    b.graph.current_origin = None
    b.graph.output(result(b))
    if b.chance():
        b.graph.placeholders[-1].args = (2.0,)  # its default
    module = fx.GraphModule(b.weights, b.graph)
    module.eval()
    sliced = any(n.target is ops.slice and shapes.names(n.args[0].type.shape) for n in b.graph.nodes)
    # types of slices hold for all sizes but 0
    choice = st.sampled_from((2, 3, 1, 5) if sliced else (2, 3, 1, 0, 5))
    sizes = {name: draw(choice) for name in NAMED}
    return Drawn(module, b.sources, sizes, draw(st.integers(0, 1000)), draw(st.booleans()))
