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
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from fxlite.codegen.kernel.bounds import SHORT, is_in_range, reachable
from fxlite.codegen.kernel.lower import Lowering, buffer_name, lower
from fxlite.codegen.kernel.ranges import between, ranges_of
from fxlite.codegen.program.control import BodyPlan, known_index
from fxlite.codegen.program.data_sizes import is_last
from fxlite.graph.graph import Node
from fxlite.ops.indexing import parts_of_update
from fxlite.ops.op import normalize_axis
from fxlite.passes.group import Group
from fxlite.passes.rewrite.rule import is_call
from fxlite.scalar import expr
from fxlite.scalar.expr import (
    Apply,
    Cast,
    CheckedIndex,
    Const,
    Expr,
    IndexValue,
    Load,
    Reduction,
    as_index,
    conjuncts,
    index_arithmetic,
    index_of,
    index_value,
    is_index,
    not_negative,
)
from fxlite.scalar.index import Extremum, Given, Index, Value, Var, extremum
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
    made = {found.root: found for found in groups}
    for found in groups:
        for node in found.inputs:
            readers.setdefault(node, []).append(found)
    numbers = _Numbers(groups, is_body)
    for place, found in reversed([*enumerate(groups)]):
        node = found.root
        known = readers.get(node, [])
        is_in_order = is_body and (found.kind == "scan" or _is_line_in_order(found))
        if not (found.kind == "loops" or is_in_order) or node in kept or not node.type.rank or not known:
            continue
        if found.beside is not None or (found.taken and node.target.writes_part):
            continue
        if len(known) == 1 and known[0].kind == "control" and found.kind == "loops":
            found.needed.update(_before_loop(known[0], node))
        if not all(_is_followed(reader, node) for reader in known) or found.needed:
            continue
        loads = [pair for reader in known for pair in _loads(reader, node, numbers)]
        for axis, size in enumerate(node.type.shape):
            bounds = [numbers.known_of(_bounds_of(n.index[axis], where, numbers), place) for n, where in loads]
            part = _part(bounds, size)
            if part is not None and is_in_order:
                part = _from_the_start(found, part, axis, made, numbers, place)
            if part is None:
                continue
            if expr.run_time_values(part):
                is_short = type(size) is int and size < SHORT
                if is_short or found.taken or not _fails_alike(found, axis, bounds, numbers):
                    continue
                part = _with_one(found, axis, part)
                numbers.note(found, part)
            found.needed[axis] = part


def _is_followed(reader: Group, node: Node) -> bool:
    """Whether it is known which elements of a value a group reads."""
    if reader.kind == "control":
        carried = reader.root.arguments.get("carried", ())
        if node in carried or node in reader.taken.values():
            return False
        return all(
            inner not in body.results
            and inner not in body.program.stored.values()
            and all(_is_followed(g, inner) for g in body.program.groups if inner in g.inputs)
            for body, inner in _captured(reader, node)
        )
    return reader.kind in ("loops", "scan") or _is_line_in_order(reader)


def _captured(reader: Group, node: Node) -> list[tuple[BodyPlan, Node]]:
    """The bodies of a loop or condition that read a value, and what it is there."""
    bodies = reader.bodies.bodies.values()
    return [(b, n) for b in bodies for n in b.inputs if buffer_name(n) == buffer_name(node)]


def _is_line_in_order(found: Group) -> bool:
    """Whether a group puts the elements of one line in order, or finds their order."""
    return found.anchor is not None and found.anchor.target.puts_in_order and found.anchor.type.rank == 1


def _from_the_start(
    found: Group, part: tuple[Index, Index], axis: int, made: Mapping[Node, Group], numbers: _Numbers, place: int
) -> tuple[Index, Index] | None:
    """The part from the start of the axis up to the last element that is needed of a running total; of ordered
    elements also up to the last one that is not a filler, which comes after all others. None if that is all."""
    end, size = part[1], Index.of(found.root.type.shape[axis])
    if found.anchor is None:
        scanned = normalize_axis(found.root.bound["axis"], found.root.type.rank)
        return (Index.of(0), end) if axis == scanned and end != size else None
    operand = made.get(found.anchor.args[0])
    filled = None if operand is None or operand.kind != "loops" or end == size else lower(operand)
    if filled is None or not isinstance(value := filled.value, Apply) or value.function != "where":
        return None
    if not isinstance(value.args[2], Const) or not is_last(value.args[2].value, found.anchor.args[0]):
        return None
    (variable,) = filled.space
    limits = _bounds_of(Index.of(variable), _conditions(value.args[0], numbers), numbers)
    _, ends = numbers.known_of(limits, place)
    if not ends:
        return None
    filler = extremum("min", reachable(ends[0], size), size)
    return Index.of(0), extremum("max", extremum("max", end, filler), 0)


class _Numbers:
    """The numbers that groups compute, as indices; those of equal expressions are equal."""

    def __init__(self, groups: Sequence[Group], is_body: bool) -> None:
        self.made: dict[str, tuple[int, Node]] = {}  # where, by the names of variables
        self.known: dict[str, Index] = {}
        for place, found in enumerate(groups if is_body else ()):
            self.made |= {buffer_name(n): (-1, n) for n in found.inputs if not n.type.rank and n.op == "placeholder"}
            self.made |= {buffer_name(n): (place, n) for n in found.stored if not n.type.rank}
        self.inner = {v for found in groups for v in _numbers_of_iterations(found)}
        self.ranges = ranges_of({name: node for name, (_, node) in self.made.items()})

    def index(self, value: Expr, beside: Index | None = None) -> Index | None:
        """A number that is computed as an index; None for others."""
        if value.dtype is not dtypes.int64 or not self.made:
            return None
        if isinstance(value, IndexValue):
            return self.of(value.index)
        if isinstance(value, Apply) and value.function in ("add", "sub"):
            one, other = map(self.index, value.args)
            return index_arithmetic("+" if value.function == "add" else "-", one, other)
        if isinstance(value, Const):
            return Index.of(int(value.value))
        if sum(1 for _ in itertools.islice(expr.walk(value), MOST_PARTS + 1)) > MOST_PARTS:
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

    def is_known(self, index: Index, place: float = math.inf) -> bool:
        """Whether an index is known before the group at this place, outside of its loops."""
        values = [n for value in index.run_time_values() for n in expr.walk(value.expr)]
        varies = [v for value in index.run_time_values() for v in expr.free_variables(value.expr)]
        if not all(isinstance(v, Given) and v not in self.inner for v in (*index.variables(), *varies)):
            return False
        if not all(isinstance(n, (Apply, Cast, Const, IndexValue, Load)) for n in values):
            return False
        loads = [n for n in values if isinstance(n, Load)]
        return all(n.guard is None and n.buffer in self.made and self.made[n.buffer][0] < place for n in loads)

    def is_positive(self, index: Index, size: Index) -> bool:
        """Whether an index into an axis of some size is surely not negative if there is an element."""
        if index == size - 1 or Index.of(0) <= index:
            return True
        atom = index.single_atom
        if isinstance(atom, Extremum):
            return all(self.is_positive(i, size) for i in (atom.a, atom.b))
        least = between(atom.expr, self.ranges) if isinstance(atom, Value) else None
        return least is not None and least[0] >= 0

    def note(self, found: Group, part: tuple[Index, Index]) -> None:
        """Record that a group reads the numbers that are bounds of its part."""
        for value in expr.run_time_values(part):
            for load in (n for n in expr.walk(value.expr) if isinstance(n, Load)):
                found.reads.setdefault(self.made[load.buffer][1], [()])


def _numbers_of_iterations(found: Group) -> Iterator[Var]:
    """The variables of a loop and of those in it that are numbers of iterations."""
    if found.kind == "control":
        number = known_index(found.bodies.index)
        yield from () if number is None else number.variables()
        for body in found.bodies.bodies.values():
            for group in body.program.groups:
                yield from _numbers_of_iterations(group)


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


def _with_one(found: Group, axis: int, part: tuple[Index, Index]) -> tuple[Index, Index]:
    """The part, with one element even if it is empty where a group checks indices: it says what is wrong with them."""
    if not _checks(found, axis):
        return part
    size = Index.of(found.root.type.shape[axis])
    one = extremum("min", size, 1)
    first = extremum("min", part[0], size - one)
    return first, extremum("max", part[1], first + one)


def _fails_alike(found: Group, axis: int, bounds: Sequence[Bounds], numbers: _Numbers) -> bool:
    """Whether indices that are out of range are so in each element that nobody needs, or in none."""
    checked = _checks(found, axis)
    if not checked:
        return True
    variable = _variable(found, axis)
    needed = {i for each in bounds for side in each for i in side}

    def elsewhere(node: Expr) -> Expr:
        if isinstance(node, Apply) and node.function == "where":
            limits = _bounds_of(Index.of(variable), _conditions(node.args[0], numbers), numbers)
            if all(side and needed.issuperset(side) for side in limits):
                return node.args[2]
        return node

    return not any(variable in expr.free_variables(expr.transform(n, elsewhere)) for n in checked)


def _variable(found: Group, axis: int) -> Var:
    """The variable that counts the elements along an axis that a group computes, or adds up."""
    lowered = lower(found)
    if found.kind != "scan":
        return lowered.space[axis]
    return next(n for n in expr.walk(lowered.value) if isinstance(n, Reduction)).variables[0]


def _checks(found: Group, axis: int) -> list[CheckedIndex]:
    """The indices that may be out of range in the loops of a group."""
    if found.anchor is not None:
        return []
    known = ranges_of({buffer_name(node): node for node in found.reads})
    size = Index.of(found.root.type.shape[axis])

    def is_positive(value: Expr) -> bool:
        if isinstance(value, Apply) and value.function in ("add", "minimum"):
            return all(map(is_positive, value.args))
        if isinstance(value, IndexValue) and value.index == size - 1:
            return True  # there is no element otherwise
        found = between(value, known)
        return (found is not None and found[0] >= 0) or (isinstance(value, IndexValue) and Index.of(0) <= value.index)

    def is_cut(check: CheckedIndex) -> bool:
        """``minimum(first + i, size - 1)``"""
        value = check.operand
        ends = [as_index(a) for a in value.args] if isinstance(value, Apply) and value.function == "minimum" else []
        return any(end is not None and end < check.extent for end in ends) and is_positive(value)

    checked = (n for n in expr.walk(lower(found).value) if isinstance(n, CheckedIndex))
    return [n for n in checked if not is_in_range(n, known) and not is_cut(n)]


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
    found: list[Index] = []
    for part in conjuncts(condition):
        if isinstance(part, Apply) and part.args[0].dtype is dtypes.int64:
            sides = [index_of(a) if is_index(a) else numbers.index(a) for a in part.args]
            given = [index_value(side) for side in sides if side is not None]
            known = not_negative(replace(part, args=tuple(given))) if len(given) == len(sides) else None
            known = None if known is None else numbers.of(known)
            found += [] if known is None else [known]
    return tuple(found)


def _loads(reader: Group, node: Node, numbers: _Numbers) -> list[tuple[Load, Conditions]]:
    """The loads of a value in a group, each with the conditions under which it is read."""
    if reader.kind == "control":
        within = _iterations(reader, numbers)
        return [
            (load, (*within, *conditions))
            for body, inner in _captured(reader, node)
            for group in body.program.groups
            if inner in group.inputs
            for load, conditions in _loads(group, inner, numbers)
        ]
    if reader.anchor is not None:
        place = Index.of(expr.fresh_var(node.type.shape[0]))
        found = [(Load(node.type.dtype, buffer_name(node), (place,)), _inside(place, reader.needed.get(0)))]
        return found if node is reader.anchor.args[0] else []
    lowered = lower(reader)
    name = buffer_name(reader.root if reader.taken.get(reader.root) is node else node)
    around = tuple(
        bound for axis, part in reader.needed.items() for bound in _inside(Index.of(_variable(reader, axis)), part)
    )
    found = []
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


def _iterations(loop: Group, numbers: _Numbers) -> Conditions:
    """The conditions that the number of an iteration fulfils."""
    index = loop.bodies.index
    if index is None:
        return ()
    lowering = Lowering(loop)
    ends = (loop.root.arguments[name] for name in ("lower", "upper"))
    values = [lowering.read(n, ()) if isinstance(n, Node) else index_value(Index.of(n)) for n in (index, *ends)]
    number, lower, upper = map(numbers.index, values)
    first = () if number is None or lower is None else (number - lower,)
    return first if number is None or upper is None else (*first, upper - 1 - number)


def _inside(place: Index, part: tuple[Index, Index] | None) -> Conditions:
    """The conditions that a place is in a part."""
    return () if part is None else (place - part[0], part[1] - 1 - place)


def _bounds_of(
    place: Index, conditions: Conditions, numbers: _Numbers, is_part: bool = False, size: Index | None = None
) -> Bounds:
    """The bounds of an index under conditions. ``is_part``: of an index that is checked, it is the whole or a part; if
    it is the whole, ``size`` is that of the axis."""
    known = numbers.of(place)
    if known is None:
        return [], []
    varies = [m for m in known.terms if not numbers.is_known(Index({m: 1}))]
    if not varies:
        atom = known.single_atom
        if is_part and isinstance(atom, Value):
            firsts, ends = _bounds_of_number(atom.expr, conditions, numbers, size)
            if ends:
                return firsts, ends
        return [known], [known + 1]
    if len(varies) > 1 or len(varies[0]) > 1 or known.terms[varies[0]] != 1:
        return [], []
    (atom,) = varies[0]
    if not isinstance(atom, (Var, Value)):
        return [], []
    rest = known - Index.of(atom)
    size = size if rest == 0 else None
    firsts, ends = _bounds_of_number(atom.expr, conditions, numbers, size) if isinstance(atom, Value) else ([], [])
    for condition in conditions:
        step = condition.terms.get((atom,), 0)
        bound = -(condition - Index.of(atom) * step) if step == 1 else condition + Index.of(atom) + 1
        if step in (1, -1) and atom not in bound.atoms():
            (firsts if step == 1 else ends).append(bound)
    if is_part and isinstance(atom, Var):
        firsts.append(Index.of(0))
    return [first + rest for first in firsts], [end + rest for end in ends]


def _bounds_of_number(value: Expr, conditions: Conditions, numbers: _Numbers, size: Index | None) -> Bounds:
    """The bounds of a number that is computed, of a choice from those of what it chooses."""
    if isinstance(value, CheckedIndex):
        return _bounds_of_checked(value, (*conditions, *_conditions(value.guard, numbers)), numbers)
    if not isinstance(value, Apply) or value.function not in ("where", "minimum", "maximum", "floordiv"):
        return [], []
    one, other = map(numbers.index, value.args[-2:])
    if one is None or other is None:
        return [], []
    if value.function == "where":
        chosen = _conditions(value.args[0], numbers)
        firsts, ends = _bounds_of(one, (*conditions, *chosen), numbers, True, size)
        firsts += [Index.of(0)] if one in chosen else []
        is_chosen = len(chosen) == len(conjuncts(value.args[0])) and set(conditions).issuperset(chosen)
        is_missing = size is not None and size <= other  # an element that does not exist
        if is_chosen or is_missing:
            return firsts, ends
        return _hull((firsts, ends), _bounds_of(other, conditions, numbers, True, size))
    bounds = _bounds_of(one, conditions, numbers, True)
    if value.function == "floordiv":
        return [], [extremum("max", end, 0) for end in bounds[1]] if Index.of(0) < other else []
    others = _bounds_of(other, conditions, numbers, True)
    if value.function == "minimum":
        return _hull(bounds, others)[0], [*bounds[1], *others[1]]
    return [*bounds[0], *others[0]], _hull(bounds, others)[1]


def _bounds_of_checked(value: CheckedIndex, conditions: Conditions, numbers: _Numbers) -> Bounds:
    """The bounds of an index that is checked, and counts from the end if it is negative."""
    place = numbers.index(value.operand)
    if place is None:
        return [], []
    firsts, ends = _bounds_of(place, conditions, numbers, True, value.extent)
    if any(numbers.is_positive(i, value.extent) for i in (place, *firsts)):
        return firsts, ends
    if not numbers.is_known(place):
        return [], []
    counted = expr.where(expr.less(place, 0), index_value(place + value.extent), index_value(place))
    number = numbers.index(counted)
    return ([], []) if number is None else ([number], [number + 1])


def _hull(one: Bounds, other: Bounds) -> Bounds:
    """The bounds of a number that is one of two."""
    firsts = [extremum("min", a, b) for a in one[0][:1] for b in other[0][:1]]
    return firsts, [extremum("max", a, b) for a in one[1][:1] for b in other[1][:1]]
