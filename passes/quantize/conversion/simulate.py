"""Run a prepared module as if it were converted: every value as the integers will stand for it.

In: a prepared and calibrated module and batches of inputs. Out: its products, one after the other,
each with its operands; who looks may exchange the integers of a weight or shift a result, and what
is computed after it sees that. All batches go through the graph together, node by node, so that
one run is enough however many products depend on what was changed before them. Values are held
for all batches until their last reader has run.

The values are those of :func:`~fxlite.passes.quantize.conversion.convert.convert`, computed in
float, except that biases are not rounded to int32; parts cast to half floats are computed in
float32.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.interpreter import Interpreter
from fxlite.ops.integer.quantized import fake_quantize
from fxlite.passes.quantize.conversion.integer_flow import integer_recurrence, rounded_rows, state_attributes
from fxlite.passes.quantize.conversion.prepare import META, Decision, require_prepared
from fxlite.passes.quantize.schemes.observers import Observer
from fxlite.passes.quantize.schemes.roles import is_transposed, source_weight, summed_axes
from fxlite.passes.quantize.schemes.scheme import (
    QConfig,
    QuantizationError,
    QuantizedWeight,
    Scheme,
    quantize_weight,
    restored_weight,
)


def arguments_of(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A batch as arguments of a call: a tuple has them in order, a dict by name, BoundArguments
    both, and anything else is the only one."""
    if isinstance(batch, inspect.BoundArguments):
        return batch.args, batch.kwargs
    if isinstance(batch, tuple):
        return batch, {}
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return (batch,), {}


def some(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches. Raises QuantizationError after the last one if there was none."""
    is_empty = True
    for batch in batches:
        is_empty = False
        yield batch
    if is_empty:
        raise QuantizationError(
            "there are no batches (an iterator that was used up before has none): give a list of "
            "inputs, each an array, a tuple of arguments or a dict of named ones"
        )


@dataclass
class Product:
    """A product that is about to run. ``operands`` are its (args, kwargs) for each batch, data as
    rounded, the weight in float; ``position`` is the weight's among args and ``source`` the node
    that reads it, None for a product of two activations. ``weight`` has the integers of the weight
    (in the layout of convert: for weight-only, rows of outputs), and ``shift`` is added to the
    result; both may be exchanged. ``state`` says how the states of a recurrence in integers
    are rounded."""

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
        """True if integers are stored with the axes of the weight exchanged."""
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
    """The products of a prepared module that are to be quantized, in order; each runs when the next
    one is asked for. Without ``is_rounded`` all is float.

    Raises QuantizationError for a module that was not prepared or, where values are rounded, not
    calibrated, and where there are no batches."""
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
    """One batch on its way through the graph."""

    def __init__(self, module: GraphModule, is_rounded: bool) -> None:
        super().__init__(module)
        self.is_rounded = is_rounded

    def call_module(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An observer rounds what it sees and learns nothing."""
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
        sources[0] = None  # what the inputs give to the gates
    position = next((i for i, source in enumerate(sources) if source is not None), None)
    source = None if position is None else sources[position]
    made = Product(node, qconfig, operands, position, source, None)
    if not is_rounded:
        return made
    if source is not None and found is None:
        assert qconfig.weight is not None and position is not None
        array = np.asarray(runs[0].fetch_attr(source.target))
        array = array.T if made.is_transposed else array
        axes = summed_axes(node, node.args[position], made.is_transposed)
        found = quantize_weight(array, qconfig.weight, axes)
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
