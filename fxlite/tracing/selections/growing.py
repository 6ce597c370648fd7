"""Lists, deques and sets whose number of elements is known only when the program runs: a stack or a queue that a
``while`` loop fills and empties.

In: a list that a loop changes, and the form of its elements. Out: the same list, whose only element is a
:class:`Rows`: arrays with room for a number of elements, and how many of them count. Everything that a program does
with such a list is computed: methods, ``len``, subscripts, ``in``, iteration, ``heapq``. A call in which a list
outgrows its room raises :class:`OutOfRoom`; :func:`fxlite.jit` then compiles with more room.
"""

from __future__ import annotations

import builtins
import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fxlite.base.errors import OutOfRoom
from fxlite.base.location import here
from fxlite.base.state import is_traced
from fxlite.graph import pytree
from fxlite.ops.op import OPERATORS, lookup
from fxlite.tracing.capture.answers import ARRAYS
from fxlite.tracing.capture.bodies import Kind, kind_of, put_together
from fxlite.tracing.capture.places import Contents, Maybe
from fxlite.tracing.capture.regions import is_leaf, kind_of_both, note
from fxlite.tracing.capture.texts import holds_one_text
from fxlite.tracing.proxy import PythonNumber
from fxlite.tracing.writes.shared_memory import fresh, is_number, memory_of, root_of, view_of
from fxlite.types.shapes import NamedDim

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer

Traced = TypeVar("Traced")

#: The most elements that become a Python list again.
MOST_UNROLLED = 4096


class Rows:
    """The elements of a list: the first ``count`` ones after ``first`` of arrays with a row for each. The rows of a
    list that is changed at its start form a ring; for any other list, ``first`` is None. ``form`` is the structure of
    an element, and ``kinds`` are those of its leaves."""

    def __init__(
        self,
        tracer: Tracer,
        owner: Any,
        form: Form,
        arrays: Sequence[Any],
        first: Any = None,
        count: Any = 0,
        suffices: bool = False,
    ) -> None:
        self.tracer, self.owner, self.form, self.arrays = tracer, owner, form, tuple(arrays)
        self.first, self.count = first, count
        #: Whether there is room for all elements that the program can add.
        self.suffices = suffices
        self.kind: type = type(owner)

    def belong_to(self, owner: Any) -> None:
        """Called when it becomes the content of a list."""
        self.owner = owner if self.owner is None else self.owner

    @property
    def room(self) -> int:
        return int(self.arrays[0].shape[0])

    # -- as a value that loops and branches pass on; the arrays stay the same --------------------------
    def __fx_children__(self) -> tuple[str, Sequence[str], Sequence[Any]]:
        if self.first is None:
            return "rows", ("count",), (self.count,)
        return "rows", ("first", "count"), (self.first, self.count)

    @property
    def __fx_form__(self) -> Any:
        return tuple(map(id, self.arrays))

    def __fx_rebuilt__(self, parts: Sequence[Any]) -> Rows:
        first = parts[0] if self.first is not None else None
        made = Rows(self.tracer, None, self.form, self.arrays, first, parts[-1], self.suffices)
        made.kind = self.kind
        return made

    def refuse(self, *_: Any, **__: Any) -> Any:
        """Raise the error for an unsupported operation."""
        raise self.tracer.error(
            f"the number of elements of a {self.kind.__name__} is known only when the program runs, and what is "
            "done with it needs that number",
            "use its methods, len(), subscripts, in, or a for statement; copy it with list()",
        )

    def __repr__(self) -> str:
        return "..."

    # -- elements ------------------------------------------------------------------------------------
    def _row(self, place: Any) -> Any:
        return place if self.first is None else (self.first + place) % self.room

    def at(self, place: Any) -> Any:
        """The element at a place from 0 to ``count - 1``."""
        row = self._row(place)
        return put_together(
            self.form.structure, map(self._leaf, self.arrays, self.form.kinds, [row] * len(self.arrays))
        )

    def _leaf(self, array: Any, kind: Kind, row: Any) -> Any:
        found = array[row]
        if kind.number:
            return _number(self.tracer, found)
        if not kind.type.shape:
            return fresh(found, number=True)
        made = fresh(found)
        memory_of(made).refusal = "is an element of a list, of which it is a copy"
        return made

    def put(self, place: Any, value: Any) -> None:
        """Set the element at a place; its kinds are those of the list."""
        row = self._row(place)
        for array, leaf in zip(self.arrays, self.form.leaves(value)):
            array[row] = self.tracer.number_of_size(leaf) if isinstance(leaf, NamedDim) else leaf

    def within(self, place: Any, what: str) -> Any:
        """A position as a number from 0; a call raises IndexError if there is no such element."""
        number: Any = place
        if type(place) is int and place < 0:
            number = self.count + place
        elif is_traced(place):
            number = lookup("cast")(place, "i64")
            number = _number(self.tracer, lookup("where")(number < 0, number + self.count, number))
        beyond = number >= self.count
        beyond = lookup("logical_or")(lookup("lt")(number, 0), beyond) if is_traced(number) else beyond
        return self._unless(number, beyond, IndexError(what))

    def _unless(self, place: Any, pred: Any, error: Exception) -> Any:
        """A position; a call raises the error if ``pred`` holds."""
        if not is_traced(pred):
            if pred:
                raise error
            return place
        number = place if is_traced(place) else _number(self.tracer, lookup("full")((), place, "i64"))
        found = self.tracer.unless(number, pred, error)
        return _number(self.tracer, lookup("where")(pred, 0, found))

    # -- changes ---------------------------------------------------------------------------------------
    def set(self, first: Any, count: Any) -> None:
        note(self.tracer, place_of(self.owner))
        made = Rows(self.tracer, self.owner, self.form, self.arrays, first, count, self.suffices)
        place_of(self.owner).set([made])

    def _end(self) -> Any:
        """The number of elements, before another one is added; a call in which there is no room for it raises
        OutOfRoom."""
        self.tracer.added[id(self.owner)] += 1
        if self.suffices:
            return self.count
        full = OutOfRoom(f"a {self.kind.__name__} of the program", self.room, here(2))
        return self._unless(self.count, self.count >= self.room, full)

    def _with_room(self) -> Rows:
        """These rows, or a copy with more room, if it is known that no other element fits."""
        if type(self.count) is not int or self.count < self.room:
            return self
        into_rows(self.tracer, self.owner, (self,), None, self.first is not None, 2 * self.room)
        may_grow(self.owner)
        return rows_of(self.owner)  # type: ignore[return-value]

    def _dropped(self, at_start: bool) -> Rows:
        """These rows, without the element at one end of a deque that has as many as its maxlen allows."""
        most = getattr(self.owner, "maxlen", None)
        full = most is not None and self.count >= most
        if not is_traced(full) and not full:
            return self
        dropped = _number(self.tracer, lookup("cast")(full, "i64")) if is_traced(full) else 1
        first = (self.first + dropped) % self.room if at_start else self.first
        self.set(first, self.count - dropped)
        return rows_of(self.owner)  # type: ignore[return-value]

    def add(self, value: Any) -> None:
        """Append an element."""
        rows = self._dropped(True)._with_room()
        place = rows._end()
        rows.put(place, value)
        rows.set(rows.first, place + 1)

    def add_first(self, value: Any) -> None:
        rows = self._dropped(False)._with_room()
        count = rows._end()
        rows.set((rows.first + (rows.room - 1)) % rows.room, count + 1)
        rows_of(self.owner).put(0, value)  # type: ignore[union-attr]

    def take_last(self, what: str) -> Any:
        last = self.within(-1, what)
        found = self.at(last)
        self.set(self.first, last)
        return found

    def take_first(self, what: str) -> Any:
        found = self.at(self.within(0, what))
        self.set((self.first + 1) % self.room, self.count - 1)
        return found

    def move(self, source: Any, count: Any) -> None:
        """Let each row hold the element that stood at the place ``source``, which may be one behind the last."""
        inside = lookup("clip")(source, 0, self.room - 1)
        for array, before in zip(self.arrays, self.in_order()):
            array[...] = before[inside]
        self.set(None if self.first is None else 0, count)

    def places(self) -> Any:
        """The numbers of the rows."""
        return ARRAYS[np.arange](self.tracer, np.arange, (self.room,), {})

    # -- all of them -----------------------------------------------------------------------------------
    def equal(self, value: Any) -> Any:
        """For each row, whether it counts and is this value."""
        rows = self.places()
        if self.first is not None:
            rows = (rows + (self.room - self.first)) % self.room
        found = rows < self.count
        for array, leaf in zip(self.arrays, self.form.leaves(value)):
            found = lookup("logical_and")(found, array == leaf)
        return found

    def in_order(self) -> list[Any]:
        """The arrays, with the first element in the first row."""
        if self.first is None:
            return [*self.arrays]
        rows = self.places()
        return [array[(rows + self.first) % self.room] for array in self.arrays]

    def selected(self) -> list[Any]:
        """The elements as arrays, one for each leaf."""
        if type(self.count) is int:
            return [array[: self.count] for array in self.in_order()]
        there = self.places() < self.count
        if not is_traced(there):
            there = self.tracer.constant(there)
        return [array[there] for array in self.in_order()]

    def emptied(self) -> Any:
        """A list, deque or set like the one that has these rows, without elements."""
        return deque(maxlen=getattr(self.owner, "maxlen", None)) if self.kind is deque else self.kind()

    def copy(self, owner: Any) -> Rows:
        """The same elements, for another list."""
        return Rows(self.tracer, owner, self.form, [fresh(a) for a in self.arrays], self.first, self.count)


for _name in (
    *"array_ufunc array_function array bool int float index len iter contains call getitem setitem neg abs".split(),
    *"invert lt le gt ge eq ne".split(),
    *(f"{side}{n}" for n in OPERATORS for side in ("", "r", "i")),
):
    setattr(Rows, f"__{_name}__", Rows.refuse)
Rows.__hash__ = object.__hash__  # type: ignore[method-assign]


@dataclass
class Form:
    """The structure of the elements of a list, and the kinds of their leaves."""

    structure: pytree.Structure
    kinds: list[Kind]

    @staticmethod
    def of(tracer: Tracer, value: Any) -> Form:
        """That of an element. Raises TraceError for one that no array can hold."""
        leaves: list[Any] = []
        value = _with_inner(value)

        def leaf(part: Any, path: str, keys: tuple[Any, ...]) -> pytree.Structure:
            if not is_leaf(part) or holds_one_text(value):
                kind = "str" if holds_one_text(value) else type(part).__name__
                raise tracer.error(
                    f"a {kind} is put into a list whose number of elements is known only when the program runs",
                    "let its elements be arrays and numbers, or tuples of as many of these",
                )
            leaves.append(part)
            return pytree.LEAF

        structure = pytree.structure_of(value, "an element", leaf)
        for inner in _inner_lists(value):
            inner.arrays = ()  # only its form is needed
        return Form(structure, [kind_of(tracer, part, "an element") for part in leaves])

    def leaves(self, value: Any) -> list[Any]:
        """The leaves of an element."""
        return [leaf for _, leaf in pytree.leaves(_with_inner(value), "")]

    @property
    def is_array(self) -> bool:
        """Whether elements are arrays or numbers, or lists of a known number of such elements."""
        if self.structure is pytree.LEAF:
            return True
        return self.structure.kind == "inner" and bool(self.structure.value.value.form.is_array)

    def listed(self, columns: Iterable[Any]) -> list[Any]:
        """The elements as the program returns them, given the arrays that hold their leaves."""
        parts = [array.tolist() if kind.number else list(array) for array, kind in zip(columns, self.kinds)]
        return [put_together(self.structure, row) for row in zip(*parts)]

    def joined(self, tracer: Tracer, other: Form) -> Form:
        """The form that both elements can have."""
        both = [kind_of_both(a, b) for a, b in zip(self.kinds, other.kinds)]
        if self.structure != other.structure or None in both:
            raise tracer.error(
                f"a list whose number of elements is known only when the program runs gets elements of several kinds: "
                f"{', '.join(map(str, self.kinds))} and {', '.join(map(str, other.kinds))}",
                "let all elements have one type and shape",
            )
        return Form(self.structure, both)  # type: ignore[arg-type]


class Inner:
    """A list that has rows, as an element of another one: their number is known, and the same for all elements. Its
    leaves are arrays with a row for each of its own elements."""

    def __init__(self, rows: Rows) -> None:
        self.form, self.count, self.arrays = rows.form, rows.count, tuple(rows.selected())

    def __fx_children__(self) -> tuple[str, Sequence[Any], Sequence[Any]]:
        return "inner", range(len(self.form.kinds)), self.arrays

    @property
    def __fx_form__(self) -> Any:
        return self.count, self.form.structure, self.form.kinds

    def __fx_rebuilt__(self, parts: Sequence[Any]) -> list[Any]:
        if not is_traced(parts[0]):
            return self.form.listed(parts)
        made: list[Any] = []
        place_of(made).set([Rows(parts[0].tracer, made, self.form, parts, None, self.count, True)])
        return made


def _with_inner(value: Any) -> Any:
    """An element of a list, in which lists that have rows are such elements."""
    rows = rows_of(value)
    if rows is not None:
        if type(rows.count) is not int or not rows.count or rows.kind is not list:
            rows.refuse()
        return Inner(rows)
    return tuple(map(_with_inner, value)) if type(value) is tuple else value


def _inner_lists(value: Any) -> list[Inner]:
    if type(value) is Inner:
        return [value]
    return [found for part in value for found in _inner_lists(part)] if type(value) is tuple else []


def _number(tracer: Tracer, value: Any) -> Any:
    """A Python number."""
    return tracer.python_number(value) if is_traced(value) else value.item() if isinstance(value, np.generic) else value


def form_of(tracer: Tracer, values: Iterable[Any], form: Form | None = None) -> Form | None:
    """The form that elements can have, in a list whose elements have a form already; None if there are no elements."""
    for value in values:
        own = Form.of(tracer, value)
        form = own if form is None else form.joined(tracer, own)
    return form


class Grows(BaseException):
    """Raised where a loop changes a list from outside of it: the ``maker`` of the outermost region around which the
    list was made is traced again, and the list has rows from the start. ``form`` is that of the elements that are
    added, and ``turns`` tells whether it changes at its start; ``room`` is enough for all that can be added, if that is
    known."""

    def __init__(self, maker: Any, owner: Any, form: Form | None, turns: bool, room: int = 0) -> None:
        super().__init__("a list grows in a loop")
        self.maker, self.owner, self.form, self.turns, self.room = maker, owner, form, turns, room


def with_rows(
    tracer: Tracer, trace: Callable[[], Traced], maker: Any, again: Callable[[], None] | None = None
) -> Traced:
    """The result of ``trace``, which is called until no more lists that it changes have to get rows; ``again`` is
    called before each further attempt."""
    grown: dict[int, tuple[Any, tuple[Any, ...], Form, bool, int]] = {}
    while True:
        before, added = tracer.growing, tracer.added.copy()
        tracer.growing = before | grown.keys()
        try:
            result = trace()
            for owner, *_ in grown.values():
                may_grow(owner)
            return result
        except Grows as change:
            tracer.added = added
            owner, form, turns, room = change.owner, change.form, change.turns, change.room
            if change.maker is not maker and id(owner) not in grown:
                raise
            contents = place_of(owner).get()
            if id(owner) in grown:
                _, contents, known, turned, former = grown[id(owner)]
                form, turns = known if form is None else known.joined(tracer, form), turns or turned
                room = max(room, former)
            grown[id(owner)] = owner, contents, into_rows(tracer, owner, contents, form, turns, room), turns, room
        finally:
            tracer.growing = before
        if again is not None:
            again()


def place_of(owner: Any) -> Contents:
    """The contents of a list, deque or set, which branches and loops pass on."""
    return Contents(owner, 0, "items")


def rows_of(value: Any) -> Rows | None:
    """The rows of a list, deque or set; None for any other value. Those without an ``owner`` are of a list that is one
    of several, and can be read."""
    if type(value) not in (list, deque, set):
        return None
    found = next((part for part in value if type(part) is Rows), None)
    if found is not None and (len(value) > 1 or (found.owner is not None and found.owner is not value)):
        found.refuse()
    return found


def holds_rows(value: Any) -> bool:
    """Whether a value is a list that has rows, or contains one."""
    return rows_of(value) is not None or any(map(holds_rows, pytree.contents_of(value)))


def may_grow(owner: Any) -> None:
    """Called when more elements may be added to a list than there was said to be room for."""
    rows = rows_of(owner)
    if rows is not None:
        rows.suffices = False


def changed_by(name: str, args: Sequence[Any], owner: Any) -> tuple[list[Any], bool]:
    """The elements that a method adds, and whether it changes the list at its start."""
    added: list[Any] = []
    if name in ("append", "appendleft", "add"):
        added = [*args]
    elif name in ("extend", "update", "extendleft") and isinstance(args[0], (list, tuple)):
        added = [*args[0]] if rows_of(args[0]) is None else []
    elif name in ("insert", "heappush", "heapreplace", "heappushpop"):
        added = [args[1]]
    at_start = name in ("pop", "insert") and type(args[0] if args else None) is int and args[0] == 0
    return added, type(owner) is deque or at_start


def into_rows(
    tracer: Tracer, owner: Any, contents: Sequence[Any], form: Form | None, turns: bool, room: int = 0
) -> Form:
    """Let a list hold rows, or more rows, if it has some; returns the form of its elements. ``room`` is enough for all
    elements that can be added, if that is known."""
    before = contents[0] if contents and type(contents[0]) is Rows else None
    if before is not None:
        contents = ()
        form = before.form if form is None else before.form.joined(tracer, form)
    parts = [part.value if type(part) is Maybe else part for part in contents]
    form = form_of(tracer, parts, form)
    if form is None:
        raise tracer.error(
            f"a {type(owner).__name__} that is empty before a loop is changed in it, and what its elements will be is "
            "not known",
            "give it its first element before the loop",
        )
    most = getattr(owner, "maxlen", None)
    size = max(room, tracer.room, before.room if before is not None else 0)
    if most is not None and most <= size:  # an element that is added takes the place of the one at the other end
        room = size = max(most, before.room if before is not None else 1)
    while size < len(contents):
        size *= 2
    arrays = [
        ARRAYS[np.zeros](tracer, np.zeros, ((size, *kind.type.shape),), {"dtype": kind.type.dtype.numpy})
        for kind in form.kinds
    ]
    rows = Rows(tracer, owner, form, arrays, 0 if turns else None, 0, room > 0)
    if before is not None:
        rows.first = 0 if before.first is not None else rows.first
        rows.count = before.count
        for array, old in zip(arrays, before.in_order()):
            array[: before.room] = old
    for part, value in zip(contents, parts):
        rows.put(rows.count, value)
        there = _number(tracer, lookup("cast")(part.truth, "i64")) if type(part) is Maybe else 1
        rows.count = rows.count + there
    note(tracer, place_of(owner))
    place_of(owner).set([rows])
    return form


def gathered(flow: Any, tracer: Tracer, values: Sequence[Any]) -> list[Any]:
    """A list that has rows, of those of the values that exist."""
    made = flow.made([])
    into_rows(tracer, made, values, None, False, len(values))
    return made  # type: ignore[no-any-return]


# -- what a program does with them -----------------------------------------------------------------
def _checked(rows: Rows, name: str, args: Sequence[Any]) -> Rows:
    """The rows of a list that are a ring if a method needs that, and take the elements that it adds."""
    added, turns = changed_by(name, args, rows.owner)
    tracer, form = rows.tracer, rows.form
    for value in added:
        form = form.joined(tracer, Form.of(tracer, value))
        is_own = rows_of(value) is not None and tracer.bodies and tracer.bodies[-1].owns(value)
        for leaf in form.leaves(value):
            if is_traced(leaf) and leaf.type.shape:
                _keep(tracer, leaf, bool(is_own))
    turns = turns and rows.first is None
    if form.kinds == rows.form.kinds and not turns:
        return rows
    if id(rows.owner) in tracer.growing:
        raise Grows(None, rows.owner, form, turns)
    arrays = [array.astype(kind.type.dtype.numpy) for array, kind in zip(rows.arrays, form.kinds)]
    made = Rows(tracer, rows.owner, form, arrays, 0 if turns else rows.first, rows.count, rows.suffices)
    made.set(made.first, made.count)
    return made


def _keep(tracer: Tracer, array: Any, is_new: bool) -> None:
    """The list holds a copy of an array, which the program must not change from now on. ``is_new``: each round of the
    loop has another one."""
    body = tracer.bodies[-1] if tracer.bodies else None
    root = root_of(view_of(array))
    if isinstance(array, PythonNumber) or is_number(array):
        return
    if body is not None and not is_new and root in getattr(body, "written", ()):
        raise tracer.error(
            "an array into which a loop writes is put into a list, which would show later writes",
            "put a copy into it: found.append(x.copy())",
            array.node,
        )
    memory_of(array).refusal = memory_of(array).refusal or "is an element of a list that a loop changes"


def call_of(flow: Any, rows: Rows, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A method of a list, deque or set that has rows, or a function of heapq."""
    found = METHODS.get(name)
    if found is None or kwargs:
        rows.refuse()
    return found(flow, _checked(rows, name, args), *args)  # type: ignore[misc]


def _append(flow: Any, rows: Rows, value: Any) -> None:
    rows.add(value)


def _extend(flow: Any, rows: Rows, values: Any) -> None:
    own = rows_of(values)
    if own is not None:
        _extend_by(rows, own)
        return
    if not isinstance(values, (list, tuple)):
        rows.refuse()
    for value in values:
        rows_of(rows.owner).add(value)  # type: ignore[union-attr]


def _extend_by(rows: Rows, more: Rows) -> None:
    """Append the elements of another list that has rows."""
    if rows.first is not None:
        rows.refuse()
    form = rows.form.joined(rows.tracer, more.form)
    if form.kinds != rows.form.kinds:
        rows.refuse()
    room = rows.room
    rows.tracer.added[id(rows.owner)] += more.count if type(more.count) is int else more.room
    count = rows.count + more.count
    if not rows.suffices:
        full = OutOfRoom(f"a {rows.kind.__name__} of the program", room, here(2))
        count = rows._unless(count, count > room, full)
    numbers = rows.places()
    source = lookup("clip")(numbers - rows.count, 0, more.room - 1)
    old = numbers < rows.count
    for array, extra in zip(rows.arrays, more.in_order()):
        shape = (room, *[1] * (array.ndim - 1))
        array[...] = lookup("where")(lookup("reshape")(old, shape), array, extra[source])
    rows.set(None, count)


def _pop(flow: Any, rows: Rows, place: Any = -1) -> Any:
    kind = rows.kind.__name__
    what = f"pop from {'an empty deque' if kind == 'deque' else f'empty {kind}'}"
    if type(place) is int and place == -1:
        return rows.take_last(what)
    if type(place) is int and place == 0 and rows.first is not None:
        return rows.take_first(what)
    place = rows.within(place, "pop index out of range")
    found, numbers = rows.at(place), rows.places()
    rows.move(numbers + (numbers >= place), rows.count - 1)
    return found


def _popleft(flow: Any, rows: Rows) -> Any:
    return rows.take_first("pop from an empty deque")


def _insert(flow: Any, rows: Rows, place: Any, value: Any) -> None:
    if type(place) is int and place == 0:
        rows.add_first(value)
        return
    place = lookup("where")(place < 0, place + rows.count, place) if is_traced(place) or place < 0 else place
    place = _number(rows.tracer, lookup("minimum")(lookup("maximum")(place, 0), rows.count))
    rows.add(value)
    rows = rows_of(rows.owner)  # type: ignore[assignment]
    numbers = rows.places()
    rows.move(numbers - (numbers > place), rows.count)
    rows.put(place, value)


def _reverse(flow: Any, rows: Rows) -> None:
    rows.move((rows.count - 1) - rows.places(), rows.count)


def _index(flow: Any, rows: Rows, value: Any) -> Any:
    equal = rows.equal(value)
    place = _number(rows.tracer, lookup("argmax")(lookup("cast")(equal, "u8")))
    error = ValueError(f"{value} is not in {rows.kind.__name__}")
    return rows._unless(place, lookup("logical_not")(lookup("any")(equal)), error)


def _add(flow: Any, rows: Rows, value: Any) -> None:
    equal = rows.equal(value)
    there = lookup("any")(equal)
    end: Any = rows.count if is_traced(rows.count) else lookup("full")((), rows.count, "i64")
    rows.tracer.added[id(rows.owner)] += 1
    place = _number(rows.tracer, lookup("where")(there, lookup("argmax")(lookup("cast")(equal, "u8")), end))
    if not rows.suffices:
        full = OutOfRoom("a set of the program", rows.room, here(2))
        beyond = lookup("logical_and")(lookup("logical_not")(there), end >= rows.room)
        place = rows._unless(place, beyond, full)
    rows.put(place, value)
    rows.set(None, _number(rows.tracer, lookup("where")(there, rows.count, lookup("minimum")(end + 1, rows.room))))


def _remove(rows: Rows, value: Any, error: Exception | None) -> None:
    """Remove an element of a set, whose last one takes its place."""
    equal = rows.equal(value)
    there = lookup("any")(equal)
    if error is not None:
        rows._unless(0, lookup("logical_not")(there), error)
    last = lookup("maximum")(rows.count - 1, 0)
    place = lookup("where")(there, lookup("argmax")(lookup("cast")(equal, "u8")), last)
    rows.put(_number(rows.tracer, place), rows.at(_number(rows.tracer, last)))
    count = rows.count - lookup("cast")(there, "i64")
    rows.set(None, _number(rows.tracer, count))


def _discard(flow: Any, rows: Rows, value: Any) -> None:
    if rows.kind is not set:
        rows.refuse()
    _remove(rows, value, None)


def _removed(flow: Any, rows: Rows, value: Any) -> None:
    if rows.kind is not set:
        _pop(flow, rows, _index(flow, rows, value))
        return
    _remove(rows, value, KeyError(f"{value}"))


def _clear(flow: Any, rows: Rows) -> None:
    rows.set(rows.first, 0)


def _copied(flow: Any, rows: Rows) -> Any:
    made = rows.emptied()
    place_of(made).set([rows.copy(made)])
    return flow.made(made)


def _count(flow: Any, rows: Rows, value: Any) -> Any:
    return _number(rows.tracer, lookup("sum")(lookup("cast")(rows.equal(value), "i64")))


# -- heapq -----------------------------------------------------------------------------------------
def _is_less(tracer: Tracer, one: Any, other: Any) -> Any:
    """``one < other`` for numbers or, in lexicographic order, for tuples of numbers."""
    if is_leaf(one) and is_leaf(other):
        return lookup("lt")(one, other)
    found: Any = False
    for a, b in zip(one[::-1], other[::-1]):
        equal = reduce(lookup("logical_and"), _pairs_equal(a, b))
        found = lookup("logical_or")(_is_less(tracer, a, b), lookup("logical_and")(equal, found))
    return found


def _pairs_equal(one: Any, other: Any) -> list[Any]:
    return [lookup("eq")(a, b) for (_, a), (_, b) in zip(pytree.leaves(one), pytree.leaves(other))]


def _down(flow: Any, owner: Any, item: Any, start: Any, top: Any = 0) -> None:
    """heapq's ``_siftdown`` of an element at a place toward the place ``top``."""
    rows: Any = rows_of(owner)
    pos = start

    def test() -> Any:
        return flow.and_(pos > top, lambda: _is_less(rows.tracer, item, rows.at((pos - 1) >> 1)))

    def body() -> None:
        nonlocal pos
        parent = (pos - 1) >> 1
        rows.put(pos, rows.at(parent))
        pos = parent

    flow.while_(test, body, None, ("pos",), ("pos",), ("pos",), ("pos",))
    rows.put(pos, item)


def _up(flow: Any, owner: Any, item: Any, start: Any = 0) -> None:
    """heapq's ``_siftup`` of an element at a place."""
    rows: Any = rows_of(owner)
    pos, end = start, rows.count

    def test() -> Any:
        return 2 * pos + 1 < end

    def body() -> None:
        nonlocal pos
        child = 2 * pos + 1
        right = child + 1
        last = _number(rows.tracer, lookup("minimum")(right, end - 1))
        both = _is_less(rows.tracer, rows.at(child), rows.at(last))
        takes = lookup("logical_and")(right < end, lookup("logical_not")(both))
        child = _number(rows.tracer, lookup("where")(takes, right, child))
        rows.put(pos, rows.at(child))
        pos = child

    flow.while_(test, body, None, ("pos",), ("pos",), ("pos",), ("pos",))
    _down(flow, owner, item, pos, start)


def _heappush(flow: Any, rows: Rows, owner: Any, item: Any) -> None:
    rows.add(item)
    _down(flow, owner, item, rows_of(owner).count - 1)  # type: ignore[union-attr]


def _heappop(flow: Any, rows: Rows, owner: Any) -> Any:
    first = rows.at(rows.within(0, "index out of range"))
    _up(flow, owner, rows.take_last("index out of range"))
    return first


def _heapreplace(flow: Any, rows: Rows, owner: Any, item: Any) -> Any:
    first = rows.at(rows.within(0, "index out of range"))
    _up(flow, owner, item)
    return first


def _heapify(flow: Any, rows: Rows, owner: Any) -> None:
    place = rows.count // 2 - 1

    def test() -> Any:
        return place >= 0

    def body() -> None:
        nonlocal place
        _up(flow, owner, rows_of(owner).at(place), place)  # type: ignore[union-attr]
        place = place - 1

    flow.while_(test, body, None, ("place",), ("place",), ("place",), ("place",))


#: Methods of lists, deques and sets, and functions of heapq: ``f(flow, rows, ...)``.
METHODS: dict[str, Callable[..., Any]] = {
    "append": _append,
    "extend": _extend,
    "pop": _pop,
    "popleft": _popleft,
    "appendleft": lambda flow, rows, value: rows.add_first(value),
    "__delitem__": _pop,
    "insert": _insert,
    "add": _add,
    "discard": _discard,
    "remove": _removed,
    "clear": _clear,
    "copy": _copied,
    "count": _count,
    "index": _index,
    "reverse": _reverse,
    "heappush": _heappush,
    "heappop": _heappop,
    "heapreplace": _heapreplace,
    "heapify": _heapify,
}

#: Functions of Python that take a list with rows whole: ``f(flow, rows)``.
OF_ROWS: dict[Any, Callable[..., Any]] = {
    builtins.len: lambda flow, rows: rows.count,
    builtins.bool: lambda flow, rows: flow.truth(rows.count > 0),
    builtins.list: lambda flow, rows: _as(flow, rows, list),
    deque: lambda flow, rows: _as(flow, rows, deque),
}
HEAP = (heapq.heappush, heapq.heappop, heapq.heapreplace, heapq.heapify)


def filled(flow: Any, kind: type, values: Any) -> Any:
    """A list, deque or set that a loop fills with values whose number is computed."""
    made = flow.made(kind())

    def body(value: Any) -> None:
        flow.call(made.add if kind is set else made.append, value)

    flow.for_(values, body, None, (), (), (), ())
    return made


def _as(flow: Any, rows: Rows, kind: type) -> Any:
    """``list(found)``"""
    made = kind()
    arrays = [fresh(a) for a in rows.in_order()]
    place_of(made).set([Rows(rows.tracer, made, rows.form, arrays, None, rows.count)])
    return flow.made(made)


def _slice(rows: Rows, index: slice) -> tuple[Any, int, Any]:
    """The place of the first element of a slice, the step to the next one, and how many there are."""
    step = 1 if index.step is None else index.step
    if type(step) is not int or not step:
        rows.refuse()
    low, high = (0, rows.count) if step > 0 else (-1, rows.count - 1)

    def end(bound: Any, otherwise: Any) -> Any:
        if bound is None:
            return otherwise
        bound = rows.tracer.number_of_size(bound) if isinstance(bound, NamedDim) else bound
        if is_traced(bound):
            bound = lookup("where")(lookup("lt")(bound, 0), lookup("add")(bound, rows.count), bound)
        elif bound < 0:
            bound = rows.count + bound
        return _between(rows.tracer, low, bound, high)

    start, stop = (
        (end(index.start, low), end(index.stop, high)) if step > 0 else (end(index.start, high), end(index.stop, low))
    )
    far = (stop - start if step > 0 else start - stop) + (abs(step) - 1)
    count = far if step in (1, -1) else far // abs(step)
    return start, step, _between(rows.tracer, 0, count, count)


def _between(tracer: Tracer, low: Any, value: Any, high: Any) -> Any:
    """A number, or the nearest one from ``low`` to ``high``, which is at least ``low``."""
    if not any(map(is_traced, (low, value, high))):
        return max(low, min(value, high))
    least = value if value is high else lookup("minimum")(value, high)
    return _number(tracer, lookup("maximum")(least, low))


def joined(flow: Any, left: Any, right: Any) -> Any:
    """``left + right`` for two lists, of which one has rows, or both."""
    tracer = next(rows for value in (left, right) if (rows := rows_of(value)) is not None).tracer
    made: list[Any] = []
    contents = left if rows_of(left) is None else [rows_of(left)]
    own = rows_of(right)
    form = form_of(tracer, right) if own is None else own.form
    room = sum(len(v) if (rows := rows_of(v)) is None else rows.room for v in (left, right))
    into_rows(tracer, made, contents, form, False, room)
    _extend(flow, rows_of(made), right)  # type: ignore[arg-type]
    may_grow(made)
    return flow.made(made)


def bisected(rows: Rows, value: Any, side: str) -> Any:
    """The position of a value in a list in ascending order."""
    form = Form.of(rows.tracer, value)
    if form.structure != rows.form.structure or any(kind.type.shape for kind in rows.form.kinds):
        rows.refuse()
    held = put_together(rows.form.structure, rows.in_order())
    before = _is_less(rows.tracer, held, value)
    if side == "right":
        before = lookup("logical_not")(_is_less(rows.tracer, value, held))
    there = lookup("logical_and")(before, rows.places() < rows.count)
    return _number(rows.tracer, lookup("sum")(lookup("cast")(there, "i64")))


def part_of(flow: Any, rows: Rows, index: Any) -> Any:
    """``found[i]``, and ``found[i:j]``, which is a new list."""
    if isinstance(index, slice):
        start, step, count = _slice(rows, index)
        made = _as(flow, rows, list)
        own: Any = rows_of(made)
        own.move(own.places() * step + start, count)
        return made
    if type(index) is not int and not (is_traced(index) and not index.type.shape):
        index = index.__index__()
    return rows.at(rows.within(index, "list index out of range"))


def set_part(rows: Rows, index: Any, value: Any) -> None:
    """``found[i] = value``"""
    if isinstance(index, slice) or rows.owner is None:
        rows.refuse()
    rows = _checked(rows, "append", (value,))
    rows.put(rows.within(index, "list assignment index out of range"), value)


def contains(rows: Rows, value: Any) -> Any:
    """``value in found``"""
    form = Form.of(rows.tracer, value)
    if form.structure != rows.form.structure:
        return False
    return _number(rows.tracer, lookup("any")(rows.equal(value)))


def unrolled(value: Any) -> Any:
    """A list of a number of elements that is known while tracing in place of one that has rows; any other value
    unchanged."""
    rows = rows_of(value)
    if rows is None:
        return value
    if type(rows.count) is not int or rows.count > MOST_UNROLLED:
        rows.refuse()
    return rows.kind(rows.at(place) for place in range(rows.count))


def as_arrays(rows: Rows) -> Any:
    """The elements as an array; for tuples of numbers, with a column for each."""
    found = rows.selected()
    if rows.form.is_array:
        return found[0]
    if any(kind.type.shape for kind in rows.form.kinds):
        rows.refuse()
    common = np.result_type(*(array.dtype for array in found))
    found = [array if array.dtype == common else array.astype(common) for array in found]
    return ARRAYS[np.stack](rows.tracer, np.stack, (found,), {"axis": 1}) if np.stack in ARRAYS else np.stack(found, 1)


def result_of(rows: Rows) -> Any:
    """The elements as a result of the program: an array, or a tuple of arrays."""
    found = rows.selected()
    return found[0] if len(found) == 1 else tuple(found)


def listed(rows: Rows) -> Callable[[Any], Any]:
    """A function that converts such a result to the list that the program returns."""
    form, made = rows.form, rows.emptied()

    def finish(found: Any) -> Any:
        whole = made.copy()
        add = whole.update if isinstance(whole, set) else whole.extend
        add(form.listed((found,) if len(form.kinds) == 1 else found))
        return whole

    return finish
