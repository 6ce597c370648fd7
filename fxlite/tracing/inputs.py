"""Inputs of a traced program's graph: placeholders for its inputs, constants for values that are baked in, the
interface that records how nested inputs are taken apart, and operands of its calls.

In: the program's signature, declared types and ``concrete_args`` by parameter name. Out: :class:`Inputs`. A parameter
with a type is an input, which keeps a default of this type. A parameter in ``concrete_args``, or one that is not given
but has a default, is baked in: a call may repeat its value. If no types are given at all, all other parameters are
untyped inputs, even if their default is a number, unless the program can only be traced with that number.

In: the bound arguments of an op. Out: the same, with nodes, tensors and arrays in place of values that a graph cannot
hold.
"""

from __future__ import annotations

import functools
import inspect
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError, FxliteError, expect, number_of
from fxlite.base.outside_text import is_name
from fxlite.base.state import is_traced
from fxlite.graph import pytree
from fxlite.graph.pytree import PH, Baked, Interface, Structure
from fxlite.ops.elementwise import COMPARISONS
from fxlite.ops.op import Op
from fxlite.tracing.proxy import Proxy
from fxlite.tracing.writes.lent import Lent
from fxlite.types import dtypes
from fxlite.types.shapes import NamedDim, symbols
from fxlite.types.tensor_type import TensorType, type_of

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer
    from fxlite.types.symbols import FactSymbol


#: Types of values that nodes hold as they are.
PLAIN = frozenset((int, float, bool, complex, type(None)))


def operand_nodes(tracer: Tracer, op: Op, bound: dict[str, Any]) -> dict[str, Any] | None:
    """The bound arguments, with nodes for the tracer's proxies; None if an operand is neither a proxy nor a number."""
    found, graph = bound.copy(), tracer.graph
    for name in op.tensor_kinds:
        value: Any = bound.get(name)
        kind = value.__class__
        if kind is Proxy and value.tracer is tracer:
            node = value.node
            found[name] = node if node.graph is graph else tracer.local(node)
        elif kind not in PLAIN:
            return None
    return found


def with_lists_as_arrays(tracer: Tracer, op: Op, bound: dict[str, Any]) -> dict[str, Any]:
    """Convert lists, tuples and ranges of numbers among the operands to arrays as NumPy does, as in ``x * [1, 2, 3]``;
    those with traced values are stacked. Raises TraceError for a value that is not an array."""
    if not any(type(v) in (list, tuple, range) for v in bound.values()):
        return bound
    lists = {
        n: v
        for n, v in bound.items()
        if type(v) in (list, tuple, range) and op.tensor_kinds.get(n, "Tensors") != "Tensors"
    }
    return {**bound, **{name: _array_of_list(tracer, op.name, value) for name, value in lists.items()}}


def _array_of_list(tracer: Tracer, name: str, value: Any) -> Any:
    """The array for a list or tuple that is combined with a traced value."""
    from fxlite.tracing.capture.answers import holds_computed, stacked

    if holds_computed(value):
        return stacked(tracer, value)
    try:
        return dtypes.plain_array(np.asarray(value))
    except (DTypeError, ValueError) as error:
        problem = f"{name}: {str(value)[:100]} is not an array: {error}"
        raise tracer.error(problem, "give numbers in rows of one length") from None


def with_sizes_as_tensors(tracer: Tracer, op: Op, bound: dict[str, Any]) -> dict[str, Any]:
    """Convert named sizes among the operands to tensors. At run time such a size is a Python int, so it takes the
    dtype of the other operands, as in ``x / x.shape[0]``; beside Python numbers only, it is one of these. Comparisons
    use the number itself."""
    operands = list(op.tensors(bound))
    if not any(isinstance(v, NamedDim) for v in operands):
        return bound
    numbers = [hasattr(v, "python_type") for v in operands if is_traced(v)]
    strong = [
        v.type.dtype if is_traced(v) else dtypes.of_value(v)
        for v in operands
        if (is_traced(v) and not hasattr(v, "python_type")) or isinstance(v, (np.ndarray, np.generic))
    ]
    compares = op.name in COMPARISONS
    dtype = dtypes.int64 if compares or not strong else dtypes.result_type(*strong, 1)

    def convert(value: Any) -> Any:
        if not isinstance(value, NamedDim):
            return value
        if any(numbers) and not strong:
            return tracer.number_of_size(value)
        return tracer.proxy(tracer.size_as_tensor(value, dtype))

    return op.map_tensors(convert, bound)


def number_as_array(value: Any) -> Any:
    """A number among the program's results as an array of rank 0; any other value unchanged."""
    return np.asarray(value) if isinstance(value, dtypes.NUMBERS) else value


#: Makes a placeholder: (desired target, type or None, default or nothing) -> (target, proxy).
MakePlaceholder = Callable[..., tuple[str, Any]]


@dataclass
class Inputs:
    """The arguments with which the program is run, and the form of each of its parameters."""

    arguments: list[Any] = field(default_factory=list)
    keywords: dict[str, Any] = field(default_factory=dict)
    parameters: list[tuple[str, str, Structure]] = field(default_factory=list)
    given: dict[str, Any] = field(default_factory=dict)
    """The argument for each of ``parameters``."""
    not_given: list[str] = field(default_factory=list)
    """The ``*args`` and ``**kwargs`` that are empty."""
    baked: list[Baked] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    """The untyped inputs with a default."""
    lent: Lent = field(default_factory=Lent)
    """The lists and dicts in values that are baked in."""

    def bake(self, name: str, kind: Any, value: Any) -> None:
        """Add a parameter that has a fixed value and is not an input."""
        if kind in ONE_BY_ONE:
            self.baked.append(Baked(len(self.parameters), name, kind.name, value))

    def interface(
        self,
        result: Structure | None,
        writes: tuple[str, ...],
        states: tuple[tuple[str, str], ...] = (),
        orders: tuple[tuple[str, str, str], ...] = (),
    ) -> Interface | None:
        """The interface; None if it adds nothing to the placeholders."""
        writes = (*writes, *dict(states))
        made = Interface(tuple(self.parameters), result, writes, tuple(self.baked), states, orders)
        if self.baked or orders:
            return made
        for _, kind, structure in self.parameters:
            if structure.kind != "leaf" or kind.startswith("VAR"):
                return made
        return None if result is None and not writes else made


_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
ONE_BY_ONE = (*_BY_POSITION, inspect.Parameter.KEYWORD_ONLY)


def declare(
    function: Any, types: tuple[Any, ...], named: Mapping[str, Any], baked: Mapping[str, Any]
) -> dict[str, Any]:
    """The types by parameter name, including those given by position, with ``*args`` as a tuple and ``**kwargs`` as a
    dict. Raises ArgumentError for too many, unknown or duplicate ones."""
    if not callable(function):
        shown = repr(function) if isinstance(function, (int, float, str)) else type(function)
        raise ArgumentError(
            f"a program is a function, an nn.Module, a GraphModule or the path of a .fxl file, "
            f"not {getattr(shown, '__name__', shown)}"
        )
    expect(baked, Mapping, "concrete_args", "give values by parameter name")
    signature = signature_of(function)
    declared: dict[str, Any] = {}
    rest, catch_all = list(types), None
    for parameter in signature.parameters.values():
        name = parameter.name
        if parameter.kind is parameter.VAR_POSITIONAL:
            if rest:
                declared[name], rest = tuple(rest), []
        elif parameter.kind is parameter.VAR_KEYWORD:
            catch_all = name
        elif parameter.kind in _BY_POSITION and name not in baked and rest:
            declared[name] = rest.pop(0)
    if rest:
        accepted = len(types) - len(rest)
        raise ArgumentError(f"{number_of(len(types), 'input type')} for {number_of(accepted, 'parameter')}")
    extra: dict[str, Any] = {}
    for name, value in named.items():
        if name in declared:
            raise ArgumentError(f"input {name!r} is given twice")
        if name in signature.parameters and name != catch_all:
            declared[name] = value
        elif name == catch_all and isinstance(value, dict):
            extra.update(value)
        elif catch_all is not None:
            extra[name] = value
        else:
            raise ArgumentError(f"{title(function)} has no parameter {name!r}")
    if extra and catch_all is not None:
        declared[catch_all] = extra
    return declared


def is_concrete(function: Any, value: Any) -> bool:
    """Whether a positional argument is not an input type but torch.fx's ``concrete_args``: a dict with names of
    parameters as keys that contains no type and no array."""
    if not isinstance(value, dict) or not callable(function) or not value:
        return False
    if not set(value) <= set(signature_of(function).parameters):
        return False
    leaves = (v for part in value.values() for _, v in pytree.leaves(part))
    return not any(isinstance(v, (TensorType, np.ndarray, type)) or _is_type_text(v) for v in leaves)


def _is_type_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and type_of(value) is not None
    except FxliteError:
        return False


def title(function: Any) -> str:
    """``Net.forward(x, mask)``, for messages."""
    return f"{_name(function)}{signature_of(function)}"


def signature_of(function: Any) -> inspect.Signature:
    """The signature of a program. A ufunc takes arrays by position (``x``, or ``x1`` and ``x2``). Raises ArgumentError
    for a C function without a signature."""
    if isinstance(function, np.ufunc):
        names = ("x",) if function.nin == 1 else (f"x{i + 1}" for i in range(function.nin))
        kind = inspect.Parameter.POSITIONAL_ONLY
        return inspect.Signature([inspect.Parameter(name, kind) for name in names])
    try:
        signature = inspect.signature(function)
        if (getattr(function, "__module__", None) or "").startswith("numpy"):
            given = [p for p in signature.parameters.values() if p.default is not np._NoValue]
            signature = signature.replace(parameters=given)  # without those that np.sum may leave out
        return signature
    except (TypeError, ValueError):
        name = _name(function)
        raise ArgumentError(
            f"{name} is not written in Python and has no signature; give a function "
            f"that calls it, such as lambda x: {name}(x)"
        ) from None


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", getattr(function, "__name__", function)))


def make_inputs(
    function: Any,
    declared: dict[str, Any],
    concrete: dict[str, Any],
    placeholder: MakePlaceholder,
    bakes_defaults: bool = True,
) -> Inputs:
    """Call ``placeholder`` for every input, in the order of the signature. Raises ArgumentError for an input without a
    type among typed ones, and for names that the program does not have."""
    signature = signature_of(function)
    for name in (*declared, *concrete):
        if name not in signature.parameters:
            raise ArgumentError(f"{title(function)} has no parameter {name!r}")
    made, values = Inputs(), dict[str, Any]()
    for parameter in signature.parameters.values():
        name, kind = parameter.name, parameter.kind
        is_open = kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if name in concrete and not _has_inputs(concrete[name]):
            value = made.lent.copied(concrete[name], name)
            made.bake(name, kind, Lent().copied(concrete[name]))
        elif name in concrete:
            types = declared.get(name, _UNTYPED if not declared else _MISSING)
            value = _nested(made, name, kind, concrete[name], types, placeholder)
        elif name in declared and declared[name] is not None:
            given = functools.partial(placeholder, default=kept_default(parameter, declared[name]))
            value = _nested(made, name, kind, declared[name], None, given)
        elif name in declared:
            value = None
            made.bake(name, kind, value)
        elif is_open:
            made.not_given.append(f"{'*' if kind is parameter.VAR_POSITIONAL else '**'}{name}")
            continue
        elif not (declared or bakes_defaults) and _is_number(parameter.default):
            made.options.append(name)
            given = functools.partial(placeholder, default=parameter.default)
            value = _nested(made, name, kind, PH, _UNTYPED, given)
        elif parameter.default is not parameter.empty:
            value = parameter.default  # not given: the program's own default becomes a constant
            made.bake(name, kind, value)
        elif declared:
            raise ArgumentError(f'{title(function)}: input {name!r} has no type; give {name}="f32[...]"')
        else:
            value = _nested(made, name, kind, PH, _UNTYPED, placeholder)
        values[name] = value
    bound = inspect.BoundArguments(signature, values)
    made.arguments, made.keywords = list(bound.args), bound.kwargs
    return made


def _is_number(value: Any) -> bool:
    return type(value) in (int, float, complex)


def kept_default(parameter: inspect.Parameter, declared: Any) -> Any:
    """The default of a parameter whose input has a type, as nested tuples of numbers; ``...`` if there is none or it
    has another type, so that a call must give the input."""
    default, wanted = parameter.default, declared
    if default is parameter.empty or isinstance(declared, (dict, list, tuple)):
        return ...
    if not isinstance(default, (*dtypes.NUMBERS, np.ndarray, np.generic)):
        return ...
    wanted, array = type_of(declared), np.asarray(default)
    is_number = not isinstance(default, (np.ndarray, np.generic))
    if not isinstance(wanted, TensorType) or array.ndim != wanted.rank or array.size > _MOST_KEPT:
        return ...
    sizes_fit = all(type(d) is not int or d == n for d, n in zip(wanted.shape, array.shape))
    kind = np.can_cast(array.dtype, wanted.dtype.numpy, "same_kind" if is_number else "no")
    return _as_tuples(array.tolist()) if sizes_fit and kind else ...


_MOST_KEPT = 1000  # elements of a default that is part of the text of a graph


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def declared_dims(declared: Mapping[str, Any]) -> dict[str, FactSymbol]:
    """The named dims with facts in the types of inputs, by name. A plain name in another type means the same dim.
    Raises ArgumentError if two inputs declare one name differently."""
    found: dict[str, FactSymbol] = {}
    places: dict[str, str] = {}

    for path, value in (leaf for name, part in declared.items() for leaf in pytree.leaves(part, name)):
        if isinstance(value, type):
            raise ArgumentError(
                f"input {path}: {value.__name__} is a class; give a type with its shape, such as "
                "'f32[B,4]', or an example array"
            )
        if not isinstance(value, TensorType) or value.is_concrete:
            continue
        for dim in symbols.ordered_facts(value.shape):
            known = found.setdefault(dim.name, dim)
            first = places.setdefault(dim.name, path)
            if known != dim:
                raise ArgumentError(
                    f"the named dim {dim} is declared twice: it is {known.facts} in the input "
                    f"{first}, and {dim.facts} in {path}; use one fx.dims for both"
                )
    return found


_UNTYPED = object()  # no types are given at all
_MISSING = object()  # types are given, but not for this parameter


def _has_inputs(value: Any) -> bool:
    return any(v is PH for _, v in pytree.leaves(value))


def _nested(made: Inputs, name: str, kind: Any, value: Any, types: Any, placeholder: MakePlaceholder) -> Any:
    """The program's argument for one parameter, made of placeholders and constants. ``types`` is None if ``value``
    itself contains the types, else it contains the types of the ``PH`` leaves."""
    proxies: dict[str, Any] = {}

    def leaf(v: Any, path: str, keys: tuple[Any, ...]) -> Structure:
        if types is not None and v is not PH:
            if not isinstance(v, pytree.CONSTANTS):
                raise ArgumentError(
                    f"{path}: a {type(v).__name__} cannot be baked into a nested input; use a "
                    f"number, text or None, or let the program hold it"
                )
            return Structure("constant", "", v)
        if types is None and v is None:
            return Structure("constant")
        declared = v if types is None else _follow(types, keys, path)
        found = None if declared is PH else type_of(declared)
        # a keyword of **kwargs is a parameter of its own
        steps = keys if kind is inspect.Parameter.VAR_KEYWORD and keys else (name, *keys)
        wish = re.sub(r"\W", "_", unicodedata.normalize("NFKC", "_".join(map(str, steps))))
        wish = wish if is_name(wish) else f"_{wish}"
        target, proxy = placeholder(wish, found)
        proxies[target] = proxy
        return Structure("leaf", target)

    structure = pytree.structure_of(value, name, leaf)
    made.parameters.append((name, kind.name, structure))
    value = made.given[name] = pytree.build(structure, lambda s: proxies[s.name])
    return value


def _follow(types: Any, keys: tuple[Any, ...], path: str) -> Any:
    """The type at the place of a ``PH``; PH itself in a trace without types."""
    if types is _UNTYPED:
        return PH
    for key in keys:
        found = pytree.children_of(types)
        types = _MISSING if found is None else dict(zip(found[1], found[2])).get(key, _MISSING)
    if types is _MISSING or types is None:
        raise ArgumentError(f"{path} has no type; give one, or a value in concrete_args")
    return types
