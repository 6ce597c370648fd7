"""Tracing a GraphModule: its graph is recorded node by node, with its names, scopes and locations, and not
by running its code. So a retrace gives the same graph, with other types if the inputs have other types.

In: an active tracer, a GraphModule, and values or types for its inputs. Out: nodes in the graph of the
tracer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import ArgumentError, ShapeError
from fxlite.base.location import Scope
from fxlite.base.state import is_traced
from fxlite.graph import pytree
from fxlite.graph.graph import Node, map_nodes
from fxlite.tracing.inputs import declared_dims
from fxlite.tracing.writes.in_place import store
from fxlite.tracing.writes.shared_memory import note_retraced
from fxlite.types import shapes
from fxlite.types.guards import remaining
from fxlite.types.shapes import Dim, symbols
from fxlite.types.tensor_type import TensorType, type_of

if TYPE_CHECKING:
    from fxlite.graph.graph_module import GraphModule
    from fxlite.tracing.tracer import Tracer
    from fxlite.types.symbols import FactSymbol


def retrace(tracer: Tracer, module: GraphModule, declared: Mapping[str, Any], concrete: Mapping[str, Any]) -> None:
    """Trace a GraphModule as the root. Inputs that ``declared`` does not name keep their types.

    Raises ShapeError if a new type contradicts a size for which the graph was made."""
    types = {n.target: n.type for n in module.graph.placeholders}
    given = {t: type_of(v) for t, v in module.flatten_inputs(declared, True).items()}
    baked = module.flatten_inputs(concrete, True)
    fixed = {t: type_of(v) for t, v in baked.items() if isinstance(v, np.ndarray)}
    tracer.graph.declare_dims(kept_facts(types, {**given, **fixed}, given))
    own = tracer.graph.declared_dims
    given = {t: type.substitute(own) for t, type in given.items()}
    dims = _renamed_dims(module.name, types, {**given, **fixed})
    _write(tracer, module, given, dims, baked)
    interface = module.graph.interface
    if interface is not None:
        lost = [target for target in interface.writes if target in baked]
        if lost:
            raise ArgumentError(
                f"{module.name} writes into {', '.join(lost)}, so it must stay an input; leave it out of concrete_args"
            )
    if interface is not None or concrete:
        known = interface or pytree.one_by_one(tuple(types))
        tracer.graph.interface = known.without(concrete)
    tracer.graph.taps = module.graph.taps


def retrace_with_dims(tracer: Tracer, module: GraphModule, dims: Mapping[str, Dim]) -> None:
    """Trace a GraphModule as the root, with other sizes in place of its named dims.

    Raises ShapeError if that violates a guard or the facts about a dim, or if a call does not fit."""
    types = {n.target: n.type for n in module.graph.placeholders}
    new = {t: type.substitute(dims) for t, type in types.items() if isinstance(type, TensorType)}
    changed = {t: type for t, type in new.items() if type is not types[t]}
    tracer.graph.declare_dims(kept_facts(types, changed, {}))
    own = tracer.graph.declared_dims
    _write(tracer, module, {}, {n: shapes.substitute(d, own) for n, d in dims.items()}, {})
    tracer.graph.interface, tracer.graph.taps = module.graph.interface, module.graph.taps


def _write(
    tracer: Tracer,
    module: GraphModule,
    given: Mapping[str, TensorType],
    dims: Mapping[str, Dim],
    baked: Mapping[str, Any],
) -> None:
    """Record the whole graph of the module, with types for some inputs, other dims in place of its own, and
    values in place of some inputs."""
    _require(tracer, module, dims)
    tracer.graph.specialized = module.graph.specialized
    values: dict[Node, Any] = {}
    for node in module.graph.placeholders:
        if node.target in baked:
            values[node] = baked[node.target]
            continue
        known = given.get(node.target, _substitute(node.type, dims))
        tracer.origin = (node.scope, node.loc)
        values[node] = tracer.create_proxy("placeholder", node.target, node.args, {}, node.name, known)
        _keep_meta(node, values[node])
    result = _record(tracer, module, values, dims, lambda scope: scope)
    output = module.graph.output_node()
    tracer.origin = (output.scope, output.loc)
    made = tracer.create_node("output", "output", (tracer.create_arg(result),), {}, output.name)
    if output.meta:
        made.meta = dict(output.meta)


def call_graph_module(tracer: Tracer, module: GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a call of a GraphModule in a traced program. Its scopes are put inside the running one."""
    flat = module.flatten_inputs(module.bind(args, kwargs).arguments)
    owners = {target: module.get_submodule(path.rpartition(".")[0]) for target, path in module.states}
    names = {target: path.rpartition(".")[2] for target, path in module.states}
    flat |= {target: getattr(owner, names[target]) for target, owner in owners.items()}
    placeholders = module.graph.placeholders
    values = {n: flat[n.target] for n in placeholders}
    types = {n.target: n.type for n in placeholders}
    actual = {
        t: v.node.type if is_traced(v) else type_of(v)
        for t, v in flat.items()
        if not (is_traced(v) and v.node.type is None)
    }
    dims = _renamed_dims(module.name, types, actual)
    _require(tracer, module, dims)
    outer = tracer.scope
    prefix = outer.path if outer is not None else ""
    known: dict[Scope, Scope] = {}

    def scope(inner: Scope | None) -> Scope | None:
        if inner is None or (not inner.path and outer is not None):
            return outer
        if inner not in known:
            path = f"{prefix}.{inner.path}" if prefix else inner.path
            known[inner] = Scope(path, inner.class_name)
        return known[inner]

    saved = tracer.origin
    try:
        result = _record(tracer, module, values, dims, scope)
    finally:
        tracer.origin = saved
    writes = module.written_inputs()
    result, _ = module.take_taps(result)  # inside another program, taps receive nothing
    if writes:
        result, *new = result
        for target, value in zip(writes, new):
            if target in owners:
                setattr(owners[target], names[target], value)
                continue
            store(flat[target], value, f"{module.name}, which changes {target},")
    return module.rebuild_result(result)


def _record(
    tracer: Tracer,
    module: GraphModule,
    env: dict[Node, Any],
    dims: Mapping[str, Dim],
    scope: Callable[[Scope | None], Scope | None],
) -> Any:
    """Record all nodes of the module's graph; returns the result, nested as in the output node."""

    def argument(node: Node) -> Any:
        return tracer.create_arg(env[node])

    for node in module.graph.nodes:
        if node.op == "placeholder":
            continue
        if node.op == "output":
            return map_nodes(node.args[0], env.__getitem__)
        tracer.origin = (scope(node.scope), node.loc)
        args, kwargs = map_nodes(node.args, argument), map_nodes(node.kwargs, argument)
        if node.op == "get_attr":
            env[node] = _read(tracer, module, node)
        elif node.op == "call_module":
            target = tracer.path_of_leaf(module.get_submodule(node.target))
            leaf_type = _substitute(node.type, dims)
            env[node] = tracer.create_proxy(node.op, target, args, kwargs, node.name, leaf_type)
        else:
            if dims:
                kwargs = {k: shapes.substitute(v, dims) for k, v in kwargs.items()}
            env[node] = tracer.create_proxy(node.op, node.target, args, kwargs, node.name)
            note_retraced(env[node], node, env)
        _keep_meta(node, env[node])
    return None


def _read(tracer: Tracer, module: GraphModule, node: Node) -> Any:
    if module is tracer.root:
        return tracer.create_proxy("get_attr", node.target, (), {}, node.name, node.type)
    path, _, name = node.target.rpartition(".")
    return tracer.attribute(module.get_submodule(path), name, module.get_attribute(node.target), node.name)


def _keep_meta(node: Node, made: Any) -> None:
    if node.meta and is_traced(made):
        made.node.meta = dict(node.meta)


def _substitute(type: Any, dims: Mapping[str, Dim]) -> Any:
    if isinstance(type, TensorType):
        return type.substitute(dims) if dims else type
    if isinstance(type, tuple):
        return tuple(_substitute(t, dims) for t in type)
    return type


def _renamed_dims(name: str, declared: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Dim]:
    """The graph's named dims in terms of the new types. A size that was a number while tracing may occur
    anywhere in the graph, so it must not change."""
    dims: dict[str, Dim] = {}
    known: dict[str, Dim] = {}
    pairs = [
        (target, declared[target], new)
        for target, new in given.items()
        if isinstance(declared.get(target), TensorType) and isinstance(new, TensorType)
    ]
    for target, old, new in pairs:
        if old.rank != new.rank:
            raise ShapeError(f"{name}: {target} was traced as {old}, which {new} cannot replace")
        for before, after in zip(old.shape, new.shape, strict=True):
            if getattr(before, "is_Symbol", False):
                dims.setdefault(before.name, after)
                known[before.name] = before
    for target, old, new in pairs:
        for before, after in zip(old.shape, new.shape, strict=True):
            expected = shapes.substitute(before, dims)
            if not shapes.equal(expected, after):
                raise ShapeError(
                    f"{name}: {target} was traced as {old}, so {new} does not fit: {after} where "
                    f"{expected} is expected; trace the program itself, with a named dim there"
                )
    return {n: d for n, d in dims.items() if not shapes.equal(known[n], d)}


def kept_facts(
    types: Mapping[str, Any], new: Mapping[str, Any], declared: Mapping[str, TensorType]
) -> dict[str, FactSymbol]:
    """The named dims with facts after a retrace: those of inputs that keep their types, and those of the new
    types. A plain name that replaces a dim with facts takes over these facts."""
    found = declared_dims({t: type for t, type in types.items() if t not in new})
    for target, type in new.items():
        before = types.get(target)
        for old, after in zip(getattr(before, "shape", ()), type.shape):
            if isinstance(old, symbols.FactSymbol) and getattr(after, "is_Symbol", False):
                found.setdefault(after.name, symbols.symbol(after.name, old.facts))
    return found | declared_dims(declared)


def _require(tracer: Tracer, module: GraphModule, dims: Mapping[str, Dim]) -> None:
    """Add the module's conditions on its named dims to the graph of the tracer."""
    graph = tracer.graph
    conditions = module.graph.conditions()
    if conditions:
        env = {**graph.declared_dims, **dims}
        graph.guards = (*graph.guards, *remaining(conditions, env, module.name))
