"""Run a kernel in NumPy, without a compiler: the loop tree itself, never an op's reference.

In: a kernel, arrays for its inputs, values of its dims. Out: arrays of its outputs. Loops whose
iterations are independent (parallel, simd) become axes of NumPy grids; the others run one by one,
under a mask where their extent depends on the grid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fxlite.codegen.kernel.evaluate import Evaluator
from fxlite.codegen.kernel.kernel_ir import (
    Alloc,
    Assign,
    Comment,
    For,
    If,
    Kernel,
    Let,
    Stmt,
    Store,
)
from fxlite.codegen.program.program import Program
from fxlite.graph.graph import Node

#: Computes a kernel's outputs by name, from its inputs by name and the sizes of named dims.
RunKernel = Callable[[Kernel, Mapping[str, Any], Mapping[str, int]], Mapping[str, Any]]

_GRID = ("parallel", "simd", "parallel simd", "independent")


def run_kernel(
    kernel: Kernel, inputs: Mapping[str, Any], dims: Mapping[str, int]
) -> dict[str, np.ndarray[Any, Any]]:
    """Outputs by name. ``inputs`` maps buffer names to arrays."""
    outputs = {
        b.name: np.zeros([int(s.evaluate(dims)) for s in b.shape], b.dtype.compute.numpy)
        for b in kernel.outputs
    }
    runner = _Runner(kernel, {**inputs, **outputs}, dict(dims))
    runner.run(kernel.body, 0, None)
    return {b.name: outputs[b.name].astype(b.dtype.numpy, copy=False) for b in kernel.outputs}


def _depth(body: Sequence[Stmt]) -> int:
    deepest = 0
    for s in body:
        if isinstance(s, (For, If)):
            own = isinstance(s, For) and s.kind in _GRID
            deepest = max(deepest, own + _depth(s.body))
    return deepest


class _Runner:
    def __init__(self, kernel: Kernel, buffers: dict[str, Any], env: dict[str, Any]) -> None:
        self.kernel = kernel
        self.buffers = buffers
        self.env = env
        self.locals: dict[str, Any] = {}
        self.axes = _depth(kernel.body)

    def value(self, e: Any, mask: Any = None) -> Any:
        return Evaluator(self.env, self.buffers, self.locals, mask)(e)

    def run(self, body: Sequence[Stmt], axis: int, mask: Any) -> None:
        """Run statements with ``axis`` grid loops around them; ``mask`` is where they apply."""
        for s in body:
            if isinstance(s, Let):
                self.locals[s.name] = self.value(s.value, mask)
            elif isinstance(s, Alloc):
                start = np.asarray(self.value(s.init, mask))
                self.locals[s.name] = [start] * s.size if s.size else start
            elif isinstance(s, Assign):
                self._assign(s, mask)
            elif isinstance(s, Store):
                self._store(s, mask)
            elif isinstance(s, If):
                condition = np.asarray(self.value(s.condition, mask))
                inside = condition if mask is None else condition & mask
                if inside.any():
                    self.run(s.body, axis, inside)
            elif isinstance(s, For):
                self._loop(s, axis, mask)
            else:
                assert isinstance(s, Comment)

    def _loop(self, s: For, axis: int, mask: Any) -> None:
        """All steps at once of a loop over the grid, each step of another one; where the extent
        depends on loops around it, up to the largest, and masked."""
        extent = np.asarray(Evaluator(self.env, self.buffers, self.locals).index(s.var.extent))

        def inside(step: Any) -> Any:
            if extent.size <= 1:
                return mask
            return step < extent if mask is None else (step < extent) & mask

        steps = np.arange(0, int(extent.max(initial=0)), s.step)
        if s.kind in _GRID:
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
        if s.target.index:
            position = int(Evaluator(self.env, self.buffers, self.locals).index(s.target.index[0]))
            cells = list(self.locals[name])
            cells[position] = new if mask is None else np.where(mask, new, cells[position])
            self.locals[name] = cells
        else:
            old = self.locals[name]
            self.locals[name] = new if mask is None else np.where(mask, new, old)

    def _store(self, s: Store, mask: Any) -> None:
        array = self.buffers[s.buffer]
        evaluator = Evaluator(self.env, self.buffers, self.locals, mask)
        dtype = self.kernel.buffer(s.buffer).dtype
        with np.errstate(all="ignore"):
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


def scheduled(program: Program) -> list[Kernel]:
    """The loops of each group; those with a template, too, get the loops their op's body says."""
    from fxlite.codegen.kernel.schedule import schedule

    return [schedule(found, "kernel") for found in program.groups]


def run_program(
    program: Program,
    inputs: Sequence[Any],
    kernels: Sequence[Kernel] | None = None,
    run: RunKernel = run_kernel,
) -> list[np.ndarray[Any, Any]]:
    """Run a whole program's kernels, by default in NumPy; returns its results, flat. Groups with a
    template run as the loops their op's body says, which is what the template is checked against.
    ``kernels`` are what :func:`scheduled` made of the program before."""
    from fxlite.codegen.kernel.lower import buffer_name
    from fxlite.graph.graph_module import check_inputs

    module = program.module
    names = [n.target for n in program.inputs]
    dims = check_inputs(module.name, program.inputs, dict(zip(names, inputs)))
    memory: dict[str, Any] = {buffer_name(n): v for n, v in zip(program.inputs, inputs)}
    for node in module.graph.find_nodes(op="get_attr"):
        memory[buffer_name(node)] = np.asarray(module.get_attribute(node.target))

    def value(node: Node) -> Any:
        held = memory[buffer_name(program.memory(node))]
        return np.asarray(held).reshape(node.type.substitute(dims).shape)

    for found, kernel in zip(program.groups, kernels or scheduled(program), strict=True):
        read = {buffer_name(n): value(n) for n in found.inputs}
        memory.update(run(kernel, read, dims))
    return [value(node) for node in program.results]
