"""Texts that are not known while tracing.

``str(n)`` and ``f"{x}"`` of a value (:class:`UnknownText`) may be shown and joined, as in the message of an exception.
Any code that reads their characters would read the name of the value, and raises an error.

A variable that is one of several texts, such as the state of a machine (:class:`OneText`), is a number in the graph.
It can be compared, looked up in a dict, passed on by branches and loops, and returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from fxlite.base.state import UNKNOWN_TEXT, active_tracer
from fxlite.graph import pytree
from fxlite.ops.op import lookup
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


class OneText:
    """One of several texts: the one with the number ``code`` of ``tracer.texts``."""

    def __init__(self, tracer: Tracer, code: Any) -> None:
        self.tracer, self.code = tracer, code

    # -- as a value that loops and branches pass on --------------------------------------------------
    def __fx_children__(self) -> tuple[str, Sequence[str], Sequence[Any]]:
        return "text", ("code",), (self.code,)

    __fx_form__ = ()

    def __fx_rebuilt__(self, parts: Sequence[Any]) -> OneText:
        return OneText(self.tracer, parts[0])

    # -- what can be done with it --------------------------------------------------------------------
    def __eq__(self, other: object) -> Any:
        if not is_text(other):
            return False
        return self.tracer.python_number(lookup("eq")(self.code, code_of(self.tracer, other)))

    def __ne__(self, other: object) -> Any:
        if not is_text(other):
            return True
        return self.tracer.python_number(lookup("ne")(self.code, code_of(self.tracer, other)))

    def __str__(self) -> str:
        return f"{UNKNOWN_TEXT}one of several texts)"

    __repr__ = __str__

    def __format__(self, _: str) -> str:
        return str(self)

    def refuse(self, *_: Any) -> NoReturn:
        """Raise the error for anything else."""
        raise self.tracer.error(
            "the program reads a text that is one of several, and which one is not known while tracing",
            "compare it with == or in, look it up in a dict, or use a number in its place",
        )

    as_key = refuse

    def __getattr__(self, name: str) -> Any:
        if hasattr(str, name) and not name.startswith("_"):
            self.refuse()
        raise AttributeError(f"'str' object has no attribute {name!r}")


for _name in "hash bool len iter getitem contains add radd mul rmul mod rmod lt le gt ge".split():
    setattr(OneText, f"__{_name}__", OneText.refuse)


def is_text(value: Any) -> bool:
    """Whether a value is a text that is known, or one of several that are known."""
    return type(value) is str or isinstance(value, OneText)


def code_of(tracer: Tracer, text: Any) -> Any:
    """The number of a text in ``tracer.texts``, or the traced one for one of several."""
    return text.code if isinstance(text, OneText) else tracer.texts.setdefault(text, len(tracer.texts))


def one_text(tracer: Tracer, text: Any) -> Any:
    """A known text as one of several; any other value unchanged."""
    return OneText(tracer, code_of(tracer, text)) if type(text) is str else text


def holds_one_text(value: Any) -> bool:
    """Whether a value is, or contains, one of several texts."""
    return isinstance(value, OneText) or any(map(holds_one_text, pytree.contents_of(value)))
