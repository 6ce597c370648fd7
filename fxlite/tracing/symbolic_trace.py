"""``fx.symbolic_trace``: from a program and input types to a GraphModule; and specialization, from
a GraphModule to one for fixed values of some of its named dims.

Specialization is a retrace over the same weights, whose types, attributes and guards have these
sizes. Nothing else in fxlite ever puts a number in place of a named dim by itself.
"""

from __future__ import annotations

import os
import types as python_types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, FxliteError, ParseError, ShapeError, TraceError, expect
from fxlite.base.facade import above
from fxlite.base.location import definition_of
from fxlite.base.state import active_tracer, is_traced
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module
from fxlite.ops.op import Op
from fxlite.tracing.inputs import declare, is_concrete
from fxlite.tracing.promotion import warn_of_widening
from fxlite.tracing.proxy import Proxy
from fxlite.tracing.retrace import retrace_with_dims
from fxlite.tracing.torch_names import refuse_torch_module, torch_problem
from fxlite.tracing.tracer import Tracer
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType, type_of

if TYPE_CHECKING:
    from fxlite.graph.graph_module import GraphModule


@checked
def symbolic_trace(
    root: Module | Callable[..., Any],
    *types: Any,
    concrete_args: Mapping[str, Any] | None = None,
    leaf: Any = (),
    tracer: Tracer | None = None,
    inputs: Mapping[str, Any] | None = None,
    loops: str = "auto",
    **named: Any,
) -> GraphModule:
    """Trace a module or function: ``symbolic_trace(model, x="f32[B,3,224,224]")``.

    Inputs are types, type text or example arrays, or nested dicts, tuples, lists, dataclasses and
    named tuples of them, by position or by the names of ``forward``'s parameters (also of its
    ``**kwargs``); one whose name is also an option goes into ``inputs={...}``. Without any, the
    graph has no types, and a parameter whose default is a number is an input that has this default,
    where the program can be traced so. ``concrete_args`` are baked in, and so are parameters that
    are not given but have a default: they stay parameters, and a call with another value than the
    trace had is an ArgumentError that names it. An input with a type keeps a default of this type
    (a dict of values, in which no type is, may also be the second argument, as in
    torch.fx); ``fx.PH`` inside a nested concrete value marks what stays an input. Modules that
    match ``leaf`` (objects, classes, paths, globs such as "layers.*.attn"; ``nn``: all
    layers, as in torch.fx) stay one node.
    ``tracer``: an instance of a subclass of :class:`Tracer`.

    ``if``, ``while`` and ``for`` on values that are not known become conditions and loops of the
    graph (docs/guides/control_flow.md). ``loops``: which of those loops stay such whose rounds are
    known: "auto", those that would be long unrolled; "keep", all; "unroll", none.

    Raises TraceError for what cannot be traced, ArgumentError for wrong input names and for a leaf
    that is not there, ShapeError and DTypeError for a program that does not fit the types, all
    naming file and line."""
    if isinstance(root, (str, os.PathLike)):
        root = above("load_if_saved")(root)
    refuse_torch_module(root)
    leaf = () if leaf is None else leaf if isinstance(leaf, (str, tuple)) else Tracer(leaf=leaf).leaves
    options = types or named or inputs or concrete_args or leaf or tracer is not None
    if isinstance(root, GraphModule) and not options:
        return root.copy()
    both = set(inputs or ()) & set(named)
    if both:
        raise ArgumentError(f"input {', '.join(map(repr, sorted(both)))} is given twice")
    for name, given in (("leaf", bool(leaf)), ("loops", loops != "auto")):
        if given and tracer is not None:
            raise ArgumentError(f"give {name}= to the tracer: tracer=MyTracer({name}=...)")
    if tracer is not None:
        expect(tracer, Tracer, "tracer=", "give an instance: tracer=MyTracer()")
    function = root.forward if isinstance(root, Module) else root
    if concrete_args is None and len(types) == 1 and isinstance(types[0], dict) and is_concrete(function, types[0]):
        (concrete_args,), types = types, ()  # torch.fx: symbolic_trace(f, concrete_args)
    declared = declare(function, types, {**(inputs or {}), **named}, concrete_args or {})
    tracer = Tracer(leaf=leaf, loops=loops) if tracer is None else tracer
    try:
        tracer.trace(root, concrete_args, declared)
        if type(tracer) is Tracer and tracer.own_numbers:
            _check_numbers(root, tracer, lambda again: again.trace(root, concrete_args, declared))
    except FxliteError as error:
        if type(tracer) is Tracer:
            from fxlite.tracing.doctor import add_further_problems

            add_further_problems(error, root, declared, concrete_args, leaf)
        raise
    except TypeError as error:
        problem = torch_problem(error)
        if problem is None:
            raise
        raise problem from error
    warn_of_widening(tracer.graph)
    return tracer.module(_name_of(root))


def _check_numbers(root: Any, tracer: Tracer, trace: Callable[[Tracer], Any]) -> None:
    """Raise TraceError for a program that changes a number of its own, ``self.count += 1``, and
    computes with it: another trace, which starts with what it is now, then gives another graph."""
    before = tracer.own_numbers
    changed = [given for given in before if vars(given[0]).get(given[1]) != given[2]]
    if not changed:
        return
    again = Tracer(leaf=tracer.leaves, loops=tracer.loops)
    trace(again)
    for module, name, value in before:  # tracing changes nothing of it
        setattr(module, name, value)
    if again.graph.text(full=True) != tracer.graph.text(full=True):
        module, name, value = changed[0]
        path = tracer.path_of_module(module)
        raise tracer.error(
            f"the program changes {f'{path}.' if path else ''}{name}, a number of its own, while it runs, and "
            "computes with it; a graph would use one and the same value in every call",
            f'make it a buffer, which is a state: self.register_buffer("{name}", np.array({value!r}))',
            location=definition_of(root.forward if isinstance(root, Module) else root),
        )


def _name_of(root: Any) -> str:
    if isinstance(root, python_types.FunctionType):
        return root.__name__ if root.__name__ != "<lambda>" else "function"
    name = getattr(root, "name", None)
    return name if isinstance(name, str) and name else type(root).__name__


def specialize(module: GraphModule, sizes: Mapping[str, Any]) -> GraphModule:
    """See :meth:`GraphModule.specialize`."""
    dims = {name: _dim(name, value) for name, value in sizes.items()}
    known = module.graph.input_dims
    for name in dims:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, 1)
            listed = ", ".join(sorted(known)) or "none"
            hint = f"did you mean {near[0]}?" if near else f"there are {listed}"
            raise ArgumentError(f"{module.name} has no named dim {name!r}: {hint}")
    made, tracer = module.copy(), Tracer()
    tracer.attach(made, Graph(made))
    token = active_tracer.set(tracer)
    try:
        retrace_with_dims(tracer, made, dims)
    except ShapeError as error:
        given = ", ".join(f"{n}={d}" for n, d in dims.items())
        raise ArgumentError(f"specialize({given}): {error}") from None
    finally:
        active_tracer.reset(token)
    before = {n: shapes.substitute(d, dims) for n, d in module.graph.specialized.items()}
    tracer.graph.specialized = {**before, **dims}
    made.graph = tracer.graph
    return made


def _dim(name: str, value: Any) -> Dim:
    try:
        dim = shapes.parse(value) if isinstance(value, str) else shapes.normalize(value)
    except (ParseError, ShapeError) as error:
        raise ArgumentError(f"specialize({name}={value!r}): {error}") from None
    if type(dim) is int and dim < 0:
        raise ArgumentError(f"specialize({name}={dim}): a size cannot be negative")
    return dim


def traced_call(function: Callable[..., Any], op: Op, bound: Mapping[str, Any]) -> tuple[Graph, list[Any], Any]:
    """What ``function`` records for arguments of ``op`` that are types in place of tensors: a graph; its inputs, one
    for each of these types in the order of the operands; and what it returns, nodes in place of what is traced."""
    root, tracer = Module(), Tracer()
    graph = Graph(root, Tracer)
    tracer.attach(root, graph)
    inputs: list[Any] = []

    def operand(value: Any) -> Any:
        if not isinstance(value, TensorType):
            return value
        inputs.append(graph.placeholder("x", value))
        return Proxy(inputs[-1], tracer)

    token = active_tracer.set(tracer)
    try:
        result = function(**op.map_tensors(operand, bound))
        parts = [
            tracer.create_arg(r) if is_traced(r) else r
            for r in (result if isinstance(result, (tuple, list)) else (result,))
        ]
    finally:
        active_tracer.reset(token)
    return graph, inputs, tuple(parts) if isinstance(result, (tuple, list)) else parts[0]


def traced_type(function: Callable[..., Any], op: Op, bound: Mapping[str, Any]) -> Any:
    """Type of the result of ``function``, or a tuple of types, for arguments of ``op`` that are
    types in place of tensors. Raises TraceError where it cannot be traced or its types depend on a
    condition, and what the ops in it say of types that do not fit."""
    graph, _, result = traced_call(function, op, bound)
    if graph.guards:
        raise TraceError(f"its types hold where {' and '.join(map(str, graph.guards))}")
    several = isinstance(result, tuple)
    types = tuple(r.type if isinstance(r, Node) else type_of(r) for r in (result if several else (result,)))
    return types if several else types[0]
