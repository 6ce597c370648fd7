"""Nested inputs and results of an exported program: dicts, lists, tuples, and classes that torch knows
as pytrees (outputs and caches of transformers), which are dicts of their fields here.

In: a ``TreeSpec`` of ``torch.utils._pytree`` and its leaves in order. Out: plain containers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

#: A leaf that is not there: None, or a number or text that the program was exported with.
ABSENT = object()


def nested(spec: Any, leaves: Iterator[Any]) -> Any:
    """The leaves put together as ``spec`` says; entries that are :data:`ABSENT` are left out."""
    if spec.is_leaf():
        return next(leaves)
    parts = [nested(child, leaves) for child in spec.children()]
    names = _names(spec, len(parts))
    if names is not None:
        return {name: part for name, part in zip(names, parts) if part is not ABSENT} or ABSENT
    kept = [part for part in parts if part is not ABSENT]
    if parts and not kept:
        return ABSENT
    return kept if spec.type is list else tuple(kept)


def flat(spec: Any, value: Any) -> list[Any]:
    """The leaves of a value that :func:`nested` made, in its order; None for those left out. Raises
    KeyError where parts were left out of a list or tuple."""
    if spec.is_leaf():
        return [value]
    children = list(spec.children())
    if value is None:
        return [None] * spec.num_leaves
    names = _names(spec, len(children))
    if names is not None:
        return [leaf for name, child in zip(names, children) for leaf in flat(child, value.get(name))]
    if len(value) < len(children):
        value = [*value, *[None] * (len(children) - len(value))]
    return [leaf for part, child in zip(value, children) for leaf in flat(child, part)]


def _names(spec: Any, count: int) -> list[str] | None:
    """The names of the parts of a dict, or of a class with named fields; None for a sequence."""
    context = spec.context
    if isinstance(context, (list, tuple)) and len(context) == 2 and isinstance(context[0], (list, tuple)):
        context = next((c for c in context if isinstance(c, (list, tuple)) and len(c) == count), context)
    fields = getattr(spec.type, "_fields", None) or context
    if spec.type in (list, tuple) or not isinstance(fields, (list, tuple)) or len(fields) != count:
        return None
    return [str(field) for field in fields] if all(isinstance(field, (str, int)) for field in fields) else None
