"""Capture: compiles the program's Python functions again from their source, so that every call in them goes
through :class:`Caller`.

In: a function of the program. Out: a function with the same globals, closure and places in the source, in
which ``np.zeros(4)`` makes a traced array, ``len(x)`` may be a named dim, and the functions that it calls are
captured in turn. Nothing else is changed: no module is patched, and other threads run the original program.

Functions without source, and those of fxlite, NumPy and the standard library, run unchanged.
"""

from __future__ import annotations
import __future__

import ast
import functools
import itertools
import linecache
import random
import sys
import sysconfig
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType
from typing import Any

import numpy as np

from fxlite.base.location import FOR_PROGRAM, REGENERATED, is_own_file, program_frame
from fxlite.base.state import active_tracer, is_traced
from fxlite.tracing.capture.answers import (
    ARRAYS,
    BUILTINS,
    SUBSCRIPTS,
    Items,
    fresh_array,
    holds_computed,
    with_stacked,
)
from fxlite.tracing.capture.ordering import ORDERED
from fxlite.tracing.capture.rewrite import ControlFlow
from fxlite.tracing.capture.rewrite_expressions import MARK, Calls
from fxlite.tracing.capture.rounds import number_of_rounds, with_count
from fxlite.tracing.capture.texts import as_text, in_text
from fxlite.tracing.selections.spans import is_computed
from fxlite.tracing.torch_names import advice_for
from fxlite.types.dtypes import as_numpy_reads

#: The most rounds of a loop that may write into arrays, and have twice as many nodes as others, if it is unrolled.
_FEW_ROUNDS = 5
_STANDARD = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})
_INSTALLED = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
_FUTURE: int = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})
_Known = dict[int, tuple[weakref.ref[CodeType], CodeType | None]]
#: By caller: the captured code by the id of the original, as long as that exists. None: it stays as it is, as
#: captured code itself does.
_known: dict[str, _Known] = {"": {}, "library": {}, "flow": {}}


def captured(function: Callable[..., Any], by: str = "") -> Callable[..., Any]:
    """The function with its calls captured, or the function itself if that is impossible. ``by`` selects the
    helper that is called; "library": also capture a function of a library, and the functions that it calls
    there; "flow": also capture control flow."""
    if type(function) is MethodType:
        inner = captured(function.__func__, by)
        return function if inner is function.__func__ else MethodType(inner, function.__self__)
    if type(function) is not FunctionType:
        return function
    code = _captured_code(function.__code__, by)
    if code is None:
        return function
    closure = function.__closure__
    if code.co_freevars != function.__code__.co_freevars:
        cells = dict(zip(function.__code__.co_freevars, closure or ()))
        closure = tuple(cells[name] for name in code.co_freevars)
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    return made


def _is_iterable(tracer: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return bool(args[0].ndim) if args and is_traced(args[0]) else function(*args, **kwargs)


#: Functions for which the tracer answers in place of NumPy and Python.
_ANSWERED = {**BUILTINS, **ARRAYS, **ORDERED, np.iterable: _is_iterable}
#: Functions that call the function that is their first argument, ``key=`` or ``func=``.
_CALLS_FIRST = frozenset((map, filter, functools.reduce, itertools.starmap))
_CALLS_NAMED = {sorted: "key", max: "key", min: "key", itertools.accumulate: "func", itertools.groupby: "key"}


class Caller:
    """The helper through which captured code makes its calls. ``name`` is the one by which :func:`captured` selects
    it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        tracer = active_tracer.get()
        if tracer is None:
            return function(*args, **kwargs)
        kind = type(function)
        if kind in _BOUND:
            if _draws(function.__self__):
                return _drawn(tracer, function, args, kwargs)
            if kind is MethodType:
                return captured(function, self.name)(*args, **kwargs)
        try:
            args, kwargs = self._with_called(function, args, kwargs)
            make = _ANSWERED.get(function)
        except TypeError:  # it has no hash
            make = None
        if make is not None:
            given = {name: as_numpy_reads(value) for name, value in kwargs.items()}
            return make(tracer, function, tuple(map(as_numpy_reads, args)), given)
        if kind in DISPATCHED or (kind is BuiltinFunctionType and type(function.__self__) is np.ufunc):
            args, kwargs = with_stacked(tracer, function, args, kwargs)
        own = self._captured_call(function)
        if own is not None:
            return own(*args, **kwargs)
        if kind is FunctionType:
            return _by_others(tracer, function, args, kwargs)
        if kind is functools._lru_cache_wrapper and _are_computed_numbers((*args, *kwargs.values())):
            return self.call(function.__wrapped__, *args, **kwargs)  # a number that is not known is no key of a cache
        if kind is functools.partial:
            given = {**function.keywords, **kwargs}
            return self.call(function.func, *function.args, *args, **given)
        if kind is type and function.__new__ is object.__new__:
            initialize = captured(function.__init__, self.name)
            if initialize is not function.__init__:
                return self._object(tracer, function, initialize, args, kwargs)
        if kind is BuiltinFunctionType and type(function.__self__) is np.ndarray and any(map(is_traced, args)):
            return getattr(tracer.constant(function.__self__), function.__name__)(*args, **kwargs)
        if args and (function is str or function is repr or function is format):
            args = (in_text(tracer, args[0]), *args[1:])
        result = as_text(_by_others(tracer, function, args, kwargs))
        _note_generator(tracer, function, args, result)
        if kind is type and tracer.measures_loops:
            return with_count(function, args, kwargs, result)
        if type(result) is np.ndarray and kind in _NUMPYS:
            return fresh_array(tracer, result, (getattr(function, "__self__", None), *args))
        return result

    def _captured_call(self, function: Any) -> Callable[..., Any] | None:
        """A function of the program, captured; if control flow is captured, also the ``__call__`` of its objects."""
        is_function = type(function) is FunctionType
        if not is_function and self.name != "flow":
            return None
        method = function if is_function else getattr(type(function), "__call__", None)  # noqa: B004
        if type(method) is not FunctionType:
            return None
        own = captured(method, self.name)
        if own is method:
            return None
        return own if is_function else MethodType(own, function)

    def _with_called(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The arguments of a call. A function among them that Python will call, as in ``map(np.array, values)``, is
        replaced by one whose call goes through this helper."""
        if function in _CALLS_FIRST and args and args[0] is not None:
            return (functools.partial(self.call, args[0]), *args[1:]), kwargs
        name = _CALLS_NAMED.get(function)
        if function is itertools.accumulate and len(args) > 1:
            args, kwargs = args[:1], {**kwargs, "func": args[1]}
        if name is not None and kwargs.get(name) is not None:
            return args, {**kwargs, name: functools.partial(self.call, kwargs[name])}
        return args, kwargs

    def _object(self, tracer: Any, kind: type, initialize: Any, args: Any, kwargs: Any) -> Any:
        """A new object of a class of the program, made with its captured ``__init__``."""
        made: Any = object.__new__(kind)
        if tracer.bodies:
            tracer.bodies[-1].own_object(made)
        initialize(made, *args, **kwargs)
        return made

    def slice(self, start: Any, stop: Any, step: Any) -> slice:
        """``start:stop:step`` in a captured subscript."""
        return slice(start, stop, step)

    def subscript(self, owner: Any, index: Any) -> Any:
        """A subscript that makes an array: ``np.r_[...]``, ``np.mgrid[...]``."""
        tracer = active_tracer.get()
        make = SUBSCRIPTS.get(type(owner))
        if tracer is None or make is None:
            return owner[index]
        return make(tracer, owner, index if isinstance(index, tuple) else (index,))

    def part(self, owner: Any, index: Any) -> Any:
        """The object whose part is taken. If the position is computed, a known array, or a list or tuple of
        numbers, becomes a constant."""
        _asked.index = index
        kind = type(owner)
        if kind not in _KNOWN or type(index) is int:
            return owner
        tracer = active_tracer.get()
        if tracer is None:
            return owner
        if kind is np.ndarray:
            return tracer.constant(owner) if _is_position(index) else owner
        return Items(owner) if is_traced(index) and _are_numbers(owner) else owner

    def text(self, value: str) -> Any:
        """A text that the program composes."""
        return as_text(value) if active_tracer.get() is not None else value

    def in_text(self, value: Any) -> Any:
        """A value that is inserted into a text."""
        tracer = active_tracer.get()
        return value if tracer is None else in_text(tracer, value)

    def index(self) -> Any:
        """The position in a subscript; called right after :meth:`part`."""
        index = _asked.index
        del _asked.index
        return index

    def rounds(self, values: Any) -> Any:
        """The values over which a ``for`` statement iterates. If unrolling it would take very many nodes, this
        raises an error, and the loop stays a loop."""
        tracer = active_tracer.get()
        if tracer is None or not tracer.measures_loops:
            return values
        count = number_of_rounds(values)
        return values if count is None else tracer.measured(values, count, count < _FEW_ROUNDS)

    def while_rounds(self) -> Callable[[Any], Any]:
        """A function for the conditions of a ``while`` statement, which gives them back. If unrolling the statement
        would take very many nodes, this raises an error, and the loop stays a loop."""
        tracer = active_tracer.get()
        return _same if tracer is None or not tracer.measures_loops else tracer.measured_while()


FOR_PROGRAM.add(Caller.call.__code__)
#: Types of values that become constants of the graph if a part of them is taken at a computed position.
_KNOWN = frozenset((np.ndarray, list, tuple))
#: The part that each thread asks for.
_asked = threading.local()


def _same(value: Any) -> Any:
    return value


def _are_computed_numbers(values: Iterable[Any]) -> bool:
    """Whether there are traced numbers or sizes among the values, and no traced arrays, which have no hash."""
    found = [value for value in values if holds_computed(value)]
    return bool(found) and not any(is_traced(value) and value.is_typed and value.ndim for value in found)


def _is_position(index: Any) -> bool:
    """Whether a subscript contains a traced value."""
    return any(is_traced(part) or is_computed(part) for part in (index if isinstance(index, tuple) else (index,)))


def _are_numbers(values: Any) -> bool:
    """Whether a list or tuple consists of numbers, so that it can be an array."""
    return bool(values) and all(isinstance(v, (int, float, complex, np.number)) for v in values)


#: Types of methods that were taken from an object.
_BOUND = (MethodType, BuiltinFunctionType)


def _by_others(tracer: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function that is not captured, and which may not be able to handle traced values."""
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        if type(error) is not TypeError or "Proxy" not in str(error):
            raise
        names = getattr(function, "__module__", None), getattr(function, "__qualname__", str(function))
        raise tracer.error(
            f"{'.'.join(filter(None, names))}() needs values that do not exist while tracing ({error})",
            advice_for(error, "") or "use NumPy's functions, or call it before tracing",
        ) from error


FOR_PROGRAM.add(_by_others.__code__)


def _draws(value: Any) -> bool:
    """True for a generator of random numbers with a state. There is none of NumPy's before np.random is imported."""
    if isinstance(value, random.Random):
        return True
    return "numpy.random" in sys.modules and isinstance(value, (np.random.Generator, np.random.RandomState))


def _drawn(tracer: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The numbers that a method draws from a state that the program made from a seed, so that they are the same in
    every call. Raises TraceError if the state is of another kind, or the numbers depend on traced values."""
    if function.__name__ == "seed" and args and isinstance(args[0], int):
        tracer.generators.append((function.__self__, tracer.bodies[-1:]))
    if not tracer.is_own_generator(function.__self__):
        space = "random" if isinstance(function.__self__, random.Random) else "np.random"
        raise _hidden(tracer, function.__name__, space)
    if any(map(is_traced, (*args, *kwargs.values()))):
        raise _drawn_by_values(tracer, function.__name__)
    result = function(*args, **kwargs)
    return fresh_array(tracer, result, ()) if type(result) is np.ndarray else result


def _note_generator(tracer: Any, function: Any, args: tuple[Any, ...], result: Any) -> None:
    """Record a generator with a seed from the program: a new one, or NumPy's global one after ``np.random.seed``."""
    if not args or not isinstance(args[0], (int, np.integer)):
        return
    is_global = "numpy.random" in sys.modules and function is np.random.seed
    made = np.random.rand.__self__ if is_global else result  # type: ignore[attr-defined]
    if _draws(made):
        tracer.generators.append((made, tracer.bodies[-1:]))


#: Functions that draw random numbers for a key -> the NumPy functions, which draw from a state, that they replace.
_KEYED = {
    "uniform": ("uniform", "random", "rand", "random_sample", "ranf", "sample"),
    "normal": ("normal", "randn", "standard_normal"),
    "randint": ("randint", "integers", "random_integers"),
    "permutation": ("permutation", "permuted", "shuffle"),
    "exponential": ("exponential", "standard_exponential"),
    "categorical": ("multinomial", "dirichlet"),
    "bernoulli": ("binomial",),
    "choice": ("choice",),
    "gumbel": ("gumbel",),
    "bits": ("bytes",),
}


def _hidden(tracer: Any, name: str, space: str = "np.random") -> Any:
    keyed = next((own for own, names in _KEYED.items() if name in names), "uniform")
    return tracer.error(
        f"{space}'s {name}() draws from a hidden state, which no graph has: each call would get the same numbers",
        f"draw for a key, fx.random.{keyed}(key, ...), with an input key=fx.random.key(seed), or before tracing",
    )


def _drawn_by_values(tracer: Any, name: str) -> Any:
    return tracer.error(
        f"{name}() of a generator draws while the program is traced, and is given a value that does not exist then",
        "draw uniform numbers, rng.random(), and compute with them: np.searchsorted(np.cumsum(p), rng.random()) "
        "chooses by p, mean + std * rng.standard_normal() is normal",
    )


#: The callers by name; :mod:`fxlite.tracing.capture.flow` adds the one for control flow.
CALLERS = {name: Caller(name) for name in ("", "library")}
#: The caller in functions whose control flow stays as it is, though that of others does not.
_NO_FLOW = Caller("flow")
#: Types of NumPy's functions, which dispatch to arrays among their arguments; and these and methods of arrays.
DISPATCHED = frozenset((np.ufunc, type(np.concatenate)))
_NUMPYS = DISPATCHED | {BuiltinFunctionType}


# -- code ------------------------------------------------------------------------------------------
def _captured_code(code: CodeType, by: str) -> CodeType | None:
    known = _known[by].get(id(code))
    if known is None or known[0]() is not code:
        wanted = by == "library" or is_program(code.co_filename)
        made = _recompiled(code, by) if wanted else None
        _remember(code, by, made)
        for inner in _nested(made) if made is not None else ():
            for name in _known:
                _remember(inner, name, None)
        return made
    return known[1]


def _remember(code: CodeType, by: str, made: CodeType | None) -> None:
    key, forget = id(code), _known[by].pop  # the method also exists while the process ends
    _known[by][key] = weakref.ref(code, lambda _: forget(key, None)), made


def is_program(file: str) -> bool:
    """Whether a file belongs to the user's program, and not to fxlite, NumPy or the standard library."""
    if file.startswith(REGENERATED):
        return False
    if is_own_file(file):
        return False
    return not file.startswith(_STANDARD) or file.startswith(_INSTALLED)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _recompiled(code: CodeType, by: str) -> CodeType | None:
    """The code compiled from its source with calls captured; None if the source is not available, or is not that
    of the code."""
    source = "".join(linecache.getlines(code.co_filename))
    first = code.co_firstlineno
    statement = next((s for s in _statements(source) if _first_line(s) <= first <= (s.end_lineno or 0)), None)
    if statement is None:
        return None
    wanted = _looks(code)
    file, flags, head = code.co_filename, code.co_flags & _FUTURE, _head(code)
    found = [c for c in _compiled(Calls, statement, file, flags)[0] if _head(c) == head and _looks(c) == wanted]
    if len(found) != 1:
        return None
    if by == "flow":
        whole, plain = _compiled(ControlFlow, statement, file, flags)
        rewritten = [c for c in whole if _head(c) == head]
        if len(rewritten) > 1:  # there are several lambdas on the line
            rewritten = [c for c in rewritten if _looks(c)[:2] == wanted[:2]]
        for (_, line), reason in plain.items():
            _plain[file, line] = reason
        reason = plain.get((code.co_name, code.co_firstlineno), "")
        if not reason:
            if len(rewritten) != 1 or not set(rewritten[0].co_freevars) <= set(code.co_freevars):
                return None
            found = rewritten
        made = _with_caller(found[0], _NO_FLOW if reason else CALLERS[by])
        _rewritten.update(() if reason else _nested(made))
        return made
    return _with_caller(found[0], CALLERS[by])


#: Code whose control flow is captured.
_rewritten: weakref.WeakSet[CodeType] = weakref.WeakSet()
#: The reasons why the control flow of functions cannot be captured, by file and first line.
_plain: dict[tuple[str, int], str] = {}


def is_captured(frame: FrameType | None) -> bool:
    """Whether the control flow of the running function is captured."""
    found = program_frame(frame)
    return found is not None and found.f_code in _rewritten


def why_plain(frame: FrameType | None) -> str:
    """The reason why the control flow of a running function cannot be captured, in words."""
    frame = program_frame(frame)
    if frame is None:
        return ""
    code = frame.f_code
    if not linecache.getlines(code.co_filename):
        return f"the source of {code.co_name} is not available"
    reason = _plain.get((code.co_filename, code.co_firstlineno))
    return f"{code.co_name} {reason}" if reason else ""


@functools.lru_cache(maxsize=64)
def _compiled(
    rewriting: type[Calls], statement: ast.stmt, file: str, flags: int
) -> tuple[tuple[CodeType, ...], dict[tuple[str, int], str]]:
    """All code objects in a rewritten statement, and the reasons why functions in it are not rewritten. They are
    kept for the other functions in it: the methods of a class, lambdas in a table."""
    made = rewriting()
    tree = ast.Module([made.visit(_copy(statement))], [])
    with warnings.catch_warnings():  # warnings were shown when the program was imported
        warnings.simplefilter("ignore")
        try:
            return tuple(_nested(compile(tree, file, "exec", flags=flags, dont_inherit=True))), made.plain
        except (SyntaxError, ValueError, RecursionError):
            return (), made.plain


@functools.lru_cache(maxsize=32)
def _statements(source: str) -> tuple[ast.stmt, ...]:
    try:
        return tuple(ast.parse(source).body)
    except (SyntaxError, ValueError, RecursionError):
        return ()


def _first_line(statement: ast.stmt) -> int:
    """The line of a statement's first decorator, or its own."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(d.lineno for d in decorators)])


def _copy(node: Any) -> Any:
    """A deep copy of a syntax tree."""
    if isinstance(node, list):
        return [_copy(part) for part in node]
    if not isinstance(node, ast.AST) or not node._fields:
        return node
    made = type(node).__new__(type(node))
    made.__dict__.update({name: _copy(value) for name, value in node.__dict__.items()})
    return made


def _head(code: CodeType) -> tuple[Any, ...]:
    """A key that is equal for the captured code of a function."""
    counts = code.co_argcount, code.co_kwonlyargcount
    return code.co_name, code.co_firstlineno, counts, code.co_varnames[: sum(counts)]


def _looks(code: CodeType) -> tuple[Any, ...]:
    """A key that distinguishes functions on the same line, and changed source from the original."""
    names = frozenset(code.co_names) - _HELPERS
    places = [p for p in code.co_positions() if None not in p and (p[0], p[2]) != (p[1], p[3])]
    starts, ends = [(p[0], p[2]) for p in places], [(p[1], p[3]) for p in places]
    span = min(starts, default=None), max(ends, default=None)
    return *span, names, code.co_freevars, tuple(name for name in code.co_varnames if not name.startswith("<"))


#: The methods of :class:`Caller` that rewritten calls use.
_HELPERS = frozenset("call index part rounds slice subscript text in_text while_rounds".split())


def _with_caller(code: CodeType, caller: Caller) -> CodeType:
    def filled(constant: Any) -> Any:
        if type(constant) is CodeType:
            return _with_caller(constant, caller)
        return caller if type(constant) is str and constant == MARK else constant

    return code.replace(co_consts=tuple(map(filled, code.co_consts)))
