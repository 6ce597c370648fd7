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

For a plan of mixed precision within a budget: ``plan = q.plan(gm, batches, min_sqnr=25)``.
``equalize`` and ``smooth_quant`` before prepare, and ``gptq`` and ``correct_bias`` before convert,
make the result more accurate. ``integer_products`` takes programs that were quantized elsewhere.
docs/quantization.md explains what the integers mean.
"""

from __future__ import annotations

from fxlite.base.checked import public_names
from fxlite.passes.quantize.conversion.channel_scales import equalize, smooth_quant
from fxlite.passes.quantize.conversion.convert import convert
from fxlite.passes.quantize.conversion.error_correction import correct_bias, gptq
from fxlite.passes.quantize.conversion.one_step import cast_floats, quantize, quantize_dynamic, quantize_weights
from fxlite.passes.quantize.conversion.prepare import Decision, prepare, prepare_qat
from fxlite.passes.quantize.conversion.stored_integers import integer_products
from fxlite.passes.quantize.planning.mixed_plan import Measured, Plan, PlannedLayer, load_plan
from fxlite.passes.quantize.planning.planner import PlanError, plan, results_sqnr
from fxlite.passes.quantize.planning.quantization_report import FloatProduct, QuantizationReport, report
from fxlite.passes.quantize.planning.sensitivity import Choice, Layer, Sensitivity, sensitivity
from fxlite.passes.quantize.schemes.mapping import QConfigMapping
from fxlite.passes.quantize.schemes.observers import (
    OBSERVERS,
    EntropyObserver,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    Observer,
    PercentileObserver,
    make_observer,
)
from fxlite.passes.quantize.schemes.scheme import (
    PRESETS,
    QConfig,
    QConfigError,
    QuantizationError,
    Record,
    Scheme,
    bf16,
    dynamic_int8,
    fp16,
    record_of,
    static_int8,
    weight_only_int4,
    weight_only_int8,
)

# how values become integers
__all__ = ["OBSERVERS", "PRESETS", "EntropyObserver", "HistogramObserver", "MinMaxObserver"]
__all__ += ["MovingAverageMinMaxObserver", "Observer", "PercentileObserver", "QConfig", "QConfigError"]
__all__ += ["QConfigMapping", "QuantizationError", "Record", "Scheme", "bf16", "dynamic_int8", "fp16", "make_observer"]
__all__ += ["record_of", "static_int8", "weight_only_int4", "weight_only_int8"]
# making integer programs
__all__ += ["Decision", "cast_floats", "convert", "correct_bias", "equalize", "gptq"]
__all__ += ["integer_products", "prepare", "prepare_qat"]
__all__ += ["quantize", "quantize_dynamic", "quantize_weights", "smooth_quant"]
# plans and reports
__all__ += ["Choice", "FloatProduct", "Layer", "Measured", "Plan", "PlanError", "PlannedLayer", "QuantizationReport"]
__all__ += ["Sensitivity", "load_plan", "plan", "report", "results_sqnr", "sensitivity"]


def __dir__() -> list[str]:
    return public_names(globals())
