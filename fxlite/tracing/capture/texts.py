"""Texts of values that are not known while tracing, such as ``str(n)`` or ``f"{x}"``. They may be shown and joined,
as in the message of an exception. Any code that reads their characters would read the name of the value, and raises
an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxlite.base.state import UNKNOWN_TEXT, active_tracer
from fxlite.types.shapes import NamedDim

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer


class UnknownText(str):
    """A text with unknown values in it; see the docstring of the module. If it consists of a named size only, reading
    it needs the size as a number."""

    def _read(self, *_: Any, **__: Any) -> Any:
        text = str.__str__(self)
        tracer: Any = active_tracer.get()
        for size in tracer.sizes_in_texts:
            if f"{UNKNOWN_TEXT}{size.expr})" in text:
                int(size)
        raise tracer.error(
            f"the program reads a text of a value that is not known while tracing, {text!r}",
            "compute with the value itself: n // 10**k % 10 is a digit of n, x == 1 a comparison",
        )

    def __add__(self, other: str) -> UnknownText:
        return UnknownText(str.__add__(self, other))

    def __radd__(self, other: str) -> UnknownText:
        return UnknownText(str.__add__(other, self))


#: Methods that show, copy or join a text; all other methods of str read it.
_SHOWS = frozenset("str repr format new getattribute getnewargs doc sizeof add join mod".split())
for _name in vars(str):
    if _name.strip("_") not in _SHOWS:
        setattr(UnknownText, _name, UnknownText._read)


class _Size:
    """A named size inside a text."""

    def __init__(self, size: NamedDim) -> None:
        self.text = f"{UNKNOWN_TEXT}{size.expr})"

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def __format__(self, _: str) -> str:
        return self.text


def in_text(tracer: Tracer, value: Any) -> Any:
    """A value in the form in which it is inserted into a text."""
    if not isinstance(value, NamedDim):
        return value
    tracer.sizes_in_texts.append(value)
    return _Size(value)


def as_text(value: Any) -> Any:
    """A text, as an UnknownText if it contains unknown values; any other value unchanged."""
    return UnknownText(value) if type(value) is str and UNKNOWN_TEXT in value else value
