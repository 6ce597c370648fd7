"""The bodies of a loop or condition as programs of their own.

In: a group of a control op. Out: for each body its groups in order, with names that no other value of
the function has, and its memory. A value that a loop carries has the same name in all its bodies, and
a value that a body captures has the name it has outside. If the number of an iteration is known to be
an index, kernels inside read it as one, so that the range of its selections is checked at compile time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fxlite.codegen.kernel.lower import buffer_name, lower
from fxlite.codegen.kernel.names import value_name
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.subgraph import Names, SubGraph, bodies_of
from fxlite.ops.control import BODIES
from fxlite.ops.indexing import parts_of_update
from fxlite.ops.op import normalize_axis
from fxlite.passes.group import Group
from fxlite.passes.inside import edit_here_and_inside
from fxlite.passes.rewrite.rule import is_call
from fxlite.passes.rules.decompose import decompose
from fxlite.passes.rules.redundant import cse, dce
from fxlite.passes.rules.simplify import simplify
from fxlite.scalar.expr import Apply, Expr, Load, conjuncts, index_arithmetic, not_negative, run_time_values
from fxlite.scalar.index import Given, Index, Var, extremum
from fxlite.types import dtypes, shapes
from fxlite.types.tensor_type import TensorType


@dataclass(eq=False)
class BodyPlan:
    """``program`` computes ``results`` from ``inputs``."""

    inputs: list[Node]
    results: list[Node]
    program: Any


@dataclass(eq=False)
class ControlPlan:
    """``bodies`` by the names of the attributes; ``carried`` are the inputs of the last body that a loop
    carries; ``index`` is the number of an iteration."""

    bodies: dict[str, BodyPlan] = field(default_factory=dict)
    index: Node | None = None
    carried: list[Node] = field(default_factory=list)


#: Plans the program of a body: its module, which inputs it may write over, names.
PlanBody = Callable[[GraphModule, list[Node], Names], Any]


def plan_control(group: Group, names: Names, plan_body: PlanBody, inside: Callable[[Node], bool]) -> ControlPlan:
    """The plan of a group; see the module's docstring. ``inside`` is true for nodes for which the target
    calls routines."""
    node, found = group.root, ControlPlan()
    operands_of = BODIES[node.target][1]
    carried = node.arguments.get("carried", ())
    captured = node.arguments.get(operands_of, ())
    bodies = bodies_of(node)
    last = bodies[list(bodies)[-1]]
    lead = len(last.inputs) - len(carried) - len(captured)
    own = [names.free(n.name) for n in last.inputs[: lead + len(carried)]]
    given = [v.name for v in captured]
    taken = {number for number, v in enumerate(captured) if v in group.taken.values()}
    for name, body in bodies.items():
        module, inputs = _module(body, inside)
        start = len(inputs) - len(captured)
        for inner, text in zip(inputs, [*own[len(own) - start :], *given]):
            object.__setattr__(inner, "name", text)
        for inner in module.graph.nodes:
            if inner.op == "call_function":
                object.__setattr__(inner, "name", names.free(inner.name))
        for inner, outer in zip(inputs[start:], captured):
            _note_index(inner, known_index(outer))
        if lead and len(inputs) == len(last.inputs):
            found.index = inputs[0]
            _note_index(inputs[0], _range_index(node, inputs[0]))
        for inner in module.graph.nodes:
            if inner.op == "call_function":
                _note_index(inner, _of_iterations(known_index(inner)))
        first = start - len(carried)
        writable = [n for n in inputs[first:start] if n.type.rank and name != "cond_fn"]
        writable += [inputs[start + number] for number in sorted(taken)]
        found.carried = inputs[first:start]
        results = list(module.graph.output_node().args[0])
        found.bodies[name] = BodyPlan(inputs, results, plan_body(module, writable, names))
    return found


def _module(body: SubGraph, inside: Callable[[Node], bool]) -> tuple[GraphModule, list[Node]]:
    """A body as a module in which all ops have code, and its inputs."""
    graph, copies = body.copy()
    inputs = [copies[n].name for n in body.inputs]
    module = GraphModule({}, graph, "body")
    for edit in (partial(decompose.function, keep=inside), simplify.function, cse.function, dce.function):
        edit_here_and_inside(module, edit)
    by_name = {n.name: n for n in module.graph.placeholders}
    return module, [by_name[name] for name in inputs]


# -- what is read of a value -----------------------------------------------------------------------
def note_needed(groups: Sequence[Group], kept: Collection[Node]) -> None:
    """Record which part of a value its readers need, such as ``v[i:]`` in the i-th iteration, or the rows that a loop
    does not write, so that no more of it is computed. ``kept`` values are visible to others and always computed in
    full."""
    readers: dict[Node, list[Group]] = {}
    for found in groups:
        for node in found.inputs:
            readers.setdefault(node, []).append(found)
    for found in reversed(groups):
        node = found.root
        known = readers.get(node, [])
        if found.kind != "loops" or found.beside is not None or node in kept or not node.type.rank or not known:
            continue
        if len(known) == 1 and known[0].kind == "control":
            found.needed.update(_before_loop(known[0], node))
            continue
        if any(reader.kind != "loops" or reader.root.target.writes_part for reader in known):
            continue
        loads = [pair for reader in known for pair in _loads(reader, node)]
        for axis, size in enumerate(node.type.shape):
            ends = [_ends(load.index[axis], conditions) for load, conditions in loads]
            firsts = [i for i in ends[0][0] if all(i in first for first, _ in ends)] if ends else []
            lasts = [i for i in ends[0][1] if all(i in last for _, last in ends)] if ends else []
            if firsts or lasts:
                first = extremum("max", firsts[0], 0) if firsts else Index.of(0)
                end = extremum("min", lasts[0], size) if lasts else Index.of(size)
                found.needed[axis] = first, end


def _before_loop(reader: Group, node: Node) -> dict[int, tuple[Index, Index]]:
    """What a loop needs of an array that it carries and writes row by row, up to the last row or from the first one on:
    the other rows. An iteration may read rows that iterations before it wrote, and those that none writes."""
    loop, carried = reader.root, reader.root.arguments.get("carried", ())
    if loop.target.name != "fori_loop" or [*carried, *loop.arguments["captured"]].count(node) != 1:
        return {}
    if node not in carried:
        return {}
    (body,) = reader.bodies.bodies.values()
    x, end = reader.bodies.carried[carried.index(node)], body.results[carried.index(node)]
    number = known_index(reader.bodies.index)
    if number is None or not is_call(end, "index_update") or end.args[0] is not x or len(end.users) > 1:
        return {}
    sizes, parts = node.type.shape, parts_of_update(end.arguments)
    axis = parts.index(None)
    whole = [isinstance(p, tuple) and p[0] == 0 and p[3] == 1 and shapes.equal(p[2], n) for p, n in zip(parts, sizes)]
    place = known_index(end.arguments["positions"][0])
    if place is None or whole.count(False) != 1:
        return {}
    (variable,) = number.variables()
    assert isinstance(variable, Given)
    step = place.coefficient(variable)
    reads = [user for user in x.users if user is not end]
    if step is None or step.constant not in (1, -1) or not all(is_call(user, "take") for user in reads):
        return {}
    ends = {variable: variable.least}, {variable: variable.extent - 1}
    lowest, highest = ends if step.constant == 1 else ends[::-1]
    for user in reads:
        row = known_index(user.arguments["index"])
        if row is None or normalize_axis(user.arguments.get("axis", 0), len(sizes)) != axis:
            return {}
        distance = (place - row).constant
        if distance is None or distance * step.constant <= 0 or not Index.of(0) <= row.substitute(lowest):
            return {}
    size, start, stop = Index.of(sizes[axis]), place.substitute(lowest), place.substitute(highest) + 1
    if stop == size and Index.of(0) <= start:
        return {axis: (Index.of(0), extremum("min", start, size))}
    return {axis: (extremum("max", stop, 0), size)} if start == 0 else {}


#: Indices that are not negative where an expression is read.
Conditions = tuple[Index, ...]


def _loads(reader: Group, node: Node) -> list[tuple[Load, Conditions]]:
    """The loads of a value in a group, each with the conditions under which it is read."""
    lowered = lower(reader)
    name = buffer_name(reader.root if reader.taken.get(reader.root) is node else node)
    around = tuple(
        bound
        for axis, (first, end) in reader.needed.items()
        for bound in (Index.of(lowered.space[axis]) - first, end - 1 - Index.of(lowered.space[axis]))
    )
    found: list[tuple[Load, Conditions]] = []
    seen: set[tuple[int, Conditions]] = set()
    work: list[tuple[Expr, Conditions]] = [(lowered.value, around)]
    while work:
        value, conditions = work.pop()
        if (id(value), conditions) in seen:
            continue
        seen.add((id(value), conditions))
        if isinstance(value, Apply) and value.function == "where":
            chosen = [not_negative(c) for c in conjuncts(value.args[0])]
            work.append((value.args[0], conditions))
            work.append((value.args[1], (*conditions, *(c for c in chosen if c is not None))))
            otherwise = (-chosen[0] - 1,) if len(chosen) == 1 and chosen[0] is not None else ()
            work.append((value.args[2], (*conditions, *otherwise)))
            continue
        if isinstance(value, Load) and value.buffer == name:
            guards = (not_negative(c) for c in conjuncts(value.guard))
            found.append((value, (*conditions, *(c for c in guards if c is not None))))
        work += [(child, conditions) for child in value.children]
    return found


def _ends(place: Index, conditions: Conditions) -> tuple[list[Index], list[Index]]:
    """The first and the last places along an axis that a load may read under its conditions."""
    firsts: list[Index] = []
    lasts: list[Index] = []
    variable = place.single_atom
    if not isinstance(variable, Var) or isinstance(variable, Given):
        return firsts, lasts
    for condition in conditions:
        step = condition.coefficient(variable)
        if step is None or step.constant not in (1, -1):
            continue
        rest = condition.substitute({variable: Index.of(0)})
        bound, into = (-rest, firsts) if step.constant == 1 else (rest + 1, lasts)
        if all(isinstance(v, Given) for v in bound.variables()) and not run_time_values((bound,)):
            into.append(bound)
    return firsts, lasts


# -- indices ---------------------------------------------------------------------------------------
def _note_index(node: Node, index: Index | None) -> None:
    if index is not None and not node.type.rank and node.type.dtype is dtypes.int64:
        node.meta["index"] = index


def _of_iterations(index: Index | None) -> Index | None:
    """An index that depends on the number of an iteration; None for others, which are computed as they are."""
    return index if index is not None and index.variables() else None


def _range_index(node: Node, number: Node) -> Index | None:
    """The number of an iteration as a variable, if its bounds are known to be sizes."""
    lower, upper = known_index(node.args[0]), known_index(node.args[1])
    if lower is None or upper is None or not lower.is_nonnegative():
        return None
    return Index.of(Given(value_name(number.name), upper, lower))


def known_index(value: Any) -> Index | None:
    """A number of rank 0 as an index; None if it is computed from anything but sizes and iteration
    numbers."""
    if type(value) is int:
        return Index.of(value)
    if not isinstance(value, Node) or not isinstance(value.type, TensorType) or value.type.rank:
        return None
    if value.type.dtype is not dtypes.int64:
        return None
    if "index" in value.meta:
        return value.meta["index"]  # type: ignore[no-any-return]
    if value.op != "call_function":
        return None
    if value.target.name == "full":
        number = value.arguments["value"]
        return None if isinstance(number, (float, bool)) else Index.of(number)
    if not value.target.symbol or len(value.args) != 2:
        return None
    return index_arithmetic(value.target.symbol, *map(known_index, value.args))
