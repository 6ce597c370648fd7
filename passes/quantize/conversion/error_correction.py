"""Compensate rounding errors in prepared and calibrated modules, before convert: in the weights that
are still to be rounded (:func:`gptq`) and in biases (:func:`correct_bias`); and the simulation that
shows the errors (:func:`simulate`).

:func:`simulate` runs a prepared module as if it were converted: every value is rounded to what its
integers will represent. In: a prepared and calibrated module and batches of inputs. Out: its products,
one after the other, each with its operands. The caller may replace the integers of a weight or shift a
result, and everything computed later sees that. All batches go through the graph together, node by
node, so that one run is enough however many products depend on earlier changes. Values of all batches
are held until their last reader has run. They are those of
:func:`~fxlite.passes.quantize.conversion.convert.convert`, computed in float, except that biases are
not rounded to int32; parts that are cast to half floats are computed in float32.

GPTQ rounds weights one column after the other and compensates each error in the remaining columns.

In: a prepared (and calibrated) module and batches. Out: the same module with integers chosen for the
weights of products, which convert uses as they are. Rounding to nearest is best for each weight by
itself, but not for the layer's result if inputs are correlated, because errors of weights can cancel
on inputs that vary together.

With inputs X [K, samples] and H = X Xᵀ + λ I, the error of a row w of weights is
(w - ŵ) H (w - ŵ)ᵀ. Columns are rounded in order; with U the upper Cholesky factor of H⁻¹ = Uᵀ U,
the rest of the row moves to where the error is least (Frantar et al., "GPTQ: accurate post-training
quantization for generative pre-trained transformers", 2022, algorithm 1)::

    e = (w[i] - ŵ[i]) / U[i, i]        w[i+1:] -= e U[i, i+1:]

Products are processed in order; their inputs are computed with the new weights of earlier products.

Bias correction: rounding shifts the mean of a channel, and the bias is changed to undo that.

In: a prepared and calibrated module and batches. Out: the same module with other biases. For each
product and each channel of its result, over all batches and places::

    bias += E[y_float] - E[y_rounded]

(Nagel et al., "Data-free quantization through weight equalization and bias correction", 2019,
section 4.2, appendix D: with data). Products are corrected in order, so that the second sees the first
one corrected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fxlite.base.checked import checked
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.interpreter import Interpreter
from fxlite.ops.image.convolution import padding_pairs, windows_of
from fxlite.ops.image.spatial import per_axis
from fxlite.ops.integer.quantized import fake_quantize
from fxlite.passes.ledger import copy_with_ledger, refuse
from fxlite.passes.quantize.conversion.channel_scales import exchange_weight
from fxlite.passes.quantize.conversion.integer_flow import integer_recurrence, rounded_rows, state_attributes
from fxlite.passes.quantize.conversion.prepare import META, Decision, arguments_of, require_prepared, some
from fxlite.passes.quantize.schemes.observers import Observer
from fxlite.passes.quantize.schemes.roles import is_transposed, source_weight, summed_axes, weight_integers
from fxlite.passes.quantize.schemes.scheme import (
    QConfig,
    QuantizationError,
    QuantizedWeight,
    Scheme,
    quantize_weight,
    restored_weight,
    signal_to_noise,
)


@dataclass
class Product:
    """A product that is about to run. ``operands`` are its (args, kwargs) for each batch, with rounded
    data and the weight in float. ``position`` is the index of the weight among the args, and ``source``
    is the node that reads it, or None for a product of two activations. ``weight`` has the integers of
    the weight (in the layout of convert: for weight-only, rows of outputs), and ``shift`` is added to
    the result; both may be replaced. ``state`` says how the states of an integer recurrence are
    rounded."""

    node: Node
    qconfig: QConfig
    operands: list[tuple[list[Any], dict[str, Any]]]
    position: int | None
    source: Node | None
    weight: QuantizedWeight | None
    shift: Any = None
    state: dict[str, Any] | None = None

    @property
    def is_transposed(self) -> bool:
        """True if the integers are stored with the axes of the weight exchanged."""
        return is_transposed(self.node)

    def results(self) -> list[Any]:
        """The result for each batch, without the shift."""
        weight = None
        if self.weight is not None:
            assert self.qconfig.weight is not None
            weight = restored_weight(self.weight, self.qconfig.weight)
            weight = weight.T if self.is_transposed else weight
        found = []
        for args, kwargs in self.operands:
            if self.state is not None and self.weight is not None:
                found.append(integer_recurrence(args, kwargs, self.weight, self.state))
                continue
            given = list(args)
            if self.position is not None and weight is not None:
                given[self.position] = weight
            found.append(self.node.target(*given, **kwargs))
        return found


def simulate(prepared: GraphModule, batches: Iterable[Any], *, is_rounded: bool = True) -> Iterator[Product]:
    """Yield the products of a prepared module that are to be quantized, in order; each runs when the
    next one is requested. With ``is_rounded=False`` everything is float.

    Raises QuantizationError for a module that was not prepared or (if values are rounded) not
    calibrated, and if there are no batches."""
    require_prepared(prepared)
    runs = []
    for batch in some(batches):
        run = _Run(prepared, is_rounded)
        args, kwargs = arguments_of(batch)
        run.start(*args, **kwargs)
        runs.append(run)
    last_users = runs[0].user_to_last_uses
    tables: dict[str, Any] = {}
    for node in prepared.graph.nodes:
        decision = node.meta.get(META)
        role = decision.role if isinstance(decision, Decision) else ""
        if role == "product":
            assert isinstance(decision, Decision)
            product = _product(node, decision, runs, is_rounded)
            yield product
            for run, result in zip(runs, product.results(), strict=True):
                run.env[node] = result if product.shift is None else result + product.shift
        elif role == "states":
            for run in runs:
                run.env[node] = run.env[node.args[0]]
        elif role == "table" and is_rounded:
            for run in runs:
                run.env[node] = run.rounded_rows(node, tables)
        else:
            for run in runs:
                run.env[node] = run.run_node(node)
        for run in runs:
            for dead in last_users.get(node, ()):
                run.env.pop(dead, None)


class _Run(Interpreter):
    """The run of one batch through the graph."""

    def __init__(self, module: GraphModule, is_rounded: bool) -> None:
        super().__init__(module)
        self.is_rounded = is_rounded

    def call_module(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Observers round their input and record nothing."""
        module = self.fetch_attr(target)
        if not isinstance(module, Observer):
            return module(*args, **kwargs)
        if not self.is_rounded or args[0].size == 0:
            return args[0]
        qmin, qmax = module.scheme.range
        scale, zero_point = module.calculate_qparams()
        return fake_quantize(args[0], scale, zero_point, module.scheme.dtype, qmin, qmax)

    def rounded_rows(self, node: Node, tables: dict[str, Any]) -> Any:
        """Rows of an embedding whose weight is i8."""
        weight = node.arguments["weight"]
        if weight.target not in tables:
            scheme = Scheme(per="channel")
            found = quantize_weight(self.fetch_attr(weight.target), scheme, (1,))
            tables[weight.target] = restored_weight(found, scheme)
        (x, _, *rest), kwargs = self.fetch_args_kwargs_from_env(node)
        return node.target(x, tables[weight.target], *rest, **kwargs)


def _product(node: Node, decision: Decision, runs: list[_Run], is_rounded: bool) -> Product:
    assert decision.qconfig is not None
    qconfig, found = decision.qconfig, decision.weight
    operands = []
    for run in runs:
        args, kwargs = run.fetch_args_kwargs_from_env(node)
        operands.append((list(args), kwargs))
    sources = [source_weight(a) for a in node.args[:2]]
    if node.target.name == "recurrence":
        sources[0] = None  # the contribution of the inputs to the gates
    position = next((i for i, source in enumerate(sources) if source is not None), None)
    source = None if position is None else sources[position]
    made = Product(node, qconfig, operands, position, source, None)
    if not is_rounded:
        return made
    if source is not None and found is None:
        assert qconfig.weight is not None and position is not None
        array = np.asarray(runs[0].fetch_attr(source.target))
        found = weight_integers(node, node.args[position], array, qconfig.weight)
    made.weight = found
    if node.target.name == "recurrence" and qconfig.mode == "static":
        observer = runs[0].fetch_attr(node.arguments["h0"].target)
        made.state = state_attributes(observer.scheme, *observer.calculate_qparams())
    elif node.target.name == "recurrence" and qconfig.mode == "dynamic":
        made.state = {}
    elif qconfig.mode == "dynamic":
        scheme = qconfig.activation
        assert scheme is not None
        for given, _ in operands:
            given[0] = rounded_rows(given[0], node, scheme)
    return made


# -- errors made good ------------------------------------------------------------------------------
# -- GPTQ ------------------------------------------------------------------------------------------
_BLOCK = 128  # errors are propagated column by column within a block, and to later columns once a block
_COLUMNS = 1 << 24  # numbers of unrolled windows that are held at a time


@checked
def gptq(prepared: GraphModule, batches: Iterable[Any], damping: float = 0.01) -> GraphModule:
    """The prepared module with integers chosen by GPTQ for the weights of its products; convert it
    next. ``batches`` are inputs (each an array, a tuple of arguments or a dict of named ones), read
    once and held together; there should be more rows of activations than a layer has inputs.
    ``damping`` is λ relative to the mean of H's diagonal. Scales are those of rounding to nearest; the
    scale of a group is set when its first column is reached.

    Weights that several products read, and those for which rounding to nearest is as good on the data,
    are left alone, with the reason in the ledger. Raises QuantizationError for modules that are not
    prepared and calibrated, for no batches, and for NaN or infinities in them."""
    if not damping > 0:
        raise QuantizationError(f"damping must be positive (0.01 is usual), not {damping}")
    require_prepared(prepared)
    module = copy_with_ledger(prepared)
    readers: Counter[str] = Counter()
    for read in module.graph.find_nodes(op="get_attr"):
        readers[read.target] += len(read.users)
    chosen: dict[Node, QuantizedWeight] = {}
    for product in simulate(module, batches):
        if product.weight is None:
            continue
        reason = _why_not(product, readers)
        if reason is None:
            found = _chosen(product, module, damping)
            if found is None:
                reason = "rounding to nearest is as good on these batches"
            else:
                product.weight = chosen[product.node] = found
        if reason is not None:
            refuse(module, "gptq", product.node, reason, [product.node])
    for node, found in chosen.items():
        node.meta[META] = replace(node.meta[META], weight=found)
    return module


def _why_not(product: Product, readers: Counter[str]) -> str | None:
    assert product.source is not None
    if product.node.target.name == "recurrence":
        return "it multiplies its own results"
    times = readers[product.source.target]
    if times > 1:
        return f"its weight is read by {times} nodes, whose inputs differ"
    if product.node.target.name.startswith("conv_transpose"):
        return "a transposed convolution has no rows of inputs that its weights share"
    is_matmul = product.node.target.name == "matmul"
    if is_matmul and (product.position == 0 or product.source.type.rank != 2):
        return "its weight is not a matrix on the right-hand side"
    return None


def _chosen(product: Product, module: GraphModule, damping: float) -> QuantizedWeight | None:
    """The weight's integers chosen by GPTQ; None if they are no better than the nearest ones."""
    scheme, nearest = product.qconfig.weight, product.weight
    assert scheme is not None and nearest is not None
    assert product.source is not None and product.position is not None
    array = np.asarray(module.get_attribute(product.source.target))
    array = array.T if product.is_transposed else array
    read = product.node.args[product.position]
    axes = summed_axes(product.node, read, product.is_transposed)
    (channel,) = set(range(array.ndim)).difference(axes)

    def rows(x: Any) -> Any:
        """An array of the weight's shape as [groups, rows, K]."""
        x = np.moveaxis(x, channel, 0)
        return x.reshape(groups, x.shape[0] // groups, -1)

    hessians = _hessians(product)
    groups = len(hessians)
    weights = rows(array.astype(np.float64))
    rounded = np.empty(weights.shape, np.int8)
    scales: list[Any] = []
    shared = None
    if scheme.per != "group":
        full = np.broadcast_to(nearest.scale, [n if i == channel else 1 for i, n in enumerate(array.shape)])
        shared = rows(full)
    for number, hessian in enumerate(hessians):
        fixed = None if shared is None else shared[number]
        rounded[number], found = _round_columns(weights[number], hessian, scheme, fixed, damping)
        scales.append(found)
    moved = np.moveaxis(array, channel, 0).shape
    integers = np.moveaxis(rounded.reshape(moved), 0, channel)
    scale = nearest.scale if shared is not None else np.concatenate(scales).astype(np.float32)
    made = QuantizedWeight(np.ascontiguousarray(integers), scale, 0.0)
    values = restored_weight(made, scheme)
    if _error(weights - rows(values), hessians) >= _error(weights - rows(restored_weight(nearest, scheme)), hessians):
        return None
    return replace(made, sqnr=signal_to_noise(array.astype(np.float64), values))


def _error(difference: Any, hessians: Any) -> float:
    """The squared error of the results: the sum of d H dᵀ over the rows d of all groups."""
    return float(np.sum((difference @ hessians) * difference))


def _hessians(product: Product) -> Any:
    """X Xᵀ for each group of a convolution (other products have one group): [groups, K, K].

    Raises QuantizationError for NaN or infinities."""
    total: Any = 0.0
    for args, kwargs in product.operands:
        for columns in _columns(product.node, args, kwargs):
            wide = columns.astype(np.float64)
            total = total + wide @ np.swapaxes(wide, 1, 2)
    if not np.isfinite(total).all():
        raise QuantizationError(f"gptq: {product.node.describe()} reads NaN or infinities")
    return total


def _columns(node: Node, args: list[Any], kwargs: dict[str, Any]) -> Iterable[Any]:
    """The inputs of a product as columns [groups, K, samples], in parts."""
    x = args[0]
    if not node.target.name.startswith("conv"):
        yield x.reshape(-1, x.shape[-1]).T[None]
        return
    rank, kernel = x.ndim - 2, args[1].shape[2:]
    steps = per_axis(kwargs.get("stride", 1), rank, "stride")
    gaps = per_axis(kwargs.get("dilation", 1), rank, "dilation")
    pairs = padding_pairs(kwargs.get("padding", 0), kernel, steps, gaps)
    windows = windows_of(x, kernel, steps, pairs, gaps)
    # channels, places in the window, then everything that distinguishes samples
    order = (1, *range(2 + rank, 2 + 2 * rank), 0, *range(2, 2 + rank))
    groups = kwargs.get("groups", 1)
    images = max(1, _COLUMNS // max(1, windows[:1].size))
    for start in range(0, len(x), images):
        part = windows[start : start + images].transpose(order)
        yield part.reshape(groups, x.shape[1] // groups * int(np.prod(kernel)), -1)


def _round_columns(weights: Any, hessian: Any, scheme: Scheme, scale: Any, damping: float) -> tuple[Any, Any]:
    """Integers [N, K] and scales of weights [N, K]. ``scale`` is [N, 1], or None if groups have their own."""
    weights, hessian = weights.copy(), hessian.copy()
    depth = weights.shape[1]
    diagonal = np.diagonal(hessian)
    unused = diagonal == 0  # inputs that are always 0, for which any weight will do
    hessian[unused, unused] = 1.0
    hessian[np.diag_indices(depth)] += damping * (diagonal.mean() or 1.0)
    upper = np.linalg.cholesky(np.linalg.inv(hessian)).T
    qmin, qmax = scheme.range
    integers = np.empty(weights.shape, np.int8)
    scales = []
    size = scheme.group_size
    for start in range(0, depth, _BLOCK):
        stop = min(start + _BLOCK, depth)
        errors = np.zeros((len(weights), stop - start))
        for i in range(start, stop):
            if size is not None and i % size == 0:
                scale = quantize_weight(weights[:, i : i + size], scheme, (1,)).scale
                scales.append(scale)
            step = scale[:, 0].astype(np.float64)
            found = np.clip(np.rint(weights[:, i] / step), qmin, qmax)
            integers[:, i] = found
            error = (weights[:, i] - found * step) / upper[i, i]
            weights[:, i + 1 : stop] -= np.outer(error, upper[i, i + 1 : stop])
            errors[:, i - start] = error
        weights[:, stop:] -= errors @ upper[start:stop, stop:]
    return integers, np.concatenate(scales, axis=1) if scales else scale


# -- bias correction -------------------------------------------------------------------------------
@checked
def correct_bias(prepared: GraphModule, batches: Iterable[Any]) -> GraphModule:
    """The prepared module with biases that restore the mean that each channel has in float; convert it
    next. Products without a bias get one. ``batches`` are inputs (each an array, a tuple of arguments
    or a dict of named ones), read once and held together.

    Products of matmul, which has no bias, and biases computed in the graph are left alone, with the
    reason in the ledger. Raises QuantizationError for modules that are not prepared and calibrated, for
    no batches, and for NaN or infinities in them."""
    require_prepared(prepared)
    module = copy_with_ledger(prepared)
    shifts: dict[Node, Any] = {}
    kept = list(batches)
    exact = simulate(module, kept, is_rounded=False)
    for true, rounded in zip(exact, simulate(module, kept), strict=True):
        node = rounded.node
        reason = _why_uncorrected(node)
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


def _why_uncorrected(node: Node) -> str | None:
    if node.target.name == "matmul":
        return "matmul has no bias"
    if node.target.name == "recurrence":
        return "its bias is part of a loop over time"
    bias = node.arguments.get("bias")
    if bias is not None and bias.op != "get_attr":
        return "its bias is computed in the graph"
    return None


def _means(product: Product, axis: int) -> Any:
    """The mean of each channel over all batches. Raises QuantizationError if it is not a number."""
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
