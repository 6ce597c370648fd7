"""Emit a program as CUDA C: one ``.cu`` file, the launches that run it, and its weights.

In: a GraphModule whose ops all have a body. Out: :class:`CudaProgram`. The text is the same for
NVRTC, nvcc and the CPU shim; it includes ``prelude.cuh`` and ``fx_math.h`` and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import numpy as np

from fxlite.base.errors import CodegenError
from fxlite.codegen.c.calls import title_of
from fxlite.codegen.c.emit import c_name, entry_of
from fxlite.codegen.cuda.printer import CudaPrinter, line_comment
from fxlite.codegen.cuda.schedule import MOST_BLOCKS, device_kernels
from fxlite.codegen.cuda.templates import claims, render
from fxlite.codegen.kernel.lower import buffer_name
from fxlite.codegen.kernel.names import Scope, dim_name, resolved
from fxlite.codegen.kernel.schedule import schedule
from fxlite.codegen.program.program import Program, plan
from fxlite.codegen.program.value_sizes import value_sizes
from fxlite.codegen.runtime.abi import Entry
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.group import Group
from fxlite.passes.ledger import add_refusals, refusal
from fxlite.scalar.index import Index

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Launch:
    """One kernel launch. ``grid`` holds C expressions of the dims; ``arguments`` are names of
    buffers, of dims, and ``error``; ``stores`` is the value it computes."""

    kernel: str
    grid: tuple[str, str, str]
    block: tuple[int, int, int]
    arguments: tuple[str, ...]
    stores: str

    def blocks(self, dims: Mapping[str, int]) -> tuple[int, int, int]:
        """The grid for these dims; a zero among them means that there is nothing to do."""
        x, y, z = (integer(text, dims) for text in self.grid)
        return x, y, z

    def __str__(self) -> str:
        def listed(sizes: tuple[Any, ...]) -> str:
            return ", ".join(map(str, sizes[:1] if sizes[1:] in ((1, 1), ("1", "1")) else sizes))

        arguments = ", ".join(self.arguments)
        return f"{self.kernel}<<<({listed(self.grid)}), ({listed(self.block)})>>>({arguments})"


@dataclass(frozen=True)
class CudaProgram:
    """Emitted CUDA C. ``sources`` maps file names to text; ``weights`` maps the names of buffers to
    arrays; ``program`` is what was emitted, with the plan of its memory; ``names`` is what launches
    call values and dims."""

    name: str
    sources: Mapping[str, str]
    weights: Mapping[str, Array]
    entry: Entry
    program: Program
    launches: tuple[Launch, ...]
    names: Scope

    def name_of(self, node: Node) -> str:
        """What launches call the memory of a value."""
        return self.names(buffer_name(node))

    @property
    def source(self) -> str:
        """The text of the ``.cu`` file."""
        return self.sources[f"{self.name}.cu"]


def integer(text: str, dims: Mapping[str, int]) -> int:
    """The value of a C expression of dims that the emitter printed; nothing in it is negative."""
    known = {"min": min, "fx_min": min, "fx_max": max, "fx_floor_div": lambda a, b: a // b,
             "fx_floor_mod": lambda a, b: a % b}  # fmt: skip
    return int(eval(text.replace("/", "//"), {"__builtins__": {}, **known}, dict(dims)))


def emit(module: GraphModule, name: str | None = None) -> CudaProgram:
    """CUDA C of a module. Raises CodegenError for graphs that cannot be compiled."""
    prefix = c_name(name or module.name)
    program = plan(module, claims)
    values = value_sizes(program)
    locations: list[str] = []
    texts: list[str] = []
    launches: list[Launch] = []
    width = len(str(len(program.groups)))
    for number, found in enumerate(program.groups):
        kernel = f"{prefix}_k{number:0{width}d}_{title_of(found)}"
        for text, launch in _kernels(module, found, kernel, locations):
            texts.append(text)
            launches.append(launch)
    entry = entry_of(prefix, program, locations, values)
    head = [line_comment(_about(prefix, program)), '#include "prelude.cuh"', '#include "fx_math.h"']
    places = [line_comment(f"where {i}: {t}") for i, t in enumerate(locations)]
    source = "\n".join([*head, "", *places, *([""] if places else []), "\n\n".join(texts), ""])
    sources = {f"{prefix}.cu": source, **{n: _header(n) for n in ("prelude.cuh", "fx_math.h")}}
    names = _names(module, program, launches)
    launches = [_named(launch, names) for launch in launches]
    weights = _weights(module, program, launches, names)
    return CudaProgram(prefix, sources, weights, entry, program, tuple(launches), names)


def _names(module: GraphModule, program: Program, launches: Sequence[Launch]) -> Scope:
    """What launches call values and dims."""
    words = [w for launch in launches for w in (*launch.grid, *launch.arguments)]
    words += [buffer_name(n) for n in module.graph.nodes if n.op != "output"]
    return Scope("\n".join(["error", *words, *map(dim_name, program.dims)]))


def _named(launch: Launch, names: Scope) -> Launch:
    x, y, z = map(names, launch.grid)
    arguments = tuple(map(names, launch.arguments))
    return replace(launch, grid=(x, y, z), arguments=arguments, stores=names(launch.stores))


def _header(name: str) -> str:
    folder = "fxlite.codegen.c" if name == "fx_math.h" else "fxlite.codegen.cuda"
    return files(folder).joinpath(name).read_text(encoding="utf-8")


_MACROS = "\n".join(map(_header, ("prelude.cuh", "fx_math.h", "shim.h")))


def _about(name: str, program: Program) -> str:
    inputs = ", ".join(f"{n.target}: {n.type}" for n in program.inputs)
    outputs = ", ".join(str(n.type) for n in program.results)
    return f"{name}: ({inputs}) -> ({outputs})\nMade by fxlite from {program.module.name}."


def _kernels(
    module: GraphModule, found: Group, name: str, locations: list[str]
) -> list[tuple[str, Launch]]:
    """Texts and launches of a group: its template, or loops where it has none or does not fit,
    which the module's ledger says."""
    if found.anchor is not None:
        try:
            made = render(found, name, locations)
        except CodegenError as error:
            add_refusals(module, [refusal("template", found.anchor, str(error))])
        else:
            block, value = made.rendered.block, buffer_name(found.root)
            launch = Launch(name, made.rendered.grid, block, made.arguments, value)
            return [(_resolved(made.rendered.text.rstrip()), launch)]
    kernel = schedule(found, name, lanes=False)
    result: list[tuple[str, Launch]] = []
    for device in device_kernels(kernel):
        printer = CudaPrinter(device.kernel.buffers, locations)
        printed = printer.device_function(device)
        blocks = _capped(device.blocks, printer)
        launch = Launch(
            device.kernel.name, (blocks, "1", "1"), (device.threads, 1, 1), printed.arguments,
            buffer_name(found.root),
        )  # fmt: skip
        result.append((_resolved(printed.text), launch))
    return result


def _resolved(text: str) -> str:
    return resolved(text, _MACROS)


def _capped(blocks: Index, printer: CudaPrinter) -> str:
    constant = blocks.constant
    if constant is not None:
        return str(min(constant, MOST_BLOCKS))
    return f"fx_min({printer.bare(blocks)}, {MOST_BLOCKS})"


def _weights(
    module: GraphModule, program: Program, launches: Sequence[Launch], names: Scope
) -> dict[str, Array]:
    """The arrays that a launch reads or the program returns, as they lie in memory."""

    def name_of(node: Node) -> str:
        return names(buffer_name(node))

    used = {a for launch in launches for a in launch.arguments}
    used |= {name_of(n) for n in program.results}
    used |= {name_of(program.memory(n)) for n in program.stored if name_of(n) in used}
    result: dict[str, Array] = {}
    for node in module.graph.find_nodes(op="get_attr"):
        if name_of(node) in used:
            array = np.ascontiguousarray(module.get_attribute(node.target))
            result[name_of(node)] = array.view(node.type.dtype.stored)
    return result
