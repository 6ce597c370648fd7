"""Places of a program that hold values: variables, attributes, items of lists and dicts; and the object in a place
whose value is not available.

In: the functions into which a construct was rewritten. Out: places that can be read, set and restored, so that a
branch can be traced without lasting effects.
"""

from __future__ import annotations

import dis
import functools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from fxlite.base.errors import TraceError
from fxlite.base.location import here
from fxlite.base.state import is_traced
from fxlite.graph import pytree
from fxlite.ops.op import OPERATORS
from fxlite.tracing.capture.known import known_value

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer

#: Stands for a variable that is not bound, or an item that does not exist.
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "nothing"})()


class Place:
    """A place that holds a value. ``owner`` is the cell, object or container. Two Places are equal if they refer to
    the same place."""

    __slots__ = ("key", "name", "owner")

    def __init__(self, owner: Any, key: Any, name: str) -> None:
        self.owner, self.key, self.name = owner, key, name

    def __hash__(self) -> int:
        return hash((type(self), id(self.owner), self.key))

    def __eq__(self, other: object) -> bool:
        same = type(other) is type(self) and self.owner is other.owner
        return same and self.key == other.key  # type: ignore[attr-defined]

    def get(self) -> Any:
        """The value, or MISSING."""
        raise NotImplementedError

    def set(self, value: Any) -> None:
        """Store a value; MISSING removes it."""
        raise NotImplementedError

    def merged(self, merging: Any, one: Any, other: Any) -> Callable[[Any], Any]:
        """A function that makes the value of this place after two ways from the values that they leave."""
        return merging.merged(self.name, one, other)  # type: ignore[no-any-return]


class Variable(Place):
    """A variable of a function, given by its cell."""

    __slots__ = ()

    def get(self) -> Any:
        try:
            return self.owner.cell_contents
        except ValueError:
            return MISSING

    def set(self, value: Any) -> None:
        if value is not MISSING:
            self.owner.cell_contents = value
        elif self.get() is not MISSING:
            del self.owner.cell_contents


class Item(Place):
    """An item of a list or dict, such as a global variable."""

    __slots__ = ()

    def get(self) -> Any:
        try:
            return self.owner[self.key]
        except (KeyError, IndexError):
            return MISSING

    def set(self, value: Any) -> None:
        if value is not MISSING:
            self.owner[self.key] = value
        elif self.get() is not MISSING:
            del self.owner[self.key]


class Attribute(Place):
    """An attribute of an object."""

    __slots__ = ()

    def get(self) -> Any:
        return getattr(self.owner, self.key, MISSING)

    def set(self, value: Any) -> None:
        if value is not MISSING:
            setattr(self.owner, self.key, value)
        elif self.get() is not MISSING:
            delattr(self.owner, self.key)


class Contents(Place):
    """The contents of a list, deque or set, as a place."""

    __slots__ = ()

    def get(self) -> Any:
        return tuple(self.owner)

    def set(self, value: Any) -> None:
        for part in value:
            if hasattr(type(part), "belong_to"):
                part.belong_to(self.owner)
        if type(self.owner) is list:
            self.owner[:] = value
            return
        self.owner.clear()
        (self.owner.update if isinstance(self.owner, set) else self.owner.extend)(value)

    def merged(self, merging: Any, one: Any, other: Any) -> Callable[[Any], Any]:
        return merging.lists(self.name, one, other)  # type: ignore[no-any-return]


def variables(names: Iterable[str], parts: Iterable[Callable[..., Any] | None]) -> list[Place]:
    """The variables with these names that the parts of a function share."""
    found: dict[str, Place] = {}
    wanted = set(names)
    for part in parts:
        if part is None:
            continue
        code = part.__code__
        for name, cell in zip(code.co_freevars, part.__closure__ or ()):
            if name in wanted:
                found.setdefault(name, Variable(cell, 0, name))
        for name in code.co_names:
            if name in wanted and name not in found:  # it is declared global
                found[name] = Item(part.__globals__, name, name)
    return [found[name] for name in sorted(found)]


class Unavailable:
    """Replaces the value of a variable that is not available after a branch or a loop. Reading it raises an error
    that says why."""

    __slots__ = ("_advice", "_place", "_reason", "_tracer")

    def __init__(self, tracer: Tracer, reason: str, advice: str) -> None:
        self._tracer, self._reason, self._advice = tracer, reason, advice
        self._place = here(2)

    def refuse(self, *_: Any, **__: Any) -> Any:
        """Raise the error."""
        raise self.error()

    def error(self) -> TraceError:
        return self._tracer.error(self._reason, self._advice)

    def __fx_create_arg__(self, tracer: Tracer) -> Any:
        if tracer.origin is not None:  # it is the result of the program, which has ended
            raise self._tracer.error(self._reason, self._advice, location=self._place)
        raise self.error()

    def __getattr__(self, name: str) -> Any:
        raise self.error()


_READS = (
    "array_ufunc array_function array bool int float index len iter contains call getitem setitem "
    "neg pos abs invert lt le gt ge eq ne str format hash"
).split()
for _name in (*_READS, *(f"{side}{n}" for n in OPERATORS for side in ("", "r", "i"))):
    setattr(Unavailable, f"__{_name}__", Unavailable.refuse)


_OPEN = "whether a list has one of its elements is not known while tracing, and it is asked for element by element"
#: Advice for lists some of whose elements may not exist.
HOW_TO_TAKE = "take it whole (len, sum, max, np.array(found)), or write into an array of the largest size"


class Maybe(Unavailable):
    """An element that a list has only if ``truth`` holds; see :mod:`fxlite.tracing.capture.lists`."""

    __slots__ = ("truth", "value")

    def __init__(self, tracer: Tracer, truth: Any, value: Any) -> None:
        super().__init__(tracer, _OPEN, HOW_TO_TAKE)
        self.truth, self.value = truth, value


class OrNone:
    """A value that is None unless ``is_there`` holds, as branches and loops pass it on. The program itself sees the
    value, of which the tracer knows by its id that it may be None (:func:`noted`): that is computed where the program
    asks ``best is None``, and is an exception of the program where it uses the value (:func:`require_there` in
    :mod:`fxlite.tracing.capture.raised`), unless a condition has decided that it is there."""

    __fx_form__ = ()

    def __init__(self, tracer: Tracer, is_there: Any, value: Any) -> None:
        self.tracer, self.is_there, self.value = tracer, is_there, value

    def __fx_children__(self) -> tuple[str, Sequence[str], Sequence[Any]]:
        return "or_none", ("is_there", "value"), (self.is_there, self.value)

    def __fx_rebuilt__(self, parts: Sequence[Any]) -> Any:
        return noted(self.tracer, *parts)


def noted(tracer: Tracer, is_there: Any, value: Any) -> Any:
    """The value, of which the tracer knows from now on that it is None unless ``is_there`` holds."""
    if not is_traced(is_there):
        return value if is_there else None
    tracer.flags.add(is_there.node)
    for part in (value, *(leaf for _, leaf in pytree.leaves(value) if is_traced(leaf))):
        tracer.or_none.setdefault(id(part), (part, is_there, part is value))
    return value


def or_none(tracer: Tracer, value: Any) -> Any:
    """A value that may be None as an OrNone, or as what it is known to be at this point; others unchanged."""
    found = tracer.or_none.get(id(value))
    if found is None or not found[2]:
        return value
    truth = known_value(found[1])
    if truth is not None:
        return value if truth else None
    return OrNone(tracer, found[1], value)


def with_or_none(tracer: Tracer, value: Any) -> Any:
    """A nested value with an OrNone in place of each part that may be None."""
    found = or_none(tracer, value)
    return pytree.with_parts(value, lambda part: with_or_none(tracer, part)) if found is value else found


def with_what_is_known(tracer: Tracer, value: Any) -> Any:
    """The value of a place or a result at the end of a way, where it may be known whether it, or a part, is None."""
    if not tracer.or_none:
        return value
    _, is_there, is_whole = tracer.or_none.get(id(value), (value, True, False))
    if not is_whole:
        return pytree.with_parts(value, lambda part: with_what_is_known(tracer, part))
    truth = known_value(is_there)
    return value if truth is None else OrNone(tracer, True, value) if truth else None


def outer_variables(function: Any) -> list[Place]:
    """The variables of enclosing functions that a function sets."""
    function = getattr(function, "__func__", function)
    if not getattr(function, "__closure__", None):
        return []
    code = function.__code__
    cells = dict(zip(code.co_freevars, function.__closure__))
    return [Variable(cells[name], 0, name) for name in _stored(code) if name in cells]


@functools.lru_cache(maxsize=256)
def _stored(code: CodeType) -> frozenset[str]:
    """The free variables that a code object, or one inside it, sets."""
    found = {
        i.argval
        for i in dis.get_instructions(code)
        if i.opname in ("STORE_DEREF", "DELETE_DEREF") and i.argval in code.co_freevars
    }
    inner = [_stored(c) for c in code.co_consts if isinstance(c, CodeType)]
    return frozenset(found.union(*inner) & set(code.co_freevars))


_MUTATES = frozenset(
    "append extend insert pop remove clear sort reverse update add discard popitem setdefault "
    "popleft appendleft extendleft rotate heappush heappop heapify heapreplace heappushpop insort "
    "insort_left insort_right".split()
)


def mutated_by(function: Any, args: Sequence[Any]) -> Any:
    """The list, dict, set or deque that a call of a function changes: the owner of a method, the first
    argument of a function of heapq or bisect; None for anything else."""
    owner = getattr(function, "__self__", None)
    if owner is None or getattr(function, "__name__", "") not in _MUTATES:
        return None
    owner = args[0] if isinstance(owner, ModuleType) and args else owner
    is_changed = isinstance(owner, (list, dict, set, bytearray, deque))
    return owner if is_changed and getattr(owner, "maxlen", None) != 0 else None  # a deque of no elements stays empty
