"""Joining adjacent loops of a kernel where every address stays free of divisions.

In: loop variables, the value of an element, and where it is stored. Out: the same with fewer loops.
"""

from __future__ import annotations

from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, IndexValue, Load, MultiIndex, Reduction
from fxlite.scalar.index import Index, Quotient, Remainder, Var, flatten


def collapse(
    space: tuple[Var, ...],
    value: Expr,
    store: MultiIndex,
    shapes: dict[str, MultiIndex],
    output: str,
) -> tuple[tuple[Var, ...], Expr, MultiIndex]:
    """Join adjacent loops where every address stays free of divisions; drop loops of extent 1."""
    ones = {v: Index.of(0) for v in space if v.extent.constant == 1}
    if ones:
        value, store = expr.substitute_index(value, ones), tuple(i.substitute(ones) for i in store)
        space = tuple(v for v in space if v not in ones)
    position = len(space) - 2
    while position >= 0:
        first, second = space[position], space[position + 1]
        joined = expr.fresh_var(first.extent * second.extent, "v")
        env = {first: Index.of(joined) // second.extent, second: Index.of(joined) % second.extent}
        if _separable(value, first, second):
            new_value = expr.substitute_index(value, env)
            new_store = tuple(i.substitute(env) for i in store)
            if is_flat(new_value, joined, shapes) and not divides(
                flatten(new_store, shapes[output]), joined
            ):
                space = (*space[:position], joined, *space[position + 2 :])
                value, store = new_value, new_store
        position -= 1
    return space, value, store


def _separable(value: Expr, first: Var, second: Var) -> bool:
    """No reduction depends on only one of the two loops (it would move inside the joined one)."""
    for node in expr.walk(value):
        if isinstance(node, Reduction):
            free = expr.free_variables(node)
            if (first in free) != (second in free):
                return False
    return True


def divides(index: Index, variable: Var) -> bool:
    """True if the variable stands under a division or remainder."""
    return any(
        isinstance(a, (Quotient, Remainder)) and variable in (a.a.variables() | a.b.variables())
        for a in index.atoms()
    )


def is_flat(value: Expr, variable: Var, shapes: dict[str, MultiIndex]) -> bool:
    """True if no address in the expression divides the variable."""
    for node in expr.walk(value):
        if isinstance(node, Load) and divides(flatten(node.index, shapes[node.buffer]), variable):
            return False
        if isinstance(node, IndexValue) and divides(node.index, variable):
            return False
        if isinstance(node, Reduction) and any(
            divides(v.extent, variable) or v.extent.variables() for v in node.variables
        ):
            return False
    return True
