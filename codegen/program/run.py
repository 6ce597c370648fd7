"""Run a kernel or a program in NumPy without a compiler: it runs the loop tree itself, never an op's
reference function.

In: a kernel, arrays for its inputs, values of its dims. Out: arrays of its outputs. Loops whose
iterations are independent (parallel, simd, lanes) become axes of NumPy grids; the others run one by one,
under a mask if their extent depends on the grid.

Expressions are evaluated for whole grids of indices at once. This defines the meaning of
:mod:`fxlite.scalar.expr` for kernels; it and the ops' references are checked against each other. Half
types are held as float32, as in compiled code.

Loops and conditions of a program run in Python over the kernels of their bodies. Values lie in memory,
and are written over, as the plan says and as in compiled code, so that checking kernels also checks
plans.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fxlite.base.errors import CodegenError, FxliteError
from fxlite.codegen.kernel.kernel_ir import Alloc, Assign, Comment, For, If, Kernel, Let, Stmt, Store, statements
from fxlite.codegen.kernel.lower import buffer_name, index_of
from fxlite.codegen.program.control import BodyPlan, ControlPlan
from fxlite.codegen.program.program import Program
from fxlite.graph.graph import Node
from fxlite.passes.group import Group
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, Cast, CheckedIndex, Const, Expr, IndexValue, Load, Local, Reduction
from fxlite.scalar.functions import COMBINATIONS, FUNCTIONS
from fxlite.scalar.index import Index
from fxlite.types import dtypes, shapes


# -- expressions -----------------------------------------------------------------------------------
class IndexOutOfRange(FxliteError, IndexError):
    """A run-time index lies outside its axis."""


class Evaluator:
    """Evaluates expressions in one environment: ``env`` maps names of variables and dims to numbers or
    mutually broadcastable arrays, ``buffers`` maps names to arrays, and ``locals`` names to values. Evaluators
    of the same expressions share ``orders``, what each is evaluated of, so that it is found once."""

    def __init__(
        self,
        env: Mapping[str, Any],
        buffers: Mapping[str, Any],
        locals: Mapping[str, Any] | None = None,
        mask: Any = None,
        orders: dict[Expr, _Order] | None = None,
    ) -> None:
        self.env = env
        self.buffers = buffers
        self.locals = locals if locals is not None else {}
        self.mask = mask  # where values are needed; nothing is loaded elsewhere
        self._orders = orders if orders is not None else {}
        self._memo: dict[Expr, Any] = {}

    def __call__(self, node: Expr) -> Any:
        order = self._orders.get(node)
        if order is None:
            # the inside of a reduction or a guarded load is evaluated by it
            order = self._orders[node] = [(e, _HOW[type(e)]) for e in expr.walk(node, (Reduction, Load))]
        memo = self._memo
        for inner, evaluate in order:
            if inner not in memo:
                memo[inner] = evaluate(self, inner)
        return memo[node]

    def index(self, index: Index) -> Any:
        """Value of an index expression."""
        return index.evaluate(self.env, self)

    def _const(self, node: Const) -> Any:
        return node.dtype.compute.numpy.type(node.value)

    def _known(self, node: _Known) -> Any:
        return node.value

    def _index_value(self, node: IndexValue) -> Any:
        return np.asarray(self.index(node.index), dtype=np.int64)

    def _apply(self, node: Apply) -> Any:
        args = [self._memo[a] for a in node.args]
        function = FUNCTIONS[node.function]
        if function.halves:
            args = [np.asarray(a).astype(node.dtype.numpy, copy=False) for a in args]
        return np.asarray(function.compute(*args)).astype(node.dtype.compute.numpy, copy=False)

    def _cast(self, node: Cast) -> Any:
        value = np.asarray(self._memo[node.operand])
        return value.astype(node.dtype.numpy).astype(node.dtype.compute.numpy, copy=False)

    def _checked_index(self, node: CheckedIndex) -> Any:
        value = np.asarray(self._memo[node.operand])
        extent = self.index(node.extent)
        wanted = True if node.guard is None else np.asarray(self._memo[node.guard])
        wrong = wanted & ((value < -extent) | (value >= extent))
        if wrong.any():
            bad = np.broadcast_to(value, wrong.shape)[wrong].flat[0]
            raise IndexOutOfRange(f"{node.where}: index {bad} is out of range for an axis of size {extent}")
        return np.where(wanted, np.where(value < 0, value + extent, value), -1)

    def _local(self, node: Local) -> Any:
        value = self.locals[node.name]
        return self._cell(value, node.index[0]) if node.index else value

    def _cell(self, cells: Sequence[Any], index: Index) -> Any:
        """A cell of a local array; each step of a grid may read another one."""
        at = np.asarray(self.index(index))
        if at.size == 1:
            return cells[int(at.item())]
        held = np.stack(np.broadcast_arrays(*cells))
        around = [np.arange(n).reshape(n, *(1,) * (held.ndim - axis - 2)) for axis, n in enumerate(held.shape[1:])]
        return held[np.clip(at, 0, len(cells) - 1), *(0 if a.size == 1 else a for a in around)]

    def _load(self, node: Load) -> Any:
        array = np.asarray(self.buffers[node.buffer])
        numpy = node.dtype.compute.numpy
        index = [self.index(i) for i in node.index]
        guard = self.mask if node.guard is None else np.asarray(self(node.guard))
        if node.guard is not None and self.mask is not None:
            guard = guard & self.mask
        if guard is not None:
            if array.size == 0:
                return np.zeros(np.broadcast_shapes(guard.shape, *(np.shape(i) for i in index)), numpy)
            index = [np.where(guard, i, 0) for i in index]
        for axis, i in enumerate(index):
            if isinstance(i, int):
                lowest = highest = i
            elif i.size:
                lowest, highest = i.min(), i.max()
            else:
                continue
            if lowest < 0 or highest >= array.shape[axis]:
                raise IndexOutOfRange(
                    f"kernel reads {node.buffer}{list(node.index)} outside {array.shape}, axis "
                    f"{axis}: "
                    f"{lowest}..{highest}"
                )
        value = np.asarray(array[tuple(index)]).astype(numpy, copy=False)
        return value if guard is None else np.where(guard, value, numpy.type(0))

    def _reduce(self, node: Reduction) -> Any:
        """Run the reduction's variables one by one; an extent may depend on the grid."""
        extents = [np.asarray(self.index(v.extent)) for v in node.variables]
        longest = [int(e.max()) if e.size else 0 for e in extents]
        how = COMBINATIONS[node.kind]
        function = FUNCTIONS[how.function].compute
        total: Any = node.body.dtype.compute.numpy.type(how.start(node.body.dtype))
        if node.kind == "sum" and node.body.dtype.is_inexact:
            total = np.result_type(total, np.float64).type(total)  # so that it holds any count
        best: Any = np.int64(-1)
        for number, point in enumerate(itertools.product(*(range(n) for n in longest))):
            env = {**self.env, **{v.name: p for v, p in zip(node.variables, point)}}
            inside = np.asarray(True)
            for p, extent in zip(point, extents):
                inside = inside & (p < extent)
            if not inside.any():
                continue
            body = expr.add_guard(node.body, _Known(dtypes.bool_, inside)) if not inside.all() else node.body
            value = Evaluator(env, self.buffers, self.locals, orders=self._orders)(body)
            if how.positions:
                better = function(value, total)
                better = better | (np.isnan(value) & ~np.isnan(total)) | (best < 0)
                if not np.issubdtype(np.asarray(value).dtype, np.bool_):
                    better = better & ~(np.isnan(total) & (best >= 0))
                total, best = np.where(better, value, total), np.where(better, number, best)
            else:
                combined = function(total, value)
                total = np.where(inside, combined, total)
        if how.positions:
            return np.asarray(best, np.int64)
        return np.asarray(total).astype(node.dtype.compute.numpy, copy=False)


@dataclass(frozen=True, eq=False)
class _Known(Expr):
    """A condition that has been evaluated already."""

    value: Any


_Order = list[tuple[Expr, Callable[[Evaluator, Any], Any]]]
"""The parts of an expression, each behind what it is made of, and how they are evaluated."""

_HOW: dict[type[Expr], Callable[[Evaluator, Any], Any]] = {
    Const: Evaluator._const,
    _Known: Evaluator._known,
    IndexValue: Evaluator._index_value,
    Load: Evaluator._load,
    Apply: Evaluator._apply,
    Cast: Evaluator._cast,
    CheckedIndex: Evaluator._checked_index,
    Reduction: Evaluator._reduce,
    Local: Evaluator._local,
}


# -- kernels and programs --------------------------------------------------------------------------
#: Computes a kernel's outputs by name, from its inputs by name and the sizes of named dims.
RunKernel = Callable[[Kernel, Mapping[str, Any], Mapping[str, int]], Mapping[str, Any]]

_IN_ORDER = ("serial", "rolled", "reduce", "transpose")


def run_kernel(kernel: Kernel, inputs: Mapping[str, Any], dims: Mapping[str, int]) -> dict[str, np.ndarray[Any, Any]]:
    """Run a kernel; returns outputs by name. ``inputs`` maps buffer names to arrays; an output among them
    already has values, some of which are written over."""
    outputs = {
        b.name: np.array(inputs[b.name], b.dtype.compute.numpy)
        if b.name in inputs
        else np.zeros([int(s.evaluate(dims)) for s in b.shape], b.dtype.compute.numpy)
        for b in kernel.outputs
    }
    runner = _Runner(kernel, {**inputs, **outputs}, dict(dims))
    with np.errstate(all="ignore"):
        runner.run(kernel.body, 0, None)
    return {b.name: outputs[b.name].astype(b.dtype.numpy, copy=False) for b in kernel.outputs}


def _is_grid(s: For) -> bool:
    """Whether the iterations of a loop are independent, and what they assign is their own: variables inside of the
    loop, and elements of arrays around it."""
    inner = {t.name for t in statements(s.body) if isinstance(t, Alloc)}
    around = (t.target for t in statements(s.body) if isinstance(t, Assign) and t.target.name not in inner)
    return s.kind not in _IN_ORDER and all(any(s.var in i.variables() for i in t.index) for t in around)


class _Runner:
    def __init__(self, kernel: Kernel, buffers: dict[str, Any], env: dict[str, Any]) -> None:
        self.kernel = kernel
        self.buffers = buffers
        self.env = env
        self.locals: dict[str, Any] = {}
        self.grids = {id(s) for s in statements(kernel.body) if isinstance(s, For) and _is_grid(s)}
        self.axes = self._depth(kernel.body)
        self.loops_around: dict[str, int] = {}
        """The number of grid loops around a local array."""
        self.orders: dict[Expr, _Order] = {}

    def _depth(self, body: Sequence[Stmt]) -> int:
        """How many grid loops are nested."""
        return max((self._depth(s.body) + (id(s) in self.grids) for s in body if isinstance(s, (For, If))), default=0)

    def evaluator(self, mask: Any) -> Evaluator:
        return Evaluator(self.env, self.buffers, self.locals, mask, self.orders)

    def value(self, e: Any, mask: Any) -> Any:
        return self.evaluator(mask)(e)

    def run(self, body: Sequence[Stmt], axis: int, mask: Any) -> None:
        """Run statements inside ``axis`` grid loops; ``mask`` says where they apply."""
        for s in body:
            if isinstance(s, Let):
                self.locals[s.name] = self.value(s.value, mask)
            elif isinstance(s, Alloc):
                start = np.asarray(self.value(s.init, mask))
                self.locals[s.name] = [start] * s.size if s.size else start
                self.loops_around[s.name] = axis
            elif isinstance(s, Assign):
                self._assign(s, mask)
            elif isinstance(s, Store):
                self._store(s, mask)
            elif isinstance(s, If):
                condition = np.asarray(self.value(s.condition, mask))
                inside = condition if mask is None else condition & mask
                if mask is None and condition.ndim == 0 and condition:
                    self.run(s.body, axis, None)
                elif inside.any():
                    self.run(s.body, axis, inside)
            elif isinstance(s, For):
                self._loop(s, axis, mask)
            else:
                assert isinstance(s, Comment)

    def _loop(self, s: For, axis: int, mask: Any) -> None:
        """Run all steps of a loop over the grid at once; if the extent depends on outer loops, up to the
        largest extent and under a mask."""
        extent = np.asarray(self.evaluator(mask).index(s.var.extent))

        def inside(step: Any) -> Any:
            if extent.size <= 1:
                return mask
            return step < extent if mask is None else (step < extent) & mask

        steps = np.arange(0, int(extent.max(initial=0)), s.step)
        if id(s) in self.grids:
            shape = [1] * self.axes
            shape[axis] = -1
            self.env[s.var.name] = grid = steps.reshape(shape)
            if steps.size:
                self.run(s.body, axis + 1, inside(grid))
        else:
            for step in steps.tolist():
                self.env[s.var.name] = step
                wanted = inside(step)
                if wanted is None or wanted.any():
                    self.run(s.body, axis, wanted)
        self.env.pop(s.var.name, None)

    def _assign(self, s: Assign, mask: Any) -> None:
        new = self.value(s.value, mask)
        name = s.target.name
        if not s.target.index:
            old = self.locals[name]
            self.locals[name] = new if mask is None else np.where(mask, new, old)
            return
        at = np.asarray(self.evaluator(mask).index(s.target.index[0]))
        cells = self.locals[name]
        for step in _steps_inside(at, self.loops_around[name]):
            position, value, wanted = (_part(v, step) for v in (at, new, mask))
            if wanted is not None and not np.any(wanted):
                continue
            if position.size == 1:
                cell = int(position.item())
                cells[cell] = value if wanted is None else np.where(wanted, value, cells[cell])
            else:  # the array is one of each step of the loops around, which may write different cells
                for cell, old in enumerate(cells):
                    here = position == cell
                    cells[cell] = np.where(here if wanted is None else here & wanted, value, old)

    def _store(self, s: Store, mask: Any) -> None:
        array = self.buffers[s.buffer]
        evaluator = self.evaluator(mask)
        dtype = self.kernel.buffer(s.buffer).dtype
        value = np.asarray(evaluator(s.value)).astype(dtype.numpy).astype(array.dtype)
        index = [np.asarray(evaluator.index(i)) for i in s.index]
        grids = np.broadcast_arrays(*index, value, *(() if mask is None else (mask,)))
        if mask is not None:
            inside = grids[-1].astype(bool)
            grids = tuple(g[inside] for g in grids[:-1])
        target = tuple(grids[: len(index)])
        if s.accumulate:
            np.add.at(array, target, grids[len(index)])
        elif target:
            array[target] = grids[len(index)]
        else:
            array[...] = value


def _steps_inside(at: np.ndarray[Any, Any], axis: int) -> Iterator[tuple[slice, ...]]:
    """The parts of a grid for each step of its axes from ``axis`` on."""
    for place in np.ndindex(at.shape[axis:]):
        yield (slice(None),) * min(axis, at.ndim) + tuple(slice(p, p + 1) for p in place)


def _part(value: Any, step: tuple[slice, ...]) -> Any:
    """The part of a value on a grid, which is the same along axes of one element."""
    if np.ndim(value) == 0:
        return value
    return value[tuple(part if size > 1 else slice(None) for part, size in zip(step, value.shape))]


def scheduled(program: Program) -> list[Kernel]:
    """The loops of each group; groups with a template also get the loops of their op's body."""
    from fxlite.codegen.kernel.schedule import loops

    groups = (g for g in program.groups if g.kind != "control" and not _is_routine(g))
    return [loops(found, "kernel") for found in groups]


def _is_routine(found: Group) -> bool:
    """Whether only a template can compute the group, because its op has no loops."""
    return found.anchor is not None and not found.anchor.target.has_body


def run_program(
    program: Program, inputs: Sequence[Any], kernels: Sequence[Kernel] | None = None, run: RunKernel = run_kernel
) -> list[np.ndarray[Any, Any]]:
    """Run a whole program's kernels, by default in NumPy; returns flat results. Groups with a template run
    as the loops of their op's body, against which the template is checked; for a routine, which has no
    loops, the op's reference is run. ``kernels`` is the result of an earlier :func:`scheduled` of the
    program."""
    from fxlite.graph.graph_module import check_inputs

    module = program.module
    names = [n.target for n in program.inputs]
    dims = check_inputs(module.name, program.inputs, dict(zip(names, inputs)))
    memory: dict[str, Any] = {buffer_name(n): v for n, v in zip(program.inputs, inputs)}
    for node in module.graph.find_nodes(op="get_attr"):
        memory[buffer_name(node)] = np.asarray(module.get_attribute(node.target))

    _run_groups(program, memory, dims, kernels, run)
    return [_value(program, node, memory, dims) for node in program.results]


def _value(program: Program, node: Node, memory: Mapping[str, Any], dims: Mapping[str, int]) -> Any:
    """The value of a node that a memory holds."""
    held = memory[buffer_name(program.memory(node))]
    return np.asarray(held).reshape(node.type.substitute(dims).shape)


def _run_groups(
    program: Program,
    memory: MutableMapping[str, Any],
    env: Mapping[str, int],
    kernels: Sequence[Kernel] | None = None,
    run: RunKernel = run_kernel,
) -> None:
    """Run the groups of a program in a memory."""
    value = partial(_value, program, memory=memory, dims=env)
    left = iter(kernels or _scheduled_once(program))
    for found in program.groups:
        if found.kind == "control":
            run_control(program, found, memory, env, _run_groups)
            continue
        if _is_routine(found):  # run the reference that it is checked against
            root = found.root
            given = root.target.map_tensors(lambda v: value(v) if isinstance(v, Node) else v, root.arguments)
            memory[buffer_name(program.memory(root))] = root.target.reference(**given)
            continue
        read = {buffer_name(n): value(n) for n in found.inputs}
        for new, operand in found.taken.items():  # the operand's memory is written over
            read[buffer_name(new)] = value(operand)
        for name, made in run(next(left), read, env).items():
            node = next(n for n in found.stored if buffer_name(n) == name)
            memory[buffer_name(program.memory(node))] = made


def _scheduled_once(program: Program) -> list[Kernel]:
    """:func:`scheduled`, cached with the program, because bodies run repeatedly."""
    known = program.__dict__.get("_kernels")
    if known is None:
        known = program.__dict__["_kernels"] = scheduled(program)
    return known


# -- loops and conditions --------------------------------------------------------------------------
#: Runs a program's groups in a memory, with the sizes of named dims and numbers of iterations.
RunGroups = Callable[[Program, MutableMapping[str, Any], Mapping[str, int]], None]


def run_control(
    program: Program, group: Group, memory: MutableMapping[str, Any], env: Mapping[str, int], run_groups: RunGroups
) -> None:
    """Run a group of ``program``, whose values are in ``memory``."""
    _Run(program, group, memory, env, run_groups).run()


class _Run:
    def __init__(self, program: Program, group: Group, memory: Any, env: Any, run: Any) -> None:
        self.program, self.group, self.memory, self.env = program, group, memory, dict(env)
        self.run_groups, self.node = run, group.root
        self.plan: ControlPlan = group.bodies

    def value(self, value: Any) -> Any:
        """An operand's current value in memory."""
        if not isinstance(value, Node):
            return np.asarray(value)
        if value in self.group.members:  # a constant
            arguments = shapes.substitute(tuple(value.arguments.items()), self.env)
            return np.asarray(value.target.evaluate(dict(arguments)))
        held = self.memory[buffer_name(self.program.memory(value))]
        return np.asarray(held).reshape(value.type.substitute(self.env).shape)

    def run(self) -> None:
        arguments = self.node.arguments
        if self.node.target.name == "cond":
            operands = [self.value(v) for v in arguments.get("operands", ())]
            name = "true_fn" if bool(self.value(arguments["pred"])) else "false_fn"
            self.store(self.body(self.plan.bodies[name], operands))
            return
        captured = [self.value(v) for v in arguments.get("captured", ())]
        taken = set(self.group.taken.values())
        carried = [
            value if node in taken else np.array(value)
            for node, value in ((v, self.value(v)) for v in arguments["carried"])
        ]
        body = self.plan.bodies["body_fn"]
        if self.node.target.name == "while_loop":
            test = self.plan.bodies["cond_fn"]
            while bool(self.body(test, [*carried, *captured])[0]):
                carried = [np.array(v) for v in self.body(body, [*carried, *captured])]
        else:
            lower, upper = (int(self.value(arguments[n])) for n in ("lower", "upper"))
            for i in range(lower, upper):
                given = [np.int64(i), *carried, *captured]
                carried = [np.array(v) for v in self.body(body, given)]
        self.store(carried)

    def body(self, plan: BodyPlan, inputs: list[Any]) -> list[Any]:
        """Run a body; returns its results."""
        memory: dict[str, Any] = {buffer_name(n): v for n, v in zip(plan.inputs, inputs)}
        env = dict(self.env)
        for node, value in zip(plan.inputs, inputs):
            index = index_of(node)
            if index is not None and index.single_atom is not None:
                env[index.single_atom.name] = int(value)  # type: ignore[union-attr]
            elif index is not None and index.evaluate(env) != int(value):
                raise CodegenError(f"{node.name} is {value}, and not {index}")
        self.run_groups(plan.program, memory, env)

        def result(node: Node) -> Any:
            held = memory[buffer_name(plan.program.memory(node))]
            return np.asarray(held).reshape(node.type.substitute(self.env).shape)

        return [result(node) for node in plan.results]

    def store(self, results: list[Any]) -> None:
        for part in self.group.parts:
            where = buffer_name(self.program.memory(part))
            value = np.array(results[part.kwargs["index"]])
            held = self.memory.get(where)
            self.memory[where] = value if held is None else value.reshape(np.shape(held))
