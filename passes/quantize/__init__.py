"""Quantization: from a float graph to one that computes with 8-bit integers (or 4, or half floats).

In: a traced module in inference mode, and rules that say how each part is computed. Out: a module
of integer ops with integer weights. The flow has torch's names::

    from fxlite.passes import quantize as q

    mapping = q.QConfigMapping().set_global(q.static_int8()).set_module_name("fc", None)
    prepared = q.prepare(gm, mapping)
    for batch in batches:  # calibration
        prepared(batch)
    qgm = q.convert(prepared)
    print(q.report(qgm))

docs/quantization.md says what the integers mean.
"""

from __future__ import annotations

from fxlite.passes.quantize.convert import convert
from fxlite.passes.quantize.mapping import QConfigMapping
from fxlite.passes.quantize.observers import (
    OBSERVERS,
    EntropyObserver,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    Observer,
    PercentileObserver,
    make_observer,
)
from fxlite.passes.quantize.prepare import Decision, prepare, prepare_qat
from fxlite.passes.quantize.record import Record, record_of
from fxlite.passes.quantize.report import FloatProduct, QuantizationReport, report
from fxlite.passes.quantize.scheme import (
    PRESETS,
    QConfig,
    QConfigError,
    QuantizationError,
    Scheme,
    bf16,
    dynamic_int8,
    fp16,
    static_int8,
    weight_only_int4,
    weight_only_int8,
)
from fxlite.passes.quantize.without_data import cast_floats, quantize_dynamic, quantize_weights

__all__ = [
    "OBSERVERS",
    "PRESETS",
    "Decision",
    "EntropyObserver",
    "FloatProduct",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "Observer",
    "PercentileObserver",
    "QConfig",
    "QConfigError",
    "QConfigMapping",
    "QuantizationError",
    "QuantizationReport",
    "Record",
    "Scheme",
    "bf16",
    "cast_floats",
    "convert",
    "dynamic_int8",
    "fp16",
    "make_observer",
    "prepare",
    "prepare_qat",
    "quantize_dynamic",
    "quantize_weights",
    "record_of",
    "report",
    "static_int8",
    "weight_only_int4",
    "weight_only_int8",
]
