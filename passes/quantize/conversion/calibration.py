"""Running programs on batches: to calibrate, and to convert in one step.

In: a program, a mapping, and batches: each an array, a tuple of the inputs in order, or a dict of
them by name. Out: the calibrated module, or with :func:`quantize` the integer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fxlite.base.checked import checked
from fxlite.graph.graph import nodes_in
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.interpreter import Interpreter
from fxlite.passes.quantize.conversion.convert import convert
from fxlite.passes.quantize.conversion.prepare import prepare
from fxlite.passes.quantize.conversion.simulate import arguments_of
from fxlite.passes.quantize.schemes.mapping import QConfigMapping
from fxlite.passes.quantize.schemes.scheme import QuantizationError

#: What a module is called with.
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@checked
def quantize(program: Any, mapping: QConfigMapping, batches: Iterable[Any]) -> GraphModule:
    """Prepare, calibrate on all batches, convert. Raises what these raise, and QuantizationError
    without a batch."""
    return convert(calibrated(program, mapping, as_batches(batches)))


def as_batches(batches: Iterable[Any]) -> list[Arguments]:
    """Batches as arguments of a call. Raises QuantizationError where there are none, or where an
    array is given in place of a list of batches."""
    if hasattr(batches, "dtype"):
        raise QuantizationError("batches are a list of batches, not one array: give [array]")
    if isinstance(batches, Mapping) or not isinstance(batches, Iterable):
        raise QuantizationError(
            f"batches are a list of batches, each an array, a tuple of arguments or a dict of "
            f"named ones, not {type(batches).__name__}"
        )
    found = [arguments_of(batch) for batch in batches]
    if not found:
        raise QuantizationError("there are no batches: ranges and noise are found on data")
    return found


def calibrated(program: Any, mapping: QConfigMapping, data: Sequence[Arguments]) -> GraphModule:
    """The prepared module, after it has run on the data."""
    prepared = prepare(program, mapping)
    for args, kwargs in data:
        prepared(*args, **kwargs)
    return prepared


def results(module: GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """What a module gives for some arguments: its arrays of floats, in order."""
    interpreter = Interpreter(module)
    interpreter.run(*args, **kwargs)
    return float_results(interpreter)


def float_results(interpreter: Interpreter) -> list[Any]:
    """The results of the last run that are floats."""
    values = [interpreter.env[n] for n in nodes_in(interpreter.graph.output_node().args)]
    return [value for value in values if np.asarray(value).dtype.kind == "f"]
