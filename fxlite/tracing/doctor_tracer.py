"""A tracer that continues after a problem, for the trace doctor.

In: a program. Out: :class:`Problem` records, and a graph without meaning: a value that could not be computed
is replaced by one that causes no further problems (:class:`_Poison`), ``float(x)`` by 1.0, a named size by a
number that does not occur in programs, and ``if`` is decided by the plan of the run.
"""

from __future__ import annotations

import dis
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import Details, FxliteError, TraceError
from fxlite.base.location import Location, here, is_own_file, program_frame
from fxlite.graph.pytree import children_of
from fxlite.nn.module import Module
from fxlite.ops.elementwise import COMPARISONS
from fxlite.ops.op import OPERATORS
from fxlite.tracing.doctor_fixes import fix_for
from fxlite.tracing.numpy_api import METHODS as NUMPY_METHODS
from fxlite.tracing.proxy import Proxy
from fxlite.tracing.torch_names import METHODS, SIZE_CALLED, method_value
from fxlite.tracing.tracer import Tracer
from fxlite.types import dtypes
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.graph.graph import Node
    from fxlite.ops.op import Op

#: The most rounds of ``while x > 0``.
_MOST_ROUNDS = 2
#: Replaces a named size where Python needs a number; a real program is unlikely to have it.
_ODD_SIZE = 61


@dataclass(frozen=True)
class Problem:
    """One expression that cannot be traced. ``location`` is "model.py:31" with its path, ``origin`` the place
    where the value was made ("" for an input), and ``fix`` what to write instead."""

    location: str
    expression: str
    problem: str
    origin: str
    fix: str

    def __str__(self) -> str:
        lines = [self.problem, f"  at {self.location}: {self.expression}"]
        lines += [f"  {line}" for line in self.origin.splitlines()]
        if self.fix:
            lines.append(f"  instead: {self.fix}")
        return "\n".join(lines)


def place_text(location: Location) -> tuple[str, str]:
    """(file:line, expression)."""
    return str(location), location.expression


class _Stop(Exception):
    """Raised if there is no sensible way to continue."""


class DoctorTracer(Tracer):
    """Records problems and continues. ``refused``: the branches that are not taken."""

    def __init__(
        self, leaf: Iterable[Any], refused: frozenset[tuple[str, str]], problems: dict[tuple[str, str, str], Problem]
    ) -> None:
        super().__init__(leaf=leaf)
        self.refused = refused
        self.problems = problems
        self.rounds: dict[tuple[str, str], int] = {}
        self.names: tuple[str, ...] = ()
        self._pretended = False
        self._poison: _Poison | None = None

    def examine(self, program: Any, declared: Mapping[str, Any], concrete_args: Mapping[str, Any] | None) -> None:
        """Run the program once."""
        code = getattr(getattr(program, "forward", program), "__code__", None)
        if code is not None:
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            self.names = tuple(n for n in names if n != "self" and n not in (concrete_args or {}))
        before = len(self.problems)
        try:
            self.trace(program, concrete_args, declared)
        except _Stop:
            pass
        except FxliteError as error:
            self.report(error)
        except Exception as error:
            if len(self.problems) == before and not self.rounds:  # otherwise it may follow from other problems
                self.report(error)

    def trace_library(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        before = dict(self.problems)
        result = super().trace_library(function, args, kwargs)
        if self.problems.keys() != before.keys():
            self.problems.clear()
            self.problems.update(before)
            raise TraceError("it cannot be traced through")
        return result

    # -- recording problems --------------------------------------------------------------------
    def report(self, error: Exception) -> None:
        """Record a problem, once for each place."""
        details = getattr(error, "details", None)
        if details is None:
            text = str(error).split("\n  at ")[0]
            if not isinstance(error, FxliteError):
                text = f"{type(error).__name__}: {text}"
            details = Details(text, _place_of(error) or here(2))
        if self._pretended and re.search(rf"\b{_ODD_SIZE}\b", details.problem):
            return  # it follows from an invented size
        location = details.location
        place = place_text(location) if location is not None else ("", "")
        key = (*place, *details.problem.split(" ")[:1])  # without the names of nodes, which differ in loops
        if key not in self.problems:
            fix = fix_for(details, self.names)
            self.problems[key] = Problem(*place, details.problem, details.origin, fix)

    def poison(self) -> _Poison:
        """A value that causes no further problems."""
        if self._poison is None:
            node = self.graph.create_node("placeholder", "unknown", (), {}, "unknown")
            self._poison = _Poison(node, self)
        return self._poison

    # -- continuing ----------------------------------------------------------------------------
    def proxy(self, node: Node) -> Proxy:
        return _DoctorProxy(node, self)

    def attempts(self, trace: Callable[[], None]) -> None:
        self.captures_flow = True
        trace()

    def decide(self, proxy: Proxy) -> bool:
        return self.takes(here(2))

    def compared_sizes(self, left: Any, relation: str, right: Any) -> Any:
        return self.takes(here(2))

    def _refused(self, refuse: Callable[..., Any], *args: Any, **kwargs: Any) -> Location | None:
        """Record the error of a tracer's method; returns its location."""
        try:
            refuse(*args, **kwargs)
        except FxliteError as error:
            self.report(error)
            return error.details.location if error.details is not None else None
        return None

    def to_bool(self, proxy: Proxy) -> bool:
        return self.takes(self._refused(super().to_bool, proxy))

    def takes(self, location: Location | None) -> bool:
        """Whether a branch is taken in this run."""
        if location is None:
            return True
        site = place_text(location)
        rounds = self.rounds[site] = self.rounds.get(site, 0) + 1
        taken = site not in self.refused
        return taken if rounds <= _MOST_ROUNDS else False

    def iter(self, proxy: Proxy) -> Iterator[Any]:
        if proxy.is_typed:
            return super().iter(proxy)
        self._refused(super().iter, proxy)
        return iter([self.poison()] * _unpacked())

    def size_needed(self, problem: str, instead: str) -> Any:
        location = self._refused(super().size_needed, problem, instead)
        expression = location.expression if location is not None else ""
        if "range(" in expression or "len(" in expression:
            return 2
        self._pretended = True
        return _ODD_SIZE

    def call_module(
        self, module: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self.path_of_module(module) == "":
            return super().call_module(module, forward, args, kwargs)
        try:
            return super().call_module(module, forward, args, kwargs)
        except FxliteError as error:
            if not _has_poison((args, kwargs)):
                self.report(error)
            return self.poison()

    def record(self, op: Op, bound: dict[str, Any]) -> Any:
        if any(isinstance(v, _Poison) for v in op.tensors(bound)):
            return self.poison()
        try:
            return super().record(op, bound)
        except FxliteError as error:
            self.report(error)
            return self.poison()


def _place_of(error: BaseException) -> Location | None:
    """The innermost line of the user's program in an error's traceback."""
    found = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if not is_own_file(frame.f_code.co_filename):
            found = frame
    if found is None:
        return None
    return Location(found.f_code, found.f_lasti)


def _unpacked() -> int:
    """The number of values that the program is unpacking (``a, b = x``); 1 if it is doing something else."""
    frame = program_frame(sys._getframe(1))
    if frame is None:
        return 1
    code, at = frame.f_code.co_code, frame.f_lasti
    return code[at + 1] if code[at] == dis.opmap["UNPACK_SEQUENCE"] else 1


def _has_poison(value: Any) -> bool:
    found = children_of(value) if isinstance(value, (tuple, list, dict)) else None
    return isinstance(value, (_Poison, _PoisonShape)) if found is None else any(map(_has_poison, found[2]))


# -- values ----------------------------------------------------------------------------------------
def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    """A method of Proxy that records its errors and continues."""

    def method(self: _DoctorProxy, *args: Any, **kwargs: Any) -> Any:
        if _has_poison((self, args, kwargs)):
            return self.tracer.poison()
        try:
            return original(self, *args, **kwargs)
        except _Stop:
            raise
        except Exception as error:
            self.tracer.report(error)
            return self.tracer.poison()

    return method


def _standing_in(name: str, value: Any) -> Callable[..., Any]:
    """A method such as that for ``float(x)``, which records a problem and returns ``value``."""
    original = getattr(Proxy, name)

    def method(self: _DoctorProxy, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self, _Poison):
            self.tracer._refused(original, self, *args, **kwargs)
        return value(self) if callable(value) else value

    return method


class _DoctorProxy(Proxy):
    """A proxy that records problems and continues."""

    __slots__ = ()
    tracer: Any

    # the assumed type of a value without one
    shape = property(lambda self: self._known("shape", _PoisonShape()))
    dtype = property(lambda self: self._known("dtype", dtypes.float32.numpy))
    ndim = property(lambda self: self._known("ndim", 2))
    T = property(lambda self: self._known("T", self.tracer.poison()))
    mT = property(lambda self: self._known("mT", self.tracer.poison()))

    @property
    def size(self) -> Any:
        place = here(2)
        line = "" if place is None else linecache.getline(place.file, place.line)
        if place is None or f"{place.expression}(" not in line:
            return self._known("size", 1)
        advice = SIZE_CALLED.partition(": ")[2]  # a method of torch's tensors
        self.tracer.report(
            self.tracer.error(f"{place.expression} is called, and is a number in NumPy", advice, self.node)
        )
        return lambda dim=None: self.shape if dim is None else self.shape[dim]

    def _known(self, name: str, other: Any) -> Any:
        try:
            return getattr(super(), name)
        except Exception as error:
            self.tracer.report(error)
            return other

    def _either(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of an array method of NumPy or, if it raises an error, of the tensor method of torch."""
        try:
            return super().__getattr__(name)(*args, **kwargs)
        except Exception as error:
            self.tracer.report(error)
        return method_value(name, self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in METHODS and name in NUMPY_METHODS:
            return _noting_call(self, lambda *args, **kwargs: self._either(name, args, kwargs))
        if name not in METHODS:
            return _noting_call(self, super().__getattr__(name))
        try:
            super().__getattr__(name)
        except Exception as error:
            self.tracer.report(error)
        return _noting_call(self, lambda *args, **kwargs: method_value(name, self, args, kwargs))


def _noting_call(proxy: _DoctorProxy, method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: _noting(lambda _, *a, **k: method(*a, **k))(proxy, *args, **kwargs)


for _name in (
    *(f"{form}{name}" for name in OPERATORS for form in ("", "r", "i")),
    *COMPARISONS,
    *"neg abs invert pos getitem setitem array_ufunc array_function".split(),
):
    setattr(_DoctorProxy, f"__{_name}__", _noting(getattr(Proxy, f"__{_name}__")))
_DoctorProxy.__hash__ = Proxy.__hash__  # type: ignore[method-assign]


def _example(proxy: Any) -> Any:
    """An example array for a proxy."""
    if isinstance(proxy, _Poison) or not proxy.is_typed:
        return np.ones(())
    sizes = [d if type(d) is int else 2 for d in proxy.type.shape]
    return np.ones(sizes, proxy.type.dtype.numpy)


for _name, _value in {
    "__float__": 1.0,
    "__int__": 1,
    "__index__": 1,
    "item": 1.0,
    "tolist": lambda p: [1.0],
    "__array__": _example,
    "__contains__": True,
    "__len__": 2,
}.items():
    setattr(_DoctorProxy, _name, _standing_in(_name, _value))


def _length(self: _DoctorProxy) -> int:
    if isinstance(self, _Poison):
        return 1
    try:
        return Proxy.__len__(self)
    except FxliteError as error:
        self.tracer.report(error)
        return 2


_DoctorProxy.__len__ = _length  # type: ignore[method-assign, assignment]


class _PoisonShape:
    """The shape of a value without a shape."""

    def __getitem__(self, index: Any) -> Any:
        return (2,) if isinstance(index, slice) else 2

    def __iter__(self) -> Iterator[int]:
        return iter([2] * _unpacked())

    def __len__(self) -> int:
        return 2

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Any) -> Any:
        return self

    __radd__ = __add__


class _Poison(_DoctorProxy):
    """A substitute for a value that could not be computed."""

    __slots__ = ()

    type = property(lambda self: TensorType((), dtypes.float32))
    shape = property(lambda self: _PoisonShape())
    T = mT = property(lambda self: self)

    def __bool__(self) -> bool:
        taken: bool = self.tracer.takes(here(2))
        return taken

    def __iter__(self) -> Iterator[Any]:
        return iter([self] * _unpacked())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self
