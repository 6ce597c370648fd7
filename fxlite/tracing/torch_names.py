"""Methods of PyTorch's tensors in programs, and their equivalents in NumPy.

In: the name of a tensor method of torch. Out: what to write instead, on one line, and for the trace doctor,
which continues after a problem, also the value of the call. Models of torch are recognized by their
classes, so that torch need not be installed.
"""

from __future__ import annotations

import operator
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, Details, TraceError
from fxlite.base.location import Location, is_own_file

#: Method of a tensor -> what to write instead, and a function that computes the value.
_METHODS: dict[str, tuple[str, Callable[..., Any]]] = {
    "view": ("x.reshape(...), which takes the same sizes", lambda x, *shape: x.reshape(*shape)),
    "permute": ("x.transpose(...), which takes the same axes", lambda x, *axes: x.transpose(*axes)),
    "contiguous": ("x alone: an array of a graph has no layout", lambda x, *_, **__: x),
    "unsqueeze": ("np.expand_dims(x, axis)", lambda x, dim: np.expand_dims(x, dim)),
    "expand": ("np.broadcast_to(x, shape), with sizes for -1", lambda x, *shape: x),
    "detach": ("x alone: a graph has no gradients", lambda x: x),
    "clone": ("x.copy()", lambda x, **_: x.copy()),
    "numpy": ("x alone, which is an array", lambda x, **_: x),
    "cpu": ("x alone: the back end says where a graph runs", lambda x: x),
    "cuda": ("x alone: the back end says where a graph runs", lambda x, *_: x),
    "to": ("x.astype(dtype); the back end says where a graph runs", lambda x, *_, **__: x),
    "float": ("x.astype(np.float32)", lambda x: x.astype(np.float32)),
    "double": ("x.astype(np.float64)", lambda x: x.astype(np.float64)),
    "half": ("x.astype(np.float16)", lambda x: x.astype(np.float16)),
    "long": ("x.astype(np.int64)", lambda x: x.astype(np.int64)),
    "int": ("x.astype(np.int32)", lambda x: x.astype(np.int32)),
    "bool": ("x.astype(bool)", lambda x: x.astype(bool)),
    "type_as": ("x.astype(other.dtype)", lambda x, other: x.astype(other.dtype)),
    "dim": ("x.ndim", lambda x: x.ndim),
    "numel": ("x.size", lambda x: x.size),
    "masked_fill": ("np.where(mask, value, x)", lambda x, mask, value: np.where(mask, value, x)),
    "softmax": ("fxlite.nn.functional.softmax(x, axis)", lambda x, dim: x),
    "matmul": ("x @ y", lambda x, y: x @ y),
    "mm": ("x @ y", lambda x, y: x @ y),
    "bmm": ("x @ y", lambda x, y: x @ y),
    "pow": ("x ** y", lambda x, y: x**y),
    "t": ("x.T", lambda x: x.T),
    "add_": ("x += y", lambda x, y: x + y),
    "mul_": ("x *= y", lambda x, y: x * y),
    "repeat_interleave": ("np.repeat(x, repeats, axis)", lambda x, repeats, dim=None: np.repeat(x, repeats, dim)),
    "chunk": ("np.split(x, parts, axis)", lambda x, parts, dim=0: np.split(x, parts, dim)),
    "split": ("np.split(x, positions, axis)", lambda x, *_, **__: x),
    "relu": ("np.maximum(x, 0)", lambda x: np.maximum(x, 0)),
    "sigmoid": ("fxlite.nn.functional.sigmoid(x)", lambda x: x),
    "tanh": ("np.tanh(x)", lambda x: np.tanh(x)),
    "exp": ("np.exp(x)", lambda x: np.exp(x)),
    "sqrt": ("np.sqrt(x)", lambda x: np.sqrt(x)),
    "abs": ("np.abs(x)", lambda x: np.abs(x)),
    "requires_grad": ("x alone: a graph has no gradients", lambda x: x),
    "device": ("nothing: the back end says where a graph runs", lambda x: x),
}
METHODS = frozenset(_METHODS)
SIZE_CALLED = "x.size is a number in NumPy: x.shape for x.size(), x.shape[0] for x.size(0)"


def method_advice(name: str) -> str:
    """What to write instead of a tensor method of torch; empty for other names."""
    return _METHODS[name][0] if name in _METHODS else ""


def method_value(name: str, x: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The value of a tensor method of torch, or a similar value."""
    return _METHODS[name][1](x, *args, **kwargs)


_NAME = operator.attrgetter("__module__", "__name__")


def is_torch_module(value: Any) -> bool:
    """Whether a value is a torch.nn.Module or a subclass of it."""
    classes = value.__mro__ if isinstance(value, type) else type(value).__mro__
    return ("torch.nn.modules.module", "Module") in map(_NAME, classes)


def refuse_torch_module(root: Any) -> None:
    """Raise ArgumentError, which says what to do, for a model of torch."""
    if is_torch_module(root):
        name = root.__name__ if isinstance(root, type) else type(root).__name__
        raise ArgumentError(
            f"{name} is a torch.nn.Module: import it with fx.from_torch(model.eval(), *example_inputs), or write it "
            "with fxlite.nn, whose layers, names and weights are torch's (docs/from_torch.md has both)"
        )


def torch_problem(error: BaseException) -> TraceError | None:
    """The error for a program that calls torch's functions with traced values, or ``x.size(0)``, derived from
    the error that Python raised; None for other errors."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not is_own_file(f.filename)]
    line = next((f for f in reversed(frames) if "/torch/" not in f.filename), None)
    advice = advice_for(error, (line.line or "") if line is not None else "")
    if not advice or line is None:
        return None
    made = TraceError(f"{error}\n  at {line.filename}:{line.lineno}: {line.line}\n  instead: {advice}")
    location = Location(resolved=(line.filename, line.lineno or 0, line.name, line.line or ""))
    made.details = Details(str(error), location, "", advice)
    return made


def advice_for(error: BaseException, line: str) -> str:
    """What to write instead of a line that calls torch; empty for errors of another kind."""
    text = str(error)
    if isinstance(error, TypeError) and "not Proxy" in text and ("Tensor" in text or "argument" in text):
        return (
            "the program calls a function of torch with a traced value: import it with fx.from_torch, or write "
            "`import fxlite.nn.functional as F` and NumPy's functions (docs/from_torch.md)"
        )
    if isinstance(error, TypeError) and text.endswith("object is not callable") and ("'int'" in text or "Dim" in text):
        return SIZE_CALLED if ".size(" in line else ""
    return ""
