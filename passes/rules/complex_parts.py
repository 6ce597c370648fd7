"""Rewrite a graph of complex numbers as a graph of real ones, for targets without complex numbers (ONNX, the dialect
"torch"): each complex value becomes its real and its imaginary part.

Out: the same graph, in which ops on complex values are ops on their parts, weights included; transforms (``dft``)
become products with matrices of cosines and sines. A complex input stays and only its parts are read, and a complex
result is made from its parts at the end; or both are real with a last axis of two, as for ONNX's transforms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.base.errors import CodegenError, FxliteError
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node import map_nodes, types_of
from fxlite.ops.numeric.complex_numbers import roots_of_unity
from fxlite.passes.base import unique_attribute
from fxlite.passes.rewrite.rewire import Rewiring
from fxlite.passes.rules.decompose import Recorder, decompose
from fxlite.tracing.proxy import Proxy
from fxlite.types.tensor_type import TensorType

#: The longest transform that is written: of its matrices, which have the square of as many elements.
_LONGEST = 2048
#: The highest power that is written as products.
_HIGHEST = 64


class Parts:
    """A complex value; the imaginary part is None if it is 0 everywhere."""

    def __init__(self, real: Any, imag: Any = None) -> None:
        self.real, self.imag = real, imag


def has_complex(node: Node) -> bool:
    """Whether a node computes or reads complex values."""
    if any(isinstance(v, complex) for v in (*node.args, *node.kwargs.values())):
        return True
    return any(t.dtype.is_complex for n in (node, *node.all_input_nodes) for t in _types(n))


def _types(node: Node) -> tuple[Any, ...]:
    return tuple(t for t in types_of(node) if isinstance(t, TensorType))


def without_complex(gm: GraphModule, whose: str, error: type[FxliteError], pairs: bool) -> GraphModule:
    """The graph with parts in place of complex values. Inputs and results are real ``pairs`` along a last axis, or stay
    complex. Raises ``error`` for an op that cannot be written with real numbers; ``whose`` names the target program."""
    if not any(map(has_complex, gm.graph.nodes)):
        return gm
    gm = decompose.with_options(keep=lambda node: not has_complex(node) or _rule(node) is not None)(gm)
    recorder, rewiring = Recorder(gm), Rewiring(gm.graph)
    parts: dict[Node, Any] = {}
    order = list(gm.graph.nodes)
    with_complex = {*filter(has_complex, order)}
    for node in order:
        if node not in with_complex:
            rewiring.refresh(node)
            continue
        if node.op == "get_attr":
            parts[node] = _weight(gm, node)
        elif node.op == "placeholder":
            parts[node] = _input(node)
        elif node.op == "output":
            rewiring.refresh(node)
            _give(node, parts, pairs)
        elif node.op == "call_function" and (rule := _rule(node)) is not None:
            rewiring.refresh(node)
            try:
                made = recorder.run(node, partial(_computed, node, rule, parts))
            except FxliteError as problem:
                raise error(f"{problem}\n  at {node.describe()}") from problem
            _enter(node, made, parts, rewiring)
        else:
            raise error(
                f"{whose} is written with the parts of complex numbers, and {node.target} of them is not\n"
                f"  at {node.describe()}"
            )
    rewiring.finish()
    for node in reversed(parts):
        if node.op == "placeholder" and pairs:
            _as_pairs(node, parts[node])
        elif node.op != "placeholder" and not node._erased:
            gm.graph.erase_node(node)
    return gm


def _input(node: Node) -> tuple[Any, Any]:
    """The parts of a complex input, read after all inputs."""
    graph = node.graph
    with graph.inserting_after(graph.placeholders[-1]), graph.with_origin(node):
        return graph.call_function("real", (node,)), graph.call_function("imag", (node,))


def _as_pairs(node: Node, parts: tuple[Node, Node]) -> None:
    """Replace a complex input, of which only the parts are read, by a real one with pairs in its last axis."""
    graph, axis, name = node.graph, node.type.rank, node.name
    with graph.inserting_before(node), graph.with_origin(node):
        pairs = graph.placeholder(f"{name}_pairs", TensorType((*node.type.shape, 2), node.type.dtype.real))
    for index, part in enumerate(parts):
        with graph.inserting_before(part), graph.with_origin(node):
            part.replace_all_uses_with(graph.call_function("select", (pairs,), {"axis": axis, "index": index}))
        graph.erase_node(part)
    graph.erase_node(node)
    pairs.target, pairs.meta = node.target, node.meta
    graph.rename_node(pairs, name)


def _give(node: Node, parts: Mapping[Node, Any], pairs: bool) -> None:
    """Make the output return complex values again."""
    graph, made = node.graph, dict[Node, Node]()

    def whole(value: Node) -> Node:
        if value in parts and value not in made:
            with graph.inserting_before(node), graph.with_origin(value):
                if pairs:
                    made[value] = graph.call_function("stack", (parts[value],), {"axis": parts[value][0].type.rank})
                else:
                    made[value] = graph.call_function("complex", parts[value])
        return made.get(value, value)

    node.args = map_nodes(node.args, whole)


def _weight(gm: GraphModule, node: Node) -> tuple[Any, Any]:
    array, made = np.asarray(gm.get_attribute(node.target)), []
    for name, part in {"real_part": array.real, "imaginary_part": array.imag}.items():
        path = unique_attribute(gm, f"{node.target}_{name}")
        gm.set_attribute(path, np.ascontiguousarray(part))
        with gm.graph.inserting_before(node), gm.graph.with_origin(node):
            made.append(gm.graph.get_attr(path))
    return made[0], made[1]


def _enter(node: Node, made: Any, parts: dict[Node, Any], rewiring: Rewiring) -> None:
    """Record what replaces a node: parts, taken in turn from ``made``, or a real value."""
    if not any(t.dtype.is_complex for t in _types(node)):
        rewiring.replace(node, made)
    elif isinstance(node.type, tuple):
        parts[node] = [(made[2 * i], made[2 * i + 1]) for i in range(len(node.type))]
    else:
        parts[node] = (made[0], made[1])


def _computed(node: Node, rule: Callable[..., Any], parts: Mapping[Node, Any], given: Mapping[str, Any]) -> Any:
    """The result of a rule as a flat list: both parts of a complex value, with its shape and precision."""

    def operand(value: Any) -> Any:
        if isinstance(value, complex):
            return Parts(value.real, value.imag)
        if not isinstance(value, Proxy) or value.node not in parts:
            return value
        held, tracer = parts[value.node], value.tracer
        pairs = held if isinstance(held, list) else [held]
        made = [Parts(*(v if v is None else Proxy(v, tracer) for v in pair)) for pair in pairs]
        return made if isinstance(held, list) else made[0]

    found = rule(node, **node.target.map_tensors(operand, {**node.bound, **given}))
    found = found if isinstance(found, list) else [found]
    if not any(t.dtype.is_complex for t in _types(node)):
        return found[0]
    flat = []
    for value, type in zip(found, _types(node)):
        kind = type.dtype.real
        for part in (value.real, value.imag):
            part = ops.full((), 0 if part is None else part, kind) if not isinstance(part, Proxy) else part
            part = part if part.type.dtype is kind else ops.cast(part, kind.name)
            flat.append(part if part.type.shape == type.shape else ops.expand(part, type.shape))
    return tuple(flat)


# -- rules -----------------------------------------------------------------------------------------
def _split(value: Any) -> tuple[Any, Any]:
    return (value.real, value.imag) if isinstance(value, (Parts, complex)) else (value, None)


def _sum(x: Any, y: Any, sign: int = 1) -> Any:
    if x is None or y is None:
        return x if y is None else y if sign > 0 else -y
    return x + y if sign > 0 else x - y


def _product(x: Any, y: Any, times: Callable[[Any, Any], Any]) -> Parts:
    """The product of two values, by a function that is linear in both."""
    (a, b), (c, d) = _split(x), _split(y)
    both = None if b is None or d is None else times(b, d)
    across = None if d is None else times(a, d)
    return Parts(_sum(times(a, c), both, -1), _sum(across, None if b is None else times(b, c)))


def _times(x: Any, y: Any) -> Any:
    return x * y


def _inverse(x: Any) -> Any:
    if not isinstance(x, Parts):
        return 1 / x
    if x.imag is None:
        return Parts(1 / x.real)
    largest = np.maximum(np.abs(x.real), np.abs(x.imag))  # the squares of very large and very small numbers overflow
    real, imag = x.real / largest, x.imag / largest
    length = x.real * real + x.imag * imag
    return Parts(real / length, -imag / length)


def _as_result(node: Node, x: Any) -> Any:
    """An operand in the precision of the result: an integer combined with complex64 gives complex128."""
    kind = node.type.dtype.real

    def cast(part: Any) -> Any:
        return ops.cast(part, kind.name) if isinstance(part, Proxy) and part.type.dtype is not kind else part

    return Parts(*map(cast, _split(x))) if isinstance(x, Parts) else cast(x)


def _zeros(value: Any) -> Any:
    return ops.full(value.type.shape, 0, value.type.dtype.name)


def _imag(x: Parts) -> Any:
    return _zeros(x.real) if x.imag is None else x.imag


def _exp(x: Parts) -> Parts:
    size, angle = ops.exp(x.real), _imag(x)
    return Parts(size * ops.cos(angle), size * ops.sin(angle))


def _log(x: Parts) -> Parts:
    return Parts(ops.log(np.hypot(x.real, _imag(x))), ops.atan2(_imag(x), x.real))


def _sqrt(x: Parts) -> Parts:
    """The root whose real part is not negative, computed without subtracting nearly equal numbers."""
    real, imag = x.real, _imag(x)
    large = ops.sqrt((np.abs(real) + np.hypot(real, imag)) * 0.5)
    small = np.abs(imag) / (ops.where(large == 0, 1.0, large) * 2)
    turned = real < 0
    return Parts(ops.where(turned, small, large), ops.copysign(ops.where(turned, large, small), imag))


def _waves(real: tuple[Any, Any], imag: tuple[Any, Any], sign: int = 1) -> Callable[[Node, Parts], Parts]:
    """A function each of whose parts is a function of the real part times a function of the imaginary part."""

    def rule(node: Node, x: Parts) -> Parts:
        second = imag[0](x.real) * imag[1](_imag(x))
        return Parts(real[0](x.real) * real[1](_imag(x)), second if sign > 0 else -second)

    return rule


def _power(x: Parts, y: Any) -> Any:
    """A power with a whole exponent, by repeated squaring."""
    if isinstance(y, Parts) and isinstance(y.imag, (float, type(None))) and not y.imag:
        y = y.real
    if not isinstance(y, (int, float)) or not 0 < abs(y) <= _HIGHEST or y != int(y):
        raise CodegenError(f"a power of complex numbers is written for whole exponents from 1 to {_HIGHEST}")
    found, square, left = None, x, int(abs(y))
    while left:
        if left % 2:
            found = square if found is None else _product(found, square, _times)
        left //= 2
        square = _product(square, square, _times) if left else square
    return _inverse(found) if y < 0 else found


def _cast(node: Node, x: Any, dtype: Any) -> Any:
    real, imag = _split(x)
    kind = node.type.dtype.real.name if node.type.dtype.is_complex else node.type.dtype.name
    real, imag = (v if v is None else ops.cast(v, kind) for v in (real, imag))
    return Parts(real, imag) if node.type.dtype.is_complex else real


def _dft(node: Node, x: Parts, inverse: bool, axis: int) -> Parts:
    size = int(node.type.shape[axis])
    if size > _LONGEST:
        raise CodegenError(f"a transform of {size} numbers is not written; at most {_LONGEST} are")
    steps = np.arange(size)
    roots = roots_of_unity(size, "complex128", inverse)[np.outer(steps, steps) % size]
    kind = node.type.dtype.real.numpy

    def times(a: Any, b: Any) -> Any:
        if axis % node.type.rank == node.type.rank - 1:
            return a @ b
        return np.moveaxis(np.moveaxis(a, axis, -1) @ b, -1, axis)

    return _product(x, Parts(roots.real.astype(kind), roots.imag.astype(kind)), times)


def _einsum(node: Node, operands: Any, equation: str) -> Any:
    first, *rest = operands
    if len(rest) > 1:
        raise CodegenError("an einsum of more than two complex operands is not written")
    if rest:
        return _product(first, rest[0], lambda a, b: ops.einsum((a, b), equation=equation))
    return Parts(*(v if v is None else ops.einsum((v,), equation=equation) for v in _split(first)))


def _full(node: Node, value: Any, **given: Any) -> Parts:
    kind = node.type.dtype.real.name
    parts = _split(value)
    return Parts(*(ops.full(node.type.shape, 0 if v is None else v, kind) for v in parts))


def _apart(node: Node, integers: bool = False, **given: Any) -> Any:
    """Apply the op to each part. A real operand next to complex values has the imaginary part 0 if it is float, or with
    ``integers`` if it is an integer that is not a position."""

    def imag(value: Any) -> Any:
        if isinstance(value, Parts):
            return _imag(value)
        if isinstance(value, Proxy) and (value.type.dtype.is_float or integers):
            return _zeros(value)
        return 0.0 if type(value) is float else value

    def real(value: Any) -> Any:
        return value.real if isinstance(value, Parts) else value

    parts = [node.target(**node.target.map_tensors(part, given)) for part in (real, imag)]
    return [Parts(*pair) for pair in zip(*parts)] if isinstance(node.type, tuple) else Parts(*parts)


def _where(node: Node, condition: Any, x: Any, y: Any) -> Parts:
    (a, b), (c, d) = _split(x), _split(y)
    return Parts(ops.where(condition, a, c), ops.where(condition, 0.0 if b is None else b, 0.0 if d is None else d))


def _pad(node: Node, x: Parts, value: Any, **given: Any) -> Parts:
    real, imag = _split(value)
    return Parts(ops.pad(x.real, value=real, **given), ops.pad(_imag(x), value=imag or 0.0, **given))


def _equal(x: Any, y: Any) -> Any:
    (a, b), (c, d) = _split(x), _split(y)
    return np.logical_and(ops.eq(a, c), ops.eq(0 if b is None else b, 0 if d is None else d))


_RULES: dict[str, Callable[..., Any]] = {
    "complex": lambda node, x, y: Parts(x, y),
    "real": lambda node, x: x.real,
    "imag": lambda node, x: _imag(x),
    "conj": lambda node, x: Parts(x.real, None if x.imag is None else -x.imag),
    "neg": lambda node, x: Parts(-x.real, None if x.imag is None else -x.imag),
    "abs": lambda node, x: np.hypot(x.real, _imag(x)),
    "add": lambda node, x, y: Parts(*(_sum(a, b) for a, b in zip(_split(x), _split(y)))),
    "sub": lambda node, x, y: Parts(*(_sum(a, b, -1) for a, b in zip(_split(x), _split(y)))),
    "mul": lambda node, x, y: _product(x, y, _times),
    "div": lambda node, x, y: _product(x, _inverse(_as_result(node, y)), _times),
    "square": lambda node, x: _product(x, x, _times),
    "reciprocal": lambda node, x: _inverse(x),
    "pow": lambda node, x, y: _power(x, y),
    "exp": lambda node, x: _exp(x),
    "exp2": lambda node, x: _exp(_product(x, math.log(2), _times)),
    "log": lambda node, x: _log(x),
    "log2": lambda node, x: _product(_log(x), 1 / math.log(2), _times),
    "log10": lambda node, x: _product(_log(x), 1 / math.log(10), _times),
    "sqrt": lambda node, x: _sqrt(x),
    "sin": _waves((np.sin, np.cosh), (np.cos, np.sinh)),
    "cos": _waves((np.cos, np.cosh), (np.sin, np.sinh), -1),
    "sinh": _waves((np.sinh, np.cos), (np.cosh, np.sin)),
    "cosh": _waves((np.cosh, np.cos), (np.sinh, np.sin)),
    "matmul": lambda node, x, y: _product(x, y, ops.matmul),
    "eq": lambda node, x, y: _equal(x, y),
    "ne": lambda node, x, y: np.logical_not(_equal(x, y)),
    "isfinite": lambda node, x: np.logical_and(np.isfinite(x.real), np.isfinite(_imag(x))),
    "isnan": lambda node, x: np.logical_or(np.isnan(x.real), np.isnan(_imag(x))),
    "isinf": lambda node, x: np.logical_or(np.isinf(x.real), np.isinf(_imag(x))),
    "cast": _cast,
    "dft": _dft,
    "einsum": _einsum,
    "full": _full,
    "getitem": lambda node, x, index: x[index],
    "concat": partial(_apart, integers=True),
    "stack": partial(_apart, integers=True),
    "sum": _apart,
    "mean": _apart,
    "cumsum": _apart,
    "slice_update": _apart,
    "where": _where,
    "pad": _pad,
    "scatter_add": _apart,
    "scatter_set": _apart,
}


def _rule(node: Node) -> Callable[..., Any] | None:
    """The rule that computes an op from parts; None if there is none."""
    if node.op != "call_function":
        return None
    name, kind = node.target.name, node.target.kind
    return _RULES.get(name) or (_apart if kind in ("view", "gather") else None)
