"""Place computations in nested loops: decide at which depth each part of an expression is computed.

In: loop variables, outermost first, and expressions over them. Out: statements. Reductions and invariants
move out as far as their variables permit; a value that is used twice gets a name. A reduction becomes loops
of its own; a long one over contiguous memory uses several accumulators, for SIMD.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fxlite.codegen.kernel.bounds import check_key, inside
from fxlite.codegen.kernel.kernel_ir import Alloc, Assign, For, If, Let, Stmt, Store, expressions, fresh_local
from fxlite.codegen.kernel.loops import LONG_LOOP, SHORT, cut, fused, is_guarded, of_one, read_backwards, spread
from fxlite.codegen.kernel.sums import (
    BLOCK,
    COSTLY,
    LANES,
    LONG,
    PARTS,
    SERIAL,
    Lanes,
    are_repeatable,
    count_in_lanes,
    ends_unevenly,
    is_count,
    is_long,
    joined,
    may_repeat,
    named,
    serial_sum,
    short_or_long,
    sum_in_blocks,
    sum_in_lanes,
    wider,
)
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, Cast, CheckedIndex, Const, Expr, IndexValue, Load, Local, MultiIndex, Reduction
from fxlite.scalar.functions import COMBINATIONS, FUNCTIONS
from fxlite.scalar.index import Given, Index, Quotient, Remainder, Value, Var, extremum, flatten, product
from fxlite.types import dtypes
from fxlite.types.dtypes import DType

#: Numbers from which a reduction of short rows has an accumulator for each place in a row.
SHORT_ROWS = 16
#: Elements of memory from one number of a reduction to the next, up to which several are added at once.
MOST_APART = 4
#: Bytes of accumulators for a maximum of many floats, a step of which takes several cycles, since a NaN counts: four
#: AVX-512 registers, eight of AVX2's.
ACCUMULATORS = 256
#: The most loops that one of a reduction is cut into.
MOST_PARTS = 4


class Nest:
    """Statements of nested loops, with one list for each depth: ``levels[d]`` runs inside the first d loops."""

    def __init__(
        self,
        order: Sequence[Var],
        levels: list[list[Stmt]] | None = None,
        bound: dict[int, Expr] | None = None,
        keep: list[Expr] | None = None,
        lanes: bool = True,
        shapes: Mapping[str, MultiIndex] | None = None,
        finite: frozenset[str] | None = None,
    ) -> None:
        self.order = list(order)
        self.levels = levels if levels is not None else [[] for _ in range(len(self.order) + 1)]
        self.bound = bound if bound is not None else {}
        self.keep = keep if keep is not None else []  # keeps bound expressions alive, because ids are keys
        self.depths: dict[int, int] = {}  # for what this nest bound: how many loops are around its local
        self.checks: dict[tuple[object, ...], Expr] = {}  # checked indices that this nest bound
        self.lanes, self.finite = lanes, finite  # as for `schedule`
        self.kept: dict[int, tuple[str, MultiIndex]] = {}  # where the operand of a reduction is stored as well
        self.whole: set[int] = set()  # reductions that are not divided any more
        self.variables_of: dict[str, frozenset[Var]] = {}  # of locals in place of what they hold: what that depends on
        self.ended: dict[int, tuple[int, int]] = {}  # by depth, which statements there compute the last reduction
        self.shapes = shapes or {}  # of buffers, if addresses may be inspected
        self.is_shared = True  # by threads

    def level(self, free: frozenset[Var]) -> int:
        """The number of loops that a value with these variables must be inside."""
        return max((d for d, v in enumerate(self.order, 1) if v in free), default=0)

    def bind(self, value: Expr) -> Expr:
        """The value in terms of locals: reductions, shared and invariant parts are computed at the outermost
        depth that their variables permit, and replaced by the local that holds them."""
        uses = _use_counts(value)
        chosen, places = _loads_in_choices(value), _loads_in_places(value)
        rewritten: dict[int, Expr] = {}
        free: dict[int, frozenset[Var]] = {}  # for every part, so that each is walked once
        if self.variables_of:
            locals_ = (n for n in expr.walk(value) if isinstance(n, Local) and n.name in self.variables_of)
            free |= {id(n): self.variables_of[n.name] for n in locals_}
        expr.free_variables(value, free)
        here = len(self.order)
        for node in _outside_reductions(value):
            if id(node) in self.bound:
                rewritten[id(node)] = self.bound[id(node)]
                continue
            level = self.level(free[id(node)])
            if isinstance(node, Reduction):
                rewritten[id(node)] = self._reduce(node, level)
                continue
            check = check_key(node)
            same = self.checks.get(check) if check else None
            if same is not None and id(same) in self.bound:  # already checked for another reader
                rewritten[id(node)] = self.bound[id(same)]
                continue
            if check:
                self.checks[check] = node
            new = expr.with_label(_rebuild(node, rewritten), node.label)
            is_early = id(node) in chosen or (id(node) in places and level < here)
            if is_early or self._deserves_name(node, uses[id(node)], level, here):
                local = fresh_local(node.dtype, "_t")
                read = self._if_read(new, level)
                around = [v.extent for v in self.order[:level]]
                self.levels[level].append(Let(local.name, _dividing_by_no_zero(read, around, self.shapes)))
                self._remember(node, local, level if read is new else here)
                new = local
            rewritten[id(node)] = new
        return rewritten[id(value)]

    def _if_read(self, value: Expr, level: int) -> Expr:
        """A value that moves out of loops that may not run at all: it reads and checks indices only if they do.
        ``x[0]`` of an empty axis does not exist, and need not if nothing reads it; therefore only these loops
        may use the value."""
        outside = {*self.order[:level]}
        extents = [v.extent for v in self.order[level:] if v.extent.variables() <= outside]
        runs = [expr.less(0, extent) for extent in extents]
        if all(r is expr.TRUE for r in runs):
            return value
        if not any(self._may_fail(node) for node in _outside_reductions(value)):
            return value
        return expr.add_guard(value, functools.reduce(expr.both, runs))

    def _may_fail(self, node: Expr) -> bool:
        """True for a checked index, and a load whose place is not provably inside its buffer."""
        if not isinstance(node, Load):
            return isinstance(node, CheckedIndex)
        shape = self.shapes.get(node.buffer, ())
        inside = all(Index.of(0) <= i and i < size for i, size in zip(node.index, shape))
        return node.guard is None and not inside

    def _remember(self, node: Expr, local: Expr, level: int) -> None:
        self.bound[id(node)] = local
        self.depths[id(node)] = level
        self.keep.append(node)

    def _forget_inside(self, level: int) -> None:
        """Forget the locals of loops that have ended, which no longer exist; another reduction over the same
        variables has loops of its own."""
        for key in [k for k, depth in self.depths.items() if depth > level]:
            del self.depths[key], self.bound[key]

    def _deserves_name(self, node: Expr, uses: int, level: int, here: int) -> bool:
        if isinstance(node, CheckedIndex):
            return True
        if not isinstance(node, (Apply, Cast)):
            return isinstance(node, Load) and uses > 1
        if isinstance(node, Apply) and node.dtype.is_bool and uses == 1:
            return False
        return uses > 1 or level < here

    def _reduce(self, node: Reduction, level: int) -> Expr:
        """Add the loops that compute a reduction at ``level``; returns the local that holds it. They become one with
        loops right before them if these are alike."""
        statements, (first, end) = self.levels[level], self.ended.get(level, (0, 0))
        start = len(statements)
        found = self._loops_of(node, level)
        may_join = self.lanes and self.finite is None and first < end == start
        both = fused(statements[first:end], statements[end:]) if may_join else None
        if both is None:
            first = start
        else:
            statements[first:] = both
        self.ended[level] = first, len(statements)
        return found

    def _loops_of(self, node: Reduction, level: int) -> Expr:
        """Add the loops of a reduction."""
        reduced, kept = node, self.kept.get(id(node))
        if self.shapes and kept is None:
            reduced = self._in_order(self._ascending(node))
        elif self.shapes and kept is not None:  # where operands are stored, the reduced variables say
            reduced, at = _as_in_memory(node, kept[1])
            self.kept[id(reduced)] = kept = kept[0], at
            self.keep.append(reduced)
        if self.lanes and self.finite is None and _is_searched_twice(reduced, self):
            found = fresh_local(dtypes.int64, "_where")
            self.levels[level].append(Let(found.name, _place_of_extreme(self, reduced, level)))
            self._remember(node, found, level)
            return found
        parts = self.parts_of(reduced) if self.lanes and self.finite is None else []
        if parts:
            values = [self._loops_of(p, level) if isinstance(p, Reduction) else p for p in parts]
            both = functools.reduce(functools.partial(combine, node.kind), values)
            total = fresh_local(both.dtype, "_a")
            self.levels[level].append(Let(total.name, both))
            self._remember(node, total, level)
            return total
        most: list[Index] = []
        if self.finite is not None:
            reduced, most = inside(reduced, self._named, self.finite)
        elif self.shapes:
            reduced, _ = inside(reduced, self._named, frozenset(), self._number)
        variables = list(reduced.variables)
        if level == 0 and self._is_divided(node, reduced, variables[0]):
            divided = self._in_parts(reduced, variables)
            self._remember(node, divided, level)
            return divided
        inner = self.within(variables, level)
        body = inner.bind(reduced.body)
        if kept is not None:
            term = fresh_local(body.dtype, "_t")
            inner.levels[-1] += [Let(term.name, body), Store(*kept, term)]
            body = term
        computed = node.body.dtype.compute
        widened = max(node.dtype, computed, key=lambda dtype: dtype.itemsize)
        around = inner.order[level:], inner.levels[level + 1 :]
        if COMBINATIONS[node.kind].positions:
            statements, result = _arg_reduction(reduced, inner, level, body)
        elif self.lanes and self.finite is None and _has_short_rows(reduced, inner):
            statements, result = _row_reduction(node, inner, level, body, computed)
        elif self.lanes and _has_lanes(reduced, inner):
            if is_count(reduced) and isinstance(body, Cast):
                statements, result = count_in_lanes(inner.order[-1], inner.levels[-1], body, move)
            elif is_long(node, BLOCK):
                statements, result = sum_in_lanes(*around, body, computed, move, widened)
            else:
                statements, result = _lane_reduction(node, inner, level, body, computed)
        elif self.finite is not None and is_long(node):
            statements, result = sum_in_blocks(*around, body, computed, most, move)
        elif is_long(node):
            statements, result = serial_sum(*around, body, computed, self.lanes, widened)
        else:
            total = fresh_local(computed, "_a")
            inner.levels[-1].append(Assign(total, combine(node.kind, total, body)))
            loops = inner.loops(level, "reduce")
            statements = [Alloc(total.name, computed, neutral(node.kind, computed)), *loops]
            result = total
        self.levels[level].extend(statements)
        inner._forget_inside(level)
        self.depths.update(inner.depths)
        self._remember(node, result, level)
        return result

    def _in_order(self, node: Reduction) -> Reduction:
        """A reduction whose variables run in the order of memory. If the last of them is short and the one before it
        steps but a few elements, as over the few channels of pixels, that one is the last."""
        node = self._ascending(joined(_as_in_memory(node)[0], self.shapes))
        *outer, last = node.variables
        if not outer or COMBINATIONS[node.kind].positions or (last.extent.constant or SHORT) >= SHORT:
            return node
        row = outer.pop()
        loads = [n for n in expr.walk(node.body) if isinstance(n, Load) and n.index]
        steps = [step if step is None else step.constant for step in (self.place(n).coefficient(row) for n in loads)]
        is_near = any(steps) and all(step is not None and abs(step) <= MOST_APART for step in steps)
        if not is_near or (row.extent.constant or SHORT) < SHORT or row in last.extent.variables():
            return node
        return replace(node, variables=(*outer, last, row))

    def _ascending(self, node: Reduction) -> Reduction:
        """A reduction with those variables reversed along which all is read backwards, unless positions are asked
        for."""
        if COMBINATIONS[node.kind].positions:
            return node
        loads = [n for n in expr.walk(node.body) if isinstance(n, Load)]
        env = read_backwards(node.variables, loads, self.place)
        return replace(node, body=expr.substitute_index(node.body, env)) if env else node

    def parts_of(self, node: Reduction) -> list[Expr]:
        """The reductions of the parts of a long range, each with values of its own, as of what was joined from several
        or rolled: in one loop over all of them each element would ask where it is. Empty if it is not divided."""
        at_guards = node.kind != "sum" or id(node) in self.kept  # else it has bounds
        found = None if COMBINATIONS[node.kind].positions else cut(node.variables, node.body, at_guards)
        if found is None or len(found.bounds) >= MOST_PARTS or (found.variable.extent.constant or LANES) < LANES:
            return []
        before = [n for n in expr.walk(node.body, (Reduction,)) if isinstance(n, Reduction)]
        before = [n for n in before if expr.free_variables(n).isdisjoint(node.variables)]
        known = {id(n): self.bind(n) for n in before}  # by all parts together
        for n in before:
            local = known[id(n)]
            assert isinstance(local, Local)
            self.variables_of[local.name] = expr.free_variables(n)
        body = expr.transform(node.body, lambda n: n, known)
        made: list[Expr] = []
        output, kept = self.kept.get(id(node), ("", ()))
        for within, value, at in found.parts(found.starts, body, kept):
            variables = tuple(within if v is found.variable else v for v in node.variables)
            part = Reduction(node.dtype, node.kind, variables, value)
            if output:
                self.kept[id(part)] = output, at
                self.keep.append(part)
            made.append(part if output or isinstance(value, Reduction) else of_one(part))
        return made

    def _is_divided(self, node: Reduction, reduced: Reduction, first: Var) -> bool:
        """Whether threads share a reduction outside of all loops: it is long, or may be, and cannot fail."""
        if not self.lanes or self.finite is not None or id(node) in self.kept or id(node) in self.whole:
            return False
        extents = [v.extent for v in reduced.variables]
        if COMBINATIONS[node.kind].positions or any(e.variables() for e in extents):
            return False
        if first not in expr.free_variables(reduced.body):
            return False
        if any(isinstance(n, (Reduction, CheckedIndex)) for n in expr.walk(reduced.body)):
            return False
        return (product(extents).constant or LONG) >= LONG

    def _in_parts(self, node: Reduction, variables: Sequence[Var]) -> Expr:
        """The local that holds such a reduction. If its size is known, all parts are equal, and a rest follows."""
        first, others, terms = variables[0], variables[1:], product(v.extent for v in variables)
        unit, computed, before = 1 if others else LANES, node.body.dtype.compute, self.levels[0]
        parts, rest = Index.of(PARTS), Index.of(0)
        if terms.constant is None:
            enough = extremum("min", terms // (LONG // 2), parts)
            parts = named(before, extremum("max", enough, Index.of(1)), "_parts")
            size = named(before, (first.extent + parts * unit - 1) // (parts * unit) * unit, "_size")
        else:
            size = first.extent // (PARTS * unit) * unit
            rest = first.extent - size * PARTS
        dtype = wider(computed) if is_long(node) else computed
        totals, total, start = fresh_local(dtype, "_totals"), fresh_local(dtype, "_a"), neutral(node.kind, dtype)
        part, place = (Given(expr.fresh_var(parts, "part").name, parts, Index.of(0)) for _ in range(2))

        def reduced(nest: Nest, at: Index, extent: Index, dtype: DType) -> Expr:
            here = expr.fresh_var(extent)
            body = expr.substitute_index(node.body, {first: at + Index.of(here)})
            part = Reduction(dtype, node.kind, (here, *others), body)
            self.whole.add(id(part))
            return nest.bind(part)

        inner = self.within([part], 0)
        length = size
        if size.constant is None:
            length = extremum("max", extremum("min", size, first.extent - size * part), Index.of(0))
        found = reduced(inner, size * part, length, dtype)
        of_part, of_place = (Local(dtype, totals.name, (Index.of(v),)) for v in (part, place))
        before += [
            Alloc(totals.name, dtype, start, PARTS, None if parts.constant else parts),
            For(part, (*inner.levels[-1], Assign(of_part, found)), "parallel"),
            Alloc(total.name, dtype, start),
            For(place, (Assign(total, combine(node.kind, total, of_place)),), "reduce"),
        ]
        inner._forget_inside(0)
        if rest.constant != 0:
            last = expr.cast(reduced(self, size * PARTS, rest, node.dtype), dtype)
            before.append(Assign(total, combine(node.kind, total, last)))
        if dtype is computed:
            return total
        narrow = fresh_local(computed, "_a")
        before.append(Let(narrow.name, expr.cast(total, computed)))
        return narrow

    def _named(self, index: Index) -> Index:
        """The index, as a local at the depth that its variables require unless it is a number."""
        if index.single_atom in index.variables():
            return index
        return named(self.levels[self.level(frozenset(index.variables()))], index, "_t")

    def _number(self, value: Expr) -> Index:
        """A computed number as an index: a local at the depth that its variables require."""
        known = self.bound.get(id(value))
        if not isinstance(known, Local):
            level = self.level(expr.free_variables(value))
            known, new = fresh_local(dtypes.int64, "_t"), self.bind(value)
            self.levels[level].append(Let(known.name, new))
            self._remember(value, known, level)
        return Index.of(Value(known))

    def place(self, load: Load) -> Index:
        """The address of a load, or its last index if the shapes of buffers are not known."""
        known = load.buffer in self.shapes
        return flatten(load.index, self.shapes[load.buffer]) if known else load.index[-1]

    def loops(self, start: int, kind: str) -> list[Stmt]:
        """The loops from depth ``start`` inwards, around the statements in ``levels``."""
        body: list[Stmt] = self.levels[-1]
        for depth in range(len(self.order) - 1, start - 1, -1):
            loop = For(self.order[depth], tuple(body), kind)
            body = [*self.levels[depth], loop] if depth > start else [loop]
        return body

    def within(self, variables: Sequence[Var], depth: int | None = None) -> Nest:
        """A nest for loops inside this nest's, or inside the first ``depth`` of them; there may be several, one
        after the other."""
        depth = len(self.order) if depth is None else depth
        inner = Nest(
            [*self.order[:depth], *variables],
            [*self.levels[: depth + 1], *([] for _ in variables)],
            self.bound,
            self.keep,
            self.lanes,
            self.shapes,
            self.finite,
        )
        inner.checks, inner.kept, inner.whole = self.checks, self.kept, self.whole
        inner.variables_of = self.variables_of
        return inner

    def branch(self) -> Nest:
        """A nest for statements inside all loops that only run under a condition: what they compute is not used by
        others."""
        inner = self.within(())
        inner.levels[-1], inner.bound = [], dict(self.bound)
        return inner

    def add(self, inner: Nest, final: Sequence[Stmt]) -> None:
        """Add the loops of ``inner`` (:meth:`within`), with ``final`` as its innermost statements."""
        depth = len(self.order)
        inner.levels[-1].extend(final)
        self.levels[-1].extend(inner._from(depth))
        inner._forget_inside(depth)
        self.depths.update(inner.depths)

    def finish(self, final: Sequence[Stmt]) -> list[Stmt]:
        """All loops, with ``final`` as the innermost statements."""
        self.levels[-1].extend(final)
        return [*self.levels[0], *self._from(0)]

    def storing(self, variables: Sequence[Var], store: Store, env: Mapping[Var, Index]) -> list[Stmt]:
        """All loops, with those over ``variables`` as the innermost ones, around a store, whose own variables ``env``
        gives in terms of these."""
        inner = self.within(variables)
        value = inner.bind(expr.decided(expr.substitute_index(store.value, env)))
        self.add(inner, [Store(store.buffer, tuple(i.substitute(env) for i in store.index), value)])
        return self.finish([])

    def _from(self, start: int) -> list[Stmt]:
        """The loops from depth ``start`` inwards. The outermost of all runs on threads and the innermost in
        SIMD or, if that is shorter than a vector, the one around it, into which compilers unroll it."""
        count = len(self.order)
        if count == start:
            return []
        is_flat = [not any(isinstance(s, (For, If)) for s in level) for level in self.levels]
        in_vectors = count - 1 if is_flat[-1] else count
        if count - start > 1 and is_flat[-1] and is_flat[-2]:
            is_short = (self.order[-1].extent.constant or LANES) <= SHORT
            in_vectors -= is_short and not any(is_guarded(e) for s in self.levels[-1] for e in expressions(s))
        body: list[Stmt] = []
        for depth in range(count - 1, start - 1, -1):
            body = [*self.levels[depth + 1], *body]
            vector = depth == in_vectors
            kind = " ".join(k for k, on in (("parallel", depth == 0 and self.is_shared), ("simd", vector)) if on)
            loop = For(self.order[depth], tuple(body), kind or "independent")
            body = [_in_whole_vectors(loop) if vector and depth and self.lanes else loop]
        return body


def _dividing_by_no_zero(value: Expr, around: Sequence[Index], shapes: Mapping[str, MultiIndex]) -> Expr:
    """Protect a value that is computed before the choices, guards and loops in which it is read, where a size
    that it divides by may be 0; its value is then not used. ``around`` are the extents of the loops that it
    stays in, which have more than 0 iterations. An address of a buffer of known shape may need no division."""
    rewritten: dict[int, Expr] = {}
    for node in _outside_reductions(value):
        new = node if isinstance(node, Reduction) else _rebuild(node, rewritten)
        if isinstance(new, IndexValue) and (index := _safe(new.index, around)) != new.index:
            new = IndexValue(new.dtype, index)
        elif isinstance(new, Load) and new.guard is None and not _is_undivided(new, shapes):
            place = tuple(_safe(i, around) for i in new.index)
            new = new if place == new.index else Load(new.dtype, new.buffer, place)
        rewritten[id(node)] = node if new is node else expr.with_label(new, node.label)
    return rewritten[id(value)]


def _is_undivided(load: Load, shapes: Mapping[str, MultiIndex]) -> bool:
    """Whether the address of a load is known to divide nothing."""
    if load.buffer not in shapes:
        return False
    atoms = flatten(load.index, shapes[load.buffer]).atoms()
    return not any(isinstance(a, (Quotient, Remainder)) for a in atoms)


def _safe(index: Index, around: Sequence[Index]) -> Index:
    divisions = [a for a in index.atoms() if isinstance(a, (Quotient, Remainder))]
    env: dict[Any, Index] = {}
    for atom in sorted(divisions, key=lambda a: len(a.a.atoms()) + len(a.b.atoms())):
        a, b = atom.a.substitute(env), atom.b.substitute(env)
        if not _is_positive(b, around):
            b = extremum("max", b, 1)
        if (a, b) != (atom.a, atom.b):
            env[atom] = a // b if isinstance(atom, Quotient) else a % b
    return index.substitute(env)


def _is_positive(size: Index, around: Sequence[Index]) -> bool:
    """Whether a size >= 0 cannot be 0 inside loops of these extents."""
    if Index.of(1) <= size:
        return True
    for extent in around:
        is_product = size.is_polynomial and len(size.terms) == len(extent.terms) == 1
        if is_product and size.atoms() <= extent.atoms():  # the extent is not 0, so no factor is
            return True
        if (extent // size).constant is not None and (extent - extent // size * size) == 0:
            return True
    return False


def _rebuild(node: Expr, rewritten: dict[int, Expr]) -> Expr:
    """The node with its rewritten children, including run-time values inside a load's index."""
    children = node.children
    new = [rewritten[id(c)] for c in children]
    return node if all(n is c for n, c in zip(new, children)) else node.with_children(new)


def _outside_reductions(value: Expr) -> list[Expr]:
    """Nodes in post-order, not entering reductions."""
    return list(expr.walk(value, (Reduction,)))


def _use_counts(value: Expr) -> dict[int, int]:
    """How many parents read each node; the root counts as read once."""
    counts: dict[int, int] = {id(value): 1}
    for node in _outside_reductions(value):
        if not isinstance(node, Reduction):
            for child in node.children:
                counts[id(child)] = counts.get(id(child), 0) + 1
    return counts


def _loads_in_choices(value: Expr) -> frozenset[int]:
    """Loads (by identity) that only one side of a ``where`` needs. They are in bounds in any case, because
    otherwise they would have a guard, so they are done before the choice, which then is a blend in a SIMD
    register."""
    found: set[int] = set()
    for node in _outside_reductions(value):
        if isinstance(node, Apply) and node.function == "where":
            for side in node.args[1:]:
                inner = (n for n in _outside_reductions(side) if isinstance(n, Load))
                found.update(id(n) for n in inner if n.guard is None)
    return frozenset(found)


def _loads_in_places(value: Expr) -> frozenset[int]:
    """Loads (by identity) that say where another one reads. A C compiler would repeat them in each iteration of a loop
    that stores bytes, which might be theirs."""
    loads = [n for n in _outside_reductions(value) if isinstance(n, Load)]
    return frozenset(id(v.expr) for n in loads for v in expr.run_time_values(n.index) if isinstance(v.expr, Load))


# -- reductions ----------------------------------------------------------------------------------
def _as_in_memory(node: Reduction, store: MultiIndex = ()) -> tuple[Reduction, MultiIndex]:
    """A reduction with a variable over axes that were joined divided into them, and with its variables ordered like
    the axes in memory, outermost first; and where its operand is stored. The order stays if positions are looked for,
    which it says, and if loads differ in it and some load has the last variable along its last axis."""
    if any(v.extent.variables() & {*node.variables} for v in node.variables):
        return node, store
    variables, body, at = node.variables, node.body, store
    for least in (2, LONG_LOOP):
        variables, body, at = spread(node.variables, node.body, store, least)
        loads = [n for n in expr.walk(body) if isinstance(n, Load) and n.index]
        orders = dict.fromkeys(_order_in_memory(load, variables) for load in loads)
        is_ordered = len(orders) != 1 and any(variables[-1] in n.index[-1].variables() for n in loads)
        if orders and not is_ordered and not COMBINATIONS[node.kind].positions:
            variables = next(iter(orders))
        if (variables[-1].extent.constant or LONG_LOOP) >= LONG_LOOP:
            break
    if expr.chooses(node.kind) and not store:  # the same numbers again change nothing
        free = expr.free_variables(body)
        read = tuple(v for v in variables if v in free or (v.extent.constant or 0) < 1)
        variables = read or variables
    if variables == node.variables:
        return node, store
    return Reduction(node.dtype, node.kind, variables, body), at


def _order_in_memory(load: Load, variables: Sequence[Var]) -> tuple[Var, ...]:
    """Loops in the order of the axes of a load, outermost first."""
    axis = {v: a for a, i in enumerate(load.index) for v in i.variables()}
    return tuple(sorted(variables, key=lambda v: axis.get(v, -1)))


def neutral(kind: str, dtype: DType) -> Const:
    """The initial value of a reduction."""
    return expr.const(COMBINATIONS[kind].start(dtype), dtype)


def combine(kind: str, total: Expr, value: Expr) -> Expr:
    """One step of a reduction."""
    return expr.apply(COMBINATIONS[kind].function, total, value)


def _has_lanes(node: Reduction, inner: Nest) -> bool:
    """Whether to vectorize along the innermost reduced variable: it must be long, be the only one in its loop,
    and be contiguous in memory, or nearly so."""
    constant = inner.order[-1].extent.constant
    return (constant is None or constant >= LANES) and _is_contiguous(node, inner)


def _has_short_rows(node: Reduction, inner: Nest) -> bool:
    """Whether to vectorize along an innermost reduced variable that is short and contiguous in memory, by reducing
    the other ones first. For sums of floats, no number may then be added to more than :data:`SERIAL` others."""
    if len(node.variables) < 2:
        return False
    *outer, variable = (v.extent for v in inner.order[-len(node.variables) :])
    size, rows = variable.constant or 0, product(outer).constant
    if not SHORT <= size < 2 * LANES or (rows is not None and rows * size < SHORT_ROWS):
        return False
    if node.kind == "sum" and node.body.dtype.is_inexact and (rows is None or rows + size > SERIAL):
        return False
    return _is_contiguous(node, inner)


def _is_contiguous(node: Reduction, inner: Nest) -> bool:
    """Whether a reduction can be vectorized along its innermost variable: it is the only one in its loop, and
    contiguous in memory, or nearly so."""
    variable = inner.order[-1]
    if COMBINATIONS[node.kind].positions or node.body.dtype.is_bool:
        return False
    depends = any(not isinstance(v, Given) for v in variable.extent.variables())
    if depends or any(isinstance(s, For) for s in inner.levels[-1]):
        return False
    loads = [n for n in expr.walk(node.body) if isinstance(n, Load) and n.index]
    steps = [step.constant for n in loads if (step := inner.place(n).coefficient(variable)) is not None]
    near = any(step is not None and 0 < abs(step) <= MOST_APART for step in steps)
    return near and not any(isinstance(s, Alloc) for s in inner.levels[-1])


def _step(kind: str, lane: Expr, value: Expr) -> Expr:
    """One step of a lane, which is cheaper for a maximum of magnitudes than for other numbers. In an extreme of floats
    the value comes first: it is asked whether it is NaN, and the step after need not wait for that."""
    is_magnitude = isinstance(value, Apply) and value.function == "abs" and not value.children[0].dtype.is_complex
    if kind == "max" and is_magnitude and value.dtype is dtypes.float32:
        return expr.apply("larger_magnitude", lane, *value.children)
    is_extreme = expr.chooses(kind) and value.dtype.is_float
    return combine(kind, value, lane) if is_extreme else combine(kind, lane, value)


def _lane_reduction(node: Reduction, inner: Nest, level: int, body: Expr, computed: DType) -> tuple[list[Stmt], Expr]:
    """Reduce everything into :data:`LANES` accumulators, then combine these."""
    variable = inner.order[-1]
    several = ACCUMULATORS // (LANES * computed.itemsize) if expr.chooses(node.kind) else 1
    is_many = (variable.extent.constant or ACCUMULATORS) >= min(ACCUMULATORS, 2 * LANES * several)
    is_alone, is_idempotent = len(inner.order) - 1 == level, expr.chooses(node.kind)
    is_repeated = may_repeat(variable.extent, is_alone, inner.levels[-1], body, is_idempotent)
    lanes = Lanes.of(computed, variable.extent, several if is_many else 1, is_repeated)
    total, join = fresh_local(computed, "_a"), functools.partial(combine, node.kind)

    def step(place: Index, target: Local) -> list[Stmt]:
        env = {variable: place}
        done: list[Stmt] = [move(s, env) for s in inner.levels[-1]]
        return [*done, Assign(target, _step(node.kind, target, expr.substitute_index(body, env)))]

    start = neutral(node.kind, computed)
    statements = lanes.loops(Index.of(0), variable.extent, step, join, is_idempotent)
    for depth in range(len(inner.order) - 2, level - 1, -1):
        outer = For(inner.order[depth], (*inner.levels[depth + 1], *statements))
        statements = [outer]
    joining, value = lanes.joined(join)
    done = [*lanes.start(start), *statements, *joining]
    if is_alone and variable.extent.constant is None:
        return short_or_long(variable.extent, total, start, step, done, value), total
    return [*done, Let(total.name, value)], total


def _row_reduction(node: Reduction, inner: Nest, level: int, body: Expr, computed: DType) -> tuple[list[Stmt], Expr]:
    """Reduce rows into one accumulator for each place in a row, and these one after the other."""
    variable = inner.order[-1]
    lanes, total = fresh_local(computed, "_lanes"), fresh_local(computed, "_a")
    start = neutral(node.kind, computed)
    here = Local(computed, lanes.name, (Index.of(variable),))
    step = Assign(here, _step(node.kind, here, body))
    statements: list[Stmt] = [For(variable, (*inner.levels[-1], step), "lanes")]
    for depth in range(len(inner.order) - 2, level - 1, -1):
        statements = [For(inner.order[depth], (*inner.levels[depth + 1], *statements))]
    place = expr.fresh_var(variable.extent, "lane")
    lane = Local(computed, lanes.name, (Index.of(place),))
    joining = For(place, (Assign(total, combine(node.kind, total, lane)),), "reduce")
    size = variable.extent.constant
    assert size is not None
    return [Alloc(lanes.name, computed, start, size), *statements, Alloc(total.name, computed, start), joining], total


def _in_whole_vectors(loop: For) -> For:
    """A loop along a short row whose last numbers fill no vector, and take much to compute: then the last vector begins
    so early that it ends with the row, and some numbers are computed twice."""
    size = loop.var.extent.constant or 0
    if not ends_unevenly(size) or not are_repeatable(loop.body):
        return loop
    parts = [n for s in loop.body for e in expressions(s) for n in expr.walk(e)]
    if all(FUNCTIONS[n.function].cost < COSTLY for n in parts if isinstance(n, Apply)):
        return loop
    block, lane = Var(fresh_local(dtypes.int64, "_block").name, loop.var.extent), expr.fresh_var(LANES, "lane")
    start: list[Stmt] = []
    first = named(start, extremum("min", Index.of(block), Index.of(size - LANES)), "_first")
    vector = For(lane, tuple(move(s, {loop.var: first + lane}) for s in loop.body), "lanes")
    return For(block, (*start, vector), "serial", LANES)


def move(statement: Stmt, env: Mapping[Var, Index]) -> Stmt:
    """A statement with loop variables replaced."""
    assert isinstance(statement, (Let, Store)), statement
    value = expr.substitute_index(statement.value, env)
    if isinstance(statement, Let):
        return Let(statement.name, value)
    return Store(statement.buffer, tuple(i.substitute(env) for i in statement.index), value)


#: Elements of a part in which an extreme value is looked for: the part that holds it is read once more.
_SEARCHED = 1024


def _is_searched_twice(node: Reduction, nest: Nest) -> bool:
    """Whether the position of an extreme value is found by two reductions with lanes: there must be many numbers,
    adjacent in memory or nearly so, and no reduction among what they are computed from."""
    if not COMBINATIONS[node.kind].positions:
        return False
    parts, dtype = list(expr.walk(node.body)), node.body.dtype
    if dtype.is_bool or dtype.is_complex or dtype.compute is not dtype:
        return False
    if any(isinstance(n, (Reduction, CheckedIndex)) for n in parts):
        return False
    count = product(v.extent for v in node.variables).constant
    if _is_divisible(node, nest):
        return (count or LANES * 2) >= LANES * 2
    in_order = nest._in_order(Reduction(dtype, "max", node.variables, node.body))
    along = in_order.variables[-1]
    loads = [n for n in expr.walk(in_order.body) if isinstance(n, Load) and n.index]
    steps = [step.constant or 0 for n in loads if (step := nest.place(n).coefficient(along)) is not None]
    is_near = any(0 < abs(step) <= MOST_APART for step in steps)
    return is_near and (count or LANES * 2) >= LANES * 2 and (along.extent.constant or SHORT) >= SHORT


def _is_divisible(node: Reduction, nest: Nest) -> bool:
    """Whether positions are looked for along one row of memory, which may be divided into parts."""
    if len(node.variables) > 1 or cut(node.variables, node.body) is not None:
        return False
    loads = [n for n in expr.walk(node.body) if isinstance(n, Load) and n.index]
    steps = [nest.place(n).coefficient(node.variables[0]) for n in loads]
    return any(step is not None and 1 <= (step.constant or 0) <= MOST_APART for step in steps)


def _place_of_extreme(nest: Nest, node: Reduction, level: int) -> Expr:
    """The position of an extreme value (:func:`_is_searched_twice`): first the part that contains it, then the first
    place in that part where it, or a NaN, is."""
    kind, dtype = "max" if COMBINATIONS[node.kind].function == "gt" else "min", node.body.dtype
    extent, first = product(v.extent for v in node.variables), Index.of(0)
    is_whole = not _is_divisible(node, nest) or (extent.constant or _SEARCHED + 1) <= _SEARCHED

    def of_part(statements: list[Stmt], first: Index) -> tuple[tuple[Var, ...], Expr]:
        if is_whole:
            again = {v: expr.fresh_var(v.extent) for v in node.variables}
            env = {v: Index.of(here) for v, here in again.items()}
            return tuple(again.values()), expr.substitute_index(node.body, env)
        here = expr.fresh_var(named(statements, extremum("min", Index.of(_SEARCHED), extent - first), "_count"))
        return (here,), expr.substitute_index(node.body, {node.variables[0]: first + here})

    if is_whole:
        best: Expr = nest.bind(Reduction(dtype, kind, *of_part(nest.levels[level], first)))
    else:
        block = Var(fresh_local(dtypes.int64, "_block").name, extent)
        inner = nest.within([block], level)
        found = inner.bind(Reduction(dtype, kind, *of_part(inner.levels[-1], Index.of(block))))
        best, start = fresh_local(dtype, "_best"), fresh_local(dtypes.int64, "_part")
        chooses = Assign(best, found), Assign(start, expr.index_value(block))
        nest.levels[level] += [
            Alloc(best.name, dtype, neutral(kind, dtype)),
            Alloc(start.name, dtypes.int64, expr.const(0, dtypes.int64)),
            For(block, (*inner.levels[-1], If(is_better(node.kind, found, best), chooses)), "serial", _SEARCHED),
        ]
        inner._forget_inside(level)
        nest.depths.update(inner.depths)
        first = Index.of(Value(start))
    here, value = of_part(nest.levels[level], first)
    is_best = expr.apply("eq", value, best)
    if dtype.is_inexact:
        limit = fresh_local(dtype, "_limit")
        nest.levels[level].append(Let(limit.name, _limit(kind, best)))
        is_best = expr.apply("logical_not", expr.apply("le" if kind == "max" else "ge", value, limit))
    # a place after the last one, not the neutral number: for that GCC makes a branch of the choice
    behind = extent if is_whole else Index.of(_SEARCHED)
    counted = dtypes.int32 if (behind.constant or 2**31) < 2**31 else dtypes.int64
    place, last = (expr.cast(expr.index_value(i), counted) for i in (place_in_order(here), behind))
    within = Reduction(counted, "min", here, expr.apply("where", is_best, place, last))
    where = expr.cast(nest.bind(within), dtypes.int64)
    return where if is_whole else expr.apply("add", expr.index_value(first), where)


def _limit(kind: str, best: Expr) -> Expr:
    """The limit that, of the numbers of a row, only the best one is beyond, or only NaN if the best one is NaN: one
    comparison finds the place. If all are infinite, it is NaN, which nothing is within."""
    first = neutral(kind, best.dtype)
    last, nan = (expr.const(value, best.dtype) for value in (-first.value, math.nan))
    before = expr.where(expr.apply("eq", best, first), nan, expr.apply("nextafter", best, first))
    return expr.where(expr.apply("isnan", best), last, before)


def is_better(kind: str, value: Expr, best: Expr) -> Expr:
    """Whether a value replaces the best one so far; the first NaN does."""
    better = expr.apply(COMBINATIONS[kind].function, value, best)
    if not value.dtype.is_inexact:
        return better
    unset = expr.apply("logical_not", expr.apply("isnan", best))
    return expr.apply("or", better, expr.apply("and", expr.apply("isnan", value), unset))


def place_in_order(variables: Sequence[Var]) -> Index:
    """The number of an iteration of nested loops, the last of which runs fastest."""
    place = Index.of(0)
    for variable in variables:
        place = place * variable.extent + Index.of(variable)
    return place


def _arg_reduction(node: Reduction, inner: Nest, level: int, body: Expr) -> tuple[list[Stmt], Expr]:
    """The position of the first extreme value; the first NaN counts as one."""
    best = fresh_local(node.body.dtype.compute, "_best")
    where = fresh_local(dtypes.int64, "_where")
    value = fresh_local(body.dtype, "_t")
    position = place_in_order(node.variables)
    better = is_better(node.kind, value, best)
    first = expr.apply("lt", where, expr.const(0, dtypes.int64))
    inner.levels[-1] += [
        Let(value.name, body),
        If(expr.apply("or", better, first), (Assign(best, value), Assign(where, expr.index_value(position)))),
    ]
    start = [
        Alloc(best.name, best.dtype, neutral(node.kind, best.dtype)),
        Alloc(where.name, dtypes.int64, expr.const(-1, dtypes.int64)),
    ]
    return [*start, *inner.loops(level, "serial")], where
