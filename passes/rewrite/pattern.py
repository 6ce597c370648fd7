"""Patterns: a function that describes a computation to look for, traced and compiled for matching.

In: a plain function, module, op or graph. Out: a :class:`Pattern`, which holds a few small programs
for :mod:`fxlite.passes.rewrite.matcher`. What a parameter of the function matches depends on its
kind:

=====================  ============================================================================
``x``                  any value: a node or a number; two parameters may match the same node
``bias=None``          an operand that may be missing
``*xs``                any number of operands, in place of a list of tensors
``*, stride``          any attribute, or any number where the operand is a number
``axis``               the same, if the function passes it on as an attribute
=====================  ============================================================================

Everything else in the function (literals, attributes, arrays) matches only itself. If the pattern is
a module, its weights match any weights (with ``same_weights`` only equal ones). Patterns are traced
without types, so they must not ask for shapes.
"""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, TraceError, expect
from fxlite.base.location import here, is_own_file
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module
from fxlite.ops.op import Op
from fxlite.passes.rewrite.compile_pattern import compile_steps
from fxlite.passes.rewrite.matcher import Steps
from fxlite.passes.rewrite.wildcard import Wildcard, holds_wildcard
from fxlite.tracing.proxy import Proxy
from fxlite.tracing.tracer import Tracer

Program = Callable[..., Any] | GraphModule | Graph
_MOST_OPTIONAL = 4  # each one doubles the number of programs
_UNTYPED = (
    "a pattern stands for values of any shape and is traced without types: name axes instead of "
    "asking for shapes, as in fx.ops.permute(x, axes=(1, 0)) for x.T"
)
_KINDS = inspect.Parameter


@dataclass(frozen=True)
class Parameters:
    """The parameters of a pattern, replacement or condition, by name."""

    operands: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    rest: str | None = None
    attributes: tuple[str, ...] = ()
    #: Their order, where that is another one: attributes by position stand among the operands.
    order: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parameters, in order."""
        rest = (self.rest,) if self.rest else ()
        return self.order or (*self.operands, *self.optional, *rest, *self.attributes)

    def with_attributes(self, names: set[str]) -> Parameters:
        """The same parameters, with these operands as attributes."""
        operands = tuple(n for n in self.operands if n not in names)
        optional = tuple(n for n in self.optional if n not in names)
        attributes = tuple(n for n in self.names if n in names or n in self.attributes)
        return Parameters(operands, optional, self.rest, attributes, self.names)

    def __str__(self) -> str:
        rest = (f"*{self.rest}",) if self.rest else ("*",) if self.attributes else ()
        optional = (f"{name}=None" for name in self.optional)
        return f"({', '.join((*self.operands, *optional, *rest, *self.attributes))})"


@dataclass(frozen=True)
class Operand:
    """A tensor argument of a function to be traced; ``type`` is None in a trace without types."""

    name: str
    type: Any = None


class Pattern:
    """A computation to look for: ``variants`` in the order in which they are tried, and ``parameters``."""

    def __init__(
        self, program: Program, associative: bool = False, ignore_literals: bool = False, same_weights: bool = False
    ) -> None:
        """With ``associative``, sums and products of floats also match when grouped differently, which
        changes rounding. With ``ignore_literals``, numbers and attributes match any others. With
        ``same_weights``, the weights of a module match only equal ones. Raises ArgumentError for a
        function that cannot be a pattern."""
        self.program = program
        self.associative = associative
        self.ignore_literals, self.same_weights = ignore_literals, same_weights
        self.any_weights = not same_weights and isinstance(program, (Module, Graph))
        #: The same with ``associative``, where it was needed.
        self.loose: Pattern | None = self if associative else None
        self.parameters = parameters_of(program)
        #: One for each set of optional operands given, and each way to group associative ops.
        self.variants: list[Steps] = []
        while not self.variants:
            try:
                self._make_variants()
            except _IsAttribute as found:
                self.parameters = self.parameters.with_attributes(found.names)
        self._by_op: dict[Op, list[Steps]] = {}
        for variant in self.variants:
            if isinstance(variant.target, Op):
                self._by_op.setdefault(variant.target, []).append(variant)

    def _make_variants(self) -> None:
        optional = self.parameters.optional
        if len(optional) > _MOST_OPTIONAL:
            raise ArgumentError(f"a pattern has at most {_MOST_OPTIONAL} optional operands")
        for present in itertools.product((True, False), repeat=len(optional)):
            absent = {name for name, is_there in zip(optional, present) if not is_there}
            self._add_variants(absent)

    def _add_variants(self, absent: set[str], attributes: frozenset[str] = frozenset()) -> None:
        """Add the programs in which the optional operands ``absent`` are missing and the operands
        ``attributes`` are numbers that are attributes."""
        parameters, program = self.parameters, self.program
        if attributes:
            parameters = parameters.with_attributes({*attributes})
        wildcards: dict[Node, dict[str, Any]] = {}
        either: set[str] = set()
        if isinstance(program, (Graph, GraphModule)):
            module = as_graph_module(program)
        else:
            arguments: dict[str, Any] = {
                name: None if name in absent else Operand(name) for name in (*parameters.operands, *parameters.optional)
            }
            if parameters.rest:
                arguments[parameters.rest] = (Operand(parameters.rest),)
            arguments.update({name: Wildcard(name) for name in parameters.attributes})
            try:
                module, wildcards, either = trace_call(program, arguments)
            except TraceError as error:
                error.add_note(_UNTYPED)
                raise
        for regroup in (False, True):
            made = compile_steps(
                module, parameters, wildcards, regroup, self.associative, self.ignore_literals, self.any_weights
            )
            if made is not None:
                self.variants.append(made)
        if either:
            self._add_variants(absent, attributes | either)

    @property
    def outputs(self) -> int:
        """How many values the pattern returns."""
        return len(self.variants[0].outputs)

    def variants_for(self, node: Node) -> list[Steps]:
        """The variants whose result is computed by the same op (or an equal module) as ``node``."""
        if node.op == "call_function":
            return self._by_op.get(node.target, [])
        return [v for v in self.variants if v.is_anchor(node)] if node.op == "call_module" else []


def parameters_of(program: Program) -> Parameters:
    """The parameters of a pattern; those with a default other than None keep it."""
    if isinstance(program, Graph):
        return Parameters(tuple(n.target for n in program.placeholders))
    if isinstance(program, GraphModule):
        return Parameters(tuple(n.target for n in program.graph.placeholders))
    if isinstance(program, Op):
        kinds, defaults = program.tensor_kinds, program.defaults
        return Parameters(tuple(n for n in kinds if kinds[n] == "Tensor" and n not in defaults))
    if isinstance(program, np.ufunc):
        return Parameters(("x", "y", "z")[: program.nin])
    function = program.forward if isinstance(program, Module) else program
    operands, optional, attributes = [], [], []
    rest: str | None = None
    expect(function, Callable, "a pattern", "write one: lambda x: np.maximum(x, 0)")
    try:
        signature = inspect.signature(function)
    except ValueError:
        raise ArgumentError(
            "a pattern must be a function with parameters, such as lambda x: np.maximum(x, 0), not "
            f"{getattr(function, '__name__', function)}"
        ) from None
    for parameter in signature.parameters.values():
        if parameter.kind is _KINDS.VAR_POSITIONAL:
            rest = parameter.name
        elif parameter.kind is _KINDS.VAR_KEYWORD:
            raise ArgumentError(f"a pattern cannot take **{parameter.name}: name its parameters")
        elif parameter.kind is _KINDS.KEYWORD_ONLY:
            if parameter.default is parameter.empty:
                attributes.append(parameter.name)
        elif parameter.default is parameter.empty:
            operands.append(parameter.name)
        elif parameter.default is None:
            optional.append(parameter.name)
    return Parameters(tuple(operands), tuple(optional), rest, tuple(attributes))


def as_graph_module(program: Graph | GraphModule) -> GraphModule:
    """A graph with the weights it reads: its owner, or a new module."""
    if isinstance(program, GraphModule):
        return program
    owner = program.owning_module
    if isinstance(owner, GraphModule) and owner.graph is program:
        return owner
    return GraphModule(owner or {}, program)


def trace_call(
    program: Callable[..., Any], arguments: Mapping[str, Any]
) -> tuple[GraphModule, dict[Node, dict[str, Any]], set[str]]:
    """Trace a call of ``program``. Arguments are Operands (tuples of them for ``*xs``), or values
    that are passed as they are. Returns the graph; by node the attributes that hold wildcards; and
    the operands that would be attributes of another op if they were numbers."""
    operands = [a for v in arguments.values() for a in (v if isinstance(v, tuple) else (v,))]
    operands = [a for a in operands if isinstance(a, Operand)]
    types = {a.name: a.type for a in operands}
    if any(t is None for t in types.values()):
        types = {}
    tracer = _PatternTracer()
    if isinstance(program, Module) and len(operands) == len(arguments):
        tracer.trace(program, inputs=types)  # the weights keep their paths
        return tracer.module("pattern"), tracer.wildcards, tracer.either

    inner = caller(program)

    def call(*values: Any) -> Any:
        given = dict(zip((a.name for a in operands), values))

        def fill(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(fill(v) for v in value)
            return given[value.name] if isinstance(value, Operand) else value

        return inner({name: fill(value) for name, value in arguments.items()})

    kind = _KINDS.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([_KINDS(a.name, kind) for a in operands])
    call.__signature__ = signature  # type: ignore[attr-defined]
    tracer.trace(call, inputs=types)
    return tracer.module("pattern"), tracer.wildcards, tracer.either


def caller(program: Callable[..., Any]) -> Callable[[Mapping[str, Any]], Any]:
    """A function that calls ``program`` with values by parameter name (a tuple for ``*xs``);
    parameters without a value keep their defaults."""
    if isinstance(program, (Op, np.ufunc)):
        return lambda values: program(*values.values())
    function = program.forward if isinstance(program, Module) else program
    parameters = tuple(inspect.signature(function).parameters.values())

    def call(values: Mapping[str, Any]) -> Any:
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for parameter in parameters:
            if parameter.kind is _KINDS.VAR_POSITIONAL:
                positional.extend(values[parameter.name])
            elif parameter.kind is not _KINDS.KEYWORD_ONLY:
                positional.append(values.get(parameter.name, parameter.default))
            elif parameter.name in values:
                keywords[parameter.name] = values[parameter.name]
        return program(*positional, **keywords)

    return call


class _IsAttribute(Exception):
    """Raised if parameters of a pattern that were traced as operands are in fact attributes."""

    def __init__(self, names: set[str]) -> None:
        super().__init__(names)
        self.names = names


class _PatternTracer(Tracer):
    """Keeps wildcards where they are written, before an op's canonical form, which would need their
    values, is made."""

    is_pattern = True
    writes_inputs = False  # a pattern stands for values

    def __init__(self) -> None:
        super().__init__()
        self.wildcards: dict[Node, dict[str, Any]] = {}
        #: Parameters that were traced as operands and could be attributes, of another op.
        self.either: set[str] = set()

    def to_bool(self, obj: Proxy) -> bool:
        """If fxlite itself tests a parameter for truth, the parameter is an attribute."""
        asks = sys._getframe(2).f_code.co_filename  # of Proxy.__bool__
        used = obj.node.all_input_nodes
        names = {n.target for n in used if n.op == "placeholder"}
        if not used or not is_own_file(asks):
            return super().to_bool(obj)
        if not names:
            raise ArgumentError(
                f"the pattern passes {used[0].name} as an attribute: attributes are parameters of "
                "the pattern, or written out"
            )
        raise _IsAttribute(names)

    def may_be_numbers(self, *values: Any) -> None:
        """Record operands of a call that would be attributes of another op if they were numbers."""
        for node in _traced_in(values):
            if node.op == "placeholder":
                self.either.add(node.target)

    def create_arg(self, value: Any) -> Any:
        return value if isinstance(value, Wildcard) else super().create_arg(value)

    def record(self, op: Op, bound: dict[str, Any]) -> Any:
        wild = {
            name: value
            for name, value in bound.items()
            if name not in op.tensor_kinds and (holds_wildcard(value) or _traced_in(value))
        }
        if not wild:
            return super().record(op, bound)
        traced = [n for value in wild.values() for n in _traced_in(value)]
        if traced:
            computed = next((n for n in traced if n.op != "placeholder"), None)
            if computed is None:
                raise _IsAttribute({n.target for n in traced})
            raise ArgumentError(
                f"the pattern passes {computed.name} to {op.name} as an attribute: these are "
                "parameters of the pattern, or written out"
            )
        known = {name: value for name, value in bound.items() if name not in wild}
        known = op.map_tensors(self.create_arg, known)
        if all(name in op.defaults for name in wild):
            op, known = op.canonicalize(known)
        args, kwargs = op.split_arguments(known)
        outer = self.graph.current_origin
        self.graph.current_origin = (None, here(2))
        try:
            node = self.graph.call_op(op, args, {**kwargs, **wild})
        finally:
            self.graph.current_origin = outer
        self.wildcards[node] = wild
        return Proxy(node, self)


def _traced_in(value: Any) -> list[Node]:
    """The nodes of proxies in an attribute."""
    if isinstance(value, (tuple, list)):
        return [node for v in value for node in _traced_in(v)]
    return [value.node] if isinstance(value, Proxy) else []
