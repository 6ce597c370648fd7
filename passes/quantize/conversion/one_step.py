"""Quantize whole programs in one step, with batches for calibration or without any data.

In: a program, a mapping, and batches: each an array, a tuple of the inputs in order, or a dict of
inputs by name. Out: :func:`quantize` returns the integer program, :func:`calibrated` the prepared one.
The passes ``quantize_dynamic``, ``quantize_weights`` and ``cast_floats`` need no calibration; a
program in which nothing can be quantized stays as it is, with the reasons in the ledger. To quantize
only parts, use prepare and convert with a mapping.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fxlite import nn
from fxlite.base.checked import checked
from fxlite.graph.graph import nodes_in
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.interpreter import Interpreter
from fxlite.passes.base import graph_pass, refuse
from fxlite.passes.quantize.conversion.convert import convert
from fxlite.passes.quantize.conversion.prepare import META, Arguments, Decision, as_batches, prepare
from fxlite.passes.quantize.schemes.mapping import QConfigMapping
from fxlite.passes.quantize.schemes.scheme import (
    QConfig,
    bf16,
    dynamic_int8,
    fp16,
    unknown,
    weight_only_int4,
    weight_only_int8,
)
from fxlite.passes.rules.const_fold import const_fold
from fxlite.types.agreement import sqnr


# -- with batches ----------------------------------------------------------------------------------
@checked
def quantize(program: Any, mapping: QConfigMapping, batches: Iterable[Any]) -> GraphModule:
    """Prepare, calibrate on all batches, and convert. Raises what these raise, and QuantizationError
    if there are no batches."""
    return convert(calibrated(program, mapping, as_batches(batches)))


def calibrated(program: Any, mapping: QConfigMapping, data: Sequence[Arguments]) -> GraphModule:
    """The prepared module, after it has run on the data."""
    prepared = prepare(program, mapping)
    for args, kwargs in data:
        prepared(*args, **kwargs)
    return prepared


def results(module: GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The results of a module for these arguments: its float arrays, in order."""
    interpreter = Interpreter(module)
    interpreter.run(*args, **kwargs)
    return float_results(interpreter)


def float_results(interpreter: Interpreter) -> list[Any]:
    """The float results of the last run."""
    values = [interpreter.env[n] for n in nodes_in(interpreter.graph.output_node().args)]
    return [value for value in values if np.asarray(value).dtype.kind == "f"]


# -- without data ----------------------------------------------------------------------------------
@graph_pass(exactness=sqnr(20), inside=False)
def quantize_dynamic(gm: GraphModule) -> GraphModule | None:
    """Compute products with weights in 8-bit integers; activations are quantized row by row at run time.

    The scale of each row of a linear layer (of each image for a convolution) is its largest
    magnitude over 127; weights have a scale for each output channel. Nothing is calibrated.
    Products of two activations stay float."""
    return _converted(gm, dynamic_int8())


@graph_pass(exactness=sqnr(10), inside=False)
def quantize_weights(gm: GraphModule, bits: int = 8, group_size: int = 32) -> GraphModule | None:
    """Store weights as 8-bit or 4-bit integers; arithmetic stays in float.

    Linear layers and embeddings read integers; the integer weights of convolutions are expanded to
    floats when the program is compiled. With 8 bits each row has a scale, with 4 bits each
    ``group_size`` (32, 64 or 128) numbers of a row."""
    if bits not in (4, 8):
        raise unknown("number of bits", bits, ("4", "8"))
    return _converted(gm, weight_only_int8() if bits == 8 else weight_only_int4(group_size))


@graph_pass(exactness=sqnr(20), inside=False)
def cast_floats(gm: GraphModule, dtype: str = "bf16") -> GraphModule | None:
    """Turn all float32 arithmetic and weights into bfloat16, or float16 with ``dtype="f16"``, which halves the bytes.

    Inputs and results keep their types. The largest float16 is 65504: larger weights are an error,
    larger values become infinite."""
    configs = {"bf16": bf16(), "f16": fp16()}
    if dtype not in configs:
        raise unknown("half type", dtype, configs)
    made = _converted(gm, configs[dtype])
    if made is not None:
        const_fold.function(made)  # casts of constants
    return made


def _converted(gm: GraphModule, qconfig: QConfig) -> GraphModule | None:
    prepared = prepare(gm, QConfigMapping().set_global(qconfig))
    decisions = [(n, n.meta[META]) for n in prepared.graph.nodes if META in n.meta]
    if any(isinstance(d, Decision) and d.qconfig is not None for _, d in decisions):
        return convert(prepared)
    for node, decision in decisions:
        if isinstance(decision, Decision) and decision.reason:
            refuse(gm, "quantize", node, decision.reason, [node])
    return None


class _Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 8)
        for layer in (self.up, self.down):
            generator = np.random.default_rng(0)
            layer.weight[:] = generator.standard_normal(layer.weight.shape)
            layer.bias[:] = generator.standard_normal(layer.bias.shape)

    def forward(self, x: Any) -> Any:
        return self.down(np.maximum(self.up(x), 0))


quantize_dynamic.example(_Layers, "each row has its scale", x="f32[B,32]")
quantize_dynamic.counterexample(
    lambda x: x @ x.T, "both operands are activations: that takes calibration", x="f32[B,32]"
)
quantize_weights.example(_Layers, "one byte for a weight", x="f32[B,32]")
quantize_weights.example(
    _Layers, "half a byte, and a scale for 32 weights", options={"bits": 4, "group_size": 32}, x="f32[B,32]"
)
quantize_weights.counterexample(lambda x: np.tanh(x), "there are no weights", x="f32[B,32]")
cast_floats.example(_Layers, "casts are inserted where it begins and ends", x="f32[B,32]")
cast_floats.counterexample(lambda x: x @ x, "float64 stays as it is", x="f64[4,4]")
