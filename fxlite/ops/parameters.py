"""The kinds of parameters of an op: operands, which are arrays or traced values, and attributes, which
nodes store unchanged.

In: a parameter. Out: its kind, from its annotation, which is text if the file postpones annotations, and
else an object. This is used for the ops of fxlite, those of ``fx.op``, and functions given to ``fx.wrap``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from fxlite.base.errors import ArgumentError

# These are different names, although they may be the same object: an annotation is recognized by its text.
Tensor: TypeAlias = Annotated[Any, "Tensor"]
"""An operand: an array while running, a Proxy while tracing."""
OptionalTensor: TypeAlias = Annotated[Any, "OptionalTensor"]
"""An operand, or None."""
Tensors: TypeAlias = Annotated[Any, "Tensors"]
"""A sequence of operands."""
Attribute: TypeAlias = Annotated[Any, "Attribute"]
"""A plain value of any kind."""

_KINDS = ("Tensor", "OptionalTensor", "Tensors")
_ARRAYS = re.compile(r"ndarray|NDArray|ArrayLike|Array|Tensor|\bAny\b|Proxy")
_SEQUENCE = re.compile(r"\W*(typing\.|collections\.abc\.)?(list|tuple|sequence)\b", re.IGNORECASE)
_OR_NONE = re.compile(r"Optional|\bNone\b")


def kind_of(parameter: inspect.Parameter, function: Callable[..., Any], who: str, plain: tuple[type, ...]) -> str:
    """ "Tensor", "OptionalTensor" or "Tensors"; "" for an attribute. A parameter without annotation is an
    operand, unless its default is of one of the types ``plain``.

    Raises ArgumentError, with ``who`` as the subject, for a parameter that cannot be given by name."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        raise ArgumentError(
            f"{who}: {function.__qualname__}{inspect.signature(function)}: {parameter} cannot be "
            f"an argument of a node; give every argument a name"
        )
    has_default = parameter.default is not parameter.empty
    if parameter.annotation is not parameter.empty:
        text = _text(parameter.annotation)
        if text in _KINDS:
            return text
        if not _ARRAYS.search(text):
            return ""
        if _SEQUENCE.match(text):
            return "Tensors"
        return "OptionalTensor" if has_default or _OR_NONE.search(text) else "Tensor"
    if isinstance(parameter.default, plain):
        return ""
    return "OptionalTensor" if has_default else "Tensor"


def _text(annotation: Any) -> str:
    """The annotation as it is written, without the name of a module."""
    named = getattr(annotation, "__metadata__", ())
    if named and named[0] in (*_KINDS, "Attribute"):
        return str(named[0])
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"^[\w.]+\.(?=(\w+)$)", "", text.strip("'\" "))
