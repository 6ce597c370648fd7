"""Exceptions that a program raises under a condition. A graph has no exceptions, but a call can find out whether one
should be raised.

In: a condition of captured control flow, one way of which raises. Out: the number of that exception if the condition
holds, which branches and loops pass on like an attribute; and results of the program that depend on it through an
index that is out of range for any number except 0, so that a call fails. :mod:`fxlite.just_in_time`, which knows the
exceptions, then raises the right one. The code after a statement that raises is computed nevertheless, but ``while``
loops end.
"""

from __future__ import annotations

import opcode
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import OutOfRoom
from fxlite.base.location import here
from fxlite.base.state import UNKNOWN_TEXT, is_traced
from fxlite.ops.op import Op, lookup
from fxlite.tracing.capture.known import assume, known_value
from fxlite.tracing.capture.places import Attribute
from fxlite.tracing.capture.regions import Region, assign
from fxlite.tracing.selections.magnitudes import LIMIT, largest
from fxlite.types import shapes

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer

#: All integers that fit 64 bits, except the largest few, are below this number as floats.
_TOO_LARGE = LIMIT - 4096
#: The factor that turns the number of an exception into an index that no array of a program has by chance.
_FACTOR = 1_000_000_007
_INDEX = re.compile(r"index (\d+) is out of bounds")
_UNKNOWN = re.compile(re.escape(UNKNOWN_TEXT) + r"(?:[^()]|\([^()]*\))*\)")
_RAISES = opcode.opmap["RAISE_VARARGS"]


@dataclass
class Raised:
    """The state of raised exceptions. ``code`` is the number (from 1) of the exception that was raised first; 0 for
    none. ``exceptions`` holds them by the file and line of the statements, and by their types."""

    code: Any = 0
    exceptions: dict[tuple[str, int, type], Exception] = field(default_factory=dict)


def is_raised_by(error: BaseException | None) -> bool:
    """Whether an exception comes from a ``raise`` statement of the program."""
    last = error.__traceback__ if error is not None else None
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_code.co_code[last.tb_lasti] == _RAISES


def note_raised(tracer: Tracer, pred: Any, error: Exception, place: tuple[str, int] | None = None) -> None:
    """Record that the program raises an exception at this point if ``pred`` holds. ``place``: file and line, if it was
    not raised while tracing."""
    raised, last = tracer.raised, error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is not None and place is None:
        place = last.tb_frame.f_code.co_filename, last.tb_lineno
    assert place is not None
    key = (*place, type(error))
    if key not in raised.exceptions:
        if not isinstance(error, OutOfRoom):
            error.add_note(f"raised at {place[0]}:{place[1]}; values in its text were not known when it was made")
        hide_values(error)
        raised.exceptions[key] = error.with_traceback(None)
    number = list(raised.exceptions).index(key) + 1
    first = pred if type(raised.code) is int else lookup("logical_and")(pred, raised.code == 0)
    code = tracer.python_number(lookup("where")(first, number, raised.code))
    assign(tracer, Attribute(raised, "code", "the exception"), code)


def unless(tracer: Tracer, value: Any, pred: Any, error: Exception) -> Any:
    """``value``, but if ``pred`` holds, a call raises ``error`` or, if exceptions are not evaluated, an IndexError."""
    place = here(2)
    if can_note(tracer) and place is not None:
        note_raised(tracer, pred, error, (place.file, place.line))
        return value
    lost = lookup("take")(np.zeros(1, np.int64), lookup("cast")(pred, "i64"), axis=0)
    found = lookup("where")(lost == 0, value, lookup("cast")(0, value.type.dtype))
    return tracer.python_number(found) if hasattr(value, "python_type") else found


def require_there(tracer: Tracer, values: Iterable[Any]) -> None:
    """Let a call raise TypeError if one of the values that the program uses at this point is None."""
    for value in values:
        if isinstance(value, (tuple, list)):
            require_there(tracer, value)
        found = tracer.or_none.get(id(value))
        place = here(2) if found is not None and known_value(found[1]) is None else None
        if found is None or place is None or not can_note(tracer):
            continue
        _, is_there, _ = found
        error = TypeError("the program computes with a variable that is None")
        note_raised(tracer, lookup("logical_not")(is_there), error, (place.file, place.line))
        assume(tracer, is_there, True)


def too_large() -> OverflowError:
    """The exception for a Python integer that does not fit 64 bits."""
    return OverflowError(
        "a Python integer has become larger than 64 bits can hold, and fxlite computes with 64 bits; take the "
        "remainder in each round, count in floats (1.0 in place of 1), or compute it before tracing"
    )


def check_integer(tracer: Tracer, op: Op, x: Any, y: Any, result: Any) -> None:
    """Let a call raise OverflowError if a Python integer that the program computes needs more than 64 bits."""
    place = here(2)
    if largest(tracer, result) < LIMIT or not can_note(tracer) or place is None:
        return
    if op.symbol in ("+", "-"):  # on overflow, the sign differs from that of x and of y (for -: of x and of -y)
        mixed = [
            lookup("bitwise_xor")(x, result),
            lookup("bitwise_xor")(*((y, result) if op.symbol == "+" else (x, y))),
        ]
        pred = lookup("lt")(lookup("bitwise_and")(*mixed), 0)
    else:
        a, b = (lookup("cast")(v, "f64") if is_traced(v) else float(v) for v in (x, y))
        size = lookup("mul")(a, lookup("exp2")(b) if is_traced(b) else 2.0**b) if op.symbol == "<<" else op(a, b)
        pred = lookup("ge")(lookup("abs")(size), _TOO_LARGE)
    note_raised(tracer, pred, too_large(), (place.file, place.line))
    tracer.magnitudes[result.node] = _TOO_LARGE


def hide_values(error: Exception) -> None:
    """Put "..." in place of values in the text of an exception that were not known when it was made."""
    error.args = tuple(map(_without_traced, error.args))
    vars(error).update({name: _without_traced(value) for name, value in vars(error).items()})


def _without_traced(value: Any) -> Any:
    if not is_traced(value) and not isinstance(value, str):
        return value
    return _UNKNOWN.sub("...", str(value))


def can_note(tracer: Tracer) -> bool:
    """Whether everything that is being traced passes on its changes."""
    return tracer.is_finished and all(isinstance(body, Region) for body in tracer.bodies)


def checked(tracer: Tracer, values: Sequence[Any]) -> tuple[Any, Any] | None:
    """The smallest of the values that a program returns or writes, and its replacement, which is the same value unless
    an exception was raised. None if there is nothing to check."""
    if not is_traced(tracer.raised.code):
        return None
    if not values:
        raise tracer.error(
            "the program returns nothing that it computes, but raises an exception on a condition that is not known "
            "while tracing",
            "return an array that it computes",
        )
    smallest = min(values, key=_elements)
    lost = lookup("take")(np.zeros(1, np.int64), lookup("mul")(tracer.raised.code, _FACTOR), axis=0)
    kept = lookup("where")(lost == 0, smallest, lookup("cast")(0, smallest.type.dtype))
    return smallest, kept


def _elements(value: Any) -> int:
    size = shapes.for_user(value.type.size)
    return size if type(size) is int else 1 << 62


def exception_of(error: Exception, exceptions: Mapping[tuple[str, int, type], Exception]) -> Exception | None:
    """The exception of the program for which a failed call stands; None if it failed for another reason."""
    found = _INDEX.search(str(error))
    code, rest = divmod(int(found[1]), _FACTOR) if found else (0, 1)
    if rest or not 0 < code <= len(exceptions):
        return None
    return list(exceptions.values())[code - 1].with_traceback(None)
