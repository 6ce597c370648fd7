"""What loops and conditions cost: the cost of their bodies, times how often these run.

In: a node with bodies. Out: sums over the numbers of iterations, in closed form where bounds are
polynomials of sizes and of the numbers of iterations around: ``for i in range(n): for j in
range(i)`` runs n*(n - 1)/2 times. How often a loop runs whose bounds are computed, or that has a
condition, is a name of its own: ``while_loop_trips``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy

from fxlite.graph.graph import Node
from fxlite.graph.subgraph import SubGraph, bodies_of
from fxlite.ops.control import BODIES
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.symbols import symbol

#: A number for a call: of operations, or of bytes.
CostOf = Callable[[Node], Dim]
Env = Mapping[Node, Dim]


def loop_cost(node: Node, cost_of: CostOf, env: Env | None = None) -> Dim:
    """The sum over all calls in the bodies of a node, each as often as it runs; of a condition the
    larger branch. ``env`` has the values of numbers of iterations around."""
    env = env or {}
    bodies = bodies_of(node)
    if "true_fn" in bodies:
        one, other = (_body_cost(node, body, cost_of, env, 0) for body in bodies.values())
        return shapes.maximum(one, other)
    trips = symbol(f"{node.name}_trips")
    if "cond_fn" in bodies:
        test, body = (_body_cost(node, b, cost_of, env, 0) for b in bodies.values())
        return shapes.normalize(trips * (test + body) + test)
    lower, upper = (_known(value, env) for value in node.args[:2])
    body = bodies["body_fn"]
    if lower is None or upper is None:
        return shapes.normalize(trips * _body_cost(node, body, cost_of, env, 1))
    number = sympy.Symbol(f"_{node.name}", integer=True)
    once = _body_cost(node, body, cost_of, {**env, body.inputs[0]: number}, 1)
    if not sympy.sympify(once).has(number):
        return shapes.normalize(once * _not_negative(upper - lower))
    total = sympy.summation(once, (number, lower, upper - 1))
    return shapes.normalize(sympy.expand(total))


def _not_negative(dim: Any) -> Dim:
    """How many iterations there are: where that may be less than none, none."""
    dim = shapes.normalize(dim)
    return max(dim, 0) if type(dim) is int else dim


def _body_cost(node: Node, body: SubGraph, cost_of: CostOf, env: Env, lead: int) -> Dim:
    captured = node.arguments.get(BODIES[node.target][1], ())
    start = len(body.inputs) - len(captured)
    inner: dict[Node, Dim] = {n: env[n] for n in body.inputs[:lead] if n in env}
    for own, outer in zip(body.inputs[start:], captured):
        known = _known(outer, env)
        if known is not None:
            inner[own] = known
    total: Dim = 0
    for call in body.calls:
        total = total + (loop_cost(call, cost_of, inner) if bodies_of(call) else cost_of(call))
    return shapes.normalize(total) if not _has_numbers(total) else total


def _has_numbers(value: Any) -> bool:
    found = getattr(value, "free_symbols", ())
    return any(s.name.startswith("_") for s in found)


def _known(value: Any, env: Env) -> Any:
    """A number as a size, where it is computed of sizes and numbers of iterations alone."""
    if type(value) is int:
        return value
    if not isinstance(value, Node):
        return None
    if value in env:
        return env[value]
    if value.op != "call_function":
        return None
    if value.target.name == "full":
        found = value.arguments["value"]
        return None if isinstance(found, (float, bool)) or value.type.rank else found
    if len(value.args) != 2 or value.target.symbol not in tuple("+-*"):
        return None
    one, other = (_known(v, env) for v in value.args)
    if one is None or other is None:
        return None
    symbol_ = value.target.symbol
    return one + other if symbol_ == "+" else one - other if symbol_ == "-" else one * other
