"""Half precision: ops computed in float16 or bfloat16, with casts where other types begin.

In: a node whose config is a cast. Out: the same op on halves; weights are stored as halves. Ops
round their results once and sum in float32 (see docs/design.md), so range and rounding of what is
stored are all that changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.errors import FxliteError
from fxlite.graph.graph import Node, map_nodes
from fxlite.passes.quantize.conversion.forms import PARTS, Forms
from fxlite.passes.quantize.schemes.record import Record, attach
from fxlite.passes.quantize.schemes.roles import is_float32, multiply_adds
from fxlite.passes.quantize.schemes.scheme import QConfig, QuantizationError
from fxlite.passes.rewrite.node_rule import is_call
from fxlite.types import dtypes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType


def convert_cast(forms: Forms, node: Node, qconfig: QConfig) -> None:
    """Write a call with its float32 operands as halves; its result is one, too."""
    target = qconfig.cast
    assert target is not None
    narrow = dtypes.dtype(target)
    before = after = 0

    def operand(value: Node) -> Node:
        nonlocal before, after
        if not is_float32(value):
            return forms.float_of(value)
        made = _narrow(forms, value, target)
        if value.op == "get_attr":
            before += value.type.nbytes
            after += made.type.nbytes
        return made

    if is_call(node, "cast") or not any(is_float32(v) for v in node.all_input_nodes):
        forms.copy(node)
        return
    args = map_nodes(node.args, operand)
    try:
        made = forms.call(node.target, args, dict(node.kwargs), node.name)
    except FxliteError:  # an op that takes float32 alone
        forms.copy(node)
        return
    if made.type == node.type:
        forms.floats[node] = made
    elif made.type == _in_halves(node.type, narrow):
        forms.halves[node] = {target if isinstance(made.type, TensorType) else PARTS: made}
    else:  # half types and others do not always mix as float32 and those do
        forms.copy(node)
        return
    if before or multiply_adds(node) != 0:
        module = node.scope.path if node.scope is not None else ""
        attach(
            made,
            Record(
                node.name, node.target.name, module, qconfig.name, target, False, 16,
                multiply_adds(node), 0.0, 0.0, before, after,
            ),
        )  # fmt: skip


def _in_halves(type: Any, narrow: DType) -> Any:
    """A type, or several, with half floats in place of float32."""
    if isinstance(type, tuple):
        return tuple(_in_halves(t, narrow) for t in type)
    return TensorType(type.shape, narrow) if type.dtype is dtypes.float32 else type


def _narrow(forms: Forms, value: Node, target: str) -> Node:
    """A value as halves. Raises QuantizationError for weights that float16 cannot hold."""
    made = forms.halves.setdefault(value, {})
    if target not in made and value.op == "get_attr":
        halves = _rounded(value, np.asarray(forms.module.get_attribute(value.target)), target)
        made[target] = forms.store(f"{value.target}_{target}", halves)
    elif target not in made:
        name = f"{value.name}_{target}"
        made[target] = forms.call("cast", (forms.float_of(value),), {"dtype": target}, name)
    return made[target]


def _rounded(value: Node, array: Any, target: str) -> Any:
    with np.errstate(over="ignore"):
        halves = array.astype(dtypes.dtype(target).numpy)
    finite = np.isfinite(array)
    if np.any(finite & ~np.isfinite(halves.astype(np.float32))):
        raise QuantizationError(
            f"the weight {value.target} holds numbers up to {np.abs(array[finite]).max():.4g}, "
            f"{target} up to 65504; use bf16() for this module"
        )
    return halves
