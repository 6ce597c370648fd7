"""The current place of a trace: the running line of the program, and the function calls around it.

In: the running frames. Out: a :class:`~fxlite.base.location.Location`, one for each place and call. A method
that fxlite calls, such as ``forward``, does not count as a function call; its module is a scope.
"""

from __future__ import annotations

import inspect
import sys
from types import CodeType, FrameType
from typing import Any

from fxlite.base.location import KNOWN_OWN, FunctionCall, Location, Scope, is_own_file
from fxlite.graph.pytree import CONSTANTS, Structure, children_of
from fxlite.tracing.capture import answers, bodies, capture, control, flow, flow_answers, loops, regions
from fxlite.tracing.proxy import Proxy

_WRAPPER = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_MOST_RUNNING = 256
_METHODS = frozenset(("forward", "__call__"))
_CAPTURE = frozenset(m.__file__ for m in (capture, answers, flow_answers, flow, loops, regions, bodies, control))


class Places:
    """The locations made so far, which the iterations of a loop share, and the running functions of the program,
    which are those that ``runner`` has called, a function of fxlite. It is None for a trace that runs no program,
    or outlives its functions: then their local variables are not kept alive, and locations do not tell in which
    call of a function they are."""

    def __init__(self, runner: CodeType | None = None) -> None:
        self.runner = runner
        self._known: dict[tuple[int, int, int], Location] = {}
        #: Calls by the identity of their frames, which are held here so that no other objects get the same identity.
        self._running: dict[int, tuple[FrameType, FunctionCall]] = {}
        #: The frame and call of the node before, which are mostly those of the next one.
        self._last: tuple[FrameType | None, FunctionCall | None] = (None, None)

    def here(self, depth: int, scope: Scope | None) -> Location | None:
        """The location of the innermost caller outside of fxlite, in the scope of a module. Layers of fxlite
        call no code of the program, so everything in them has the location of their call."""
        if scope is not None and scope.arguments is not None and scope.called_at is not None:
            return scope.called_at
        frame: FrameType | None = sys._getframe(depth)
        known, runner = KNOWN_OWN.get, self.runner
        is_inside = runner is not None
        while frame is not None:
            name = frame.f_code.co_filename
            is_own = known(name)
            if not (is_own_file(name) if is_own is None else is_own):
                break
            if frame.f_code is runner:  # this is fxlite's program, such as a layer, and what is around it traces it
                is_inside = False
            frame = frame.f_back
        else:
            return None
        last_frame, call = self._last
        if runner is not None and frame is not last_frame:
            call = self._call(frame, scope) if is_inside else None
            self._last = frame, call
        key = id(frame.f_code), frame.f_lasti, id(call)  # the location keeps both objects alive
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Location(frame.f_code, frame.f_lasti, call=call)
        return found

    def _call(self, frame: FrameType, scope: Scope | None) -> FunctionCall | None:
        """The innermost function call around a frame."""
        around: list[FrameType] = []
        last: FrameType | None = frame
        while last is not None and not is_own_file(last.f_code.co_filename):
            around.append(last)
            last = _caller(last)
        if last is None or len(around) == 1:
            return None  # fxlite does not run the program, or there is only the program itself
        around.pop()  # the program itself, or the method with which a module is called
        call: FunctionCall | None = None
        for inner in reversed(around):
            if not _is_function(inner.f_code):
                continue
            known, made = self._running.get(id(inner), (None, None))
            if known is not inner or made is None:
                outer = _caller(inner)
                assert outer is not None
                place = Location(outer.f_code, outer.f_lasti, call=call)
                made = FunctionCall(inner.f_code, place, call, _of_program(scope), _given(inner))
                if len(self._running) == _MOST_RUNNING:
                    del self._running[next(iter(self._running))]
                self._running[id(inner)] = inner, made
            call = made
        return call


def _caller(frame: FrameType) -> FrameType | None:
    """The frame that calls another one; helper frames of captured code between them do not count."""
    outer = frame.f_back
    while outer is not None and outer.f_code.co_filename in _CAPTURE:
        outer = outer.f_back
    return outer


def _is_function(code: CodeType) -> bool:
    """Whether code belongs to a function of the program that others could call, and not to a part of an
    expression, a wrapper of another function, or a library."""
    is_wrapper = code.co_flags & _WRAPPER == _WRAPPER
    is_plain = not code.co_name.startswith(("<", "__")) and code.co_name not in _METHODS
    return is_plain and not is_wrapper and "site-packages" not in code.co_filename


def _of_program(scope: Scope | None) -> Scope | None:
    """The module of the program whose method is running; layers of fxlite do not count, because they call no
    functions of the program."""
    while scope is not None and scope.arguments is not None:
        scope = scope.caller
    return scope


def _given(frame: FrameType) -> tuple[tuple[str, Structure], ...]:
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    values = frame.f_locals
    return tuple((n, form(values[n])) for n in code.co_varnames[:count] if n in values)


def form(value: Any, around: tuple[int, ...] = ()) -> Structure:
    """The form of an argument, whose leaves are names of nodes. A value that the graph does not compute is a
    constant, which is None unless the value is plain data, and also for a container that contains itself
    (``around`` has the ids of the containers around it)."""
    if isinstance(value, Proxy):
        node = value.node
        return Structure("leaf", str(node.target) if node.op == "placeholder" else node.name)
    found = children_of(value)
    if found is None or id(value) in around:
        return Structure("constant", "", value if isinstance(value, CONSTANTS) else None)
    kind, keys, values = found
    return Structure(kind, "", None, tuple(keys), tuple(form(part, (*around, id(value))) for part in values))
