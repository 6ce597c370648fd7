"""``fx.wrap``: makes calls of a plain Python function single nodes, instead of tracing into it.

In: a function of arrays and plain values. Out: a function that behaves the same outside of tracing. Called
with a traced value, it records a ``call_function`` of an opaque op that was made for it. The op prints as
``ops.wrapped.MODULE.NAME``; an interpreter calls the function, and regenerated Python imports it from its
module. C and CUDA cannot represent it, and raise an error that names it.
"""

from __future__ import annotations

import dis
import enum
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import ArgumentError, expect
from fxlite.base.location import here, with_place
from fxlite.base.on_demand import is_expression
from fxlite.base.state import is_traced, stands_for_any
from fxlite.ops.op import WRAPPED, Op
from fxlite.ops.own.foreign import ForeignOp
from fxlite.ops.parameters import kind_of
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import type_of

if TYPE_CHECKING:
    from fxlite.tracing.proxy import Proxy

#: (globals of the module, name) of functions that were wrapped by name before they were defined.
_PENDING: list[tuple[dict[str, Any], str, Any]] = []


class WrappedOp(ForeignOp):
    """The op of a wrapped function: kind "opaque", with the function as its reference."""

    way_out = said_by = "write it with NumPy and leave fx.wrap out, or give it a body or an expansion (fx.op)"

    def __init__(self, function: Callable[..., Any], name: str, infer: Any) -> None:
        signature = inspect.signature(function)
        kinds = {
            p.name: kind_of(p, function, "fx.wrap", (str, tuple, list, dict)) for p in signature.parameters.values()
        }
        ordered = sorted(signature.parameters.values(), key=lambda p: kinds[p.name] == "")
        self.takes_in_order = list(kinds) == [p.name for p in ordered]

        def reference(**arguments: Any) -> Any:
            if isinstance(dtype := arguments.get("dtype"), DType):
                arguments["dtype"] = dtype.numpy
            return function(**arguments)

        reference.__doc__ = function.__doc__
        plain = inspect.Parameter.POSITIONAL_OR_KEYWORD
        required = [p for p in ordered if p.default is p.empty]
        by_name = inspect.Parameter.KEYWORD_ONLY
        # an attribute without a default may follow an operand with a default
        mixed = ordered[: len(required)] != required
        reference.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                p.replace(kind=by_name if mixed and not kinds[p.name] else plain, annotation=kinds[p.name])
                for p in ordered
            ]
        )
        super().__init__("opaque", reference, name=name)
        self.function = function
        #: The function that :func:`wrap` returns. The op equals it, so that it can be compared with targets.
        self.wrapper: Callable[..., Any] = function
        self.node_name = function.__name__
        self._infer = functools.partial(_result_type, infer)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name. Raises ArgumentError for arguments that do not fit, and for attributes that are
        not data, which text and files cannot represent."""
        for name, value in (*zip(self._names, args), *kwargs.items()):
            if name not in self.tensor_kinds:
                problem = _no_data(value, name)
                if problem:
                    raise ArgumentError(
                        f"{self.title}: the argument {name!r} is {problem}; a graph is data and "
                        "holds numbers, texts, None and tuples of them beside arrays"
                    )
        return super().bind(args, kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.wrapper or other is self.function

    def __hash__(self) -> int:
        return hash(self.wrapper)

    @property
    def title(self) -> str:
        """The name in messages: ``helpers.scale``."""
        return self.name.removeprefix("wrapped.")


def _no_data(value: Any, name: str) -> str:
    """A description of an attribute that a graph cannot hold; empty for others."""
    if isinstance(value, (tuple, list)):
        return next(filter(None, (_no_data(v, name) for v in value)), "")
    if isinstance(value, enum.Enum):
        return f"{value}, a member of an enum: pass its value, {value.value!r}"
    if isinstance(value, (np.dtype, DType)) or (
        isinstance(value, type) and issubclass(value, (np.generic, *dtypes.NUMBERS))
    ):
        return "" if name == "dtype" else f"{value}: call the parameter dtype, or pass its name"
    if value is Ellipsis or isinstance(value, slice):
        return f"{value!r}: pass the numbers"
    known = (type(None), *dtypes.NUMBERS, str, np.generic, np.ndarray, shapes.NamedDim)
    return "" if isinstance(value, known) or is_expression(value) or _may_stand(value) else f"a {type(value).__name__}"


def _may_stand(value: Any) -> bool:
    """True for a node or traced value, which is rejected elsewhere, and for a parameter of a pattern."""
    return is_traced(value) or stands_for_any(value) or hasattr(value, "all_input_nodes")


def _result_type(infer: Any, **types: Any) -> Any:
    found = infer(**types) if callable(infer) else infer
    if isinstance(found, (tuple, list)):
        return tuple(map(type_of, found))
    return None if found is None else type_of(found)


def wrap(fn_or_name: Any = None, *, infer: Any = None) -> Any:
    """Make each call of a function a single node, instead of tracing into the function: ``@fx.wrap``,
    ``@fx.wrap(infer=...)``, or at module level ``fx.wrap("name")`` or ``fx.wrap(function)`` for a function of
    that module, which may be imported.

    The function must be pure, because a node that is not read is removed. Parameters without annotation, or
    annotated as arrays, take arrays and numbers; others (``axis: int``, ``mode="nearest"``) are attributes,
    which are stored unchanged. ``infer`` gives the type of the result: type text, or a function from the
    TensorTypes of the arguments to a type (a tuple of types for several results). Without it, the result has
    no type.

    Raises ArgumentError for a function without a name, for ``*args`` and ``**kwargs``, and for a statement
    ``fx.wrap(function)`` if the module has no name whose function could be replaced."""
    function = fn_or_name
    if function is None:
        return functools.partial(wrap, infer=infer)
    if isinstance(function, str):
        frame = sys._getframe(1)
        if frame.f_locals is not frame.f_globals:
            raise ArgumentError(f"fx.wrap({function!r}) must be called at the level of the module")
        _PENDING.append((frame.f_globals, function, infer))
        return function
    if isinstance(getattr(function, "wrapped_op", None), WrappedOp):
        return function
    op = _register(function, infer)
    if _is_statement(frame := sys._getframe(1)):
        name = getattr(function, "__name__", "")
        if frame.f_locals is not frame.f_globals or frame.f_globals.get(name) is not function:
            raise ArgumentError(
                f"fx.wrap({name}) as a statement wraps a function of its own module; "
                f"use it as a decorator, or write {name} = fx.wrap({name})"
            )
        _PENDING.append((frame.f_globals, name, infer))

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        proxy = next(_proxies((args, kwargs)), None)
        if proxy is None:
            return function(*args, **kwargs)
        bound = inspect.signature(function).bind(*args, **kwargs).arguments
        for name, value in bound.items():
            if name not in op.tensor_kinds and next(_proxies(value), None) is not None:
                raise proxy.tracer.error(
                    f"{name} of {op.title} is annotated as a plain value but is computed by the program",
                    "annotate it as an array",
                )
        try:
            given = op.bind((), bound)
        except ArgumentError as error:
            raise with_place(error, here(2)) from None
        return proxy.tracer.record(op, given)

    wrapper.wrapped_op = op  # type: ignore[attr-defined]
    op.wrapper = wrapper
    return wrapper


def _is_statement(frame: Any) -> bool:
    """Whether the result of the call that a frame is executing is discarded."""
    following = (i for i in dis.get_instructions(frame.f_code) if i.offset > frame.f_lasti)
    return next(following).opname == "POP_TOP"


def has_side_effect(fn: Any) -> Any:
    """Keep every call of a function, even if its result is not read: no pass removes, folds or merges such
    nodes, and they keep their order. ``fn`` is an op, or a function, which is wrapped as by :func:`wrap`.
    Returns the op or wrapped function. Raises what :func:`wrap` raises."""
    if isinstance(fn, Op):
        fn.has_side_effect = True
        return fn
    wrapped = wrap(fn)
    wrapped.wrapped_op.has_side_effect = True
    return wrapped


class Autowrap:
    """Wraps functions while a program is traced, in the program's module and in their own."""

    def __init__(self, modules: Iterable[Any], functions: Iterable[Any]) -> None:
        expect(modules, Iterable, "autowrap_modules=", "give imported modules")
        expect(functions, Iterable, "autowrap_functions=", "give functions")
        self.modules, self.functions = tuple(modules), tuple(functions)
        for module in self.modules:
            expect(module, ModuleType, "one of autowrap_modules=")
        for function in self.functions:
            expect(function, Callable, "one of autowrap_functions=")
        self._replaced: list[tuple[dict[str, Any], str, Any]] = []

    def enter(self, root: Any) -> None:
        """Replace the functions by wrappers."""
        if not (self.modules or self.functions):
            return
        public = [v for m in self.modules for n, v in vars(m).items() if not n.startswith("_")]
        wanted = {id(f): f for f in (*self.functions, *filter(inspect.isroutine, public))}
        program = inspect.unwrap(getattr(type(root), "forward", root))
        for space in (getattr(program, "__globals__", {}), *(m.__dict__ for m in self.modules)):
            for name, value in list(space.items()):
                if id(value) in wanted and not name.startswith("_"):
                    self._replaced.append((space, name, value))
                    space[name] = wrap(value)

    def leave(self) -> None:
        """Restore the functions."""
        while self._replaced:
            space, name, value = self._replaced.pop()
            space[name] = value


def _proxies(value: Any) -> Iterator[Proxy]:
    if is_traced(value):
        yield value
    elif isinstance(value, (tuple, list)):
        for v in value:
            yield from _proxies(v)
    elif isinstance(value, dict):
        yield from _proxies(tuple(value.values()))


def _register(function: Any, infer: Any) -> WrappedOp:
    module = getattr(function, "__module__", None) or "__main__"
    qualified = getattr(function, "__qualname__", "<lambda>").replace(".<locals>", "")
    if not all(part.isidentifier() for part in qualified.split(".")):
        raise ArgumentError(f"fx.wrap needs a function with a name, not {function!r}")
    name = wish = f"wrapped.{module}.{qualified}"
    number = 1
    while (known := WRAPPED.get(name)) is not None:
        assert isinstance(known, WrappedOp)
        if _is_same(known.function, function) and infer is None:
            return known  # the module was loaded again
        number += 1
        name = f"{wish}_{number}"
    made = WrappedOp(function, name, infer)
    WRAPPED[name] = made
    return made


def _is_same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    codes = [getattr(f, "__code__", None) for f in (a, b)]
    free = [getattr(f, "__closure__", None) for f in (a, b)]
    return codes[0] is not None and codes[0] == codes[1] and free == [None, None]


def activate_wrapped_names() -> None:
    """Replace the functions that were wrapped by name, and that exist by now, by their wrappers."""
    waiting = []
    for space, name, infer in _PENDING:
        if name in space:
            space[name] = wrap(space[name], infer=infer)
        else:
            waiting.append((space, name, infer))
    _PENDING[:] = waiting
