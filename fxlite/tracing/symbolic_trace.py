"""``fx.symbolic_trace``, which turns a program and input types into a GraphModule; and specialization, which
makes a GraphModule for fixed values of some of its named dims.

Specialization is a retrace over the same weights, with these sizes in types, attributes and guards. No
other part of fxlite ever replaces a named dim by a number on its own.
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
    """Trace a module or function: ``symbolic_trace(model, x="f32[B,3,224,224]")``. Returns a GraphModule.

    Inputs are types, type text or example arrays, or nested dicts, tuples, lists, dataclasses and named
    tuples of these. They are given by position or by the names of ``forward``'s parameters (also those of
    its ``**kwargs``); an input whose name is also an option is given in ``inputs={...}``. An input with a
    type keeps its default if that has the same type. Without any types, the graph has no types; a parameter
    whose default is a number is then an input with this default, if the program can be traced that way.

    ``concrete_args`` are baked in, and so are parameters that are not given but have a default. They stay
    parameters, but a call with another value raises ArgumentError. As in torch.fx, a dict of values without
    types may also be given as the second argument, and ``fx.PH`` inside a nested concrete value marks a part
    that stays an input.

    Modules that match ``leaf`` stay one node: objects, classes, paths, or globs such as "layers.*.attn";
    ``leaf=nn`` means all layers, as in torch.fx. ``tracer``: an instance of a subclass of :class:`Tracer`.

    ``if``, ``while`` and ``for`` on values that are not known while tracing become conditions and loops of
    the graph (docs/guides/control_flow.md). ``loops`` tells which loops with a known number of iterations
    stay loops: "auto", those that would be long if unrolled; "keep", all; "unroll", none.

    Raises TraceError for a program that cannot be traced, ArgumentError for wrong input names and for a leaf
    that does not exist, and ShapeError or DTypeError for a program that does not fit the types. All of them
    name file and line."""
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
        (concrete_args,), types = types, ()  # as in torch.fx: symbolic_trace(f, concrete_args)
    declared = declare(function, types, {**(inputs or {}), **named}, concrete_args or {})
    tracer = Tracer(leaf=leaf, loops=loops) if tracer is None else tracer
    try:
        tracer.trace(root, concrete_args, declared)
        if type(tracer) is Tracer and tracer.own_numbers:
            _check_numbers(root, tracer, lambda again: again.trace(root, concrete_args, declared))
    except FxliteError as error:
        if type(tracer) is Tracer:
            from fxlite.tracing.doctor import add_further_problems

            add_further_problems(error, root, declared, concrete_args, leaf, tracer.is_finished)
        raise
    except TypeError as error:
        problem = torch_problem(error)
        if problem is None:
            raise
        raise problem from error
    warn_of_widening(tracer.graph)
    return tracer.module(_name_of(root))


def _check_numbers(root: Any, tracer: Tracer, trace: Callable[[Tracer], Any]) -> None:
    """Raise TraceError for a program that changes one of its own numbers (``self.count += 1``) and computes
    with it: another trace, which starts from the new number, would give another graph."""
    before = tracer.own_numbers
    changed = [given for given in before if vars(given[0]).get(given[1]) != given[2]]
    if not changed:
        return
    again = Tracer(leaf=tracer.leaves, loops=tracer.loops)
    trace(again)
    for module, name, value in before:  # undo the changes of the trace
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
    """Trace ``function`` for arguments of ``op`` with types in place of tensors. Returns the graph; its inputs, one
    for each type in the order of the operands; and the function's result, with nodes in place of traced values."""
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
        parts = [tracer.create_arg(r) if is_traced(r) else r for r in shapes.as_tuple(result)]
    finally:
        active_tracer.reset(token)
    return graph, inputs, tuple(parts) if isinstance(result, (tuple, list)) else parts[0]


def traced_type(function: Callable[..., Any], op: Op, bound: Mapping[str, Any]) -> Any:
    """The type of the result of ``function``, or a tuple of types, for arguments of ``op`` with types in place
    of tensors. Raises TraceError if the function cannot be traced or its types depend on a condition, and the
    errors of its ops for types that do not fit."""
    graph, _, result = traced_call(function, op, bound)
    if graph.guards:
        raise TraceError(f"its types hold only if {' and '.join(map(str, graph.guards))}")
    several = isinstance(result, tuple)
    types = tuple(r.type if isinstance(r, Node) else type_of(r) for r in (result if several else (result,)))
    return types if several else types[0]
