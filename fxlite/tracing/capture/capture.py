"""Capture: the program's Python functions, compiled again from their source so that every call in
them passes through :func:`call`.

In: a function of the program. Out: a function with the same globals, closure and places in the
source, in which ``np.zeros(4)`` makes a traced array, ``len(x)`` may be a named dim, and functions
that it calls are captured in turn. Nothing outside of the made function is changed: no module is
patched, and other threads run the program as it is.

Functions without source, and those of fxlite, NumPy and the standard library, run as they are.
"""

from __future__ import annotations
import __future__

import ast
import functools
import linecache
import sysconfig
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from fxlite.base.location import REGENERATED, is_own_file
from fxlite.base.state import active_tracer
from fxlite.tracing.capture.arrays import ARRAYS, fresh_array
from fxlite.tracing.capture.builtins import BUILTINS

_STANDARD = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})
_INSTALLED = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
_FUTURE: int = sum(
    {getattr(__future__, name).compiler_flag for name in __future__.all_feature_names}
)
#: Calls of these names look at the frame that calls them, so they stay as they are.
_NEEDS_FRAME = frozenset(
    "super locals globals vars dir eval exec breakpoint __import__ __build_class__".split()
)
#: Stands in compiled code for the object that makes the calls.
_MARK = "\0fxlite.call"

_Known = dict[int, tuple[weakref.ref[CodeType], CodeType | None]]
#: Captured code by the id of the original, as long as there is the original; None: it stays as it
#: is, as captured code itself does. The second is for what a library's functions call.
_known: tuple[_Known, _Known] = ({}, {})


def captured(function: Callable[..., Any], library: bool = False) -> Callable[..., Any]:
    """The function with its calls captured; the function itself where that is not to be had.
    ``library``: also one of a library, and what it calls there."""
    if type(function) is MethodType:
        inner = captured(function.__func__, library)
        return function if inner is function.__func__ else MethodType(inner, function.__self__)
    if type(function) is not FunctionType:
        return function
    code = _captured_code(function.__code__, library)
    if code is None:
        return function
    made = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    return made


#: What the tracer answers in place of NumPy and Python.
_ANSWERED = {**BUILTINS, **ARRAYS}


class _Caller:
    """What captured code calls in place of each call that it was written with."""

    def __init__(self, library: bool) -> None:
        self.library = library

    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        tracer = active_tracer.get()
        if tracer is None:
            return function(*args, **kwargs)
        kind = type(function)
        if kind is MethodType:
            inner = function.__func__
            if type(inner) is FunctionType and _captured_code(inner.__code__, self.library):
                return captured(inner, self.library)(function.__self__, *args, **kwargs)
            return function(*args, **kwargs)
        try:
            make = _ANSWERED.get(function)
        except TypeError:  # it has no hash
            make = None
        if make is not None:
            return make(tracer, function, args, kwargs)
        if kind is FunctionType:
            return captured(function, self.library)(*args, **kwargs)
        if kind is functools.partial:
            given = {**function.keywords, **kwargs}
            return self.call(function.func, *function.args, *args, **given)
        result = function(*args, **kwargs)
        if type(result) is np.ndarray and kind in _NUMPYS:
            return fresh_array(tracer, result, (getattr(function, "__self__", None), *args))
        return result


_CALLERS = {library: _Caller(library) for library in (False, True)}
#: What NumPy's functions are, and methods of arrays.
_NUMPYS = frozenset((BuiltinFunctionType, np.ufunc, type(np.concatenate)))


# -- code ------------------------------------------------------------------------------------------
def _captured_code(code: CodeType, library: bool) -> CodeType | None:
    known = _known[library].get(id(code))
    if known is None or known[0]() is not code:
        wanted = library or is_program(code.co_filename)
        made = _recompiled(code, _CALLERS[library]) if wanted else None
        _remember(code, library, made)
        for inner in _nested(made) if made is not None else ():
            _remember(inner, False, None)
            _remember(inner, True, None)
        return made
    return known[1]


def _remember(code: CodeType, library: bool, made: CodeType | None) -> None:
    key, forget = id(code), _known[library].pop  # which is there when the process ends, too
    _known[library][key] = weakref.ref(code, lambda _: forget(key, None)), made


def is_program(file: str) -> bool:
    """Whether a file is the user's program: none of fxlite, NumPy or the standard library."""
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


def _recompiled(code: CodeType, caller: _Caller) -> CodeType | None:
    """The code from its source, with calls captured; None where the source is not at hand, or not
    the one that the code was made from."""
    source = "".join(linecache.getlines(code.co_filename))
    first = code.co_firstlineno
    statement = next(
        (s for s in _statements(source) if _first_line(s) <= first <= (s.end_lineno or 0)), None
    )
    if statement is None:
        return None
    tree = ast.Module([_Calls().visit(_copy(statement))], [])
    flags = code.co_flags & _FUTURE
    with warnings.catch_warnings():  # those of the program were shown when it was imported
        warnings.simplefilter("ignore")
        try:
            whole = compile(tree, code.co_filename, "exec", flags=flags, dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError):
            return None
    wanted = _looks(code)
    found = [c for c in _nested(whole) if _is_like(c, code) and _looks(c) == wanted]
    return _with_caller(found[0], caller) if len(found) == 1 else None


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
    if not isinstance(node, ast.AST):
        return node
    fields = {name: _copy(value) for name, value in ast.iter_fields(node)}
    return ast.copy_location(type(node)(**fields), node)


def _is_like(a: CodeType, b: CodeType) -> bool:
    return (
        a.co_name == b.co_name
        and a.co_firstlineno == b.co_firstlineno
        and a.co_freevars == b.co_freevars
        and a.co_varnames == b.co_varnames
        and a.co_argcount == b.co_argcount
        and a.co_kwonlyargcount == b.co_kwonlyargcount
    )


def _looks(code: CodeType) -> tuple[Any, ...]:
    """What tells functions in one line from each other, and source from what it was before."""
    names = frozenset(code.co_names) - {"call"}
    places = [p for p in code.co_positions() if None not in p and (p[0], p[2]) != (p[1], p[3])]
    starts, ends = [(p[0], p[2]) for p in places], [(p[1], p[3]) for p in places]
    return names, min(starts, default=None), max(ends, default=None)


def _with_caller(code: CodeType, caller: _Caller) -> CodeType:
    def filled(constant: Any) -> Any:
        if type(constant) is CodeType:
            return _with_caller(constant, caller)
        return caller if type(constant) is str and constant == _MARK else constant

    return code.replace(co_consts=tuple(map(filled, code.co_consts)))


class _Calls(ast.NodeTransformer):
    """``f(x)`` becomes ``caller.call(f, x)``, at the same place."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in _NEEDS_FRAME:
            return node
        caller = ast.copy_location(ast.Constant(_MARK), node)
        method = ast.copy_location(ast.Attribute(caller, "call", ast.Load()), node)
        made = ast.Call(method, [node.func, *node.args], node.keywords)
        return ast.copy_location(made, node)
