"""Running programs on batches: to calibrate, and to convert in one step.

In: a program, a mapping, and batches: each an array, a tuple of the inputs in order, or a dict of
them by name. Out: the calibrated module, or with :func:`quantize` the integer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fxlite.graph_module import GraphModule
from fxlite.passes.quantize.convert import convert
from fxlite.passes.quantize.mapping import QConfigMapping
from fxlite.passes.quantize.prepare import prepare
from fxlite.passes.quantize.scheme import QuantizationError

#: What a module is called with.
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def quantize(program: Any, mapping: QConfigMapping, batches: Iterable[Any]) -> GraphModule:
    """Prepare, calibrate on all batches, convert. Raises what these raise, and QuantizationError
    without a batch."""
    return convert(calibrated(program, mapping, as_batches(batches)))


def as_batches(batches: Iterable[Any]) -> list[Arguments]:
    """Batches as arguments of a call. Raises QuantizationError where there are none, or where an
    array is given in place of a list of batches."""
    if hasattr(batches, "dtype"):
        raise QuantizationError("batches are a list of batches, not one array: give [array]")
    found = [_as_arguments(batch) for batch in batches]
    if not found:
        raise QuantizationError("there are no batches: ranges and noise are found on data")
    return found


def _as_arguments(batch: Any) -> Arguments:
    if isinstance(batch, dict):
        return (), batch
    return (tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)), {}


def calibrated(program: Any, mapping: QConfigMapping, data: Sequence[Arguments]) -> GraphModule:
    """The prepared module, after it has run on the data."""
    prepared = prepare(program, mapping)
    for args, kwargs in data:
        prepared(*args, **kwargs)
    return prepared
