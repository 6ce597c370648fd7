"""Emit a program as CUDA C: one ``.cu`` file, the launches that run it, and its weights.

In: a GraphModule whose ops all have a body. Out: :class:`CudaProgram`. The text is the same for
NVRTC, nvcc and the CPU shim; it includes ``prelude.cuh`` and ``fx_math.h`` and nothing else.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import numpy as np

from fxlite.base.errors import CodegenError
from fxlite.codegen.c.calls import title_of
from fxlite.codegen.c.emit import c_name, entry_of
from fxlite.codegen.c.render import routine_template as routines
from fxlite.codegen.c.tiles.library import definitions, needed
from fxlite.codegen.cuda.counted import Gathered, counted, is_wide_convolution
from fxlite.codegen.cuda.gemm import CudaGemmSpec, IntegerWeight, render_gemm
from fxlite.codegen.cuda.integer_products import is_integer_product, render_integer_product
from fxlite.codegen.cuda.schedule import NO_BYTES, CudaPrinter, KernelText, device_kernels, kernel_text, line_comment
from fxlite.codegen.kernel.builder import Body, Pointer, bare, divide_up, round_up, smaller, symbol
from fxlite.codegen.kernel.lower import Contraction, buffer_name, declines_types, is_matrix_product, require_some
from fxlite.codegen.kernel.names import Scope, dim_name, resolved
from fxlite.codegen.kernel.schedule import document, schedule
from fxlite.codegen.program.calls import value_sizes
from fxlite.codegen.program.program import Program, plan
from fxlite.codegen.runtime.abi import Entry
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.numeric.linalg import eigh_rows, qr_rows, svd_rows
from fxlite.passes.group import Group
from fxlite.passes.ledger import add_refusals, refusal
from fxlite.scalar.index import DimVar, Index, extremum
from fxlite.types import shapes

# -- routines on the device: the tiles that C calls for a matrix, one thread for each --------------
# In: a group that is one op of :data:`ROUTINES`. Out: its kernel, and how much scratch its threads
# need. There are as many threads as matrices, up to :data:`MOST_THREADS`.


ROUTINES = {qr_rows: routines.QR, eigh_rows: routines.EIGH, svd_rows: routines.SVD}
TILES = definitions("numeric/orthogonal")
"""The tiles that these kernels call."""

THREADS, MOST_THREADS = 32, 4096


def is_routine(node: Node) -> bool:
    """True for nodes that these kernels compute."""
    return node.target in ROUTINES and not routines.declines_matrices(node)


def render_routine(group: Group, name: str) -> KernelText:
    """The kernel that calls the tile."""
    node = group.root
    routine = ROUTINES[node.target]
    known = routine.sizes(node)
    sizes = {n: Index.of(d) for n, d in known.items()}
    count = sizes.pop("items")
    assert routine.scratch is not None
    share = round_up(routine.scratch(sizes, node.type.dtype.itemsize), 64)
    kind, x, y = node.type.dtype.cuda_name, buffer_name(node.args[0]), buffer_name(node)
    body = Body()
    with body.block(f"for (int64_t item = fx_thread_index(); item < {bare(count)}; item += fx_thread_count())"):
        at = Pointer("workspace") + symbol("thread") * share
        body.assign("const int64_t thread", "fx_thread_index()")
        body.assign(f"{kind} *const memory", f"({kind} *)({at})")
        body.put(f"{routine.call(node, sizes, symbol('item'), '1', 'memory')};")
    dims = sorted({d for size in known.values() for d in shapes.names(size)})
    parameters = [f"const {kind} *__restrict__ x", f"{kind} *__restrict__ y"]
    parameters += [*(f"int64_t {dim_name(d)}" for d in dims), "char *workspace"]
    blocks = smaller(divide_up(count, THREADS), MOST_THREADS // THREADS)
    text = kernel_text(
        name, f"{document(group)}\nOne thread for each matrix.", parameters, THREADS, str(body).splitlines()
    )
    arguments = (x, y, *map(dim_name, dims), "workspace")
    return KernelText(
        name, text, arguments, (blocks, Index.of(1), Index.of(1)), THREADS, scratch=blocks * THREADS * share
    )


# -- emit a program as CUDA C: one ``.cu`` file, the launches that run it, and its weights ---------
Array = np.ndarray[Any, Any]
_HOST_WORDS = "arena cudaStream_t dim3 error kernel LAUNCH layout offset stream weights workspace".split()

SHARED = (*definitions("numeric/complex"), *TILES)
"""The parts of C's tiles that sources include if they refer to them."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch. ``grid`` holds numbers of blocks, in terms of named dims; a block has ``threads``
    threads; ``arguments`` are names of buffers, of dims, and ``error``; ``stores`` is the value it computes;
    ``sizes`` maps names in the grid to their values; ``scratch`` is the number of bytes of its argument
    ``workspace``."""

    kernel: str
    grid: tuple[Index, Index, Index]
    threads: int
    arguments: tuple[str, ...]
    stores: str
    sizes: tuple[tuple[str, Index], ...] = ()
    scratch: Index = NO_BYTES

    def blocks(self, dims: Mapping[str, int]) -> tuple[int, int, int]:
        """The grid for these dims; if it contains a zero, there is nothing to do."""
        known = {**dims, **{name: int(value.evaluate(dims)) for name, value in self.sizes}}
        x, y, z = (int(size.evaluate(known)) for size in self.grid)
        return x, y, z

    def __str__(self) -> str:
        sizes = self.grid if any(size != 1 for size in self.grid[1:]) else self.grid[:1]
        grid = ", ".join(resolved(bare(size)) for size in sizes)
        called = f"{self.kernel}<<<({grid}), ({self.threads})>>>({', '.join(self.arguments)})"
        said = ", ".join(f"{name} = {resolved(bare(value))}" for name, value in self.sizes)
        return f"{called} where {said}" if said else called


@dataclass(frozen=True)
class CudaProgram:
    """Emitted CUDA C. ``sources`` maps file names to text; ``weights`` maps the names of buffers to arrays;
    ``program`` is what was emitted, with its memory plan; ``names`` are the names of values and dims in
    launches."""

    name: str
    sources: Mapping[str, str]
    weights: Mapping[str, Array]
    entry: Entry
    program: Program
    launches: tuple[Launch, ...]
    names: Scope

    @property
    def scratch(self) -> Index:
        """Bytes of the workspace, which launches use one after the other."""
        needs = (launch.scratch for launch in self.launches if launch.scratch != 0)
        return functools.reduce(lambda a, b: extremum("max", a, b), needs, NO_BYTES)

    def name_of(self, node: Node) -> str:
        """The name of a value's memory in launches."""
        return self.names(buffer_name(node))

    @property
    def source(self) -> str:
        """The text of the ``.cu`` file."""
        return self.sources[f"{self.name}.cu"]


def emit(module: GraphModule, name: str | None = None) -> CudaProgram:
    """CUDA C of a module. Raises CodegenError for graphs that cannot be compiled."""
    prefix = c_name(name or module.name)
    program = plan(module, claims)
    values = value_sizes(program)
    locations: list[str] = []
    kernels: list[tuple[KernelText, str]] = []
    width = len(str(len(program.groups)))
    for number, found in enumerate(program.groups):
        kernel = f"{prefix}_k{number:0{width}d}_{title_of(found)}"
        made = _kernels(module, found, kernel, locations)
        kernels += [(text, buffer_name(found.root)) for text in made]
    kernels = _shared(kernels)
    entry = entry_of(prefix, program, locations, values)
    head = [line_comment(_about(prefix, program)), '#include "prelude.cuh"', '#include "fx_math.h"']
    places = [line_comment(f"where {i}: {t}") for i, t in enumerate(locations)]
    text = "\n\n".join(resolved(kernel.text, _MACROS) for kernel, _ in kernels if kernel.text)
    numbers = needed(text, SHARED)
    before = [*head, "", *places, *([""] if places else []), *([numbers] if numbers else [])]
    source = "\n".join([*before, text, ""])
    sources = {f"{prefix}.cu": source, **{n: _header(n) for n in ("prelude.cuh", "fx_math.h")}}
    names = _names(module, program, [kernel for kernel, _ in kernels])
    launches = tuple(_launch(kernel, value, names) for kernel, value in kernels)
    weights = _weights(module, program, launches, names)
    return CudaProgram(prefix, sources, weights, entry, program, launches, names)


#: How the code of a kernel begins, behind its comment.
_CODE = 'extern "C"'


def _shared(kernels: Sequence[tuple[KernelText, str]]) -> list[tuple[KernelText, str]]:
    """The kernels with the values they compute. Kernels that differ only in names, like those of a model's
    layers, are combined: the text of the first says what it is launched for, and that of the others is empty."""
    alike: dict[str, list[int]] = {}
    for number, (kernel, _) in enumerate(kernels):
        _, _, code = kernel.text.partition(_CODE)
        declared = re.findall(r"\w+ (\w+)(?= =|\[|;)", code)
        names = dict.fromkeys((kernel.name, *kernel.arguments, *declared))
        places = {name: f"name{i}" for i, name in enumerate(names)}
        words = [places.get(word, word) for word in re.findall(r"\w+|[^\w\s]", code)]
        alike.setdefault(" ".join(words), []).append(number)
    result = list(kernels)
    for first, *others in alike.values():
        if others:
            kernel, value = kernels[first]
            values = [value, *(kernels[n][1] for n in others)]
            listed = f"{', '.join(values[:3])}{', …' if len(values) > 3 else ''}"
            said = line_comment(f"Launched {len(values)} times: for {listed}")
            result[first] = replace(kernel, text=kernel.text.replace(_CODE, f"{said}\n{_CODE}", 1)), value
            for n in others:
                result[n] = replace(kernels[n][0], name=kernel.name, text=""), kernels[n][1]
    return result


def _names(module: GraphModule, program: Program, kernels: Sequence[KernelText]) -> Scope:
    """The names of values and dims in launches, none of which is a word of the host's part."""
    own = [*_HOST_WORDS, *(f"out{number}" for number in range(len(program.results)))]
    words = [w for x in kernels for w in (*x.arguments, *(name for name, _ in x.sizes))]
    words += [buffer_name(n) for n in module.graph.nodes if n.op != "output"]
    return Scope("\n".join([*own, *words, *map(dim_name, program.dims)]))


def _launch(kernel: KernelText, value: str, names: Scope) -> Launch:
    """The launch of a kernel that computes a value."""

    def named(size: Index) -> Index:
        dims = {a for a in size.atoms() if isinstance(a, DimVar)}
        return size.substitute({dim: DimVar(names(dim_name(dim.name))) for dim in dims})

    x, y, z = map(named, kernel.grid)
    sizes = tuple((names(name), named(size)) for name, size in kernel.sizes)
    arguments = tuple(map(names, kernel.arguments))
    scratch = named(kernel.scratch)
    return Launch(kernel.name, (x, y, z), kernel.threads, arguments, names(value), sizes, scratch)


def _header(name: str) -> str:
    folder = "fxlite.codegen.c" if name == "fx_math.h" else "fxlite.codegen.cuda"
    return files(folder).joinpath(name).read_text(encoding="utf-8")


_MACROS = "\n".join(map(_header, ("prelude.cuh", "fx_math.h", "shim.h")))


def _about(name: str, program: Program) -> str:
    inputs = ", ".join(f"{n.target}: {n.type}" for n in program.inputs)
    outputs = ", ".join(str(n.type) for n in program.results)
    return f"{name}: ({inputs}) -> ({outputs})\nMade by fxlite from {program.module.name}."


def _kernels(module: GraphModule, found: Group, name: str, locations: list[str]) -> list[KernelText]:
    """The kernels of a group: its template, or loops if there is none or the group does not fit; the module's
    ledger says which."""
    if found.anchor is not None:
        try:
            return [render(found, name, locations)]
        except CodegenError as error:
            add_refusals(module, [refusal("template", found.anchor, str(error))])
    return [
        CudaPrinter(device.kernel.buffers, locations).device_function(device)
        for device in device_kernels(schedule(found, name, lanes=False))
    ]


def _weights(module: GraphModule, program: Program, launches: Sequence[Launch], names: Scope) -> dict[str, Array]:
    """The arrays that a launch reads or the program returns, with the layout they have in memory."""

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


# -- match contraction groups to CUDA's templates --------------------------------------------------
# In: a group anchored at an op that a template :func:`claims`. Out: its kernel, with operand addresses
# and epilogue printed from the group's expressions, and its launch. Weights stay as they are: the kernels
# read any strides, and the integer weights of a linear_weight_only.


def claims(node: Node) -> bool:
    """True for nodes that a template computes."""
    is_product = is_matrix_product(node) or node.target.name == "linear_weight_only"
    is_product = is_product or (is_wide_convolution(node) and not declines_types(node))
    return is_product or is_integer_product(node) or is_routine(node)


def render(group: Group, name: str, locations: list[str]) -> KernelText:
    """The group's kernel. Raises CodegenError if the group does not fit a template after all."""
    assert group.anchor is not None
    require_some(group)
    if is_routine(group.anchor):
        return render_routine(group, name)
    if is_integer_product(group.anchor):
        return render_integer_product(group, name, locations)
    return _render_gemm(group, name, locations)


def _render_gemm(group: Group, name: str, locations: list[str]) -> KernelText:
    p, printer = counted(group, locations)
    weight = _integer_weight(p.c, p.axes.depth.whole.extent)
    right = [] if weight is None else [weight.weight, weight.scale]
    a, b = (Gathered(**p.operand(load, printer)) for load in (p.a, p.b))
    fields = p.fields(group, name, printer, right)
    return render_gemm(CudaGemmSpec(ctype=p.c.anchor.type.dtype.c_name, a=a, b=weight or b, **fields))


def _integer_weight(c: Contraction, k: Index) -> IntegerWeight | None:
    """The weights of a linear_weight_only, given as integers and scales; None for other ops."""
    if c.anchor.target.name != "linear_weight_only":
        return None
    weight, scale = (buffer_name(node) for node in c.anchor.args[1:3])
    attributes = c.anchor.arguments
    group_size = attributes.get("group_size") or 0
    return IntegerWeight(weight, scale, k, attributes.get("bits", 8), group_size)
