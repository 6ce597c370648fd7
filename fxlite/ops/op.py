"""Ops: everything about an operation is in one record, which all other parts of the system read.

A record starts as the op's reference, a plain NumPy function whose signature is the op's signature.
Rules are attached to it::

    @op("reduction", samples=["f32[3,4] axis=1"])
    def sum(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
        \"\"\"Sum over ``axis``.\"\"\"
        return np.sum(x, axis=axis, keepdims=keepdims)

    @sum.infer
    def _(x, axis=None, keepdims=False): ...       # TensorTypes in, TensorType out
    @sum.body
    def _(i, x, axis=None, keepdims=False): ...    # output index and readers in, Expr out

Calling an op binds the arguments to the signature once (``softmax(x, 1)`` and ``softmax(x, dim=1)`` are
the same call). Then it records a node if an argument is a Proxy, and runs the reference otherwise.
"""

from __future__ import annotations

import enum
import functools
import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fxlite.base.errors import (
    ArgumentError,
    DTypeError,
    FxliteError,
    GraphError,
    OptionError,
    PositionError,
    ShapeError,
    did_you_mean,
    number_of,
)
from fxlite.base.on_demand import is_expression
from fxlite.base.state import active_tracer, stands_for_any
from fxlite.ops.facts import Facts
from fxlite.ops.parameters import OptionalTensor as OptionalTensor
from fxlite.ops.parameters import Tensor as Tensor
from fxlite.ops.parameters import Tensors as Tensors
from fxlite.ops.parameters import kind_of
from fxlite.ops.samples import BadSample, Sample, Samples, parsed
from fxlite.scalar import expr
from fxlite.scalar.expr import ConstReader, Expr, MultiIndex, Reader
from fxlite.scalar.functions import COMBINATIONS, FUNCTIONS
from fxlite.scalar.index import Index
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.shapes import symbols
from fxlite.types.tensor_type import TensorType, type_of

Axis: TypeAlias = int | tuple[int, ...] | None

#: The kinds of ops. ``pointwise`` and ``view`` ops can be fused into any consumer; ``composite`` ops have an
#: expansion instead of a body; ``random`` ops are never merged, moved or removed; ``control`` ops run
#: sub-graphs, which are attributes.
KINDS = (
    "pointwise view reduction contraction window gather scatter scan creation composite opaque random control"
).split()

_ALIASES = {"dim": "axis", "keepdim": "keepdims", "input": "x", "self": "x", "a": "x"}

#: Ops that make arrays which programs write into: they become nodes even if their sizes are known, so that
#: the writes are traced.
_ALWAYS_RECORDED = frozenset(("full", "zeros", "ones"))

#: Kinds whose references would accept arguments that their type rules refuse, such as a mask as an index.
_ASKS_FIRST = frozenset(("contraction", "window", "gather", "scatter", "composite"))

#: The exceptions that Python and NumPy raise for arguments of a wrong kind, deep inside a call.
_OF_ARGUMENTS = (TypeError, AttributeError, ValueError, KeyError, RecursionError, OverflowError)

#: The types of defaults that make parameters without an annotation attributes.
_PLAIN = (*dtypes.NUMBERS, str, tuple, list, dict)

#: Whether results of rank 0 are NumPy's numbers, for kinds whose results always or never are.
_NUMBERS = {"pointwise": True, "reduction": True, "creation": False}


def parameter_name(key: str) -> str:
    """The name of the parameter for which a name of torch or NumPy stands (``axis`` for ``dim``); other names
    unchanged."""
    return _ALIASES.get(key, key)


REGISTRY: dict[str, Op] = {}
#: Other names of ops (in NumPy or torch): alias -> op.
ALIASES: dict[str, Op] = {}
#: Python's binary operators, by the names of their methods, and the corresponding ops.
OPERATORS = dict(
    pair.split("=")
    for pair in (
        "add=add sub=sub mul=mul truediv=div floordiv=floor_divide mod=remainder pow=pow matmul=matmul and=bitwise_and "
        "or=bitwise_or xor=bitwise_xor lshift=left_shift rshift=right_shift"
    ).split()
)
#: The ops of functions that were given to ``fx.wrap``, by name, as long as a function or a graph holds them.
WRAPPED: weakref.WeakValueDictionary[str, Op] = weakref.WeakValueDictionary()


class Op(Facts):
    """One operation. The docstring of the module shows how records are written."""

    #: The name of the nodes of traced calls; None: the op's name.
    node_name: str | None = None
    #: Whether some sizes of a call must not be 0; see :meth:`elements`.
    needs_elements = False

    def __init__(self, kind: str, reference: Callable[..., Any], **facts: Any) -> None:
        assert kind in KINDS, kind
        self.kind = kind
        self.reference = reference
        self.name: str = facts.pop("name", None) or reference.__name__
        self.signature = self.__signature__ = inspect.signature(reference)
        self._written_samples: Samples = facts.pop("samples", ())
        self.bad_samples: list[BadSample] = list(facts.pop("bad", ()))
        if kind in _NUMBERS:
            facts.setdefault("gives_number", _NUMBERS[kind])
        facts.setdefault("asks_first", kind in _ASKS_FIRST)
        super().__init__(**facts)
        self.__doc__ = reference.__doc__
        self.__name__ = self.name
        self._infer: Callable[..., Any] | None = None
        self._body: Callable[..., Expr] | None = None
        self._expansion: Callable[..., Any] | None = None
        self._canonical: Callable[..., Any] | None = None
        self._cost: Callable[..., Any] | None = None
        self._elements: Callable[..., Iterable[shapes.Dim]] | None = None
        kinds = {
            p.name: kind_of(p, reference, f"the op {self.name}", _PLAIN) for p in self.signature.parameters.values()
        }
        self.tensor_kinds: dict[str, str] = {name: kind for name, kind in kinds.items() if kind}
        self._names = list(self.signature.parameters)
        #: The values of parameters that a call leaves out.
        self.defaults = {
            p.name: p.default for p in self.signature.parameters.values() if p.default is not inspect.Parameter.empty
        }
        #: Those that rules get: all but operands that are numbers by default, which are no types or readers.
        self._optional = {n: d for n, d in self.defaults.items() if d is None or n not in self.tensor_kinds}
        #: The parameters, if all are tensors that must be given: binding them is a zip.
        self._plain_names = (
            tuple(self._names)
            if not self.defaults
            and set(self.tensor_kinds.values()) == {"Tensor"}
            and len(self.tensor_kinds) == len(self._names)
            else None
        )
        self._tensor_names = tuple(self.tensor_kinds)
        count = len(self._tensor_names)
        if list(self._tensor_names) != self._names[:count]:
            early = next(n for n in self._names if n not in self.tensor_kinds)
            raise ArgumentError(
                f"the op {self.name}{self.signature_text()}: operands come before attributes; move "
                f"{early!r} after {self._tensor_names[-1]!r}, or annotate it as Tensor"
            )
        self._attribute_names = tuple(self._names[count:])
        self._types: dict[Any, Any] = {}  # cached results of the type rule

    # -- attaching rules ---------------------------------------------------------------------
    def infer(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach the type rule, a function of TensorTypes (or Python scalars) in the place of tensors, and
        attributes. Like all rules but the canonical form, it gets every argument by name, defaults included."""
        self._infer = function
        return function

    def body(self, function: Callable[..., Expr]) -> Callable[..., Expr]:
        """Attach the computation of an element: ``body(i, readers and attributes by name)``."""
        self._body = function
        return function

    def expansion(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach the definition of a composite in terms of other ops: plain Python on tensors."""
        self._expansion = function
        return function

    def canonical(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach a canonical form: a function from bound arguments, which lack defaults, to None or (another op,
        its arguments)."""
        self._canonical = function
        return function

    def cost(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach the number of arithmetic operations (a dim), a function of types and attributes. It is
        needed for a composite whose expansion has the length of a dim."""
        self._cost = function
        return function

    def elements(self, function: Callable[..., Iterable[shapes.Dim]]) -> Callable[..., Any]:
        """Attach the sizes that must not be 0, a function of types and attributes, for an op without an identity,
        such as max."""
        self._elements, self.needs_elements = function, True
        return function

    # -- facts -------------------------------------------------------------------------------
    @functools.cached_property
    def samples(self) -> list[Sample]:
        """Example arguments; samples that were given as text are parsed on demand."""
        return list(parsed(self._written_samples))

    #: Whether calls are neither removed nor merged, even if nothing reads their results; see fx.has_side_effect.
    has_side_effect = False

    @property
    def is_random(self) -> bool:
        return self.kind == "random"

    @property
    def has_body(self) -> bool:
        return self._body is not None

    @property
    def has_expansion(self) -> bool:
        return self._expansion is not None

    @property
    def has_cost(self) -> bool:
        return self._cost is not None

    def needed_sizes(self, bound: Mapping[str, Any]) -> list[shapes.Dim]:
        """The sizes that must not be 0 in a call with these types."""
        return [] if self._elements is None else list(self._elements(**self._complete(bound)))

    def expand(self, arguments: Mapping[str, Any]) -> Any:
        """Run the expansion on proxies or arrays."""
        assert self._expansion is not None, self.name
        return self._expansion(**self._complete(arguments))

    def element(self, i: MultiIndex, arguments: Mapping[str, Any]) -> Expr:
        """The scalar expression for output element ``i``; tensors in ``arguments`` are given as readers."""
        assert self._body is not None, self.name
        return self._body(i, **self._complete(arguments))

    # -- calling -----------------------------------------------------------------------------
    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by parameter name, in signature order, with attributes in stored form and without
        defaults. Raises ArgumentError, which names the parameter."""
        plain = self._plain_names
        if plain is not None and not kwargs and len(args) == len(plain):
            for value in args:
                if value is None:
                    break
            else:
                return dict(zip(plain, args))
        if len(args) > len(self._names):
            raise ArgumentError(
                f"{self.name}{self.signature_text()} takes {number_of(len(self._names), 'argument')}, got {len(args)}"
            )
        given = dict(zip(self._names, args))
        for key, value in kwargs.items():
            name = self.parameter_name(key)
            if name in given:
                raise ArgumentError(f"{self.name}: argument {name!r} given twice")
            given[name] = value
        bound: dict[str, Any] = {}
        for name in self._names:
            if name not in given:
                if name not in self.defaults:
                    raise ArgumentError(f"{self.name}{self.signature_text()}: argument {name!r} is missing")
                continue
            value = given[name]
            kind = self.tensor_kinds.get(name)
            if kind is None:
                value = freeze(value)
                if name == "dtype" and value is not None and not stands_for_any(value):
                    value = dtypes.dtype(value)
            elif kind == "Tensors":
                if not isinstance(value, (tuple, list)):
                    raise ArgumentError(
                        f"{self.name}: argument {name!r} must be a tuple or list of tensors, not {value!r}"
                    )
                value = tuple(value)
            elif value is None and kind == "Tensor":
                raise ArgumentError(f"{self.name}: argument {name!r} must be a tensor, not None")
            if name in self.defaults and value is self.defaults[name]:
                continue
            if name in self.defaults and kind is None:
                default = self.defaults[name]
                if value == default and type(value) is type(default):
                    continue
            bound[name] = value
        return bound

    def parameter_name(self, key: str) -> str:
        """The parameter for a keyword, which is its name or an alias (``dim`` for ``axis``). Raises
        ArgumentError for other keywords."""
        if key in self.signature.parameters:
            return key
        name = parameter_name(key)
        if name not in self.signature.parameters:
            raise ArgumentError(f"{self.name}{self.signature_text()} has no argument {key!r}")
        return name

    def signature_text(self) -> str:
        """``(x, axis=None, keepdims=False)``: the signature without annotations."""
        parts = [n if n not in self.defaults else f"{n}={self.defaults[n]!r}" for n in self._names]
        return f"({', '.join(parts)})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self.bind(args, kwargs)
        recorder = find_recorder(self, bound)
        if recorder is not None:
            return recorder(self, bound)
        return self.evaluate(bound)

    def evaluate(self, bound: Mapping[str, Any]) -> Any:
        """Run the reference on arrays. If NumPy raises an error for a call that the type rule rejects, the
        error of the type rule is raised instead. Errors that depend on values, such as an IndexError, are
        those of the reference."""
        if self.asks_first:
            self._ask(bound)
        try:
            return self.reference(**bound)
        except FxliteError:
            raise
        except (*_OF_ARGUMENTS, IndexError) as error:
            self._ask(bound)
            if isinstance(error, (IndexError, np.linalg.LinAlgError)):
                raise  # it depends on values, which types do not tell
            raise self._unfit(self.map_tensors(_shown, bound), error) from error

    def _ask(self, bound: Mapping[str, Any]) -> None:
        """Raise the error of the type rule for a call on arrays, if there is one."""
        if self.name != "getitem":  # its operand is a tuple of results
            self.result_type(self.map_tensors(number_or_type, bound))

    def _unfit(self, bound: Mapping[str, Any], error: Exception) -> FxliteError:
        """The error for a call that neither the type rule nor the reference expected."""
        given = ", ".join(str(v) if n in self.tensor_kinds else f"{n}={v!r}"[:60] for n, v in bound.items())
        kind = OptionError if isinstance(error, ValueError) else ArgumentError
        return kind(f"{self.name}{self.signature_text()} does not take ({given}): {error}")

    def tensors(self, bound: Mapping[str, Any]) -> Iterator[Any]:
        """The values of tensor parameters, in signature order, including None and Python scalars."""
        for name, kind in self.tensor_kinds.items():
            if name in bound:
                if kind == "Tensors":
                    yield from bound[name]
                else:
                    yield bound[name]

    def map_tensors(self, function: Callable[[Any], Any], bound: Mapping[str, Any]) -> dict[str, Any]:
        """Bound arguments with ``function`` applied to the values of tensor parameters (except None)."""
        result = dict(bound)
        for name, kind in self.tensor_kinds.items():
            value = result.get(name)
            if value is None:
                continue
            result[name] = tuple(function(v) for v in value) if kind == "Tensors" else function(value)
        return result

    def canonicalize(self, bound: dict[str, Any]) -> tuple[Op, dict[str, Any]]:
        """The op and arguments that all spellings of this call share."""
        if self._canonical is not None:
            found = self._canonical(**bound)
            if found is not None:
                other, arguments = found
                return other.canonicalize(other.bind((), arguments))  # type: ignore[no-any-return]
        return self, bound

    def result_type(self, bound: Mapping[str, Any]) -> Any:
        """The type of the result (a TensorType, or a tuple of them) from the types of the arguments.

        Raises ShapeError, DTypeError or ArgumentError, which name the op."""
        try:
            return self.inferred(bound)
        except FxliteError as error:
            shown = ", ".join(str(t) for t in self.tensors(bound))
            raise type(error)(f"{self.name}({shown}): {error}") from None
        except _OF_ARGUMENTS as error:
            raise self._unfit(bound, error) from error

    def inferred(self, bound: Mapping[str, Any]) -> Any:
        """:meth:`result_type` for the rule of another op that has the shapes of this one. Errors do not name
        the op."""
        if self._infer is None:
            raise NotImplementedError(f"op {self.name} has no type rule")
        return self._infer(**self._complete(bound))

    def type_of_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The type of a call whose arguments are nodes (and numbers) in stored form; None if an input has no
        type and the rule needs it. Results are cached, because a graph repeats few different calls. Raises
        what :meth:`result_type` raises."""
        key = (*map(_type_key, args), *map(_attribute_key, kwargs.items()))
        try:
            found = self._types.get(key, self)
        except TypeError:
            raise self._not_stored(args, kwargs) from None
        if found is not self:
            return found
        bound = self.named_arguments(args, kwargs)
        types = self.map_tensors(_type_or_value, bound)
        if self.name != "getitem" and tuple in map(type, self.tensors(types)):
            raise ArgumentError(f"{self.name}: an operand is several values; take one by getitem")
        if any(t is None for t in self.tensors(types)) and _reads_untyped(args):
            return None
        found = self.result_type(types)
        if len(self._types) >= 10_000:
            self._types.clear()
        self._types[key] = found
        return found

    def _not_stored(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ArgumentError:
        """The error for a node with an argument that a graph cannot hold, because it may change unnoticed."""
        for name, value in self.named_arguments(args, kwargs).items():
            try:
                hash(_type_key(value))
            except TypeError:
                kind, advice = f"{type(value).__module__}.{type(value).__name__}", ""
                if name in self.tensor_kinds:
                    advice = (
                        '; put an array into the module, graph.owning_module.register_buffer("c", '
                        'array), and read it with graph.get_attr("c")'
                    )
                return ArgumentError(
                    f"{self.name}: argument {name!r} is a {kind.removeprefix('builtins.')}, but "
                    f"nodes hold other nodes, numbers, texts and tuples of them{advice}"
                )
        return ArgumentError(f"{self.name}: an argument of the call is nothing that a node holds")

    def check_stored(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise ArgumentError unless the arguments of a node are a call of this op in stored form, with all
        its operands and no others, and only known attributes."""
        if len(args) > len(self._tensor_names):
            most = number_of(len(self._tensor_names), "tensor")
            raise ArgumentError(f"{self.name}{self.signature_text()} takes {most}, got {len(args)}")
        if self._plain_names is not None:
            if kwargs or len(args) < len(self._plain_names) or any(a is None for a in args):
                self.bind(args, kwargs)  # raises an error that names the problem
            return
        self.bind(args, kwargs)

    def named_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments in stored form (:meth:`split_arguments`) by parameter name."""
        named = {n: a for n, a in zip(self._tensor_names, args) if a is not None}
        named.update(kwargs)
        return named

    def with_defaults(self, bound: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments of a call in signature order, with defaults filled in."""
        return {n: bound.get(n, self.defaults.get(n)) for n in self._names}

    def _complete(self, bound: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a rule: those of a call, and the defaults of others."""
        return {**self._optional, **bound}

    def split_arguments(self, bound: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The stored form of a call: tensors by position, attributes by name."""
        args = [*map(bound.get, self._tensor_names)]
        while args and args[-1] is None:
            args.pop()
        kwargs: dict[str, Any] = {}
        for name in self._attribute_names:
            if name in bound:
                kwargs[name] = bound[name]
        return tuple(args), kwargs

    def flops(self, bound: Mapping[str, Any], out: Any) -> Any:
        """The number of arithmetic operations of a call, as a dim: the scalar functions that the body applies
        to all elements (a multiply-add counts as 2). For composites, the sum over the expansion."""
        if self._cost is not None:
            return shapes.normalize(self._cost(**self._complete(bound)))
        if self._body is None:
            return 0
        i = tuple(Index.of(expr.fresh_var(d)) for d in out.shape)
        readers = self.map_tensors(type_reader, bound)
        per_element = _count(self.element(i, readers), {})
        return shapes.normalize(per_element * out.size)

    def __repr__(self) -> str:
        return f"fx.ops.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (lookup, (self.name,))

    def __deepcopy__(self, memo: Any) -> Op:
        return self


def _type_key(value: Any) -> Any:
    """A hashable key for what the type rule sees of a tensor operand; 1, 1.0 and True differ."""
    kind = value.__class__
    if kind is tuple:
        return tuple([_type_key(v) for v in value])
    if kind in dtypes.NUMBERS:
        return kind, value
    return getattr(value, "type", value)


def _attribute_key(item: tuple[str, Any]) -> Any:
    name, value = item
    if value.__class__ is tuple:
        return name, value, tuple([v.__class__ for v in value])
    return name, value, value.__class__


def _type_or_value(value: Any) -> Any:
    if isinstance(value, dtypes.NUMBERS):
        return value
    if not hasattr(value, "type"):
        raise ArgumentError(f"expected a tensor, not {value!r}")
    return value.type


def _reads_untyped(args: tuple[Any, ...]) -> bool:
    """True if an operand has no type. (None stands for an operand that is left out.)"""
    values = [v for a in args for v in (a if isinstance(a, tuple) else (a,))]
    return any(v is not None and getattr(v, "type", v) is None for v in values)


class TypeReader:
    """A reader of a value that has a type but no memory, which suffices to examine a body."""

    def __init__(self, type: TensorType) -> None:
        self.shape = tuple(Index.of(d) for d in type.shape)
        self.dtype = type.dtype

    def __getitem__(self, index: Any) -> Expr:
        return expr.Load(self.dtype, "", as_multi_index(index))

    __iter__ = None  # because of __getitem__, a loop over it would otherwise never end


def as_multi_index(index: Any) -> MultiIndex:
    """The index in ``x[i]`` or ``x[i, j]`` as a tuple of indices."""
    return tuple(Index.of(i) for i in (index if isinstance(index, tuple) else (index,)))


def type_reader(value: Any) -> Reader:
    """A reader for a body, given only the type of an operand, or a number."""
    return ConstReader(value) if isinstance(value, dtypes.NUMBERS) else TypeReader(value)


def _count(node: Expr, memo: dict[int, Any]) -> Any:
    if id(node) in memo:
        return 0  # a shared node is computed once
    memo[id(node)] = True
    inner = 0 if isinstance(node, expr.Load) else sum(_count(c, memo) for c in node.children)
    if isinstance(node, expr.Reduction):
        step = FUNCTIONS[COMBINATIONS[node.kind].function].operations(node.body.dtype)
        return shapes.product(_loop_size(v.extent) for v in node.variables) * (inner + step)
    if not isinstance(node, expr.Apply) or node.function == "where" or node.args[-1].dtype.is_bool:
        return inner  # choices and conditions do not count as arithmetic
    is_made = node.dtype.is_complex and not node.args[-1].dtype.is_complex  # from two parts
    return inner + FUNCTIONS[node.function].operations(node.dtype if is_made else node.args[-1].dtype)


def _loop_size(extent: Index) -> shapes.Dim:
    """The number of iterations of a loop; if it depends on an outer loop, that in the middle of it."""
    while extent.variables():
        extent = extent.substitute({v: (v.extent - 1) // 2 for v in extent.variables()})
    return to_dim(extent)


def to_dim(index: Index) -> shapes.Dim:
    """An index that consists only of named dims, as a dim."""
    from fxlite.scalar.index import DimVar, Extremum, Quotient, Remainder

    def atom_dim(atom: Any) -> Any:
        if isinstance(atom, DimVar):
            return symbols.symbol(atom.name, atom.facts)
        if isinstance(atom, Quotient):
            return shapes.floordiv(to_dim(atom.a), to_dim(atom.b))
        if isinstance(atom, Remainder):
            return shapes.remainder(to_dim(atom.a), to_dim(atom.b))
        if isinstance(atom, Extremum):
            function = shapes.minimum if atom.kind == "min" else shapes.maximum
            return function(to_dim(atom.a), to_dim(atom.b))
        raise TypeError(f"{atom} depends on a loop")

    total: Any = 0
    for monomial, coeff in index.terms.items():
        term: Any = coeff
        for atom in monomial:
            term = term * atom_dim(atom)
        total = total + term
    return shapes.normalize(total)


#: Types of attributes that are stored as they are.
_ITSELF = frozenset((*dtypes.NUMBERS, str))

#: The deepest nesting of lists in an attribute.
_MOST_NESTED = 64


def freeze(value: Any, depth: int = 0) -> Any:
    """An attribute in its stored, immutable form: NumPy scalars become Python numbers, lists become tuples,
    NumPy dtypes become DTypes, and named dims become sympy expressions. Raises ArgumentError for a value
    that is nested too deeply (``depth``: the current level), and for a member of an enum that is neither a
    number nor text."""
    if value is None or type(value) in _ITSELF:
        return value
    if isinstance(value, enum.Enum):
        if isinstance(value, (int, str)):
            return value.value
        raise ArgumentError(
            f"{value} cannot be part of a graph, which is data and does not know the class "
            f"{type(value).__name__}; pass its value, {value.value!r}"
        )
    if isinstance(value, (tuple, list)):
        if depth == _MOST_NESTED:
            raise ArgumentError(f"an argument is a list nested more than {_MOST_NESTED} deep")
        return tuple(freeze(v, depth + 1) for v in value)
    if isinstance(value, shapes.NamedDim):
        return shapes.normalize(value.expr)
    if is_expression(value):
        return shapes.normalize(value)
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    if isinstance(value, (np.dtype, type)):
        return dtypes.dtype(value)
    if isinstance(value, np.ndarray):
        return tuple(freeze(v) for v in value.tolist())
    return dtypes.plain_number(value)


def number_or_type(value: Any) -> Any:
    """An operand as a type rule takes it: a Python number itself, or the type of an array or NumPy scalar (of
    which ``np.float64`` is also a ``float``)."""
    return value if type(value) in dtypes.NUMBERS else type_of(value)


def _shown(value: Any) -> Any:
    """An operand for an error message: its type if it has one."""
    try:
        return number_or_type(value)
    except FxliteError:
        return type(value).__name__


def find_recorder(op: Op, bound: Mapping[str, Any]) -> Callable[[Op, dict[str, Any]], Any] | None:
    """The method that records this call: that of the first Proxy among the arguments, or of the active tracer
    if the call needs one (for named dims or random numbers); None if the call should run."""
    for name, kind in op.tensor_kinds.items():
        value = bound.get(name)
        if hasattr(value.__class__, "__fx_record__"):
            return value.__fx_record__  # type: ignore[union-attr, no-any-return]
        if kind == "Tensors":
            for part in value or ():
                if hasattr(part.__class__, "__fx_record__"):
                    return part.__fx_record__  # type: ignore[no-any-return]
    tracer = active_tracer.get()
    if tracer is not None:
        named = any(shapes.names(v) for n, v in bound.items() if n not in op.tensor_kinds)
        if named or op.is_random or op.name in _ALWAYS_RECORDED or any(map(_is_selected, op.tensors(bound))):
            return tracer.record
    return None


def _is_selected(value: Any) -> bool:
    return hasattr(value.__class__, "__fx_selected__")


def op(
    kind: str, *, name: str | None = None, aliases: Iterable[str] = (), **facts: Any
) -> Callable[[Callable[..., Any]], Op]:
    """A decorator that makes a record from a reference function and adds it to the registry."""

    def register(reference: Callable[..., Any]) -> Op:
        record = Op(kind, reference, name=name, **facts)
        assert record.name not in REGISTRY, record.name
        REGISTRY[record.name] = record
        for alias in aliases:
            ALIASES[alias] = record
        return record

    return register


def lookup(name: str) -> Op:
    """The op with this name or alias. Raises ArgumentError, which lists the nearest names, also for a wrapped
    function that this process does not know."""
    found = REGISTRY.get(name) or ALIASES.get(name) or WRAPPED.get(name)
    if found is None and name.startswith("wrapped."):
        raise ArgumentError(
            f"the graph calls {name.removeprefix('wrapped.')}, a function wrapped with fx.wrap "
            "that this process does not know; import its module first (on the command line: "
            "--import MODULE)"
        )
    if found is None:
        hint = did_you_mean(name, [*REGISTRY, *ALIASES])
        raise ArgumentError(f"there is no op {name!r}{hint}")
    return found


class _Ops:
    def __getattr__(self, name: str) -> Op:
        return lookup(name)


#: ``fx.ops`` for the modules of ops: names are looked up when an op is called, as all modules have been
#: imported by then.
ops = _Ops()


def as_op(target: Any) -> Op:
    """The op for the target of a call_function, given as an Op, its name, or a function from
    :func:`fxlite.wrap`. Raises ArgumentError for an unknown name, and GraphError for anything else."""
    if isinstance(target, Op):
        return target
    if isinstance(target, str):
        return lookup(target)
    wrapped = getattr(target, "wrapped_op", None)
    if isinstance(wrapped, Op):
        return wrapped
    name = getattr(target, "__name__", "")
    near = REGISTRY.get(name) or ALIASES.get(name)
    hint = f"; did you mean {near!r}?" if near is not None else ""
    raise GraphError(f"the target of a call_function is an op (fx.ops.…), not {target!r}{hint}")


# -- helpers for type rules --------------------------------------------------------------------
def broadcast_shapes(*operands: Sequence[shapes.Dim]) -> tuple[shapes.Dim, ...]:
    """NumPy's broadcasting on ints and named dims. Two different names do not broadcast, because they are not
    known to be equal."""
    rank = max((len(s) for s in operands), default=0)
    result: list[shapes.Dim] = [1] * rank
    for shape in operands:
        for axis, dim in enumerate(shape, start=rank - len(shape)):
            have = result[axis]
            if have is dim or (type(dim) is int and dim == 1):
                continue
            if type(have) is int and have == 1:
                result[axis] = dim
            elif not shapes.equal(have, dim):
                text = " and ".join(f"({', '.join(map(str, s))})" for s in operands)
                hint = ""
                if not (type(have) is int and type(dim) is int):
                    hint = f"; give both axes the same name if {have} and {dim} are always equal"
                raise ShapeError(f"shapes {text} do not broadcast: axis {axis - rank} is {have} and {dim}{hint}")
    return tuple(result)


def shape_of(value: Any) -> tuple[shapes.Dim, ...]:
    """The shape of a TensorType; () for a Python scalar."""
    return value.shape if isinstance(value, TensorType) else ()


def weak_dtype(value: Any) -> Any:
    """An operand for :func:`dtypes.result_type`: the dtype of a TensorType, or a Python scalar itself."""
    return value.dtype if isinstance(value, TensorType) else value


def normalize_axis(axis: Any, rank: int) -> int:
    """The axis, counted from 0. Raises PositionError if it is out of range."""
    if type(axis) is not int and not isinstance(axis, np.integer):
        raise ArgumentError(f"axis must be an int, not {axis!r}")
    if not -rank <= axis < rank:
        raise PositionError(f"axis {axis} is out of range for rank {rank}")
    return int(axis) % rank


def normalize_axes(axis: Any, rank: int) -> tuple[int, ...]:
    """The axes, counted from 0 and sorted; None means all."""
    if axis is None:
        return tuple(range(rank))
    axes = tuple(normalize_axis(a, rank) for a in (axis if isinstance(axis, tuple) else (axis,)))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"axis {axis} names an axis twice")
    return tuple(sorted(axes))


def require_float(type: TensorType, name: str) -> None:
    """Raise DTypeError, which names the argument, unless ``type`` is a float type."""
    if not type.dtype.is_float:
        complex_too = "take its .real, .imag or abs"
        instead = complex_too if type.dtype.is_complex else "cast it with .astype('f32')"
        raise DTypeError(f"{name} must be a float tensor, not {type}; {instead}")


def pair(value: Any, what: str) -> tuple[int, int]:
    """Two ints, from one int for both spatial axes or two ints."""
    if type(value) is int:
        return (value, value)
    if isinstance(value, tuple) and len(value) == 2 and all(type(v) is int for v in value):
        return (value[0], value[1])
    raise ArgumentError(f"{what} must be an int or two ints, not {value!r}")


@functools.cache
def float_dtype(dtype: DType) -> DType:
    """The dtype of exp, sqrt and so on for an operand dtype, as in NumPy's ufuncs."""
    if dtype.is_inexact:
        return dtype
    return dtypes.dtype(np.exp(np.ones((), dtype.numpy)).dtype)
