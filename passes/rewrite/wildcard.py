"""Wildcards: what keyword-only parameters of a pattern are while it is traced.

In: an attribute of a pattern and that of a node. Out: what the wildcard stands for. A wildcard also
stands where a number is an operand (``x * c``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fxlite.base.errors import ArgumentError
from fxlite.ops.op import lookup
from fxlite.passes.rewrite.same_arguments import same_value
from fxlite.tracing.proxy import Proxy

UNBOUND: Any = type("Unbound", (), {"__repr__": lambda self: "UNBOUND"})()


class Wildcard:
    """Stands for an attribute (or a number) while a pattern is traced."""

    type = None  # as an operand it has no type

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def _operator(op: str, reflected: bool) -> Callable[[Wildcard, Any], Any]:
    """``x * c`` and ``c * x``: a call of an op with a wildcard for a number."""

    def call(self: Wildcard, other: Any) -> Any:
        if not isinstance(other, Proxy):
            raise ArgumentError(
                f"{self.name} stands for any number: a pattern cannot compute with it, a "
                f"replacement or condition can"
            )
        return lookup(op)(other, self) if reflected else lookup(op)(self, other)

    return call


_OPERATORS = "add sub mul truediv:div floordiv:floor_divide mod:remainder pow"
for _pair in _OPERATORS.split():
    _method, _, _op = _pair.partition(":")
    setattr(Wildcard, f"__{_method}__", _operator(_op or _method, False))
    setattr(Wildcard, f"__r{_method}__", _operator(_op or _method, True))
for _op in ("lt", "le", "gt", "ge"):
    setattr(Wildcard, f"__{_op}__", _operator(_op, False))


def holds_wildcard(value: Any) -> bool:
    """True for a wildcard, and for a tuple with one in it."""
    if isinstance(value, tuple):
        return any(holds_wildcard(v) for v in value)
    return isinstance(value, Wildcard)


def bind_template(template: Any, value: Any, slots: list[Any], names: Mapping[str, int]) -> bool:
    """Let the wildcards of an attribute stand for what is in their places."""
    if isinstance(template, Wildcard):
        slot = names[template.name]
        if slots[slot] is UNBOUND:
            slots[slot] = value
            return True
        return same_value(slots[slot], value)
    if isinstance(template, tuple):
        if len(template) == 1 and isinstance(template[0], Wildcard) and isinstance(value, tuple):
            return bind_template(template[0], value, slots, names)  # reshape(s): all of the shape
        return (
            isinstance(value, tuple)
            and len(template) == len(value)
            and all(bind_template(t, v, slots, names) for t, v in zip(template, value))
        )
    return same_value(template, value)
