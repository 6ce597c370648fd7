"""Bias correction: rounding shifts the mean of a channel, and the bias takes the shift back.

In: a prepared and calibrated module and batches. Out: the same with other biases. For each product
and each channel of its result, over all batches and places::

    bias += E[y_float] - E[y_rounded]

(Nagel et al., "Data-free quantization through weight equalization and bias correction", 2019,
section 4.2, appendix D: with data). Products are corrected in their order, so that the second sees
the first one corrected.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fxlite.base.checked import checked
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.ledger import refusals, refuse, set_ledger
from fxlite.passes.quantize.conversion.operands import exchange_weight
from fxlite.passes.quantize.conversion.prepare import require_prepared
from fxlite.passes.quantize.conversion.simulate import Product, simulate
from fxlite.passes.quantize.schemes.scheme import QuantizationError


@checked
def correct_bias(prepared: GraphModule, batches: Iterable[Any]) -> GraphModule:
    """The prepared module with biases that make the mean of each channel what it is in float;
    convert it next. Products without a bias get one. ``batches`` are inputs (each an array, a tuple
    of arguments or a dict of named ones), read once and held together.

    Left as they are, with the reason in the ledger: matmul, which has no bias, and biases computed
    in the graph. Raises QuantizationError for modules that are not prepared and calibrated, for no
    batches, and for NaN or infinities in them."""
    require_prepared(prepared)
    module = prepared.copy()
    set_ledger(module, refusals(prepared))
    shifts: dict[Node, Any] = {}
    kept = list(batches)
    exact = simulate(module, kept, is_rounded=False)
    for true, rounded in zip(exact, simulate(module, kept), strict=True):
        node = rounded.node
        reason = _why_not(node)
        if reason is not None:
            refuse(module, "correct_bias", node, reason, [node])
            continue
        axis = 1 if node.target.name.startswith("conv") else -1
        shift = _means(true, axis) - _means(rounded, axis)
        shifts[node] = shift
        after = node.type.rank - 1 - axis if axis > 0 else 0
        rounded.shift = shift.astype(np.float32).reshape(-1, *[1] * after)
    for node, shift in shifts.items():
        bias = node.arguments.get("bias")
        before = 0.0 if bias is None else module.get_attribute(bias.target)
        value = (np.asarray(before, np.float64) + shift).astype(np.float32)
        exchange_weight(module, node, "bias", value, "corrected")
    module.delete_all_unused_submodules()
    return module


def _why_not(node: Node) -> str | None:
    if node.target.name == "matmul":
        return "matmul has no bias"
    if node.target.name == "recurrence":
        return "its bias is part of a loop over time"
    bias = node.arguments.get("bias")
    if bias is not None and bias.op != "get_attr":
        return "its bias is computed in the graph"
    return None


def _means(product: Product, axis: int) -> Any:
    """The mean of each channel over all batches. Raises QuantizationError where there is none."""
    total: Any = 0.0
    count = 0
    for result in product.results():
        rows = np.moveaxis(result, axis, 0).reshape(result.shape[axis], -1)
        total = total + rows.sum(axis=1, dtype=np.float64)
        count += rows.shape[1]
    if count == 0 or not np.isfinite(total).all():
        found = "no numbers" if count == 0 else "NaN or infinities"
        raise QuantizationError(f"correct_bias: {product.node.describe()} gives {found}")
    return total / count
