"""Element-wise ops that are one node of ONNX, and are better read so than from their bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fxlite.codegen.onnx.builder import Builder
from fxlite.codegen.onnx.registry import Value, exports, is_single, no, type_of
from fxlite.types.tensor_type import TensorType


def _is_float(bound: Mapping[str, Any]) -> bool:
    given = type_of(bound["x"])
    return given is not None and given.dtype.is_float


@exports("relu", when=_is_float)
def relu(b: Builder, type: TensorType, x: Any) -> str:
    return str(b.op("Relu", x))


@exports("clip", when=lambda a: _is_float(a) and all(isinstance(a[k], int | float | None) for k in "min max".split()))
def clip(b: Builder, type: TensorType, x: Any, min: Any, max: Any) -> str:
    low, high = (None if v is None else b.number(v, type.dtype) for v in (min, max))
    return str(b.op("Clip", b.operand(x, type.dtype), low, high))


def _simple(op: str, kind: str, since: int = 0, **names: str) -> None:
    """An op of one operand; ``names``: attribute of ONNX -> parameter."""

    @exports(op, since=since, when=is_single)
    def write(b: Builder, type: TensorType, x: Any, **options: Any) -> str:
        given: dict[str, Any] = {k: float(options[v]) for k, v in names.items()}
        return str(b.op(kind, b.operand(x, type.dtype), **given))


_simple("elu", "Elu", alpha="alpha")
_simple("selu", "Selu")
_simple("leaky_relu", "LeakyRelu", alpha="negative_slope")
_simple("softsign", "Softsign")
_simple("hardswish", "HardSwish")
_simple("mish", "Mish")
_simple("silu", "Swish", since=24)


@exports("hardsigmoid", when=is_single)
def hardsigmoid(b: Builder, type: TensorType, x: Any) -> str:
    return str(b.op("HardSigmoid", x, alpha=1 / 6, beta=0.5))


@exports("softplus", when=lambda a: is_single(a) and a["beta"] == 1.0 and a["threshold"] >= 20)
def softplus(b: Builder, type: TensorType, x: Any, beta: float, threshold: float) -> str:
    """Above the threshold the two are one number."""
    return str(b.op("Softplus", x))


@exports("gelu", since=20, when=is_single)
def gelu(b: Builder, type: TensorType, x: Any, approximate: str) -> str:
    return str(b.op("Gelu", x, approximate=approximate))


@exports("prelu", when=lambda a: is_single(a) and type_of(a["weight"]) is not None and a["x"].type.rank > 0)
def prelu(b: Builder, type: TensorType, x: Value, weight: Value) -> str:
    """The weight has one number for each channel, axis 1, or one for all."""
    if weight.type.rank == 1 and weight.type.shape[0] != 1 and x.type.rank > 2:
        slope = b.op("Reshape", weight, b.integers(-1, *[1] * (x.type.rank - 2)))
    else:
        slope = weight.name
    return str(b.op("PRelu", x, slope))


@exports("dropout")
def dropout(b: Builder, type: TensorType, x: Any, p: float, training: bool) -> str:
    """One that draws numbers; others were removed before."""
    raise no("dropout in training mode draws random numbers; call eval() before tracing")
