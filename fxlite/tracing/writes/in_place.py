"""NumPy's ways to write in place, traced: ``y[i] = v``, ``y += v``, ``out=y``, ``np.copyto``,
``y.fill(v)``.

In: a traced destination, an index, and what is written. Out:
:func:`fxlite.tracing.writes.aliasing.write` with a value of the destination's dtype, so that all
views of the memory change with it. The rules for casting and for shapes are NumPy's; what NumPy
refuses is a TraceError here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import DTypeError, FxliteError, ShapeError
from fxlite.ops.op import Op, broadcast_shapes, lookup
from fxlite.tracing.proxy import Proxy
from fxlite.tracing.writes.aliasing import Step, write
from fxlite.tracing.writes.shared_memory import View, is_number, view_of
from fxlite.types import dtypes, shapes
from fxlite.types.plain_array import plain_array
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.graph.graph import Node
    from fxlite.tracing.tracer import Tracer


# -- operators and out= ----------------------------------------------------------------------------
def in_place_operator(proxy: Proxy, symbol: str, operation: Callable[..., Any], other: Any) -> Any:
    """``y += other``: writes into y's memory, unless y is a NumPy number, which is immutable."""
    from fxlite.tracing.numpy_api import is_operand

    if isinstance(other, (list, tuple)):
        other = np.asarray(other)
    if not is_operand(other):
        return NotImplemented
    result = operation(proxy, other)
    number = is_number(proxy)
    if number is None:  # others may see the write, or not
        memory = view_of(proxy).memory
        assert memory is not None
        if memory.refusal:
            write(proxy, result.node, what=f"'{symbol}='")  # raises
        memory.doubt = f"'{symbol}=' changes it if it is an array, not if it is a number"
        proxy.tracer.writes.count += 1
    if number is not False:
        return result
    store(proxy, result, f"'{symbol}='", "same_kind", f"write y = y {symbol} ...")
    return proxy


def store(
    out: Any,
    result: Any,
    what: str,
    casting: str = "same_kind",
    instead: str = "",
    where: Any = True,
) -> Any:
    """Write ``result`` into ``out`` as NumPy's ``out=`` does (``where``: only there); returns
    ``out``."""
    if not isinstance(out, Proxy):
        tracer = result.tracer
        raise tracer.error(
            f"{what} writes into an array that exists before the program runs",
            "make the destination in the program: np.zeros_like(x), or fx.ops.zeros(shape, dtype)",
        )
    tracer = out.tracer
    if not out.is_typed:
        if where is not True:
            raise tracer.error(f"{what} with where= needs types", "give the input types")
        write(out, tracer.create_arg(result), what=what)
        return out
    destination = out.type
    if isinstance(result, Proxy) and result.is_typed:
        shape = result.type.shape
        if not shapes.shapes_equal(broadcast_shapes(destination.shape, shape), destination.shape):
            raise tracer.error(
                f"{what} has a result of type {result.type}, which does not fit {out._node.name}: "
                f"{destination}",
                instead,
                out._node,
            )
    value = prepared(tracer, destination, result, what, casting, instead)
    if where is not True:
        write(out, lambda node: _chosen(tracer, where, value, node), what=what)
    else:
        write(out, value, what=what)
    return out


def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """np.copyto."""
    found = next(v for v in (dst, src, where) if isinstance(v, Proxy))
    if not isinstance(dst, Proxy):
        store(dst, found, "np.copyto")
    store(dst, src, "np.copyto", casting, "cast the values first: .astype", where)


def fill(y: Proxy, value: Any) -> None:
    """``y.fill(value)``."""
    set_item(y, Ellipsis, value)


# -- values ----------------------------------------------------------------------------------------
def prepared(
    tracer: Tracer, destination: TensorType, value: Any, what: str, casting: str = "unsafe",
    instead: str = "",
) -> Any:  # fmt: skip
    """``value`` as a node (or Python number) of the destination's dtype that broadcasts to its
    shape. Raises TraceError where NumPy would refuse it."""
    target = destination.dtype
    if isinstance(value, (list, tuple)):
        if any(isinstance(v, Proxy) for v in value):
            value = lookup("stack")(tuple(value))
        else:
            value = np.asarray(value)
    if isinstance(value, shapes.NamedDim):
        return tracer.size_as_tensor(value, target)
    if isinstance(value, (np.generic, np.ndarray)):
        scalar = isinstance(value, np.generic)
        value = plain_array(value, f"the values of {what}")
        if scalar and not np.can_cast(value.dtype, target.numpy, casting):  # type: ignore[arg-type]
            raise _not_cast(tracer, value.dtype, destination, what, instead)
        value = value.item() if scalar else value  # NumPy refuses a scalar that does not fit, too
    if isinstance(value, (bool, int, float)):
        if casting != "unsafe" and not _fits(np.result_type(value), target):
            raise _not_cast(tracer, type(value).__name__, destination, what, instead)
        return _number(tracer, value, target, what)
    if not isinstance(value, Proxy):
        value = np.asarray(value)
        if not np.can_cast(value.dtype, target.numpy, casting):  # type: ignore[arg-type]
            raise _not_cast(tracer, value.dtype, destination, what, instead)
        value = value.astype(target.numpy)
        if not value.ndim:
            return _number(tracer, value.item(), target, what)
        shape = value.shape
        while len(shape) > destination.rank and shape[0] == 1:
            value = value[0]
            shape = value.shape
        _check_shape(tracer, shape, destination, what)
        return tracer.create_arg(value)
    found = value.type
    if found.dtype is not target:
        if casting != "unsafe" and not np.can_cast(found.dtype.numpy, target.numpy, casting):  # type: ignore[arg-type]
            raise _not_cast(tracer, found.dtype, destination, what, instead)
        value = lookup("cast")(value, target)
    while value.type.rank > destination.rank and value.type.shape[0] == 1:
        value = lookup("squeeze")(value, 0)
    _check_shape(tracer, value.type.shape, destination, what)
    return value.node


def _number(tracer: Tracer, value: Any, target: dtypes.DType, what: str) -> Any:
    from fxlite.ops.view import fill_value

    try:
        return fill_value(value, target)
    except DTypeError as error:
        raise tracer.error(f"{what}: {error}") from None


def _fits(source: Any, target: dtypes.DType) -> bool:
    kinds = "biuf"
    order = {"b": 0, "i": 1, "u": 1, "f": 2}
    kind = "f" if target.is_float else "b" if target.is_bool else "i"
    return source.kind in kinds and order[source.kind] <= order[kind]


def _not_cast(
    tracer: Tracer, source: Any, destination: TensorType, what: str, instead: str
) -> FxliteError:
    return tracer.error(
        f"{what} would have to turn {source} into {destination.dtype}, which NumPy does not do in "
        f"place",
        instead or "cast the values first: .astype",
    )


def _check_shape(tracer: Tracer, shape: Any, destination: TensorType, what: str) -> None:
    try:
        fits = shapes.shapes_equal(broadcast_shapes(destination.shape, shape), destination.shape)
    except ShapeError:
        fits = False
    if not fits:
        text = f"({', '.join(map(str, shape))})"
        raise tracer._located(
            ShapeError(f"{what}: values of shape {text} do not fit {destination}"), _here()
        )


def _here() -> Any:
    from fxlite.base.location import here

    return here(3)


def _chosen(tracer: Tracer, condition: Any, value: Any, node: Node) -> Node:
    """``np.where(condition, value, node)`` in node's dtype."""
    dtype = node.type.dtype
    if isinstance(value, (bool, int, float)) and dtype is dtypes.bfloat16:
        value = lookup("full")((), value, dtype)  # not weak beside bfloat16
    new = tracer.record(
        lookup("where"), {"condition": condition, "x": _as_proxy(tracer, value),
                          "y": tracer.proxy(node)},
    )  # fmt: skip
    if new.type.dtype is not dtype:
        new = lookup("cast")(new, dtype)
    return new.node  # type: ignore[no-any-return]


def _as_proxy(tracer: Tracer, value: Any) -> Any:
    return tracer.proxy(value) if hasattr(value, "all_input_nodes") else value


# -- subscripts ------------------------------------------------------------------------------------
class Planned(Proxy):
    """A view that is not recorded: the type it would have, and the steps that lead to it."""

    __slots__ = ("kind", "steps")

    def __init__(self, tracer: Tracer, kind: TensorType, steps: tuple[Step, ...] = ()) -> None:
        self.tracer, self.kind, self.steps = tracer, kind, steps
        self._view = None

    @property
    def type(self) -> TensorType:
        return self.kind

    @property
    def node(self) -> Any:
        raise AssertionError("a planned view has no node")

    def made_view_of(self, base: Proxy) -> None:
        """It is one by its steps."""

    def __fx_record__(self, op: Op, bound: dict[str, Any]) -> Planned:
        target, typed = op.canonicalize(op.map_tensors(lambda v: _Typed(v.kind), bound))
        plain = target.map_tensors(lambda v: v.type, typed)
        found = target.result_type(plain)
        attributes = {n: v for n, v in plain.items() if n not in target.tensor_kinds}
        return Planned(self.tracer, found, (*self.steps, (target, attributes, found)))


class _Typed:
    """What an op's canonical form looks at: a value's type."""

    def __init__(self, type: TensorType) -> None:
        self.type = type


def set_item(y: Proxy, index: Any, value: Any) -> None:
    """``y[index] = value``."""
    from fxlite.ops.subscript import basic_part, items_of

    tracer = y.tracer
    what = "writing into a part"
    if not y.is_typed:
        raise tracer.error(
            f"writing into {y._node.name} in place needs types",
            'give the input types: fx.symbolic_trace(model, x="f32[B,3,224,224]")',
            y._node,
        )
    if is_number(y):
        raise tracer.error(
            f"{y._node.name} is a NumPy number, which cannot be written to",
            "write y = ..., or keep the axis: keepdims=True, x[0:1]",
            y._node,
        )
    items = items_of(index)
    planned = Planned(tracer, y.type)
    try:
        part = basic_part(planned, items, planned, masks=True)
    except FxliteError as error:
        raise tracer._located(error, _here()) from None
    if part.mask is not None:
        _set_masked(y, part, value, items, what)
    elif part.arrays:
        from fxlite.tracing.writes.scatter import set_indexed

        set_indexed(y, part, value, what)
    elif not _is_same(value, view_of(y), part.x.steps):
        write(y, prepared(tracer, part.x.kind, value, what), part.x.steps, what)


def _is_same(value: Any, base: View, steps: tuple[Step, ...]) -> bool:
    """True for ``y[i] = t`` where ``t`` is y[i], as Python writes at the end of ``y[i] += 1``."""
    view = getattr(value, "_view", None)
    for op, attributes, _ in reversed(steps):
        if view is None or view.op is not op or dict(view.attributes) != dict(attributes):
            return False
        view = view.parent
    return view is base


def _set_masked(y: Proxy, part: Any, value: Any, items: list[Any], what: str) -> None:
    """``y[mask] = value``: np.where; where a constant mask goes with one value for each of its
    elements, an index of integers."""
    tracer, mask, kind = y.tracer, part.mask, part.x.kind
    covered = mask.type.shape if isinstance(mask, Proxy) else np.shape(mask)
    first = part.axes[0]
    if not shapes.shapes_equal(covered, kind.shape[first : first + len(covered)]):
        text = f"({', '.join(map(str, covered))})"
        raise tracer._located(ShapeError(f"a mask of shape {text} does not fit {kind}"), _here())
    after = kind.shape[first + len(covered) :]
    if isinstance(value, (list, tuple)):
        value = np.asarray(value)
    rank = value.type.rank if isinstance(value, Proxy) else np.ndim(value)
    if rank > len(after):
        if not isinstance(mask, Proxy):
            position = next(n for n, item in enumerate(items) if item is mask or _is_list(item))
            set_item(y, (*items[:position], *np.nonzero(mask), *items[position + 1 :]), value)
            return
        raise tracer.error(
            "how many elements the mask selects is not known before the program runs, so values "
            "for each of them cannot be traced",
            "give values for all elements: y = np.where(mask, values, y)",
            mask._node,
        )
    shape = (*covered, *[1] * len(after))
    condition = mask
    if after and isinstance(mask, Proxy):
        condition = lookup("reshape")(mask, shape)
    elif after:
        condition = np.reshape(mask, shape)
    new = prepared(tracer, TensorType(after, kind.dtype), value, what)
    write(y, lambda node: _chosen(tracer, condition, new, node), part.x.steps, what)


def _is_list(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and np.asarray(item).dtype == np.bool_
