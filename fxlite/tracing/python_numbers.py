"""Numbers of Python that are not known while tracing: the number of an iteration, a counter.

In: a call of an op with such numbers among its operands. Out: the same call with each of them in
the dtype that NumPy gives a Python number beside these operands (NEP 50): ``x * i`` of a float32
``x`` is float32, where an i64 of NumPy would make it float64. What operators compute of such
numbers alone are such numbers again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.ops.op import Op, lookup
from fxlite.tracing.proxy import Proxy
from fxlite.tracing.writes.shared_memory import Memory, View
from fxlite.types import dtypes
from fxlite.types.dtypes import DType

if TYPE_CHECKING:
    from fxlite.graph.graph import Node
    from fxlite.tracing.tracer import Tracer

#: What a Python number is as an array.
DTYPES: dict[type, DType] = {bool: dtypes.bool_, int: dtypes.int64, float: dtypes.float64}


class PythonNumber(Proxy):
    """Stands for a number of Python that the program computes while it runs."""

    __slots__ = ()

    def __init__(self, node: Node, tracer: Tracer) -> None:
        super().__init__(node, tracer)
        self._view = View(node, Memory(is_number=True), tracer.writes.count)

    @property
    def python_type(self) -> type:
        """bool, int or float."""
        dtype = self.type.dtype
        return bool if dtype.is_bool else float if dtype.is_float else int


def kind_of_number(value: Any) -> type | None:
    """bool, int or float for a number of Python, known or not; None for anything else."""
    if isinstance(value, PythonNumber):
        return value.python_type
    return type(value) if type(value) in DTYPES else None


def settled(op: Op, bound: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The arguments of a call with its Python numbers in the dtypes that they take there; and
    whether the result is a Python number again."""
    if not any(isinstance(v, PythonNumber) for v in op.tensors(bound)):
        return bound, False
    if op.kind != "pointwise":
        return bound, False
    operands = [bound[n] for n in op.tensor_kinds if n in bound and n != "condition"]
    numbers = [kind_of_number(v) for v in operands]
    strong = [_dtype(v) for v, kind in zip(operands, numbers) if kind is None and v is not None]
    weak = [kind(1) for kind in numbers if kind is not None]
    if not strong:
        is_complex = any(type(v) is complex for v in operands)  # an array of rank 0 is what stands for that
        return bound, not is_complex and (bool(op.symbol) or op.keeps_python_numbers)
    target = dtypes.result_type(*strong, *weak)

    def converted(value: Any) -> Any:
        if not isinstance(value, PythonNumber) or value.type.dtype is target:
            return value
        return lookup("cast")(value, target)

    values = {name: value for name, value in bound.items() if name != "condition"}
    return {**bound, **op.map_tensors(converted, values)}, False


def _dtype(value: Any) -> DType:
    if is_traced(value):
        return value.type.dtype
    return dtypes.dtype(np.asarray(value).dtype)


def _operator(name: str) -> Any:
    def method(self: Any, other: Any) -> Any:
        return getattr(self, name)(other)

    return method


for _name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split():
    setattr(PythonNumber, f"__i{_name}__", _operator(f"__{_name}__"))  # it is immutable
