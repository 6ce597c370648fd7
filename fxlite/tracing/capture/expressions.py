"""The helpers that rewritten expressions and stores call (:mod:`fxlite.tracing.capture.rewrite`): ``and``,
``or``, ``not``, ``a if c else b``, comparisons, stores into parts and attributes, calls.

In: values, and functions for values that Python computes only under a condition. Out: the result of plain
Python if conditions are known while tracing, else that of conditions in the graph.
"""

from __future__ import annotations

import bisect
import builtins
import copy
import dataclasses
import math
import operator
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from fxlite.base.errors import FxliteError, TraceError
from fxlite.base.location import here
from fxlite.base.state import active_tracer, is_traced
from fxlite.graph import pytree
from fxlite.ops.elementwise import COMPARISONS
from fxlite.ops.op import OPERATORS, lookup
from fxlite.tracing.capture.answers import ARRAYS, Items, holds_computed, item_at, stacked
from fxlite.tracing.capture.capture import DISPATCHED, Caller, captured
from fxlite.tracing.capture.control import fori_loop, while_loop
from fxlite.tracing.capture.flow_answers import CONVERSIONS, COUNTED, Counted, counted, list_of, number_of
from fxlite.tracing.capture.known import assume, assuming, implied, known_value, require_one_truth
from fxlite.tracing.capture.lists import DROPPED, OF_OPEN, as_array, is_open, length, refuse
from fxlite.tracing.capture.places import (
    Attribute,
    Contents,
    Item,
    Maybe,
    OrNone,
    Place,
    Unavailable,
    mutated_by,
    or_none,
    outer_variables,
)
from fxlite.tracing.capture.raised import can_note, is_raised_by, note_raised
from fxlite.tracing.capture.regions import FILLER, Outcome, Region, WayRaises, conditional, is_leaf, is_total, note, run
from fxlite.tracing.capture.texts import OneText, as_text, code_of, is_text
from fxlite.tracing.functions.vectorized import vectorized
from fxlite.tracing.proxy import Proxy, PythonNumber, kind_of_number
from fxlite.tracing.selections import growing
from fxlite.tracing.selections.masked import Masked, is_block

#: Methods of traced values that return Python numbers.
_PYTHONS: dict[Any, Callable[[Any], Any]] = {Proxy.item: number_of, Proxy.tolist: list_of}

Part = Callable[[], Any]
Names = tuple[str, ...]

#: Comparisons of two values, by their names in Python's syntax trees.
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    **dict(zip("Eq NotEq Lt LtE Gt GtE".split(), (getattr(operator, name) for name in COMPARISONS), strict=True)),
    "Is": operator.is_,
    "IsNot": operator.is_not,
    "In": lambda a, b: a in b,
    "NotIn": lambda a, b: a not in b,
}
#: The special methods of comparisons, for the left side and for the right one.
_REFLECTED = {
    symbol: (f"__{own}__", f"__{reflected}__")
    for symbol, own, reflected in zip(
        "Eq NotEq Lt LtE Gt GtE".split(), "eq ne lt le gt ge".split(), "eq ne gt ge lt le".split()
    )
}
_UPDATES = "Add Sub Mult Div FloorDiv Mod Pow MatMult BitAnd BitOr BitXor LShift RShift".split()
UPDATES = {kind: getattr(operator, f"__i{name}__") for kind, name in zip(_UPDATES, OPERATORS, strict=True)}


#: The methods of binary operators, and Python's functions for them.
BINARY = {kind: (name, getattr(operator, f"__{name}__")) for kind, name in zip(_UPDATES, OPERATORS, strict=True)}


class Returned:
    """The outcome of a part that was left by ``return value``."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


#: Containers whose truth is that of their number of elements.
_LISTS = (list, deque, set)
#: The jumps by which a part was left, besides :class:`Returned`.
BREAK, CONTINUE = "BREAK", "CONTINUE"


def settled(outcome: Any) -> Any:
    """An outcome in the simplest form."""
    if not isinstance(outcome, Outcome) or not outcome.is_known:
        return outcome
    if outcome.flags["RETURN"]:
        return Returned(outcome.value)
    return next((kind for kind in (BREAK, CONTINUE) if outcome.flags[kind]), None)


class Expressions(Caller):
    """The helpers for expressions and stores; see the docstring of the module."""

    # -- conditions --------------------------------------------------------------------------------
    def truth(self, value: Any) -> Any:
        """The truth of a value: a bool, or a traced one if it is not known."""
        tracer = active_tracer.get()
        found = or_none(tracer, value) if tracer is not None and tracer.or_none else value
        if type(found) is OrNone:
            return self.truth(self.and_(found.is_there, lambda: self.truth(value)))
        if found is None:
            return False
        if is_open(value):
            value = length(active_tracer.get(), value) > 0  # type: ignore[arg-type]
        elif isinstance(value, OneText):
            value = value != ""
        elif (rows := growing.rows_of(value)) is not None:
            value = rows.count > 0
        if not is_traced(value):
            found = self._by_class([(value, "__bool__"), (value, "__len__")])
            return bool(value) if found is NotImplemented else self.truth(found)
        known = known_value(value)
        if known is not None:
            return bool(known)
        tracer = value.tracer
        if tracer.decides_bools:
            return tracer.decide(value)
        if not value.is_typed:
            return tracer.to_bool(value)
        require_one_truth(value)
        if value.ndim:
            value = lookup("reshape")(value, ())
        return value if value.type.dtype.is_bool else lookup("cast")(value, bool)

    def either(self, pred: Any, ways: Sequence[Part], places: Sequence[Place]) -> Any:
        """Trace both ways; returns what they leave behind."""
        tracer = pred.tracer
        self._refuse_in_try(pred)
        try:
            maker = object()
            return settled(
                growing.with_rows(tracer, lambda: conditional(tracer, pred, ways, places, maker=maker), maker)
            )
        except WayRaises as error:
            if not can_note(tracer) or not is_raised_by(error.exception):
                raise
            note_raised(tracer, pred if error.number == 0 else self.not_(pred), error.exception)
            assume(tracer, pred, error.number != 0)
            try:
                return ways[1 - error.number]()
            except Exception as other:  # it is not known which of the two is raised
                raise (error if is_raised_by(other) else other) from None

    def _refuse_in_try(self, pred: Any) -> None:
        """Raise an error inside a statement that may catch exceptions, because it cannot be captured."""
        tracer = pred.tracer
        if tracer.trying:
            tracer.swallowed = tracer.error(
                "a condition that is not known while tracing is inside a try statement, and a graph has no exceptions",
                "take it out of the try statement, or decide by a condition what it catches",
                pred.node,
            )
            raise tracer.swallowed

    # -- expressions -------------------------------------------------------------------------------
    def and_(self, first: Any, *more: Part) -> Any:
        for then in more:
            truth = self.truth(first)
            if is_traced(truth):
                first = self._both(truth, truth if type(first) in _LISTS else first, then, "logical_and")
            elif not truth:
                return first
            else:
                first = then()
        return first

    def or_(self, first: Any, *more: Part) -> Any:
        for then in more:
            truth = self.truth(first)
            if is_traced(truth):
                first = self._both(truth, truth if type(first) in _LISTS else first, then, "logical_or")
            elif truth:
                return first
            else:
                first = then()
        return first

    def true_and_(self, first: Any, *more: Part) -> Any:
        """``and`` where only the truth of the result matters, so that lists may stand beside other values."""
        return self.and_(self._if_list(first), *(lambda then=then: self._if_list(then()) for then in more))

    def true_or_(self, first: Any, *more: Part) -> Any:
        return self.or_(self._if_list(first), *(lambda then=then: self._if_list(then()) for then in more))

    def _if_list(self, value: Any) -> Any:
        """The truth of a list; any other value unchanged."""
        return self.truth(value) if type(value) in _LISTS else value

    def _both(self, truth: Any, first: Any, then: Part, name: str) -> Any:
        """``first and then()`` (or ``or``); both are computed if that is harmless."""
        facts = implied(truth.tracer, truth, name == "logical_and")
        way = run(Region(truth.tracer, "a condition", ()), then, facts)
        calls = [node for node in way.region.graph.nodes if node.op == "call_function"]
        is_bool = truth is first and (type(way.outcome) is bool or _is_bool(way.outcome))
        if is_bool and all(map(is_total, calls)) and not way.region.roots:
            if type(way.outcome) is bool and way.outcome is (name == "logical_or"):
                return way.outcome
            with assuming(truth.tracer, facts):
                other = then()
            both, is_python = lookup(name)(first, other), all(kind_of_number(v) is bool for v in (first, other))
            return both.tracer.python_number(both) if is_python else both
        one, other = (then, lambda: first)
        found = self.choose(truth, *((one, other) if name == "logical_and" else (other, one)))
        if truth.tracer.flags and _is_bool(found):
            truth.tracer.decided_by[found.node] = name, truth.node
        return found

    def not_(self, value: Any) -> Any:
        truth = self.truth(value)
        return truth.tracer.python_number(lookup("logical_not")(truth)) if is_traced(truth) else not truth

    def kept(self, test: Any, then: Part) -> Any:
        """An element of a comprehension that has a condition."""
        truth = self.truth(test)
        if not is_traced(truth):
            return then() if truth else DROPPED
        return Maybe(truth.tracer, truth, self.choose(truth, then, lambda: FILLER))

    def gathered(self, values: list[Any]) -> Any:
        """The list that a comprehension makes from such elements."""
        return self.made([value for value in values if value is not DROPPED])

    def folded(
        self,
        function: Any,
        plain: Callable[[Any], Any],
        values: Any,
        element: Callable[[Any], Any],
        *default: Any,
        **options: Any,
    ) -> Any:
        """``sum``, ``any``, ``max`` or ``next`` of a comprehension. It becomes a loop if the number of elements, or
        which one is the first, is not known while tracing. ``element`` maps a value to whether it counts, and to a
        function that computes its element."""
        tracer = active_tracer.get()
        fold = _FOLDS.get(function) if tracer is not None else None
        over = counted(tracer, values) if tracer is not None and fold is not None else None
        if fold is None or over is None or (type(over.count) is int and (function is not next or over.is_listed)):
            return plain(values)
        return fold(
            self, over, lambda number: element(number if over.is_range else over.item(number)), *default, **options
        )

    def choose(self, test: Any, one: Part, other: Part) -> Any:
        truth = self.truth(test)
        if not is_traced(truth):
            return one() if truth else other()
        ways = (lambda: Returned(one()), lambda: Returned(other()))
        return self.either(truth, ways, ()).value

    def operated(self, symbol: str, left: Any, right: Any) -> Any:
        """``left + right`` and so on; operators of the program's own classes are captured like its functions."""
        name, plain = BINARY[symbol]
        sides: list[tuple[Any, ...]] = [(left, f"__{name}__", right)]
        if not isinstance(left, (np.ndarray, np.generic)):  # these treat any object as an element
            sides.append((right, f"__r{name}__", left))
        found = self._by_class(sides)
        if found is not NotImplemented:
            return found
        if symbol == "Mod" and isinstance(left, str):
            return self._formatted(left, right)
        for value, other in ((left, right), (right, left)):
            if (rows := growing.rows_of(value)) is not None:
                if symbol != "Add" or type(value) is not list or type(other) is not list or is_open(other):
                    rows.refuse()
                return growing.joined(self, left, right)
        found = plain(left, right)
        return self.made(found) if type(found) is list else found

    def _by_class(self, calls: Sequence[tuple[Any, ...]]) -> Any:
        """What the first special method of a class of the program gives for (object, name of the method, arguments)."""
        for owner, method, *args in calls:
            function = getattr(type(owner), method, None)
            if type(function) is FunctionType and captured(function, self.name) is not function:
                found = captured(function, self.name)(owner, *args)
                if found is not NotImplemented:
                    return found
        return NotImplemented

    def _formatted(self, text: str, values: Any) -> Any:
        """``"%s" % x``"""
        try:
            return as_text(text % values)
        except TypeError as error:
            raise active_tracer.get().error(  # type: ignore[union-attr]
                f"a text is made of a value that does not exist while tracing ({error})", "write %s, or an f-string"
            ) from error

    def compare(self, symbols: Names, left: Any, right: Any, *more: Part) -> Any:
        found = self._compared(symbols[0], left, right)
        if not more:
            return found

        def rest() -> Any:
            return self.compare(symbols[1:], right, more[0](), *more[1:])

        return self.and_(found, rest)

    def _compared(self, symbol: str, left: Any, right: Any) -> Any:
        for value in (left, right):
            if isinstance(value, Unavailable):
                value.refuse()
        if left is None or right is None:
            found = self._is_none(symbol, left if right is None else right)
            if found is not NotImplemented:
                return found
        elif symbol in ("Eq", "NotEq") and (is_text(left) or is_text(right)):
            found = self._is_text(symbol, left, right)
            if found is not NotImplemented:
                return found
        if symbol in ("Is", "IsNot") and _is_one_object(left, right):
            found = left.tracer.python_number(lookup("eq")(left, right))
            return found if symbol == "Is" else self.not_(found)
        if symbol in _REFLECTED:
            return self._ordered(symbol, left, right)
        if symbol not in ("In", "NotIn"):
            return _COMPARED[symbol](left, right)
        rows = growing.rows_of(right)
        found = self._by_class([(right, "__contains__", left)]) if rows is None else growing.contains(rows, left)
        if found is not NotImplemented:
            return self.truth(found) if symbol == "In" else self.not_(found)
        values = right if isinstance(right, (tuple, list)) else ()
        computed = any(is_traced(v) or isinstance(v, OneText) for v in (left, *values))
        if isinstance(left, OneText) and isinstance(right, (set, frozenset, dict)):
            right = tuple(right)
        if not is_traced(right) and not computed:
            return _COMPARED[symbol](left, right)
        if is_traced(right) and known_value(right) is None:
            found = right.tracer.python_number(lookup("any")(right == left))
        elif isinstance(right, (range, Counted)) or is_traced(right):
            return _COMPARED[symbol](left, right)
        else:
            if is_traced(left) and left.ndim and not isinstance(right, (tuple, list)):
                raise left.as_key()
            found = self.or_(False, *((lambda v=v: self.truth(left == v)) for v in right))
            found = found.tracer.python_number(found) if is_traced(found) else bool(found)
        return found if symbol == "In" else self.not_(found)

    def _is_none(self, symbol: str, value: Any) -> Any:
        """``best is None`` and so on, for a value that may be None; NotImplemented for other values."""
        tracer = active_tracer.get()
        found = or_none(tracer, value) if tracer is not None else value
        if found is value or symbol not in ("Is", "IsNot", "Eq", "NotEq"):
            return NotImplemented
        if type(found) is OrNone and symbol in ("Eq", "NotEq") and is_traced(value) and value.ndim:
            problem = "an array is compared by == with None, which it may be itself"
            raise found.tracer.error(problem, "write: x is None", value.node)
        is_none = self.not_(found.is_there) if type(found) is OrNone else True
        return is_none if symbol in ("Is", "Eq") else self.not_(is_none)

    def _is_text(self, symbol: str, left: Any, right: Any) -> Any:
        """``state == "on"``, for a text that may be None; NotImplemented for other values."""
        tracer = active_tracer.get()
        found = [or_none(tracer, v) if tracer is not None else v for v in (left, right)]
        flags = [v.is_there for v in found if type(v) is OrNone]
        if len(flags) != 1:
            return NotImplemented
        equal = self.and_(flags[0], lambda: self._compared("Eq", left, right))
        return equal if symbol == "Eq" else self.not_(equal)

    def _ordered(self, symbol: str, left: Any, right: Any) -> Any:
        """``left == right``, ``left < right`` and so on."""
        if is_traced(left) or is_traced(right):
            return _COMPARED[symbol](left, right)
        one, other = _parts_compared(symbol, left), _parts_compared(symbol, right)
        if one is not None and other is not None and type(left) is type(right):
            return self._sequences(symbol, one, other)
        own, reflected = _REFLECTED[symbol]
        found = self._by_class([(left, own, right), (right, reflected, left)])
        if found is NotImplemented and symbol == "NotEq":
            found = self._by_class([(left, "__eq__", right), (right, "__eq__", left)])
            return self.not_(found) if found is not NotImplemented else left != right
        return _COMPARED[symbol](left, right) if found is NotImplemented else found

    def _sequences(self, symbol: str, left: Sequence[Any], right: Sequence[Any]) -> Any:
        """The comparison of two tuples or lists, whose first different parts decide."""
        for value in (left, right):
            if (rows := growing.rows_of(value)) is not None:
                rows.refuse()
        if not any(is_traced(leaf) for _, leaf in pytree.leaves((left, right))):
            return _COMPARED[symbol](left, right)
        if symbol == "NotEq":
            return self.not_(self._sequences("Eq", left, right))
        found: Any = _COMPARED[symbol](len(left), len(right))
        if symbol == "Eq":
            found = self.and_(found, *(partial(self._compared, "Eq", a, b) for a, b in zip(left, right)))
            return found.tracer.python_number(found) if is_traced(found) else bool(found)
        strict = symbol.removesuffix("E")
        for a, b in reversed([*zip(left, right)]):
            equal = self._compared("Eq", a, b)
            found = self.or_(self._compared(strict, a, b), partial(self.and_, equal, partial(_same, found)))
        return found

    def _by_object(self, function: Any, args: tuple[Any, ...]) -> Any:
        """``len(x)`` and the like by a special method of a class of the program; NotImplemented if there is none."""
        if function is isinstance or function is type:
            return self._type_of(function, args)
        names = _OWN.get(function, ()) if len(args) == 1 else ()
        found = self._by_class([(args[0], name) for name in names])
        return self.call(bool, found) if function is bool and found is not NotImplemented else found

    def _type_of(self, function: Any, args: tuple[Any, ...]) -> Any:
        """``isinstance(x, ...)`` for a value that may be None; NotImplemented for any other."""
        tracer = active_tracer.get()
        value = or_none(tracer, args[0]) if tracer is not None and args else None
        if type(value) is not OrNone:
            return NotImplemented
        if function is type:
            raise value.tracer.error("the program asks for the type of a value that may be None", "write: x is None")
        there, none = (partial(self.call, function, part, *args[1:]) for part in (args[0], None))
        return self.choose(value.is_there, there, none)

    def _found(self, tracer: Any, function: Any, values: Sequence[Any], value: Any) -> Any:
        """``values.count(value)``, or ``values.index(value)`` with an exception if it is not among them."""
        if not any(map(is_traced, (*values, value))) or is_open(values):
            return super().call(function, value)
        truths = [self.truth(v == value) for v in values]
        if function.__name__ == "count":
            return length(tracer, [Maybe(tracer, truth, v) for truth, v in zip(truths, values)])
        return self._place(tracer, truths, ValueError(f"{value} is not in the {type(values).__name__}"))

    def _place(self, tracer: Any, truths: Sequence[Any], error: Exception) -> Any:
        """The position of the first of several conditions that holds, with an exception if there is none."""
        found = stacked(tracer, truths)
        place = tracer.python_number(lookup("argmax")(lookup("cast")(found, "u8")))
        return tracer.unless(place, self.not_(lookup("any")(found)), error)

    def holder(self, owner: Any, name: str) -> Any:
        """The object whose attribute is read. For a property of the program's classes, its captured function computes
        the value."""
        if active_tracer.get() is None or isinstance(owner, (Proxy, ModuleType, type)):
            return owner
        found = next((vars(c)[name] for c in type(owner).__mro__ if name in vars(c)), None)
        if type(found) is not property or type(found.fget) is not FunctionType:
            return owner
        function = captured(found.fget, self.name)
        return owner if function is found.fget else SimpleNamespace(**{name: function(owner)})

    # -- statements --------------------------------------------------------------------------------
    def assert_(self, test: Part, message: Part | None) -> None:
        tracer = active_tracer.get()
        if tracer is None:
            truth = bool(test())
        else:
            tracer.asserting += 1
            try:
                truth = self.truth(test())
            finally:
                tracer.asserting -= 1
        if is_traced(truth) and can_note(truth.tracer) and (place := here(2)) is not None:
            self._refuse_in_try(truth)
            error = AssertionError(*(() if message is None else (message(),)))
            note_raised(truth.tracer, self.not_(truth), error, (place.file, place.line))
            assume(truth.tracer, truth, True)
        elif is_traced(truth):
            warnings.warn(f"{here(2)}: the assert is not checked by the graph, which has no exceptions", stacklevel=3)
            truth.tracer.note_statement("assert", "is not checked: a graph has no exceptions")
        elif not truth:
            raise AssertionError(*(() if message is None else (message(),)))

    def made(self, value: Any) -> Any:
        """A list, dict or set that the program has made."""
        region = _region()
        if region is not None:
            region.own_object(value)
        return value

    def set_item(self, value: Any, owner: Any, index: Any) -> None:
        region = _region()
        if is_open(owner):
            self._let_have_rows(owner)
        if (rows := growing.rows_of(owner)) is not None:
            growing.set_part(rows, index, value)
            return
        _refuse_several(owner)
        if (type(owner) in (list, dict) and _is_unknown(index)) or (type(owner) is dict and isinstance(index, OneText)):
            self._set_somewhere(owner, index, value)
            return
        if isinstance(owner, dict) and is_traced(index):
            raise index.as_key()
        if self._by_class([(owner, "__setitem__", index, value)]) is not NotImplemented:
            return
        if region is not None and not is_traced(owner):
            if isinstance(owner, (list, dict)) and not isinstance(index, slice):
                if not is_traced(index):
                    key = operator.index(index) if isinstance(owner, list) else index
                    if isinstance(owner, list) and key < 0:  # the last one is another one in a longer list
                        key += len(owner)
                    note(region.tracer, Item(owner, key, f"{type(owner).__name__}[{index!r}]"))
            elif not region.owns(owner) and not (hasattr(owner, "__fx_selected__") or is_block(owner)):
                raise _refused(region, owner, "is written to")
        owner[index] = value

    def _set_somewhere(self, owner: Any, index: Any, value: Any) -> None:
        """``values[i] = v`` for an unknown position, which may be that of any element, or for an unknown key, which may
        be any of those that a dict has."""
        if type(owner) is dict:
            _check_keys(owner, index)
            missing = RuntimeError("a compiled program gives a dict no key that it did not have before")
            truths = [index == key for key in owner]
            self._place(index.tracer, truths, missing)
            for key, truth in zip([*owner], truths):
                self.set_item(self.choose(truth, lambda: value, partial(owner.__getitem__, key)), owner, key)
            return
        if len(owner) > _MOST_CHOSEN or not all(map(is_leaf, (*owner, value))):
            self._let_have_rows(owner, value)
            self.set_item(value, owner, index)
            return
        place = index % len(owner)  # negative positions count from the end
        self.part(owner, index)[index]  # raises an error if it is out of range
        for number in range(len(owner)):
            self.set_item(
                self.choose(place == number, lambda: value, partial(owner.__getitem__, number)), owner, number
            )

    def delete_item(self, owner: Any, index: Any) -> None:
        """``del owner[index]``"""
        region = _region()
        if self._by_class([(owner, "__delitem__", index)]) is not NotImplemented:
            return
        if type(owner) in (list, deque) and not isinstance(index, slice):
            self.call(owner.pop if type(owner) is list else owner.__delitem__, index)
            return
        if _is_unknown(index):
            raise index.as_key()
        if region is not None and not region.owns(owner):
            raise _refused(region, owner, "is changed by del")
        if active_tracer.get() is not None and (is_open(owner) or growing.rows_of(owner) is not None):
            refuse(active_tracer.get(), "del changes")  # type: ignore[arg-type]
        del owner[index]

    def delete_attribute(self, owner: Any, name: str) -> None:
        """``del owner.name``"""
        region = _region()
        _refuse_several(owner)
        if region is not None and not region.owns(owner):
            note(region.tracer, Attribute(owner, name, f"{type(owner).__name__}.{name}"))
        delattr(owner, name)

    def set_attribute(self, value: Any, owner: Any, name: str) -> None:
        region = _region()
        _refuse_several(owner)
        is_write = is_traced(owner) and name != "shape"  # ``z.real = x`` writes into the memory of z
        if region is not None and not is_write and not region.owns(owner):
            note(region.tracer, Attribute(owner, name, f"{type(owner).__name__}.{name}"))
        setattr(owner, name, value)

    def updated(self, symbol: str, value: Any, other: Any) -> Any:
        region = _region()
        changes = isinstance(value, (list, dict, set, np.ndarray))
        _refuse_several(value)
        if type(value) is list and symbol == "Add" and growing.rows_of(value) is not None:
            self.call(value.extend, other)
            return value
        if region is not None and changes and not region.owns(value):
            if type(value) is list and symbol == "Add":
                self._let_grow(region.tracer, value, value.extend, (other,))
            raise _refused(region, value, "is changed in place")
        return UPDATES[symbol](value, other)

    def _let_have_rows(self, owner: list[Any], *values: Any) -> None:
        """Let a list have rows, because one of its elements is set to a value: one at a computed position, or some of
        them may not exist."""
        tracer: Any = active_tracer.get()
        region = _region()
        if region is not None and not region.owns(owner):
            self._let_grow(tracer, owner, owner.append if values else owner.__setitem__, values, is_sure=bool(values))
            refuse(tracer, "an element is set in")
        growing.into_rows(tracer, owner, [*owner], growing.form_of(tracer, values), False)

    def update_item(self, symbol: str, owner: Any, index: Any, other: Any) -> None:
        if is_open(owner):
            self._let_have_rows(owner)
        is_unknown = type(owner) in (list, dict) and (_is_unknown(index) or growing.rows_of(owner) is not None)
        is_unknown = is_unknown or (type(owner) is dict and isinstance(index, OneText))
        before = self.part(owner, index)[index] if is_unknown else self.part_of_object(owner)[index]
        self.set_item(self.updated(symbol, before, other), owner, index)

    def update_attribute(self, symbol: str, owner: Any, name: str, other: Any) -> None:
        self.set_attribute(self.updated(symbol, getattr(owner, name), other), owner, name)

    def enter_try(self) -> None:
        """Called at the start of a ``try`` with handlers."""
        tracer = active_tracer.get()
        if tracer is not None:
            tracer.trying += 1

    def leave_try(self) -> None:
        """Called at the end of a ``try`` with handlers."""
        tracer = active_tracer.get()
        if tracer is not None:
            tracer.trying -= 1

    # -- calls -------------------------------------------------------------------------------------
    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        tracer = active_tracer.get()
        if tracer is None:
            return function(*args, **kwargs)
        try:
            answer = COUNTED.get(function) or CONVERSIONS.get(function)
        except TypeError:  # it has no hash: an object of the program
            return self.call(type(function).__call__, function, *args, **kwargs)
        found = self._by_object(function, args)
        if found is not NotImplemented:
            return found
        if answer is not None:
            return answer(tracer, function, args, kwargs)
        if type(function) is np.vectorize and any(is_traced(a) or isinstance(a, Masked) for a in args) and not kwargs:
            return vectorized(tracer, function, args, partial(self.call, function.pyfunc))
        owner: Any = getattr(function, "__self__", None)
        if type(function) is MethodType and function.__func__ in _PYTHONS and not kwargs:
            if not args:
                return _PYTHONS[function.__func__](owner)
            return number_of(owner[args] if len(args) > 1 else owner.reshape(-1)[args[0]])  # ``x.item(0)``
        found, args = self._of_rows(tracer, function, args, kwargs)
        if found is not NotImplemented:
            return found
        if type(owner) in (list, tuple) and len(args) == 1 and function.__name__ in ("count", "index"):
            return self._found(tracer, function, owner, args[0])
        if args and is_open(args[0]) and function in OF_OPEN:
            return OF_OPEN[function](self, tracer, *args, **kwargs)
        if function in ARRAYS or type(function) in DISPATCHED:
            args = tuple(as_array(tracer, a) if is_open(a) else a for a in args)
        region = _region()
        changed = mutated_by(function, args) if function is not next else args[0]
        grows = type(changed) is list and function.__name__ in ("append", "extend")
        _refuse_several(changed)
        if is_open(changed) and not grows:
            return self._given_rows(tracer, changed, function, args)
        if region is None:
            return self._called(tracer, function, args, kwargs)
        if region.is_branch and (grows or (type(changed) is list and function.__name__ in ("sort", "reverse"))):
            self._let_grow(tracer, changed, function, args, in_branches=False)
            note(tracer, Contents(changed, 0, "a list"))
        elif changed is not None and not region.owns(changed):
            self._let_grow(tracer, changed, function, args)
            name = getattr(function, "__name__", "next")
            raise _refused(region, changed, f"is changed by {name}()")
        for place in outer_variables(function):
            region.note(place)
        result = self._called(tracer, function, args, kwargs)
        makes = any(function is one for one in _COPIES) or _is_copy(function)  # "in" would ask objects of the program
        if makes or (isinstance(function, type) and not is_traced(result)):
            region.own_object(result)
        return result

    def _of_rows(self, tracer: Any, function: Any, args: tuple[Any, ...], kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
        """The result of a function of a list that has rows, or of its method, and NotImplemented for any other call;
        and the arguments, with arrays or elements in place of such lists."""
        owner: Any = getattr(function, "__self__", None)
        if function is sorted and isinstance(args[0], Masked) and kwargs.keys() <= {"reverse"}:
            function, args = list, (np.sort(args[0])[:: -1 if kwargs.get("reverse") else 1],)
        is_list = isinstance(owner, Masked) and owner.ndim == 1 and function.__name__ == "tolist"
        if is_list or (function in _LISTS and args and isinstance(args[0], (Counted, Masked))):
            over = counted(tracer, owner if is_list else args[0])
            if over is not None and is_traced(over.count):
                numbers = Counted(tracer, over.count, lambda k: number_of(over.item(k))) if is_list else over
                return growing.filled(self, list if is_list else function, numbers), args
        if function in _INSERTS and (growing.holds_rows(args[:1]) or any(map(holds_computed, args))):
            return self.call(args[0].insert, self.call(_INSERTS[function], *args, **kwargs), args[1]), args
        whole = next((rows for value in (owner, *args) if (rows := growing.rows_of(value)) is not None), None)
        if whole is None and function in growing.HEAP and any(is_traced(leaf) for _, leaf in pytree.leaves(args)):
            return self._given_rows(tracer, args[0], function, args), args  # its place depends on values
        if whole is None or isinstance(function, (FunctionType, MethodType, partial)):
            return NotImplemented, args
        if function in growing.OF_ROWS and (len(args) > 1 or kwargs):
            whole.refuse()
        if function in growing.OF_ROWS:
            return growing.OF_ROWS[function](self, whole), args
        if function in growing.HEAP or whole.owner is owner:
            return growing.call_of(self, whole, function.__name__, args, kwargs), args
        if function in _FOLDS:
            return NotImplemented, (counted(tracer, args[0]), *args[1:])
        if function in ARRAYS or type(function) in DISPATCHED:
            found = [growing.rows_of(a) for a in args]
            return NotImplemented, tuple(a if r is None else growing.as_arrays(r) for a, r in zip(args, found))
        changed = mutated_by(function, args)
        if changed is None and function not in (isinstance, type, id):
            return NotImplemented, tuple(map(growing.unrolled, args))
        if type(changed) is list and function.__name__ == "append":
            return NotImplemented, args  # a list in a list
        return (NotImplemented if function in (isinstance, type, id) else whole.refuse()), args

    def _given_rows(self, tracer: Any, owner: Any, function: Any, args: tuple[Any, ...]) -> Any:
        """What a function that changes a list gives, which has rows from now on."""
        region = _region()
        if function.__name__ not in growing.METHODS:
            refuse(tracer, f"{function.__name__}() changes")
        if region is not None and not region.owns(owner):
            self._let_grow(tracer, owner, function, args)
            raise _refused(region, owner, f"is changed by {function.__name__}()")
        added, turns = growing.changed_by(function.__name__, args, owner)
        growing.into_rows(tracer, owner, [*owner], growing.form_of(tracer, added), turns)
        return self.call(function, *args)

    def _let_grow(
        self,
        tracer: Any,
        changed: Any,
        function: Any,
        args: tuple[Any, ...],
        in_branches: bool = True,
        is_sure: bool = False,
    ) -> None:
        """Let a list have rows that was made outside of the branches and loops that change it: everything is traced
        again since it was made. A loop of a few rounds is unrolled instead, and one whose number of rounds is known if
        it is in a branch; ``in_branches`` tells whether branches alone are a reason. ``is_sure``: an unrolled loop
        would need rows, too."""
        maker, around = None, []
        for body in reversed(tracer.bodies):
            if not isinstance(body, Region) or body.owns(changed):
                break
            _, changed = body.instead.get(id(changed), (changed, changed))
            maker = body.maker or maker
            around.append(body)
        loops = [body for body in around if body.is_open is not None]
        fits = is_sure or any(body.is_open for body in loops) or (in_branches and not loops)
        if not fits and any(body.is_long for body in loops) and loops[-1] is around[-1]:
            fits = tracer.lists_have_rows = True
        if maker is not None and fits and type(changed) in (list, deque, set):
            added, turns = growing.changed_by(function.__name__, args, changed)
            raise growing.Grows(maker, changed, growing.form_of(tracer, added), turns)

    def _inserted(self, values: list[Any], place: Any, value: Any) -> list[Any]:
        """The elements of a list, with another one at a place that is not known while tracing."""
        last = len(values)
        place = lookup("clip")(lookup("where")(place < 0, place + last, place), 0, last)
        new, kept = partial(_same, value), [partial(_same, part) for part in values]
        if not values:
            return [value]
        inner = [
            self.choose(place > n, kept[n], partial(self.choose, place == n, new, kept[n - 1])) for n in range(1, last)
        ]
        return [self.choose(place > 0, kept[0], new), *inner, self.choose(place == last, new, kept[-1])]

    def _called(self, tracer: Any, function: Any, args: Any, kwargs: Any) -> Any:
        owner = getattr(function, "__self__", None)
        if type(owner) is list and function.__name__ == "sort" and not args:
            owner[:] = self.call(sorted, [*owner], **kwargs)
            return None
        if type(owner) is list and function.__name__ == "insert" and is_traced(args[0]):
            owner[:] = self._inserted([*owner], *args)
            return None
        if (
            type(function) is BuiltinFunctionType
            and len(args) == 1
            and (not kwargs or (kwargs.keys() == {"key"} and function in (max, min)))
            and function is not next
            and type(args[0]) in (Proxy, Counted, Masked)
        ):
            plain = partial(super().call, function, **kwargs)
            return self.folded(function, plain, args[0], lambda v: (True, lambda: v), *kwargs.values())
        numbers = [v for v in (*args, *kwargs.values()) if type(v) is PythonNumber]
        if not numbers or isinstance(function, FunctionType | MethodType | type(np.sum) | np.ufunc):
            return super().call(function, *args, **kwargs)
        try:
            return super().call(function, *args, **kwargs)
        except (TypeError, ValueError) as error:
            if isinstance(error, FxliteError):
                raise
            raise tracer.error(
                f"{getattr(function, '__name__', function)}() needs the value of "
                f"{numbers[0].node.name}, which does not exist while tracing ({error})",
                "call it before tracing",
                numbers[0].node,
            ) from error

    def sliced(self, value: Any) -> Any:
        """The result of a slice, which for a list is a new list."""
        return self.made(value) if type(value) is list else value

    def part(self, owner: Any, index: Any) -> Any:
        tracer = active_tracer.get()
        if tracer is not None and is_open(owner):
            owner = growing.gathered(self, tracer, owner)
        if (rows := growing.rows_of(owner)) is not None:
            owner = _Subscripted(partial(growing.part_of, self, rows))
        elif type(owner) in (list, tuple) and owner and _is_unknown(index):
            owner = _Subscripted(partial(_text_at, owner)) if all(map(is_text, owner)) else Items(owner)
        elif type(owner) is dict and (_is_unknown(index) or isinstance(index, OneText)):
            _check_keys(owner, index)
            place = self._place(tracer, [index == key for key in owner], KeyError("a key that the dict does not have"))
            values = [*owner.values()]
            found = _text_at(values, place) if all(map(is_text, values)) else item_at(place.tracer, values, place)
            owner = _Subscripted(lambda _: found)
        owner = self.part_of_object(owner)
        if tracer is not None and is_open(index):
            index = as_array(tracer, index)
        elif (rows := growing.rows_of(index)) is not None:
            index = growing.as_arrays(rows)
        return super().part(owner, index)

    def part_of_object(self, owner: Any) -> Any:
        """An object of the program, with its captured ``__getitem__``; any other object unchanged."""
        function = getattr(type(owner), "__getitem__", None)
        if type(function) is not FunctionType or captured(function, self.name) is function:
            return owner
        return _Subscripted(partial(captured(function, self.name), owner))

    def rounds(self, values: Any) -> Any:
        return values

    def each(self, values: Any) -> Any:
        """The values over which a comprehension goes."""
        tracer = active_tracer.get()
        is_unknown = tracer is not None and (is_open(values) or growing.rows_of(values) is not None)
        return counted(tracer, values) if is_unknown else values  # type: ignore[arg-type]


class _Subscripted:
    """An object whose subscripts are calls of a function."""

    __iter__ = None

    def __init__(self, item: Callable[[Any], Any]) -> None:
        self._item = item

    def __getitem__(self, index: Any) -> Any:
        return self._item(index)


def _region() -> Region | None:
    """The innermost branch or loop that is being traced."""
    tracer = active_tracer.get()
    body = tracer.bodies[-1] if tracer is not None and tracer.bodies else None
    return body if isinstance(body, Region) else None


def _refused(region: Region, value: Any, what: str) -> TraceError:
    kind = "an array of NumPy" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
    instead = (
        "make it in the program: np.array(table)"
        if isinstance(value, np.ndarray)
        else "write into an array of the final size: out = np.zeros(n), out[i] = value"
    )
    return region.tracer.error(
        f"{kind} from outside of {region.what} {what} there, which happens while tracing, and "
        "not when the program runs",
        instead,
    )


def _text_at(values: Sequence[Any], place: Any) -> OneText:
    """The text at a place of a list that is not known while tracing."""
    tracer = place.tracer
    return OneText(tracer, item_at(tracer, [code_of(tracer, text) for text in values], place))


def _check_keys(owner: dict[Any, Any], key: Any) -> None:
    """Raise the error of a computed key unless a dict has a few integers as keys, or texts for a text, and values that
    a graph can hold."""
    kind = str if isinstance(key, OneText) else int
    fits = all(type(k) is kind and (is_leaf(v) or is_text(v) or isinstance(v, (tuple, list))) for k, v in owner.items())
    if not 0 < len(owner) <= _MOST_CHOSEN or not fits:
        raise key.as_key()


def _refuse_several(value: Any) -> None:
    """Raise an error for a change of a container or object that is one of two, depending on a condition."""
    tracer = active_tracer.get()
    if tracer is not None and id(value) in tracer.one_of_several:
        copied = type(value).__name__ if type(value) in (list, dict, set) else "copy.copy"
        raise tracer.error(
            f"a {type(value).__name__} is changed that another variable may name or not; whether it does is not known "
            "while tracing, so the change may have to show in two places",
            f"copy it where it is given the other name: best = {copied}(current)",
        )


def _same(value: Any) -> Any:
    return value


def _parts_compared(symbol: str, value: Any) -> Sequence[Any] | None:
    """The parts of a tuple, list or dataclass that Python compares one after the other; None for any other value."""
    if type(value) is list or (isinstance(value, tuple) and type(value).__eq__ is tuple.__eq__):
        return value
    made = getattr(type(value), "__dataclass_params__", None)
    if made is None or not (made.eq if symbol in ("Eq", "NotEq") else made.order):
        return None
    if "__eq__" not in vars(type(value)) or vars(type(value))["__eq__"].__code__.co_filename != "<string>":
        return None
    return tuple(getattr(value, f.name) for f in dataclasses.fields(value) if f.compare)


Element = Callable[[Any], Any]


def _total(symbol: str, start: int) -> Callable[..., Any]:
    """The sum or product of all elements."""

    def fold(flow: Any, over: Counted, element: Element, start: Any = start) -> Any:
        def add(number: Any, total: Any) -> Any:
            counts, then = element(number)
            return flow.choose(counts, lambda: flow.operated(symbol, total, then()), lambda: total)

        first, last = over.bounds
        return fori_loop(first, last, add, start)

    return fold


def _first(flow: Any, over: Counted, is_it: Callable[[Any], Any], start: Any) -> tuple[Any, ...]:
    """The first number from ``start`` on for which ``is_it`` holds, and whether there is none."""
    last = over.bounds[1]

    def look(number: Any, none: Any) -> Any:
        is_one = is_it(number)
        return flow.choose(is_one, lambda: number, lambda: number + 1), flow.not_(is_one)

    return while_loop(lambda number, none: flow.and_(none, lambda: number < last), look, (start, True))


def _until(found: bool) -> Callable[..., Any]:
    """``any`` (``found`` is True) or ``all`` (False) of the elements."""

    def fold(flow: Any, over: Counted, element: Element) -> Any:
        def is_it(number: Any) -> Any:
            counts, then = element(number)
            return flow.and_(counts, lambda: flow.truth(then()) if found else flow.not_(then()))

        none = _first(flow, over, is_it, over.bounds[0])[1]
        return flow.not_(none) if found else none

    return fold


def _next(flow: Any, over: Counted, element: Element, *default: Any) -> Any:
    """The first element; if there is none, ``default`` or an exception."""
    start, last = over.bounds
    while type(start) is int and type(last) is int and start < last:
        counts, then = element(start)
        truth = flow.truth(counts)
        if truth is True:
            return then()
        if is_traced(truth):
            break
        start += 1
    if type(start) is type(last) is int and start >= last:
        return next(iter(()), *default)
    place, none = _first(flow, over, lambda number: flow.truth(element(number)[0]), start)
    if default:
        return flow.choose(none, lambda: default[0], lambda: element(place)[1]())
    return _at(flow, over, element, place, none, StopIteration())


def _at(flow: Any, over: Counted, element: Element, place: Any, none: Any, error: Exception) -> Any:
    """The element at a place, or an exception if the place is the one after the last element."""
    found = element(flow.choose(none, lambda: over.bounds[0], lambda: place))[1]()
    return active_tracer.get().unless(found, none, error)  # type: ignore[union-attr]


def _extreme(symbol: str) -> Callable[..., Any]:
    """The first of the largest or smallest elements."""

    def fold(flow: Any, over: Counted, element: Element, key: Any = None, **default: Any) -> Any:
        def ranked(value: Any) -> tuple[Any, Any]:
            return value if key is None else flow.call(key, value), value

        def better(number: Any, best: tuple[Any, Any]) -> Any:
            counts, then = element(number)

            def chosen() -> Any:
                one = ranked(then())
                return flow.choose(_COMPARED[symbol](one[0], best[0]), lambda: one, lambda: best)

            return flow.choose(counts, chosen, lambda: best)

        def rest(first: Any) -> Any:
            return fori_loop(place + 1, over.bounds[1], better, ranked(first))[1]

        place, none = _first(flow, over, lambda number: flow.truth(element(number)[0]), over.bounds[0])
        if default:
            return flow.choose(none, lambda: default["default"], lambda: rest(element(place)[1]()))
        error = ValueError(f"{'max' if symbol == 'Gt' else 'min'}() arg is an empty sequence")
        return rest(_at(flow, over, element, place, none, error))

    return fold


#: Functions that combine any number of elements into one value: ``f(flow, over, element)``.
_FOLDS: dict[Any, Callable[..., Any]] = {
    builtins.sum: _total("Add", 0),
    math.prod: _total("Mult", 1),
    builtins.any: _until(True),
    builtins.all: _until(False),
    builtins.max: _extreme("Gt"),
    builtins.min: _extreme("Lt"),
    builtins.next: _next,
}


#: Functions of Python that call a special method of an object: the names of those that they look for.
_OWN: dict[Any, tuple[str, ...]] = {
    builtins.len: ("__len__",),
    builtins.bool: ("__bool__", "__len__"),
    builtins.abs: ("__abs__",),
}


#: Functions that insert into a list in ascending order, and those that find the place.
_INSERTS = {bisect.insort: bisect.bisect, bisect.insort_left: bisect.bisect_left}
#: Functions that return a new list or dict.
_COPIES = (copy.copy, copy.deepcopy, sorted)


def _is_copy(function: Any) -> bool:
    """Whether a function is ``values.copy`` of a list or dict."""
    return isinstance(getattr(function, "__self__", None), (list, dict)) and function.__name__ == "copy"


#: The most elements of a list of which one is set at a position that is not known.
_MOST_CHOSEN = 64


def _is_unknown(index: Any) -> bool:
    """Whether an index is a single position that is not known while tracing."""
    if not is_traced(index) or not isinstance(index, Proxy) or not index.is_typed:
        return False
    return not index.ndim and index.type.dtype.is_integer and known_value(index) is None


def _is_one_object(value: Any, other: Any) -> bool:
    """Whether Python has a single object for each possible value of a traced one, so that ``flag is True`` can be
    computed."""
    kind = kind_of_number(value) if isinstance(value, PythonNumber) else None
    if kind is None:
        return isinstance(value, Proxy) and type(other) is np.bool_ and _is_bool(value)
    return kind is not float and kind_of_number(other) is kind


def _is_bool(value: Any) -> bool:
    return is_traced(value) and value.is_typed and not value.ndim and value.type.dtype.is_bool
