"""Schedule: turn a lowered group into loops.

In: an expression over loop variables (:class:`~fxlite.codegen.kernel.lower.Lowered`). Out: a
:class:`~fxlite.codegen.kernel.kernel_ir.Kernel`. Adjacent loops become one (`collapse`), results of a window
are computed a row at a time (`windows`), and everything else at the depth that its variables permit
(`nest`), so that a softmax reads its row three times and computes its maximum once. Scans and scatters have
loops of their own, and so have updates of a part of an array in place: they touch only that part, and read
the array where they store.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from types import MappingProxyType
from typing import Any

from fxlite.base.errors import CodegenError
from fxlite.codegen.kernel.bounds import checked_before, is_in_range, looked_up_before, place_key, without_report
from fxlite.codegen.kernel.kernel_ir import (
    Alloc,
    Assign,
    Buffer,
    For,
    If,
    Kernel,
    Let,
    Stmt,
    Store,
    expressions,
    fresh_local,
    statements,
)
from fxlite.codegen.kernel.loops import (
    Cut,
    beside,
    cases,
    collapse,
    cut,
    cut_rows,
    is_guarded,
    is_stored_at_once,
    rename,
    row_conditions,
    spread,
    turned,
    uneven,
)
from fxlite.codegen.kernel.lower import Lowered, Lowering, buffer_name, buffer_of, dims_of, lower
from fxlite.codegen.kernel.nest import Nest, combine, neutral
from fxlite.codegen.kernel.ranges import Range, ranges_of
from fxlite.codegen.kernel.row_functions import rows_of_functions
from fxlite.codegen.kernel.sums import COLUMNS, LANES, LONG, PARTS, Columns, Shares, named
from fxlite.codegen.kernel.transposes import are_short_rows, rows_side_by_side, transposed_rows
from fxlite.codegen.kernel.windows import in_order_of_operands, window_rows
from fxlite.graph.graph import Node
from fxlite.ops.indexing import counted_from_start, parts_of_update
from fxlite.ops.view import fill_value
from fxlite.passes.group import Group, loops_of
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, Cast, CheckedIndex, Expr, IndexValue, Load, Local, MultiIndex, Reduction
from fxlite.scalar.functions import FUNCTIONS
from fxlite.scalar.index import DimVar, Extremum, Index, Quotient, Value, Var, extremum, flatten, product
from fxlite.types import dtypes

#: Elements up to which a row that is joined from parts is written at once.
SHORT_ROW = 1024
#: Cost of a term from which it is stored rather than computed twice: that of an exponential.
WORTH_STORING = 8
#: Cost of what is computed of the place in a row alone from which it is kept for all rows, the longest such row
#: and the fewest rows.
WORTH_A_TABLE, LONGEST_TABLE, FEWEST_ROWS = 4, 1024, 8
#: Least elements of a row whose running totals are computed together.
FEWEST_LANES = 4
#: Least elements beside each other that a thread puts to a position that it looked up.
PART = 32
#: The most results of a scatter of which threads fill tables of their own, numbers in all of these, and the fewest
#: elements that are put to each place of a table on average: others take longer to join than to add.
LARGEST_TABLE, MOST_IN_TABLES, FEWEST_ADDED = 4096, 16384, 4


def schedule(group: Group, name: str, lanes: bool = True, finite: frozenset[str] | None = None) -> Kernel:
    """The kernel of a group without a template. With ``lanes``, long reductions use several accumulators, for
    SIMD; without it they use one, and the target divides the loop among its threads. If ``finite``, a set of
    buffers with only finite numbers, is given, the target runs sequentially and has no doubles."""
    if group.kind == "scan":
        return _scan(group, name, lanes)
    if group.kind == "scatter":
        return _scatter(group, name, lanes)
    lowered = lower(group)
    shapes = {b.name: b.shape for b in lowered.buffers}
    output = buffer_of(group.root, is_output=True)
    shapes[output.name] = output.shape
    store = tuple(Index.of(v) for v in lowered.space)
    value = lowered.value
    space = lowered.space
    before = list[Stmt]()
    if lowered.beside is not None:
        value = Apply(value.dtype, "pair", (value, lowered.beside))
    elif group.needed:
        space, value, store = _needed(group.needed, space, value, store, before)
        if any(v.extent.constant == 0 for v in space):
            return finish(name, (output,), [], group)
    if lanes and lowered.beside is None:
        space, value, store = spread(space, _in_words(value), store)
    space, value, store = collapse(space, value, store, shapes, output.name)
    if lanes and lowered.beside is None:
        space, value, store = turned(space, value, store, shapes, output.name)
        space = in_order_of_operands(space, value, shapes)
    if lowered.beside is not None:
        return _with_scale(group, name, lowered, space, value, store, lanes, shapes, finite)
    if any(v.extent.constant == 0 for v in lowered.space):
        return finish(name, (*lowered.buffers, output), [], group)
    has_parts = lanes and cut(space, value) is not None
    rows = window_rows(space, value, store, output.name, shapes) if lanes and not has_parts else None
    if rows is not None:
        return finish(name, (*lowered.buffers, output), [*before, *rows], group)
    is_inside: Expr = expr.TRUE
    if lanes:  # on a GPU each thread makes its own checks
        value, is_inside = checked_before(value, space, _ranges(group))
        value, looked_up = looked_up_before(value, space)
        if looked_up:
            checks, are_inside = _checks(looked_up, shapes)
            before += checks
            is_inside = expr.both(is_inside, are_inside)
    nest = Nest((), lanes=lanes, shapes=shapes, finite=finite)
    body = transposed_rows(space, value, store, output.name, nest) if lanes and not has_parts else None
    if body is None and lanes and not has_parts and finite is None and are_short_rows(space):
        own = Nest((), shapes=shapes)
        once = _computed_once(own, space, value, store, output.name)
        body = rows_side_by_side(space, once, store, output.name, own)
    if body is None and lanes and not has_parts:
        body = rows_of_functions(space, value, store, output.name, nest)
    if body is None:
        if lanes and _cut(space, value) is None:
            value = _in_tables(nest, space, value)
        fill(nest, space, value, store, output.name)
        body = nest.levels[0]
    if is_inside is not expr.TRUE:
        body = [If(is_inside, tuple(body))]
    return finish(name, (*lowered.buffers, output), [*before, *body], group)


def _checks(looked_up: Sequence[Reduction], shapes: Mapping[str, MultiIndex]) -> tuple[list[Stmt], Expr]:
    """Statements that check indices before all loops that use them, and the condition that all are in range: first
    whether all are, for each array of them, and if not which one is not."""
    made: list[Stmt] = []
    conditions: list[Expr] = []
    for checked in looked_up:
        nest = Nest((), shapes=shapes)
        inside = nest.bind(_in_words(without_report(checked)))
        report = Nest((), shapes=shapes)
        report.bind(checked)
        made += [*nest.levels[0], If(expr.apply("logical_not", inside), tuple(report.levels[0]))]
        conditions.append(inside)
    return made, expr.both(*conditions)


def _ranges(group: Group) -> Callable[[Load], Range | None]:
    """What is known of the integers that a group reads."""
    return ranges_of({buffer_name(node): node for node in group.reads})


def _computed_once(nest: Nest, space: Sequence[Var], value: Expr, store: MultiIndex, output: str) -> Expr:
    """Handle terms of a sum along a row from which each element of the row is computed, such as the exponentials of
    softmax: the loop that sums them also stores them, and the next loop reads them. Nothing else may be read along the
    row, because it could be in the same memory. The loops that compute the value have to follow at once: ``nest`` knows
    the sum as this object."""
    if not space or value.dtype is not value.dtype.compute or any(_is_from(n, output) for n in expr.walk(value)):
        return value
    row = space[-1]
    for total in (n for n in expr.walk(value) if isinstance(n, Reduction)):
        if total.kind != "sum" or len(total.variables) > 1 or total.variables[0].extent != row.extent:
            continue
        if not expr.free_variables(total).issuperset(space[:-1]):
            continue  # it is computed outside of a loop that says where an element is stored
        (variable,), body = total.variables, total.body
        parts = list(expr.walk(body))
        cost = sum(FUNCTIONS[n.function].cost for n in parts if isinstance(n, Apply))
        is_everywhere = isinstance(body, Apply) and body.function not in ("where", "mul")  # they divide the range
        if body.dtype is not value.dtype or cost < WORTH_STORING or not is_everywhere:
            continue
        env = {variable: Index.of(row)}
        same = [n for n in expr.walk(value, (Reduction,)) if expr.is_same(n, body, env)]
        kept = Load(value.dtype, output, store)
        made = expr.transform(value, lambda n: kept if any(n is s for s in same) else n)  # noqa: B023
        left = [n for n in expr.walk(made, (Reduction,)) if isinstance(n, Load) and row in expr.free_variables(n)]
        if same and all(n is kept for n in left):
            nest.kept[id(total)] = output, tuple(i.substitute({row: Index.of(variable)}) for i in store)
            nest.keep.append(total)
            return made
    return value


def _is_from(node: Expr, buffer: str) -> bool:
    return isinstance(node, Load) and node.buffer == buffer


def _in_tables(nest: Nest, space: Sequence[Var], value: Expr) -> Expr:
    """Compute values that depend only on the position in a row, such as the weights and neighbours of a resized image,
    once for all rows, into local arrays."""
    rows, count = product(v.extent for v in space[:-1]).constant, space[-1].extent.constant if space else None
    if count is None or not 2 <= count <= LONGEST_TABLE or (rows is not None and rows < FEWEST_ROWS):
        return value
    row = space[-1]
    memo: dict[int, frozenset[Var]] = {}
    expr.free_variables(value, memo)
    cost: dict[int, float] = {}
    for node in expr.walk(value, (Reduction,)):
        own = FUNCTIONS[node.function].cost if isinstance(node, Apply) else isinstance(node, Cast)
        is_read = isinstance(node, (Load, Local, CheckedIndex, Reduction)) or node.dtype.is_half
        cost[id(node)] = -math.inf if is_read else own + sum(cost[id(c)] for c in node.children)
    tables: list[tuple[Expr, Local]] = []
    found: dict[int, Expr] = {}
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if id(node) in found or isinstance(node, Reduction):
            continue
        if memo[id(node)] != {row} or cost[id(node)] < WORTH_A_TABLE:
            waiting += reversed(node.children)
            continue
        table = next((t for known, t in tables if expr.is_same(known, node, {})), None)
        if table is None:
            table = replace(fresh_local(node.dtype, "_table"), index=(Index.of(row),))
            tables.append((node, table))
        found[id(node)] = table
    if tables:
        nest.levels[0] += [Alloc(t.name, t.dtype, expr.const(0, t.dtype), count) for _, t in tables]
        inner = nest.within((row,))
        filled = [Assign(table, inner.bind(node)) for node, table in tables]
        nest.add(inner, filled)
        loop = nest.levels[0].pop()
        assert isinstance(loop, For)
        nest.levels[0].append(replace(loop, kind="lanes"))
    return expr.transform(value, lambda node: node, dict(found))


def _in_words(value: Expr) -> Expr:
    """Write ``any`` and ``all`` as bits of integers, of 4 bytes or of the size of the operand: C's ``||`` and ``&&``
    are branches, which prevent SIMD code."""

    def change(node: Expr) -> Expr:
        if not isinstance(node, Reduction) or not node.dtype.is_bool or not node.body.dtype.is_bool:
            return node
        reads = [n.dtype.itemsize for n in expr.walk(node.body) if isinstance(n, Load)]
        word = dtypes.dtype("u8") if reads and max(reads) == 1 else dtypes.int32
        return expr.cast(Reduction(word, node.kind, node.variables, expr.cast(node.body, word)), node.dtype)

    return expr.transform(value, change)


def _needed(
    needed: Mapping[int, tuple[Index, Index]],
    space: tuple[Var, ...],
    value: Expr,
    store: MultiIndex,
    before: list[Stmt],
) -> tuple[tuple[Var, ...], Expr, MultiIndex]:
    """Loops over the elements that are read. Bounds that are computed at run time get names ``before`` the loops."""
    moved = dict[Var, tuple[Var, Index]]()
    for axis, (first, end) in needed.items():
        count = end - first
        if expr.run_time_values((first, end)):
            first = named(before, first, "_first")
            count = named(before, end - first, "_count")
        moved[space[axis]] = expr.fresh_var(count, "v"), first
    env = {variable: first + Index.of(new) for variable, (new, first) in moved.items()}
    loops = tuple(moved[v][0] if v in moved else v for v in space)
    return loops, expr.decided(expr.substitute_index(value, env)), tuple(i.substitute(env) for i in store)


def fill(
    nest: Nest, space: tuple[Var, ...], value: Expr, store: MultiIndex, output: str, is_shared: bool = True
) -> None:
    """Put loops over ``space``, which store the value, inside those of ``nest``. If a loop has several cases, each
    becomes a loop of its own: inside the same outer loops if rows are short and can be written at once, otherwise
    inside separate outer loops, which threads divide and in which sums of rows are computed side by side. Rows that
    read something else, depending on a condition, are written by a loop for each case. The threads of a GPU share one
    loop."""
    found = _cut(space, value) if nest.lanes else None
    outer, conditions = nest.within(space[:-1]), list[Expr]()
    if nest.lanes and found is None and space:
        conditions = row_conditions(outer.order, space[-1], value)
    if conditions:
        outer.is_shared = is_shared
        for condition, part in cases(value, conditions):
            case = outer.branch()
            fill(case, space[-1:], part, store, output, is_shared)
            outer.levels[-1].append(If(condition, tuple(case.levels[-1])))
        nest.add(outer, [])
        return
    if found is None and nest.lanes:
        found = uneven(space, value)
    turns = _in_turns(nest, space, value, store, output) if found is None and nest.lanes and not nest.order else []
    for part in turns:
        fill(nest, space, part, store, output, is_shared)
    if turns:
        return
    if found is None:
        rows = window_rows(space, value, store, output, nest.shapes) if nest.lanes and not nest.order else None
        if rows is not None:
            nest.levels[-1].extend(rows)
            return
        found = cut_rows(space, value) if nest.lanes else None
    if found is None:
        elements = [(store, value)]
        if nest.lanes:
            value = _computed_once(nest, (*nest.order, *space), value, store, output)
            space, elements = beside(space, value, store, nest.shapes)
        inner = nest.within(space)
        inner.is_shared = is_shared
        nest.add(inner, [Store(output, at, inner.bind(element)) for at, element in elements])
        return
    variable = found.variable
    place = space.index(variable)
    before, behind = space[:place], space[place + 1 :]
    row = product(v.extent for v in space[place:]).constant
    reduced = [expr.free_variables(n) for n in expr.walk(value, (Reduction,)) if isinstance(n, Reduction)]
    is_reduced = any(not free.isdisjoint(space[place:]) for free in reduced)
    is_row = not is_reduced and (variable is space[-1] or (row is not None and row <= SHORT_ROW))
    outer = nest.within(before if is_row else ())
    outer.is_shared = is_shared
    starts = found.starts
    if found.around:
        starts = [named(outer.levels[-1], start, "_t") for start in starts]
    else:
        found, sizes, env = found.named()
        nest.levels[-1].extend(sizes)
        starts, value = [s.substitute(env) for s in starts], expr.substitute_index(value, env)
    for within, there, at in found.parts(starts, value, store):
        joinable = (within, *behind) if is_row or not before else (within,)
        loops, there, at = collapse(*spread(joinable, there, at), nest.shapes, output)
        loops = (*loops, *behind[len(joinable) - 1 :])
        all_loops = loops if is_row else (*before, *loops)
        size = product(v.extent for v in all_loops).constant
        fill(outer, all_loops, there, at, output, is_shared and (size is None or size >= SHORT_ROW))
    nest.add(outer, [])


def _cut(space: Sequence[Var], value: Expr) -> Cut | None:
    """Where a loop is divided because its parts have values of their own."""
    at_guards = is_guarded(value) and (_asks_in_reductions(value, space) or is_stored_at_once(space, value))
    return cut(space, value, at_guards)


def _asks_in_reductions(value: Expr, space: Sequence[Var]) -> bool:
    """Whether a reduction asks for each number it reads where its result lies, as in a sum of padded columns."""
    bodies = (n.body for n in expr.walk(value) if isinstance(n, Reduction))
    guards = (n.guard for body in bodies for n in expr.walk(body) if isinstance(n, Load) and n.guard is not None)
    return any(not expr.free_variables(guard).isdisjoint(space) for guard in guards)


def _in_turns(nest: Nest, space: Sequence[Var], value: Expr, store: MultiIndex, output: str) -> list[Expr]:
    """Values to be stored one after the other, each of which reads what the one before has stored, if rows are combined
    that were joined from several, as in a sum of the columns of two arrays; none for others."""
    reductions = [n for n in expr.walk(value) if isinstance(n, Reduction)]
    if len(reductions) != 1 or not space or any(_is_from(n, output) for n in expr.walk(value)):
        return []
    (node,), row = reductions, space[-1]
    loads = [n for n in expr.walk(node.body) if isinstance(n, Load) and n.index]
    if node.dtype is not value.dtype or not all(nest.place(n).coefficient(row) == 1 for n in loads):
        return []
    parts, made = nest.parts_of(node), list[Expr]()
    for number, part in enumerate(parts):
        both = combine(node.kind, Load(value.dtype, output, store), part) if number else part
        is_last = number == len(parts) - 1
        made.append(expr.transform(value, lambda n: both if n is node else n) if is_last else both)  # noqa: B023
    return made


def _with_scale(
    group: Group,
    name: str,
    lowered: Lowered,
    space: tuple[Var, ...],
    pair: Expr,
    store: MultiIndex,
    lanes: bool,
    shapes: dict[str, MultiIndex],
    finite: frozenset[str] | None,
) -> Kernel:
    """The kernel of a group that, in addition to its root, stores a value for each row (all axes except the last)
    that the root's elements depend on, or a second reduction of all elements."""
    assert group.beside is not None
    outputs = [buffer_of(node, is_output=True) for node in group.stored]
    value, of_row = pair.children
    nest = Nest(space, lanes=lanes, shapes=shapes, finite=finite)
    element = nest.bind(value)
    level = nest.level(expr.free_variables(of_row))
    row = (*store[:-1], Index.of(0))[: len(store)]
    nest.levels[level].append(Store(outputs[1].name, row, nest.bind(of_row)))
    body = nest.finish([Store(outputs[0].name, store, element)])
    return finish(name, (*lowered.buffers, *outputs), body, group)


def finish(
    name: str, buffers: Sequence[Buffer], body: Sequence[Stmt], group: Group, undivided: Sequence[Stmt] = ()
) -> Kernel:
    """Name the variables, collect the dims, and check. ``undivided`` are statements that do the same in one part, in
    which the work can be counted."""
    dims = dims_of((*(i for b in buffers for i in b.shape), *_indices(body)))
    taken = {b.name for b in buffers} | set(dims)
    work = _leading(_work(undivided or body))
    kernel = Kernel(name, tuple(buffers), tuple(dims), rename(tuple(body), taken), document(group), work)
    kernel.check()
    return kernel


def document(group: Group) -> str:
    """What the kernel computes, and where it comes from in the program."""
    side = group.beside
    line = f"{group.root.name}: {group.root.type} = {_steps(group, group.root)}"
    origins = list(dict.fromkeys(n.origin for n in group.members if n.origin))
    exact = [o for o in origins if not any(_is_within(other, o) for other in origins)]
    beside = [] if side is None else [f"and {side.name}: {side.type} = {_steps(group, side)}"]
    return "\n".join([line, *beside, *exact[:4]])


def _steps(group: Group, result: Node) -> str:
    """The ops that compute one of the group's results."""
    needed = {result}
    for node in reversed(group.members):
        needed |= set(node.all_input_nodes) if node in needed else set()
    names = [n.target.name for n in group.members if n in needed]
    return " -> ".join(names or [result.target.name])  # a template computes what is no member of its group


def _is_within(inner: str, outer: str) -> bool:
    """True if both origins are on one line, and the first is in a module within that of the second."""
    (path, place), (around, same) = (o.rpartition(", ")[::2] for o in (inner, outer))
    prefix = f"{around.partition(' (')[0]}." if around else ""
    return place == same and path != around and path.startswith(prefix)


def _indices(body: Sequence[Stmt]) -> Iterator[Index]:
    """All index expressions of statements: extents, addresses, bounds."""
    for statement in statements(body):
        if isinstance(statement, For):
            yield statement.var.extent
        if isinstance(statement, Store):
            yield from statement.index
        for value in expressions(statement):
            for node in expr.walk(value):
                if isinstance(node, (Load, Local)):
                    yield from node.index
                elif isinstance(node, IndexValue):
                    yield node.index
                elif isinstance(node, CheckedIndex):
                    yield node.extent


def _work(body: Sequence[Stmt], named: Mapping[str, Index] = MappingProxyType({})) -> Index:
    """A rough number of scalar operations of statements; those of a loop that does nothing else count as one.
    ``named`` are numbers that were given a name before."""
    total, named = Index.of(0), dict(named)
    for statement, after in itertools.zip_longest(body, body[1:]):
        if isinstance(statement, If) and isinstance(after, If) and _excludes(statement.condition, after.condition):
            continue  # the second of two cases counts, which is the longer one
        if isinstance(statement, Let) and isinstance(statement.value, IndexValue):
            named[statement.name] = statement.value.index
        for value in expressions(statement):
            applied = (node for node in expr.walk(value) if isinstance(node, Apply))
            total += sum(FUNCTIONS[node.function].cost for node in applied)
        if isinstance(statement, If):
            total += _work(statement.body, named)
        elif isinstance(statement, For):
            inside = _work(statement.body, named)
            extent = statement.var.extent
            if isinstance(atom := extent.single_atom, Value) and isinstance(atom.expr, Local):
                extent = named.get(atom.expr.name, extent)
            inside = (Index.of(1) if inside == 0 else inside) * _trips(extent)
            total += Index({m: max(round(c / statement.step), 1) for m, c in inside.terms.items()})
    return total


def _excludes(a: Expr, b: Expr) -> bool:
    """Whether one of two conditions is that something holds, or that a number is less than another, and the other that
    it does not hold."""
    if not isinstance(a, Apply) or not isinstance(b, Apply):
        return False
    return (a.function, b.function, a.args) == ("lt", "ge", b.args) or (a.function == "logical_not" and a.args == (b,))


def _trips(extent: Index) -> Index:
    """A rough number of iterations in terms of sizes alone."""
    least = extent.single_atom
    of_loops = isinstance(least, Extremum) and all(
        isinstance(a, Var) for part in (least.a, least.b) for m in part.terms for a in m
    )
    varies = of_loops or expr.run_time_values((extent,))
    if isinstance(least, Extremum) and least.kind == "min" and varies:  # of at most so many
        numbers = [part.constant for part in (least.a, least.b) if part.constant is not None]
        if numbers:
            return Index.of(min(numbers))
    if isinstance(least, Extremum) and expr.run_time_values((least.a,)):  # a part of the remaining extent
        kept = {m: c for m, c in least.b.terms.items() if all(isinstance(a, DimVar) for a in m)}
        return _trips(Index(kept)) if kept else Index.of(1)
    sizes = {m: c for m, c in extent.terms.items() if not expr.run_time_values((Index({m: c}),))}
    if len(sizes) < len(extent.terms):
        extent = Index({m: c for m, c in sizes.items() if c > 0} or {(): 1})
    whole = Index.of(0)
    for monomial, count in extent.terms.items():  # x // 16 * 16 is about x
        term = Index({monomial: count})
        for atom in monomial:
            size = atom.b.constant if isinstance(atom, Quotient) else None
            if isinstance(atom, Quotient) and size and count % size == 0:
                others = [a for a in monomial if a is not atom]
                term = product([atom.a, count // size, *(Index({(a,): 1}) for a in others)])
        whole += term
    upper = whole.upper()
    if upper is not None:
        return upper
    return Index.of(1) if whole.variables() else whole


def _leading(work: Index) -> Index:
    """The work without terms that are factors of others, because which term dominates depends on sizes."""
    terms = {m: Counter(m) for m in work.terms}
    return Index({m: c for m, c in work.terms.items() if not any(terms[m] < other for other in terms.values())})


# -- scans and scatters --------------------------------------------------------------------------
def _scan(group: Group, name: str, lanes: bool) -> Kernel:
    """The kernel of a running total: the reduction's variable becomes the loop, and each step is stored. With
    ``lanes``, the totals of a row's elements are computed together where the rows are added up."""
    state, space = Lowering(group), group.space
    value = state.read(group.root, tuple(Index.of(v) for v in space))
    reductions = [n for n in expr.walk(value) if isinstance(n, Reduction)]
    if len(reductions) != 1:
        raise CodegenError(f"{group.root.describe()}: a scan must hold one reduction")
    (reduction,) = reductions
    (scanned,) = (v for v in space if v in reduction.variables[0].extent.variables())
    before, extent = list[Stmt](), scanned.extent
    if group.needed:  # the first ones, up to a number
        state.read_bounds()
        ((_, end),) = group.needed.values()
        extent = named(before, end, "_count")
    step = Var(reduction.variables[0].name, extent)
    outer, turns, inner = [v for v in space if v is not scanned], [], []
    places, columns = {scanned: Index.of(step)}, None
    checks = any(isinstance(n, CheckedIndex) for n in expr.walk(value))
    if (
        lanes
        and not checks
        and scanned is not space[-1]
        and (space[-1].extent.constant or FEWEST_LANES) >= FEWEST_LANES
    ):
        columns = Columns.of(outer.pop(), COLUMNS)
        turns, inner = [columns.turn] if columns.turn else [], [expr.fresh_var(columns.count, "lane")]
        places[space[-1]] = columns.first + inner[0]
    total = fresh_local(reduction.dtype, "_a")
    here = Local(total.dtype, total.name, (Index.of(inner[0]),)) if inner else total
    body = expr.substitute_index(reduction.body, {reduction.variables[0]: Index.of(step), **places})
    result = expr.substitute_index(expr.replaced(value, reduction, here), places)
    store = tuple(Index.of(v).substitute(places) for v in space)
    output = buffer_of(group.root, is_output=True)
    order = [*outer, *turns, step, *inner]
    nest = Nest(order, shapes={b.name: b.shape for b in state.buffers.values()})
    added = Assign(here, combine(reduction.kind, here, nest.bind(body)))
    statements: list[Stmt] = [*nest.levels[-1], added, Store(output.name, store, result)]
    if inner:
        statements = [*nest.levels[-2], For(inner[0], tuple(statements), "lanes")]
    size = (columns.size, columns.used) if columns else ()
    statements = [
        Alloc(total.name, total.dtype, neutral(reduction.kind, total.dtype), *size),
        For(step, tuple(statements)),
    ]
    if columns:
        within = [*nest.levels[len(outer) + 1], *statements] if turns else statements
        statements = columns.loop(within, "independent" if outer else "parallel")
    for depth in range(len(outer) - 1, -1, -1):
        kind = "independent" if depth else "parallel"
        statements = [For(outer[depth], (*nest.levels[depth + 1], *statements), kind)]
    return finish(name, (*state.buffers.values(), output), [*before, *nest.levels[0], *statements], group)


def _scatter(group: Group, name: str, lanes: bool) -> Kernel:
    """Copy the input, unless the result lies in its memory, then write the source's elements to their run-time
    positions, in order. Elements written along other axes are independent: on a CPU they are the inner loops, which
    access memory in order; on a GPU they are threads."""
    node = group.root
    x, index, source = node.args[:3]
    axis = node.bound["axis"] % node.type.rank
    state = Lowering(group)
    output = buffer_of(node, is_output=True)
    copied = None if node in group.taken else expr.cast(state.read(x, group.index), node.type.dtype)
    variables, here = loops_of(index.type)
    position = expr.cast(state.read(index, here), dtypes.int64)
    size = Index.of(node.type.shape[axis])
    check = CheckedIndex(dtypes.int64, position, size, node.describe())
    is_always, drops = lanes and is_in_range(check, _ranges(group)), node.bound["mode"] == "drop"
    checked = position if is_always else counted_from_start(position, size) if drops else check
    is_last = node.target.combines == "last"
    put = state.read(source, here) if is_last else expr.cast(state.read(source, here), node.type.dtype.compute)

    shapes = {b.name: b.shape for b in (*state.buffers.values(), output)}
    copy = Nest((), lanes=lanes, shapes=shapes)
    if copied is not None:
        fill(copy, *collapse(group.space, copied, group.index, shapes, output.name), output.name)

    before, (along,), behind = variables[:axis], variables[axis : axis + 1], variables[axis + 1 :]
    if lanes and not before and behind:
        parts, behind, env = _shared_out(behind)
        before, put, checked = parts, expr.substitute_index(put, env), expr.substitute_index(checked, env)
        here = tuple(i.substitute(env) for i in here)
    order = [*before, along, *behind] if lanes else [*before, *behind, along]
    kind, computed = node.target.combines, node.type.dtype.compute

    def scattered(order: Sequence[Var], env: dict[Var, Index], write: Callable[[MultiIndex, Expr], Stmt]) -> list[Stmt]:
        """Loops that ``write`` each element to its place, with variables replaced."""
        nest = Nest(order, lanes=lanes, shapes=shapes)
        looked_up, at = expr.substitute_index(checked, env), [i.substitute(env) for i in here]
        depth = nest.level(expr.free_variables(looked_up))
        place, value = nest.bind(looked_up), nest.bind(expr.substitute_index(put, env))
        at[axis] = Index.of(Value(place))
        body = [write(tuple(at), value)]
        for level in range(len(order), -1, -1):
            if level == depth and not is_always:
                is_inside = expr.apply("ge", place, expr.const(0, dtypes.int64))
                if drops:
                    is_inside = expr.both(is_inside, expr.apply("lt", place, expr.index_value(size)))
                body = [If(is_inside, tuple(body))]
            body = [*nest.levels[level], *body]
            if level:
                variable = order[level - 1]
                is_outer, is_inner = level == 1 and len(order) > 1, level == len(order)
                loop = "parallel" if is_outer else "simd" if is_inner and lanes else "independent"
                is_along = variable is along or any(variable in i.variables() for i in env.values())
                body = [For(variable, tuple(body), "serial" if is_along else loop)]
        return body

    def written(target: MultiIndex, value: Expr) -> Stmt:
        if kind not in ("sum", "last"):
            value = combine(kind, expr.cast(Load(node.type.dtype, output.name, target), computed), value)
        return Store(output.name, target, value, accumulate=kind == "sum")

    undivided = [*copy.levels[0], *scattered(order, {}, written)]
    apart = -(-(product(output.shape).constant or 0) // LANES) * LANES  # each table in cache lines of its own
    several = _several_tables(order, apart) if lanes and order[0] is along and not is_last else Index.of(1)
    if several.constant == 1:
        return finish(name, (*state.buffers.values(), output), undivided, group)
    statements = list(copy.levels[0])
    shares = Shares.of(statements, along, several)
    # added to -0.0, which an element may be, 0.0 gives 0.0
    start = expr.const(-0.0, computed) if kind == "sum" and computed.is_float else neutral(kind, computed)
    table = fresh_local(computed, "_table")
    elements, at = loops_of(node.type)

    def of_part(at: Index, target: MultiIndex) -> Local:
        return Local(computed, table.name, (at * apart + flatten(target, output.shape),))

    def kept(target: MultiIndex, value: Expr) -> Stmt:
        here = of_part(Index.of(shares.part), target)
        return Assign(here, combine(kind, here, value))

    inside = scattered([shares.here, *behind], shares.env, kept)
    place, most = expr.fresh_var(shares.part.extent, "part"), several.constant or min(PARTS, MOST_IN_TABLES // apart)
    joined: Sequence[Stmt] = [written(at, of_part(Index.of(place), at))]
    for element in reversed(elements):
        joined = [For(element, tuple(joined), "simd" if element is elements[-1] else "serial")]
    statements += [
        Alloc(table.name, computed, start, most * apart, None if several.constant else shares.part.extent * apart),
        For(shares.part, (*shares.inside, *inside), "parallel"),
        For(place, tuple(joined), "serial"),
    ]
    return finish(name, (*state.buffers.values(), output), statements, group, undivided)


def _several_tables(order: Sequence[Var], size: int) -> Index:
    """How many tables of ``size`` results threads fill, each with a part of the elements that a scatter combines: one
    if the results are many. The number follows from sizes alone."""
    elements = product(v.extent for v in order)
    if not 0 < size <= LARGEST_TABLE:
        return Index.of(1)
    most = extremum("min", elements // (LONG // PARTS), elements // (FEWEST_ADDED * size))
    most = extremum("min", most, extremum("min", order[0].extent, Index.of(min(PARTS, MOST_IN_TABLES // size))))
    return extremum("max", most, Index.of(1))


def _shared_out(variables: Sequence[Var]) -> tuple[tuple[Var, ...], tuple[Var, ...], dict[Var, Index]]:
    """The last of some loops divided into parts for threads, each at least as long as makes looking up a position
    worthwhile: the loop over the parts, if there are several, the other loops, and the old one in terms of both."""
    *outer, last = variables
    size = last.extent.constant or 0
    parts = next((n for n in (8, 4, 2) if size and size % (n * PART) == 0), 1)
    if parts == 1:
        return (), tuple(variables), {}
    part, inner = expr.fresh_var(parts), expr.fresh_var(size // parts)
    return (part,), (*outer, inner), {last: Index.of(part) * (size // parts) + Index.of(inner)}


# -- parts of arrays, over what stands there -------------------------------------------------------
def update(group: Group, name: str) -> Kernel:
    """The kernel of a group that updates a part of an array."""
    root = group.root
    output = buffer_of(root, is_output=True)
    state = Lowering(group)
    state.renamed = dict.fromkeys(group.taken.values(), output.name)
    bound = root.arguments
    positions = iter(bound.get("positions", ()))
    space: list[Var] = []
    store: list[Index] = []
    before: list[Stmt] = []
    conditions: list[Expr] = []
    ranges, checked = _ranges(group), dict[object, Local]()
    for axis, part in enumerate(parts_of_update(bound)):
        size = output.shape[axis]
        if isinstance(part, tuple):
            first, _, length, step = part
            variable = expr.fresh_var(length, "v")
            space.append(variable)
            store.append(Index.of(0 if variable.extent.constant == 1 else variable) * step + Index.of(first))
            continue
        value = _position(state, next(positions)) if part is None else expr.index_value(Index.of(part))
        known = expr.as_index(value)
        if known is not None and Index.of(0) <= known and known < size:
            store.append(known)
            continue
        if known is not None and known.constant is not None and size.constant is not None:
            store.append(Index.of(known.constant % size.constant))
            continue
        check = CheckedIndex(dtypes.int64, value, size, f"{root.target.name} on axis {axis}")
        local = fresh_local(dtypes.int64, "_t")
        if is_in_range(check, ranges):
            before.append(Let(local.name, value))
        else:
            before.append(Let(local.name, check))
            conditions.append(expr.apply("ge", local, expr.const(0, dtypes.int64)))
        checked[place_key(check)] = local
        store.append(Index.of(Value(local)))
    values = bound["values"]
    if isinstance(values, Node):
        offset = len(space) - values.type.rank
        place = tuple(
            Index.of(0) if _is_one(d) else Index.of(space[offset + axis]) for axis, d in enumerate(values.type.shape)
        )
        value = state.read(values, place)
    else:
        value = expr.const(fill_value(values, root.type.dtype), root.type.dtype)
    buffers: tuple[Buffer, ...] = (*state.buffers.values(), output)
    shapes = {b.name: b.shape for b in buffers}
    if any(v.extent.constant == 0 for v in space):
        return finish(name, buffers, [], group)
    value, is_inside = checked_before(value, space, ranges, checked)
    if is_inside is not expr.TRUE:
        conditions.append(is_inside)
    whole = (tuple(space), value, tuple(store))
    loops, value, target = collapse(*whole, shapes, output.name) if not before else whole
    nest = Nest((), shapes=shapes)
    fill(nest, loops, value, target, output.name)
    inner = nest.levels[0]
    if conditions:
        inner = [If(reduce(expr.both, conditions), tuple(inner))]
    return finish(name, buffers, [*before, *inner], group)


def _position(state: Lowering, value: Any) -> Expr:
    if isinstance(value, Node):
        return expr.cast(state.read(value, ()), dtypes.int64)
    return expr.const(value, dtypes.int64)


def _is_one(dim: Any) -> bool:
    return type(dim) is int and dim == 1


def loops(group: Group, name: str) -> Kernel:
    """The kernel of a group without a template, which may store over an operand."""
    is_part = group.taken and group.root.target.writes_part
    return update(group, name) if is_part else schedule(group, name)
