"""``fx.op``: registers an op of a program, which is then an op like any other.

In: a NumPy function, the reference, whose signature is that of the op; optionally the computation of one
element (``scalar``, ``body``), a definition in terms of other ops (``expansion``), and a type rule
(``infer``). Out: a record (:mod:`fxlite.ops.op`) in the registry. Without a type rule, types follow from
the scalar body, the expansion, or a trace of the reference; each call compares the result of the
reference with them.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, overload

import numpy as np

from fxlite.base.errors import ArgumentError, FxliteError, did_you_mean, expect
from fxlite.base.facade import above
from fxlite.base.location import definition_of, described, program_frame
from fxlite.base.outside_text import is_name
from fxlite.base.state import is_traced
from fxlite.ops.facts import Facts
from fxlite.ops.op import ALIASES, KINDS, REGISTRY, Op, broadcast_shapes, lookup, number_or_type, shape_of, type_reader
from fxlite.ops.own import expression
from fxlite.ops.own.foreign import ForeignOp
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, ConstReader, Expr, MultiIndex, Reduction, read_broadcast
from fxlite.scalar.functions import FUNCTIONS
from fxlite.scalar.index import Index
from fxlite.types import dtypes
from fxlite.types.tensor_type import TensorType, type_of


class OwnOp(ForeignOp):
    """An op that a program registered with :func:`op`."""

    @property
    def way_out(self) -> str:  # type: ignore[override]
        """See :class:`ForeignOp`."""
        return f"give it a body (@{self.name}.scalar, @{self.name}.body) or an expansion"

    @property
    def said_by(self) -> str:  # type: ignore[override]
        """See :class:`ForeignOp`."""
        return f"give it an expansion (@{self.name}.expansion) or, element-wise, @{self.name}.scalar"

    def __init__(self, function: Callable[..., Any], kind: str | None, **facts: Any) -> None:
        super().__init__(kind or "opaque", function, **facts)
        self.function = function
        self._is_free = kind is None
        self._scalar: Callable[..., Any] | None = None
        self._known: dict[Any, Any] = {}  # types of calls on arrays
        #: The code that registered the op: if it runs twice, it defines the same op again.
        self.made_by: Any = None

    # -- rules -------------------------------------------------------------------------------
    def infer(self, function: Any) -> Any:
        """Attach the type rule: a function of TensorTypes (or Python numbers) and attributes, or a fixed type.
        A type may be given as text; several results have a tuple of types.

        Raises ArgumentError if the function does not accept the op's arguments."""
        if callable(function):
            self._check_signature(function, "type rule")
            self._infer = function
        else:
            found = _as_type(self, function)
            self._infer = lambda **bound: found
        return function

    def scalar(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach a function that computes one element of the result from the elements of the operands at the
        same place (operands broadcast) and attributes, with operators and the functions of ``fx.expr``. The
        op is then element-wise, and its types follow.

        Raises ArgumentError if the function does not accept the op's arguments."""
        self._check_signature(function, "scalar body")
        self._set_kind("pointwise")

        def body(i: MultiIndex, /, **bound: Any) -> Expr:
            def read(name: str, value: Any) -> Any:
                return expression.Scalar(read_broadcast(value, i))

            return self._say(function, "scalar body", (), self._named(read, bound))

        self._body, self._scalar, self._expansion = body, function, function
        return function

    def body(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach a function that computes one element of the result from its place ``i``, a tuple of
        positions, the operands (``x[i, j]`` reads an element) and attributes.

        Raises ArgumentError if the function does not accept ``i`` and the op's arguments."""
        self._check_signature(function, "body", ("i",))
        self._set_kind("gather")

        def body(i: MultiIndex, /, **bound: Any) -> Expr:
            def read(name: str, value: Any) -> Any:
                return expression.Operand(value, f"{name} of {self.name}")

            place = tuple(map(expression.position, i))
            return self._say(function, "body", (place,), self._named(read, bound))

        self._body = body
        return function

    def _named(self, function: Callable[[str, Any], Any], bound: Mapping[str, Any]) -> Any:
        """Arguments with ``function(name, reader)`` in the place of each tensor; numbers are unchanged."""

        def read(name: str, value: Any) -> Any:
            return value.value if isinstance(value, ConstReader) else function(name, value)

        result = dict(bound)
        for name, kind in self.tensor_kinds.items():
            value = bound.get(name)
            if kind == "Tensors" and value is not None:
                result[name] = tuple(read(f"{name}[{n}]", v) for n, v in enumerate(value))
            elif value is not None:
                result[name] = read(name, value)
        return result

    def _say(self, function: Callable[..., Any], what: str, place: tuple[Any, ...], given: Any) -> Expr:
        """The expression that a body returns for an element. Raises ArgumentError."""
        try:
            return expression.element(function(*place, **given))
        except Exception as error:
            kind = type(error) if isinstance(error, FxliteError) else ArgumentError
            raise self._wrong(f"its {what}: {_told(error)}", function, kind) from error

    def expansion(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach the definition of the op in terms of others: NumPy code that can be traced. If the reference
        itself can be traced, this is ``OP.expansion(OP.reference)``.

        Raises ArgumentError if the function does not accept the op's arguments."""
        self._check_signature(function, "expansion")
        self._expansion = function
        if self._body is None:
            self._set_kind("composite")
        return function

    def cost(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self._check_signature(function, "cost")
        return super().cost(function)

    def _set_kind(self, kind: str) -> None:
        if self._is_free:
            self.kind = kind
            self.gives_number = True if kind == "pointwise" else None

    def _check_signature(self, function: Any, what: str, before: tuple[str, ...] = ()) -> None:
        """Raise ArgumentError unless ``function`` accepts ``before`` and the op's arguments."""
        if not callable(function):
            raise self._wrong(f"its {what} is a function, not {function!r}")
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return
        required = {n: None for n in self._names if n not in self.defaults}
        try:
            signature.bind(*before, **dict.fromkeys(self._names))
            signature.bind(*before, **required)
        except TypeError as error:
            wanted = ", ".join([*before, self.signature_text()[1:-1]])
            raise self._wrong(
                f"its {what} must take ({wanted}), as the op does, but is "
                f"{getattr(function, '__name__', what)}{signature}: {error}",
                function,
            ) from None

    def _wrong(self, problem: str, function: Any = None, kind: type[FxliteError] = ArgumentError) -> FxliteError:
        """An error that names the op, and the line of ``function`` or of the reference."""
        place = definition_of(function) or definition_of(self.function)
        return kind(f"the op {self.name}: {problem}" + (f"\n  at {place}" if place else ""))

    # -- types -------------------------------------------------------------------------------
    def inferred(self, bound: Mapping[str, Any]) -> Any:
        if self._infer is not None:
            found = _as_type(self, self._infer(**self._complete(bound)))
        elif self._scalar is not None:
            shape = self._shape(bound)
            found = TensorType(shape, self._element(bound, shape).dtype)
            self._check_reference(bound, found)
        else:
            found = self._traced(bound)
        if self._body is not None and self._infer is not None:
            self._check_body(bound, found)
        return found

    def _traced(self, bound: Mapping[str, Any]) -> Any:
        """The result types of a trace of the expansion or the reference."""
        if self._expansion is not None:
            return above("traced_type")(self._expansion, self, bound)
        try:
            return above("traced_type")(self.function, self, bound)
        except Exception as error:
            raise self._wrong(
                f"it has no type rule, and none follows from its reference, which cannot be "
                f"traced: {_told(error)}\n  give one: @{self.name}.infer, a function of the types "
                f"of its operands"
            ) from error

    def _shape(self, bound: Mapping[str, Any]) -> tuple[Any, ...]:
        return broadcast_shapes(*map(shape_of, self.tensors(bound)))

    def _element(self, bound: Mapping[str, Any], shape: tuple[Any, ...]) -> Expr:
        """An element of a result of that shape, for operands of these types."""
        i = tuple(Index.of(expr.fresh_var(d)) for d in shape)
        return self.element(i, self.map_tensors(type_reader, bound))

    def _check_reference(self, bound: Mapping[str, Any], found: TensorType) -> None:
        """Raise ArgumentError unless the reference of an element-wise op, run on a few numbers, returns that
        dtype and rank."""

        def small(shape: Iterable[Any]) -> tuple[int, ...]:
            return tuple(1 if size == 1 else 2 for size in shape)

        def ones(value: Any) -> Any:
            known = isinstance(value, TensorType)
            return np.ones(small(value.shape), value.dtype.numpy) if known else value

        try:
            with np.errstate(all="ignore"):
                actual = type_of(self.reference(**self.map_tensors(ones, bound)))
        except Exception:  # it may accept only other numbers
            return
        if actual != TensorType(small(found.shape), found.dtype):
            raise self._wrong(
                f"its scalar body gives {found}, but its reference elements of "
                f"{actual.dtype.name}{list(actual.shape)} where that is {list(small(found.shape))}"
            )

    def _check_body(self, bound: Mapping[str, Any], found: Any) -> None:
        """Raise ArgumentError unless the body agrees with the type rule."""
        if not isinstance(found, TensorType):
            raise self._wrong("a body gives one result, its type rule several", self._infer)
        if self._scalar is not None and self._shape(bound) != found.shape:
            raise self._wrong(
                f"its type rule gives {found}, but element-wise on its operands it has the shape "
                f"({', '.join(map(str, self._shape(bound)))})",
                self._infer,
            )
        value = self._element(bound, found.shape)
        if self._is_free and any(map(_computes, expr.walk(value))) and self._scalar is None:
            self.kind = "window"  # it computes, and does not only select numbers
        made = value.dtype
        if made is not found.dtype:
            raise self._wrong(
                f"its type rule gives {found}, but its body elements of {made.name}; convert them "
                f"there: .astype({found.dtype.name!r})",
                self._infer,
            )

    # -- calling -----------------------------------------------------------------------------
    def bind(self, args: Any, kwargs: Any) -> dict[str, Any]:
        given = dict(zip(self._names, args)) | dict(kwargs)
        for name in self._attribute_names:
            if is_traced(given.get(name)):
                raise ArgumentError(
                    f"{self.name}{self.signature_text()}: {name} is an attribute, a plain value, "
                    f"but the program computes it; annotate it as fx.Tensor where the op is defined"
                )
        return super().bind(args, kwargs)

    def evaluate(self, bound: Mapping[str, Any]) -> Any:
        """Run the reference, and compare its result with the type rule. Raises what the reference raises, and
        the errors of the type rule for the operands."""
        bound = self.map_tensors(lambda v: np.asarray(v) if isinstance(v, list) else v, bound)
        types = self.map_tensors(number_or_type, bound)
        expected = self._expected(types)
        result = self.reference(**bound)
        several = isinstance(result, (tuple, list))
        results = tuple(
            r if isinstance(r, (np.ndarray, np.generic)) else np.asarray(r)[()]
            for r in (result if several else (result,))
        )
        try:
            actual: Any = tuple(map(type_of, results))
        except FxliteError as error:
            raise self._wrong(f"its reference gives no array of numbers: {error}") from error
        actual = actual if several else actual[0]
        if expected is not None and actual != expected:
            given = ", ".join(str(t) for t in self.tensors(types))
            raise self._wrong(
                f"for ({given}) its reference gives {_shown(actual)}, but its type rule {_shown(expected)}"
            )
        operands = [v for v in self.tensors(bound) if isinstance(v, np.ndarray)]
        # a graph assumes that the result does not share memory
        own = tuple(r.copy() if any(np.may_share_memory(r, v) for v in operands) else r for r in results)
        return own if several else own[0]

    def _expected(self, types: Mapping[str, Any]) -> Any:
        """The type of a call; None if the reference does not determine it."""
        key = tuple([(n, v, type(v)) for n, v in types.items()])
        try:
            return self._known[key]
        except KeyError:
            pass
        try:
            found = self.result_type(types)
        except FxliteError:
            if self._infer is not None or self.kind != "opaque":
                raise
            found = None
        self._known[key] = found
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return (_found, (self.name, self.module))


def _computes(value: Expr) -> bool:
    """Whether an expression is arithmetic, and not just a choice among numbers or a condition."""
    if isinstance(value, Apply):
        return not (value.dtype.is_bool or FUNCTIONS[value.function].keeps)
    return isinstance(value, Reduction) and not expr.chooses(value.kind)


def _as_type(op: OwnOp, found: Any) -> Any:
    """The return value of a type rule as types."""
    if isinstance(found, (tuple, list)):
        return tuple(_as_type(op, f) for f in found)
    if not isinstance(found, (TensorType, str)):
        raise op._wrong(f"its type rule gives {found!r}, which is not a type", op._infer)
    made = type_of(found)
    return TensorType(made.shape, dtypes.dtype(made.dtype))


def _shown(types: Any) -> str:
    return f"({', '.join(map(str, types))})" if isinstance(types, tuple) else str(types)


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, FxliteError) else described(error)


def _found(name: str, module: str) -> Op:
    """The op for a pickle. Its module is imported, as for pickled functions."""
    if name not in REGISTRY:
        importlib.import_module(module)
    return lookup(name)


# -- registering -----------------------------------------------------------------------------------
#: Names in ``fx.ops`` that are not ops, but parts of that package.
_NOT_FREE = frozenset(dir(types.ModuleType)) | vars(sys.modules["fxlite.ops"]).keys() | {"wrapped"}
_FACTS = {f.name for f in fields(Facts)} | {"samples", "bad"}


@overload
def op(function: Callable[..., Any]) -> OwnOp: ...
@overload
def op(
    function: None = None,
    *,
    name: str | None = None,
    kind: str | None = None,
    infer: Any = None,
    scalar: Callable[..., Any] | None = None,
    body: Callable[..., Any] | None = None,
    expansion: Callable[..., Any] | None = None,
    **facts: Any,
) -> Callable[[Callable[..., Any]], OwnOp]: ...
def op(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    kind: str | None = None,
    infer: Any = None,
    scalar: Callable[..., Any] | None = None,
    body: Callable[..., Any] | None = None,
    expansion: Callable[..., Any] | None = None,
    **facts: Any,
) -> Any:
    """Register an op of your own: ``@fx.op``, or ``@fx.op(name="...", ...)``.

    The function is the reference of the op, on NumPy arrays, and must have no side effects. Parameters
    that are annotated as ``fx.Tensor`` (or ``np.ndarray``), or that have neither annotation nor a number as
    default, are operands; others are attributes, which nodes store. Returns the op: a call with traced
    values records a node, a call with arrays runs the reference.

    ``infer``, ``scalar``, ``body`` and ``expansion`` are what the methods of the same names attach
    (:class:`OwnOp`). ``facts`` are properties for passes (:mod:`fxlite.ops.facts`); ``samples`` and ``bad``
    are calls for tests. ``kind``, which normally follows from the rest, tells kernels how to treat the op.

    The same definition may run again, as in a cell of a notebook or a reloaded module. A changed
    definition changes the op, also in graphs that call it. Raises ArgumentError for the name of another op,
    and for a function and rules that do not fit together."""
    rules = {"infer": infer, "scalar": scalar, "body": body, "expansion": expansion}
    if function is None:
        return lambda function: _register(function, name, kind, rules, facts)
    if not inspect.isfunction(function):
        what = function if isinstance(function, str) else type(function).__name__
        raise ArgumentError(f"fx.op takes a function: @fx.op above it, or @fx.op(name=...); it was given {what!r}")
    return _register(function, name, kind, rules, facts)


def _register(
    function: Any, name: str | None, kind: str | None, rules: Mapping[str, Any], facts: Mapping[str, Any]
) -> OwnOp:
    if not inspect.isfunction(function):
        raise ArgumentError(f"fx.op takes a function, not {type(function).__name__}")
    name = function.__name__ if name is None else name
    expect(name, str, "the name of an op")
    if not is_name(name) or name in _NOT_FREE:
        raise ArgumentError(f'{name!r} cannot be the name of an op; give one: @fx.op(name="...")')
    for fact in facts:
        if fact not in _FACTS:
            raise ArgumentError(f"the op {name}: there is no {fact!r}{did_you_mean(fact, _FACTS)}")
    if kind is not None and kind not in KINDS:
        raise ArgumentError(f"the op {name}: kind is one of {', '.join(KINDS)}, not {kind!r}")
    made = OwnOp(function, kind, name=name, **facts)
    made.made_by = _caller()
    known = REGISTRY.get(name) or ALIASES.get(name)
    if known is not None:
        made = _again(known, made)
    for rule, value in rules.items():
        if value is not None:
            getattr(made, rule)(value)
    REGISTRY[name] = made
    return made


def _again(known: Op, made: OwnOp) -> OwnOp:
    """The op of a definition that runs again: the existing op, updated to the new definition, so that graphs
    call the op of that name. Raises ArgumentError if it is the op of another definition."""
    if not isinstance(known, OwnOp):
        raise ArgumentError(f'{made.name} is the name of an op of fxlite; give yours another one: @fx.op(name="...")')
    old, new = known.function, made.function
    is_same = _content(old) == _content(new)
    places = [definition_of(f) for f in (old, new)]
    files = [f.__code__.co_filename for f in (old, new)]
    at_one_place = old.__qualname__ == new.__qualname__ and (known.module == made.module or files[0] == files[1])
    in_one_run = known.made_by is made.made_by and known.made_by is not None
    if not at_one_place or (in_one_run and not is_same):
        raise ArgumentError(
            f"there are two ops named {made.name}: at {places[0]} and at {places[1]}; give one of "
            f'them another name: @fx.op(name="...")'
        )
    known.__dict__.clear()
    known.__dict__.update(made.__dict__)
    return known


def _content(function: Any) -> Any:
    """The content of a function, independent of its place in a file."""
    cells = function.__closure__ or ()
    return (
        _code(function.__code__),
        inspect.signature(function),
        function.__doc__,
        [cell.cell_contents for cell in cells],
    )


def _code(code: Any) -> Any:
    consts = tuple((type(c), _code(c) if inspect.iscode(c) else repr(c)) for c in code.co_consts)
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, consts


def _caller() -> Any:
    """The code object of the program that calls fxlite."""
    frame = program_frame(sys._getframe(1))
    return None if frame is None else frame.f_code
