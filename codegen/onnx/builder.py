"""The model while it is written: names, nodes, constants, sizes.

In: calls of ``op``, which name ONNX's operators. Out: lists of messages for a GraphProto. Bodies of control flow are
written by the same builder, one scope inside another; names are unique in the whole model.

The table has one function for each of fxlite's ops, which writes it in ONNX. A function gets the builder, the type of
the result, and the op's arguments by name: tensors as Values (names with types; Python numbers as they are), and
attributes as bound. It returns the name of the result, or a list of names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.base.errors import ModelExportError
from fxlite.base.on_demand import sympy
from fxlite.graph.node import Node
from fxlite.importing.onnx.proto import NUMBER_OF, onnx_library
from fxlite.ops.slicing import slice_bounds
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.shapes import Dim
from fxlite.types.symbols import in_parts
from fxlite.types.tensor_type import TensorType


@dataclass(frozen=True)
class Value:
    """A value of the model: its name, and its type in fxlite."""

    name: str
    type: TensorType


@dataclass(frozen=True)
class Row:
    """The table's entry for one op. ``since`` is the first opset that has what it becomes. ``when`` decides
    whether it accepts a call's arguments (nodes, attributes, defaults)."""

    function: Callable[..., Any]
    since: int
    when: Callable[[Mapping[str, Any]], bool] | None
    kind: str

    def takes(self, node: Node, opset: int) -> bool:
        """Whether this row writes a node; otherwise it is decomposed."""
        return opset >= self.since and (self.when is None or self.when(node.bound))


TABLE: dict[str, Row] = {}


def exports(
    *names: str, since: int = 0, when: Callable[[Mapping[str, Any]], bool] | None = None, **kinds: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function into the table under these names of ops. While it writes an op, the builder's ``kind`` is the
    entry of ``kinds`` for its name, or else the name itself."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name, kind in {**dict(zip(names, names)), **kinds}.items():
            TABLE[name] = Row(function, since, when, kind)
        return function

    return enter


def type_of(value: Any) -> TensorType | None:
    """The type of an operand: a node, or a Value; None for numbers."""
    found = getattr(value, "type", None)
    return found if isinstance(found, TensorType) else None


#: The types that runtimes have kernels of for narrow ones.
WIDE = {
    **dict.fromkeys((dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.bool_), dtypes.int32),
    dtypes.uint32: dtypes.int64,
}


def no(problem: str) -> ModelExportError:
    """The error for a call that ONNX cannot compute; the caller adds the node."""
    return ModelExportError(f"ONNX: {problem}")


def is_array(bound: Mapping[str, Any]) -> bool:
    """Whether the operand ``x`` is an array and not a number."""
    return type_of(bound["x"]) is not None


def is_float(bound: Mapping[str, Any]) -> bool:
    """Whether the operand ``x`` is of floats."""
    given = type_of(bound["x"])
    return given is not None and given.dtype.is_float


def is_single(bound: Mapping[str, Any]) -> bool:
    """Whether the operand ``x`` is of float32 or float16: attributes of ONNX are float32, so float64 is computed
    from bodies and expansions, and most layers do not support bfloat16."""
    given = type_of(bound["x"])
    return given is not None and given.dtype in (dtypes.float32, dtypes.float16)


#: Elements up to which equal constants are one.
SHARED = 64
#: "To the end" of a slice.
TO_END = 2**63 - 1


class Builder:
    """``sizes`` has for each named dim an input and an axis, with the factor and the addend by which the axis's size
    is computed from it."""

    def __init__(self, opset: int, sizes: dict[str, tuple[str, int, int, int]]) -> None:
        self.onnx = onnx_library()
        self.opset = opset
        self.nodes: list[Any] = []
        self.weights: dict[str, np.ndarray[Any, Any]] = {}
        self.types: dict[str, TensorType] = {}
        #: The shapes of values that ONNX's inference may not see, as their sizes are computed.
        self.shapes: dict[str, tuple[Dim, ...]] = {}
        self.values: dict[Node, Any] = {}
        #: The node of fxlite that is written: its name, and the kind in its op's row.
        self.result, self.kind = "", ""
        #: Writes the calls among some nodes, as the model does.
        self.write: Callable[[Any], Any] = lambda nodes: None
        self._sizes = sizes
        self._shared: dict[Any, str] = {}
        self._dims: list[dict[Any, str]] = [{}]
        self._count: Counter[str] = Counter()
        self._taken: set[str] = set()

    # -- names and nodes ------------------------------------------------------------------------
    def fresh(self, wish: str) -> str:
        """A new name."""
        made = wish
        while made in self._taken:
            self._count[wish] += 1
            made = f"{wish}_{self._count[wish]}"
        self._taken.add(made)
        return made

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        """Write a node; returns the name of its result. Inputs are names, Values, arrays (constants), or None for one
        that is left out; attributes that are None are left out, too."""
        return self.results(1, kind, *inputs, **attributes)[0]

    def results(self, count: int, kind: str, *inputs: Any, **attributes: Any) -> list[str]:
        """Write a node with ``count`` results; returns their names."""
        names = [self.name(v) for v in inputs]
        while names and not names[-1]:
            names.pop()
        made = [self.fresh(f"{self.result or 'value'}_{kind.lower()}") for _ in range(count)]
        given = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(self.onnx.helper.make_node(kind, names, made, domain="", **given))
        return made

    def computed_by(self, name: str) -> str:
        """The kind of the node that computes a value; "" for inputs and weights."""
        return next((str(n.op_type) for n in reversed(self.nodes) if name in n.output), "")

    def name(self, value: Any) -> str:
        """The name of an input of a node."""
        if value is None:
            return ""
        if isinstance(value, str):
            return value
        return value.name if isinstance(value, Value) else self.constant(value)

    def constant(self, value: Any, wish: str = "") -> str:
        """Add an initializer; small ones that are equal are shared."""
        array = np.asarray(value)
        key = (array.dtype.name, array.shape, array.tobytes()) if array.size <= SHARED and not wish else None
        if key is not None and key in self._shared:
            return self._shared[key]
        made = self.fresh(wish or f"{self.result or 'value'}_constant")
        self.weights[made] = array
        if key is not None:
            self._shared[key] = made
        return made

    def weight(self, path: str, value: Any) -> str:
        """Add an initializer under the path of a weight."""
        return self.constant(np.asarray(value), path)

    def integers(self, *values: int) -> str:
        """A constant vector of i64."""
        return self.constant(np.array(values, np.int64).reshape(-1))

    def number(self, value: Any, dtype: DType) -> str:
        """A constant of rank 0."""
        return self.constant(np.asarray(value, dtype.numpy))

    def operand(self, value: Any, dtype: DType) -> str:
        """The name of a Value, cast if it has another dtype, or of a Python number as a constant."""
        if isinstance(value, Value):
            return self.cast(value.name, value.type.dtype, dtype)
        return self.number(value, dtype)

    def cast(self, name: Any, before: DType, after: DType) -> str:
        """A value in another dtype."""
        return self.name(name) if before is after else self.op("Cast", name, to=self.element(after))

    def element(self, dtype: DType) -> int:
        """ONNX's number of a dtype. Raises ModelExportError for one that it lacks."""
        found = NUMBER_OF.get(np.dtype(dtype.numpy))
        if found is None:
            raise ModelExportError(f"ONNX has no element type {dtype.name}")
        return found

    def known(self, value: Any) -> np.ndarray[Any, Any] | None:
        """The array of an operand that is a weight or a constant; None for others."""
        if isinstance(value, Value):
            return self.weights.get(value.name)
        return None if value is None else np.asarray(value)

    # -- sizes ----------------------------------------------------------------------------------
    def sizes(self, dims: Sequence[Dim]) -> str:
        """The name of a vector of i64 with these sizes."""
        if all(type(d) is int for d in dims):
            return self.integers(*dims)
        parts: list[str] = []
        run: list[int] = []
        for d in [*dims, None]:
            if type(d) is int:
                run.append(d)
                continue
            if run:
                parts.append(self.integers(*run))
                run = []
            if d is not None:
                parts.append(self.size(d))
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    def shape(self, dims: Sequence[Dim]) -> str:
        """Like :meth:`sizes`, for Reshape: one size that is not a number may be -1."""
        named = [d for d in dims if type(d) is not int]
        if len(named) == 1 and 0 not in dims:
            return self.integers(*(d if type(d) is int else -1 for d in dims))
        return self.sizes(dims)

    def size(self, dim: Any) -> str:
        """A size as a vector of i64 with one element."""
        if isinstance(dim, shapes.NamedDim):
            dim = dim.expr
        if isinstance(dim, int) or dim.is_Integer:
            return self.integers(int(dim))
        for known in self._dims:
            if dim in known:
                return known[dim]
        saved, self.result = self.result, "size"
        self._dims[-1][dim] = made = self._size(dim)
        self.result = saved
        return made

    def _size(self, dim: Any) -> str:
        if dim.is_Symbol:
            if dim.name not in self._sizes:
                raise ModelExportError(f"the size {dim} belongs to no input: ONNX computes sizes from inputs")
            source, axis, factor, addend = self._sizes[dim.name]
            made: str = self.op("Shape", source, start=axis, end=axis + 1)
            if addend:
                made = self.op("Sub", made, self.integers(addend))
            return made if factor == 1 else self.op("Div", made, self.integers(factor))
        whole, parts = in_parts(dim)
        if parts > 1:
            return self.op("Div", self.size(whole), self.integers(parts))
        kind = type(dim).__name__
        args = [self.size(a) for a in dim.args] if not dim.is_Pow else [self.size(dim.args[0])]
        if dim.is_Pow and dim.args[1].is_Integer and int(dim.args[1]) > 0:
            args *= int(dim.args[1])
        if dim.is_Add or dim.is_Mul or dim.is_Pow:
            kind = "Add" if dim.is_Add else "Mul"
            made = args[0]
            for other in args[1:]:
                made = self.op(kind, made, other)
            return made
        if kind in ("Max", "Min"):
            return self.op(kind, *args)
        if kind in ("Mod", "Remainder"):
            return self.op("Mod", *args)
        if kind == "FloorDiv":  # round towards minus infinity, as Python does
            return self.op("Div", self.op("Sub", args[0], self.op("Mod", *args)), args[1])
        raise ModelExportError(f"the size {dim} is not one that ONNX's integers compute ({kind})")

    def number_of(self, dim: Any) -> str:
        """A size as an i64 of rank 0."""
        return self.op("Squeeze", self.size(dim), self.integers(0))

    def reshape(self, value: Any, sizes: Sequence[Dim]) -> str:
        """A value in another shape."""
        return self.shaped(sizes, self.op("Reshape", value, self.shape(sizes), allowzero=1 if 0 in sizes else None))

    def expand(self, value: Any, sizes: Sequence[Dim]) -> str:
        """A value broadcast to a shape."""
        return self.shaped(sizes, self.op("Expand", value, self.sizes(sizes)))

    def counting(self, size: Dim) -> str:
        """0, 1, ..., size - 1 as i64."""
        if isinstance(size, int) and size <= SHARED:
            return self.constant(np.arange(size))
        ends = self.number(0, dtypes.int64), self.number_of(size), self.number(1, dtypes.int64)
        return self.shaped((size,), self.op("Range", *ends))

    def shaped(self, shape: Sequence[Dim], name: str) -> str:
        """A value whose shape is known here, and not to ONNX's inference."""
        self.shapes[name] = tuple(shape)
        return name

    def shape_of(self, value: Any) -> tuple[Dim, ...] | None:
        """The shape of a value, if it is known here."""
        if isinstance(value, Value):
            return value.type.shape
        held = self.weights.get(value)
        return self.shapes.get(value) if held is None else held.shape

    def cut(self, x: Any, axis: int, start: Any, stop: Any, step: int = 1) -> str:
        """``x[start:stop:step]`` along one axis."""
        end = self.integers(TO_END if step > 0 else -TO_END) if stop is None else self.size(stop)
        steps = None if step == 1 else self.integers(step)
        made = self.op("Slice", x, self.size(start), end, self.integers(axis), steps)
        before = self.shape_of(x)
        if before is None or step < 0:
            return made
        length = slice_bounds(before[axis], start, stop, step)[2]
        return self.shaped((*before[:axis], length, *before[axis + 1 :]), made)

    def pick(self, x: Any, axis: int, position: str) -> str:
        """``x[position]`` along one axis, which ends there; the position is an i64 of rank 0."""
        made = self.op("Gather", x, position, axis=axis)
        before = self.shape_of(x)
        return made if before is None else self.shaped((*before[:axis], *before[axis + 1 :]), made)

    # -- bodies ---------------------------------------------------------------------------------
    @contextmanager
    def inside(self) -> Iterator[list[Any]]:
        """A context in which nodes are added to a body; yields the list of them."""
        saved = self.nodes, self.types
        self.nodes, self.types = [], {}
        self._dims.append({})
        try:
            yield self.nodes
        finally:
            self.nodes, self.types = saved
            self._dims.pop()

    def info(self, name: str, type: TensorType) -> Any:
        """The ValueInfoProto of a value: named sizes are dim_params."""
        sizes = [d if isinstance(d, int) else str(d) for d in type.shape]
        return self.onnx.helper.make_tensor_value_info(name, self.element(type.dtype), sizes)


def symbols(type: TensorType) -> Iterator[tuple[int, str, int, int]]:
    """(axis, name, factor, addend) for the axes whose size is linear in a single name."""
    for axis, size in enumerate(type.shape):
        if isinstance(size, int) or len(size.free_symbols) != 1:
            continue
        (symbol,) = size.free_symbols
        if size == symbol:
            yield axis, symbol.name, 1, 0
        elif size.is_polynomial(symbol) and sympy.degree(size, symbol) == 1:
            factor, addend = sympy.Poly(size, symbol).all_coeffs()
            yield axis, symbol.name, int(factor), int(addend)
