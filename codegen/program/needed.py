"""Which part of a value its readers need, so that no more of it is computed.

In: the groups of a program in order. Out: ``Group.needed``: ``v[i:]`` in the i-th iteration, the rows that a loop does
not write, and in bodies what lies between bounds that are computed before, as of ``np.exp(x[a:b])`` in::

    s = np.exp(x[a:b])
    out[i] = s.sum() / s.max()

An element that is read under a condition is needed only where the condition holds. What a group needs of others follows
from the part of it that is computed, so this goes from the last group to the first.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence

from fxlite.codegen.kernel.bounds import reachable
from fxlite.codegen.kernel.lower import buffer_name, lower
from fxlite.codegen.program.control import known_index
from fxlite.graph.graph import Node
from fxlite.ops.indexing import parts_of_update
from fxlite.ops.op import normalize_axis
from fxlite.passes.group import Group
from fxlite.passes.rewrite.rule import is_call
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, Cast, CheckedIndex, Const, Expr, IndexValue, Load, conjuncts, not_negative
from fxlite.scalar.index import Given, Index, Value, Var, extremum
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import Dim

#: The most parts of the expression of a bound.
MOST_PARTS = 24
#: Indices that are not negative where an expression is read.
Conditions = tuple[Index, ...]
#: Numbers that an index is not less than, and numbers that it is less than.
Bounds = tuple[list[Index], list[Index]]


def note_needed(groups: Sequence[Group], kept: Collection[Node], is_body: bool = False) -> None:
    """Record what is needed of the values of ``groups``. ``kept`` values are visible to others and always computed in
    full. In a body, bounds may be numbers that other groups compute before."""
    readers: dict[Node, list[Group]] = {}
    for found in groups:
        for node in found.inputs:
            readers.setdefault(node, []).append(found)
    numbers = _Numbers(groups if is_body else ())
    for place, found in reversed([*enumerate(groups)]):
        node = found.root
        known = readers.get(node, [])
        if found.kind != "loops" or found.beside is not None or node in kept or not node.type.rank or not known:
            continue
        if len(known) == 1 and known[0].kind == "control":
            found.needed.update(_before_loop(known[0], node))
            continue
        if any(reader.kind != "loops" or reader.root.target.writes_part for reader in known):
            continue
        loads = [pair for reader in known for pair in _loads(reader, node, numbers)]
        for axis, size in enumerate(node.type.shape):
            bounds = [numbers.known_of(_bounds_of(n.index[axis], where, numbers), place) for n, where in loads]
            part = _part(bounds, size)
            if part is None:
                continue
            if expr.run_time_values(part):
                if found.taken or not _fails_alike(found, axis, bounds, numbers):
                    continue
                part = _with_one(found, part, size)
                numbers.note(found, part)
            found.needed[axis] = part


class _Numbers:
    """The numbers that groups compute, as indices; those of equal expressions are equal."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.made: dict[str, tuple[int, Node]] = {}  # where, by the names of variables
        self.known: dict[str, Index] = {}
        for place, found in enumerate(groups):
            self.made |= {buffer_name(n): (-1, n) for n in found.inputs if not n.type.rank and n.op == "placeholder"}
            self.made |= {buffer_name(n): (place, n) for n in found.stored if not n.type.rank}

    def index(self, value: Expr, beside: Index | None = None) -> Index | None:
        """A number that is the same in all iterations of the loops of a group, as an index; None for others."""
        if value.dtype is not dtypes.int64 or not self.made:
            return None
        for count, node in enumerate(expr.walk(value)):
            is_number = isinstance(node, Load) and node.buffer in self.made and node.guard is None
            if isinstance(node, IndexValue):
                is_number = all(isinstance(v, Given) for v in node.index.variables())
            if count > MOST_PARTS or not (is_number or isinstance(node, (Apply, Cast, Const))):
                return None
        return self.known.setdefault(repr(value), Index.of(Value(value)))

    def of(self, index: Index) -> Index | None:
        """An index with these numbers in it; None if it contains others."""
        env = {v: self.index(v.expr) for v in index.run_time_values()}
        return None if None in env.values() else index.substitute(env) if env else index

    def known_of(self, bounds: Bounds, place: int) -> Bounds:
        """The bounds that are known before the group at this place."""
        firsts, ends = ([i for i in side if self.is_known(i, place)] for side in bounds)
        return firsts, ends

    def is_known(self, index: Index, place: int) -> bool:
        """Whether an index is known before the group at this place, outside of its loops."""
        return all(isinstance(v, Given) for v in index.variables()) and all(
            self.made[n.buffer][0] < place
            for value in index.run_time_values()
            for n in expr.walk(value.expr)
            if isinstance(n, Load)
        )

    def note(self, found: Group, part: tuple[Index, Index]) -> None:
        """Record that a group reads the numbers that are bounds of its part."""
        for value in expr.run_time_values(part):
            for load in (n for n in expr.walk(value.expr) if isinstance(n, Load)):
                found.reads.setdefault(self.made[load.buffer][1], [()])


def _part(bounds: Sequence[Bounds], size: Dim) -> tuple[Index, Index] | None:
    """The first element that one of several reads needs, and the one behind the last; None if that is all."""
    firsts, ends = (_of_all([each[side] for each in bounds], side) for side in (0, 1))
    if firsts is None and ends is None:
        return None
    first = Index.of(0) if firsts is None else extremum("max", reachable(firsts, Index.of(size)), 0)
    return first, Index.of(size) if ends is None else extremum("min", reachable(ends, Index.of(size)), size)


def _of_all(bounds: Sequence[Sequence[Index]], side: int) -> Index | None:
    """A bound of all reads: one that they have in common, or the outermost one."""
    if not bounds or not all(bounds):
        return None
    common = [i for i in bounds[0] if all(i in each for each in bounds)]
    if common:
        return common[0]
    outermost = functools.partial(extremum, "max" if side else "min")
    return functools.reduce(outermost, dict.fromkeys(each[0] for each in bounds))


def _with_one(found: Group, part: tuple[Index, Index], size: Dim) -> tuple[Index, Index]:
    """The part, with one element even if it is empty where a group checks indices: it says what is wrong with them."""
    if not any(isinstance(n, CheckedIndex) for n in expr.walk(lower(found).value)):
        return part
    one = extremum("min", size, 1)
    first = extremum("min", part[0], Index.of(size) - one)
    return first, extremum("max", part[1], first + one)


def _fails_alike(found: Group, axis: int, bounds: Sequence[Bounds], numbers: _Numbers) -> bool:
    """Whether indices that are out of range are so in each element that nobody needs, or in none."""
    lowered = lower(found)
    variable = lowered.space[axis]
    needed = {i for each in bounds for side in each for i in side}

    def elsewhere(node: Expr) -> Expr:
        if isinstance(node, Apply) and node.function == "where":
            limits = _bounds_of(Index.of(variable), _conditions(node.args[0], numbers), numbers)
            if all(side and needed.issuperset(side) for side in limits):
                return node.args[2]
        return node

    checked = [n for n in expr.walk(lowered.value) if isinstance(n, CheckedIndex)]
    return not any(variable in expr.free_variables(expr.transform(n, elsewhere)) for n in checked)


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


# -- reads -----------------------------------------------------------------------------------------
def _conditions(condition: Expr | None, numbers: _Numbers) -> Conditions:
    """The comparisons of which a condition consists, as indices."""
    found = (not_negative(c, numbers.index) for c in conjuncts(condition))
    return tuple(known for c in found if c is not None and (known := numbers.of(c)) is not None)


def _loads(reader: Group, node: Node, numbers: _Numbers) -> list[tuple[Load, Conditions]]:
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
            chosen = _conditions(value.args[0], numbers)
            work.append((value.args[0], conditions))
            work.append((value.args[1], (*conditions, *chosen)))
            is_one = len(conjuncts(value.args[0])) == 1 and len(chosen) == 1
            work.append((value.args[2], (*conditions, -chosen[0] - 1) if is_one else conditions))
            continue
        if isinstance(value, Apply) and value.function == "and" and value.dtype.is_bool:
            one, other = value.args
            work.append((one, (*conditions, *_conditions(other, numbers))))
            work.append((other, (*conditions, *_conditions(one, numbers))))
            continue
        if isinstance(value, Load) and value.buffer == name:
            found.append((value, (*conditions, *_conditions(value.guard, numbers))))
        work += [(child, conditions) for child in value.children]
    return found


def _bounds_of(place: Index, conditions: Conditions, numbers: _Numbers) -> Bounds:
    """The bounds of an index under conditions."""
    firsts: list[Index] = []
    ends: list[Index] = []
    variable = place.single_atom
    if not isinstance(variable, Var) or isinstance(variable, Given):
        return firsts, ends
    for condition in conditions:
        step = condition.coefficient(variable)
        if step is None or step.constant not in (1, -1):
            continue
        rest = condition - Index.of(variable) * step
        (firsts if step.constant == 1 else ends).append(-rest if step.constant == 1 else rest + 1)
    return firsts, ends
