"""Makes public functions name a wrong argument, instead of failing somewhere inside because of it.

In: a public function. Out: a function that does the same. If Python or NumPy raise a TypeError, an
AttributeError or the like inside a call, the arguments are compared with the annotations, and the first
one that does not fit its annotation is named in an ArgumentError. A successful call costs nothing extra.
If all arguments fit, the error comes from the user's program or from fxlite, and is raised unchanged.
"""

from __future__ import annotations

import ast
import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from fxlite.base.errors import ArgumentError, FxliteError, OptionError

#: Exceptions that Python and NumPy raise for wrong arguments.
STUMBLES = (
    TypeError,
    AttributeError,
    ValueError,
    KeyError,
    RecursionError,
    OverflowError,
    ZeroDivisionError,
    NotImplementedError,
    AssertionError,
)

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


def checked(function: F, is_whole: bool = False) -> F:
    """``function`` with errors that name a wrong argument. ``is_whole``: no code of the user runs inside, so
    that an argument must be the cause of any error."""

    def steps(*args: Any, **kwargs: Any) -> Any:
        try:
            yield from function(*args, **kwargs)
        except STUMBLES as error:
            _diagnose(error, function, args, kwargs, is_whole)
            raise

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except STUMBLES as error:
            _diagnose(error, function, args, kwargs, is_whole)
            raise

    made = steps if inspect.isgeneratorfunction(function) else call
    return functools.wraps(function)(made)  # type: ignore[return-value]


def checked_methods(owner: C) -> C:
    """A class whose public methods are :func:`checked`."""
    for name, value in list(vars(owner).items()):
        if inspect.isfunction(value) and (name[0] != "_" or name == "__init__"):
            setattr(owner, name, _checked_method(value))
    return owner


def _checked_method(function: Callable[..., Any]) -> Callable[..., Any]:
    """Like :func:`checked`, but the result has the function's own parameters if all of them may be given by
    position. Then no arguments are packed, and a call is hardly slower than one of the function itself. A
    function without arguments is returned unchanged. A call that does not fit the signature raises Python's
    TypeError."""
    own = inspect.unwrap(function)
    code = own.__code__
    count = code.co_argcount
    others = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    if others or code.co_kwonlyargcount:
        return checked(function)
    if count == 1:  # only self
        return function
    if inspect.isgeneratorfunction(function):
        return checked(function)
    made = _template(count)(function)
    names = code.co_varnames[:count] + made.__code__.co_varnames[count:]
    made.__code__ = made.__code__.replace(co_varnames=names)
    made.__defaults__ = own.__defaults__
    return functools.wraps(function)(made)


@functools.cache
def _template(count: int) -> Callable[[Callable[..., Any]], Any]:
    """A function that wraps a function of ``count`` parameters as a checked one."""
    names = "".join(f"p{i}, " for i in range(count))
    text = f"""
def make(function):
    def call({names}):
        try:
            return function({names})
        except stumbles as error:
            diagnose(error, function, ({names}), {{}}, False)
            raise
    return call
"""
    space: dict[str, Any] = {"stumbles": STUMBLES, "diagnose": _diagnose}
    exec(compile(text, "<fxlite checked>", "exec"), space)
    return space["make"]  # type: ignore[no-any-return]


def _diagnose(error: Exception, function: Callable[..., Any], args: Any, kwargs: Any, is_whole: bool) -> None:
    """Raise the error that names the wrong argument of a call; return if all arguments fit."""
    if isinstance(error, FxliteError):
        return
    found = _wrong_argument(function, args, kwargs, error, is_whole)
    if found is not None:
        raise found from error


def _wrong_argument(
    function: Callable[..., Any], args: Any, kwargs: Any, error: Exception, is_whole: bool
) -> FxliteError | None:
    name = function.__qualname__.removesuffix(".__init__")
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as mismatch:
        return ArgumentError(f"{name}: {mismatch}")
    for parameter, value in bound.arguments.items():
        annotation = signature.parameters[parameter].annotation
        kind = signature.parameters[parameter].kind
        values = [value]
        if kind is inspect.Parameter.VAR_POSITIONAL:
            values = list(value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            values = list(value.values())
        if isinstance(annotation, str) and not all(fits(v, annotation) for v in values):
            return ArgumentError(f"{name}: argument {parameter!r} must be {annotation}, not {_shown(value)}")
        if isinstance(error, ValueError) and isinstance(value, str) and "\0" in value:
            return ArgumentError(f"{name}: argument {parameter!r} holds a NUL character")
        if isinstance(error, RecursionError) and _is_deep(value):
            return ArgumentError(f"{name}: argument {parameter!r} is nested too deeply")
    if not is_whole:
        return None
    given = ", ".join(f"{n}={_shown(v)}" for n, v in bound.arguments.items())
    kind_of_error = OptionError if isinstance(error, ValueError) else ArgumentError
    return kind_of_error(f"{name} does not take ({given}): {error}")


def _is_deep(value: Any) -> bool:
    """Whether lists and dicts are nested more than 200 levels deep, or contain themselves."""
    for _ in range(200):
        if isinstance(value, Mapping):
            value = list(value.values())
        if not isinstance(value, (list, tuple)) or not value:
            return False
        value = [
            inner
            for v in value[:100]
            if isinstance(v, (list, tuple, Mapping))
            for inner in (v.values() if isinstance(v, Mapping) else v)
        ] or None
    return True


def _shown(value: Any) -> str:
    """A value as text for one line of a message."""
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype}{list(value.shape)}"
    shown = reprlib.repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


# -- annotations -----------------------------------------------------------------------------------
#: Tests of values by the names in annotations; for other names, every value is accepted.
_KINDS: dict[str, Callable[[Any], bool]] = {
    "int": lambda v: isinstance(v, (int, np.integer)),
    "float": lambda v: isinstance(v, (int, float, np.number)),
    "bool": lambda v: isinstance(v, (bool, np.bool_)),
    "str": lambda v: isinstance(v, str),
    "Callable": callable,
    "Predicate": callable,
    "set": lambda v: isinstance(v, (set, frozenset)),
    "Mapping": lambda v: isinstance(v, Mapping),
    "dict": lambda v: isinstance(v, Mapping),
    "Iterable": lambda v: isinstance(v, Iterable) and getattr(v, "ndim", 1) > 0,
    "Sequence": lambda v: isinstance(v, (list, tuple, str)),
    "tuple": lambda v: isinstance(v, tuple),
    "list": lambda v: isinstance(v, (list, tuple)),
    "os.PathLike": lambda v: hasattr(v, "__fspath__"),
    "Path": lambda v: hasattr(v, "__fspath__"),
    "np.ndarray": lambda v: isinstance(v, np.ndarray),
}
#: Classes of fxlite, by name: most are imported only for annotations.
_CLASSES = frozenset(
    "DType Exactness Graph GraphModule Match Module Node Op Partition QConfig QConfigMapping "
    "Scheme TensorType Tracer".split()
)


@functools.lru_cache(maxsize=512)
def _parsed(annotation: str) -> ast.expr:
    return ast.parse(annotation, mode="eval").body


def fits(value: Any, annotation: str) -> bool:
    """Whether a value fits an annotation; True if that cannot be decided."""
    return _fits(value, _parsed(annotation))


def _fits(value: Any, node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _fits(value, node.left) or _fits(value, node.right)
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return fits(value, node.value)
        return value is node.value
    if isinstance(node, ast.Subscript):
        name = ast.unparse(node.value)
        if name == "Literal":
            return any(value == ast.literal_eval(c) for c in _parts(node.slice))
        return _fits(value, node.value) and _elements_fit(value, name, _parts(node.slice))
    name = ast.unparse(node)
    if name in _CLASSES:
        return any(c.__name__ == name for c in type(value).__mro__)
    return name not in _KINDS or _KINDS[name](value)


def _parts(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def _elements_fit(value: Any, name: str, parts: list[ast.expr]) -> bool:
    if isinstance(value, Mapping) and len(parts) == 2:
        return all(_fits(k, parts[0]) and _fits(v, parts[1]) for k, v in value.items())
    if name in ("Iterable", "Sequence", "list") and isinstance(value, (list, tuple)):
        return all(_fits(v, parts[0]) for v in value)
    return True


def public_names(space: Mapping[str, Any]) -> list[str]:
    """The names in ``__all__``, else those that the module with these globals defines: functions, classes,
    and constants in capitals."""
    if "__all__" in space:
        return sorted(space["__all__"])
    return sorted(name for name, value in space.items() if _is_public(name, value, space))


def _is_public(name: str, value: Any, space: Mapping[str, Any]) -> bool:
    if name.startswith("_") or isinstance(value, ModuleType):
        return False
    if callable(value):
        return bool(getattr(value, "__module__", None) == space["__name__"])
    return name.isupper() and name != "TYPE_CHECKING"
