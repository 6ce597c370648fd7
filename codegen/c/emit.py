"""Emit a program as C: one source file, one header, one weights blob.

In: a GraphModule whose ops all have a body. Out: :class:`CProgram`: file texts, the packed weights
and the description of the entry point. The C calls nothing but libm and OpenMP, and is right
without OpenMP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from fxlite.codegen.c import templates
from fxlite.codegen.c.attention import ATTENTION_PREAMBLE
from fxlite.codegen.c.calls import Call, dim_c, program_calls
from fxlite.codegen.c.conv import CONV_PREAMBLE
from fxlite.codegen.c.depthwise_tile import DEPTHWISE_PREAMBLE
from fxlite.codegen.c.gemm import BF16_PREAMBLE, PREAMBLE
from fxlite.codegen.c.header import about, header_text
from fxlite.codegen.c.needed import needed
from fxlite.codegen.c.recurrence import RECURRENCE_PREAMBLE
from fxlite.codegen.c.ticks import ticks_prototype, ticks_source
from fxlite.codegen.c.winograd_tile import WINOGRAD_PREAMBLE
from fxlite.codegen.lower import buffer_name
from fxlite.codegen.printer import comment, signature, storage_type
from fxlite.codegen.program import ALIGNMENT, Program, plan
from fxlite.codegen.runtime.abi import C_HELPERS, ArgSpec, Condition, DimText, Entry
from fxlite.graph import Node
from fxlite.graph_module import GraphModule
from fxlite.index import Index, to_text
from fxlite.shapes import Dim


@dataclass(frozen=True)
class CProgram:
    """Emitted C. ``sources`` maps file names to text; ``weights`` is the blob the run function
    takes; ``program`` is what was emitted, ``calls`` its steps, ``outputs`` the C names of its
    results, ``functions`` the source without what it includes; ``profile``: the run function takes
    the time after each call."""

    name: str
    sources: Mapping[str, str]
    weights: bytes
    entry: Entry
    program: Program
    calls: tuple[Call, ...]
    outputs: tuple[str, ...]
    functions: str
    profile: bool = False
    matmul_precision: str = "highest"


def c_name(name: str) -> str:
    """A model's name as a C identifier prefix."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return re.sub(r"\W+", "_", snake).strip("_") or "model"


def emit(
    module: GraphModule,
    name: str | None = None,
    profile: bool = False,
    matmul_precision: str = "highest",
) -> CProgram:
    """C source of a module; with ``profile``, ``NAME_ticks()`` tells when each kernel of a thread's
    last run began and ended. ``matmul_precision`` "medium" rounds the operands of products with
    constant weights to bf16. Raises CodegenError for graphs that cannot be compiled."""
    prefix = c_name(name or module.name)
    program = plan(module, templates.claims)
    weights = _Weights(module)
    locations: list[str] = []
    calls = program_calls(program, weights.arrays, weights.packed, locations, matmul_precision)
    blob = weights.blob(calls, program)
    printed = _Source(prefix, program, calls, weights, locations, profile)
    header, source = printed.texts()
    entry = entry_of(prefix, program, locations)
    math_header = files("fxlite.codegen.c").joinpath("fx_math.h").read_text()
    sources = {f"{prefix}.c": source, f"{prefix}.h": header, "fx_math.h": math_header}
    outputs = tuple(printed.outputs)
    return CProgram(
        prefix, sources, blob, entry, program, tuple(calls), outputs, printed.functions(), profile,
        matmul_precision,
    )  # fmt: skip


class _Weights:
    """Arrays of the module as the C code wants them, and their places in the blob."""

    def __init__(self, module: GraphModule) -> None:
        self.arrays: dict[Node, Any] = {
            n: np.asarray(module.get_attribute(n.target))
            for n in module.graph.nodes
            if n.op == "get_attr"
        }
        self.packed: dict[str, np.ndarray[Any, Any]] = {}
        self.offsets: dict[str, tuple[int, str]] = {}  # name -> (byte offset, C type)

    def blob(self, calls: list[Call], program: Program) -> bytes:
        """All arrays some call reads, aligned, one after another."""
        by_name = {buffer_name(n): n for n in self.arrays}
        parts: list[bytes] = []
        position = 0
        used = dict.fromkeys(a for c in calls for a in c.arguments)
        for node in program.results:
            if node.op == "get_attr":
                used[buffer_name(node)] = None
        for name in used:
            if name in self.packed:
                array, ctype = self.packed[name], _ctype_of(self.packed[name])
            elif name in by_name:
                node = by_name[name]
                array, ctype = self.arrays[node], storage_type(node.type.dtype)
            else:
                continue
            data = np.ascontiguousarray(array).tobytes()
            self.offsets[name] = (position, ctype)
            padding = -len(data) % ALIGNMENT
            parts += [data, b"\0" * padding]
            position += len(data) + padding
        return b"".join(parts)


def _ctype_of(array: np.ndarray[Any, Any]) -> str:
    return {"float32": "float", "float64": "double", "uint32": "uint32_t"}[array.dtype.name]


def _dim_python(dim: Dim) -> int | DimText:
    if type(dim) is int:
        return dim
    return DimText(to_text(Index.of(dim), repr, "//", ("min", "max")))


def entry_of(name: str, program: Program, locations: list[str]) -> Entry:
    """What the wrapper must know of the emitted function: arguments, dims and results."""

    def spec(label: str, node: Node) -> ArgSpec:
        return ArgSpec(label, node.type.dtype.name, tuple(_dim_python(d) for d in node.type.shape))

    graph = program.module.graph
    structure = graph.output_node().args[0]
    return Entry(
        name,
        tuple(spec(n.target, n) for n in program.inputs),
        tuple(spec(f"out{i}", n) for i, n in enumerate(program.results)),
        tuple(program.dims),
        tuple(locations),
        single_output=isinstance(structure, Node),
        conditions=tuple(
            Condition(_dim_python(g.left), g.relation, _dim_python(g.right), g.reason)
            for g in graph.conditions()
        ),
        note=", ".join(f"{n} was specialized to {v}" for n, v in graph.specialized.items()),
    )


class _Source:
    """Prints the header and the source file."""

    def __init__(
        self,
        name: str,
        program: Program,
        calls: list[Call],
        weights: _Weights,
        locations: list[str],
        profile: bool,
    ) -> None:
        self.name, self.program, self.calls = name, program, calls
        self.weights, self.locations, self.profile = weights, locations, profile
        taken = {buffer_name(n) for n in program.module.graph.nodes} | set(program.dims)
        self.outputs: list[str] = []
        for number, node in enumerate(program.results):
            own = (
                node in program.slot_of
                or node.op != "call_function"
                or node in program.results[:number]
            )
            wish = f"out{number}" if own else buffer_name(node)
            while own and wish in taken:
                wish = f"_{wish}"
            self.outputs.append(wish)

    def texts(self) -> tuple[str, str]:
        head = [comment(about(self.name, self.program)), f'#include "{self.name}.h"', ""]
        if self.profile:
            head.insert(2, "#include <time.h>")
        functions = self.functions()
        return self._header(), "\n".join([*head, prelude(functions), functions])

    # -- header --------------------------------------------------------------------------------
    def _parameters(self) -> list[str]:
        parts = [
            f"const {storage_type(n.type.dtype)} *{buffer_name(n)}" for n in self.program.inputs
        ]
        parts += [
            f"{storage_type(n.type.dtype)} *{o}" for n, o in zip(self.program.results, self.outputs)
        ]
        parts += [f"int64_t {d}" for d in self.program.dims]
        return [
            *parts,
            "const void *weights",
            "void *workspace",
            "int n_threads",
            "fx_error *error",
        ]

    def _header(self) -> str:
        run = "\n".join(signature(f"{self.name}_run", self._parameters(), "int"))
        size = len_text(self.weights)
        prototypes = f"{run[:-2]};"
        if self.profile:
            prototypes += f"\n\n{ticks_prototype(self.name, len(self.calls))}"
        return header_text(
            self.name, self.program, self.outputs, self.locations, size,
            f"{self._workspace_signature()};", prototypes,
        )  # fmt: skip

    def _workspace_signature(self) -> str:
        dims = "".join(f"int64_t {d}, " for d in self.program.dims)
        return f"int64_t {self.name}_workspace_bytes({dims}int n_threads)"

    # -- source --------------------------------------------------------------------------------
    def functions(self) -> str:
        """The kernels, the memory layout and the run function."""
        text: list[str] = []
        for call in self.calls:
            if call.name == call.function:
                text += [call.text, ""]
        text += [*self._layout(), "", *self._workspace(), ""]
        if self.profile:
            text += [ticks_source(self.name, len(self.calls)), ""]
        return "\n".join([*text, *self._run(), ""])

    def _layout(self) -> list[str]:
        """Where each slot of the workspace starts."""
        slots = self.program.slots
        dims = "".join(f"int64_t {d}, " for d in self.program.dims)
        lines = [
            comment("Byte offsets of the workspace's slots, in which values take turns; the last\n"
                    "ones are the scratch space of the templates and the end."),
            f"static void layout({dims}int n_threads, int64_t offset[{len(slots) + 2}]) {{",
            "    offset[0] = 0;",
        ]  # fmt: skip
        users: dict[int, list[str]] = {}
        for node, slot in self.program.slot_of.items():
            users.setdefault(slot, []).append(node.name)
        for number, each in enumerate(slots):
            names = ", ".join(users[number][:6]) + (", ..." if len(users[number]) > 6 else "")
            lines.append(
                f"    offset[{number + 1}] = offset[{number}] + {dim_c(each.size)};  // {names}"
            )
        scratch = list(dict.fromkeys(c.scratch for c in self.calls if c.scratch != "0"))
        lines.append(f"    int64_t scratch = {scratch[0] if scratch else 0};")
        lines += [f"    scratch = fx_max(scratch, {s});" for s in scratch[1:]]
        last = len(slots)
        lines.append(f"    offset[{last + 1}] = offset[{last}] + (scratch + 63) / 64 * 64;")
        unused = [*self.program.dims, "n_threads"]
        body = "\n".join(lines[2:])
        lines += [f"    (void)({u});" for u in unused if not re.search(rf"\b{u}\b", body)]
        return [*lines, "}"]

    def _workspace(self) -> list[str]:
        count = len(self.program.slots) + 2
        dims = "".join(f"{d}, " for d in self.program.dims)
        return [
            self._workspace_signature() + " {", f"    int64_t offset[{count}];",
            f"    layout({dims}n_threads, offset);", f"    return offset[{count - 1}];", "}",
        ]  # fmt: skip

    def _run(self) -> list[str]:
        program = self.program
        count = len(program.slots) + 2
        dims = "".join(f"{d}, " for d in program.dims)
        lines = [
            *signature(f"{self.name}_run", self._parameters(), "int"),
            f"    int64_t offset[{count}];",
            f"    layout({dims}n_threads, offset);",
            "    unsigned char *const arena = (unsigned char *)workspace;",
            f"    void *const scratch = arena + offset[{count - 2}];",
        ]
        for name, (position, ctype) in self.weights.offsets.items():
            lines.append(
                f"    const {ctype} *const {name} = "
                f"(const {ctype} *)((const char *)weights + {position});"
            )
        for node, slot in program.slot_of.items():
            ctype = storage_type(node.type.dtype)
            lines.append(
                f"    {ctype} *const {buffer_name(node)} = ({ctype} *)(arena + offset[{slot}]);"
                f"  // {node.type}"
            )
        for node, source in program.stored.items():
            name, ctype = buffer_name(node), storage_type(node.type.dtype)
            lines.append(
                f"    const {ctype} *const {name} = {buffer_name(source)};  // {node.type}"
            )
        lines.append("    error->code = 0;")
        if self.profile:
            lines.append("    fx_ticks[0] = fx_nanoseconds();")
        for number, call in enumerate(self.calls):
            joined = ", ".join(call.arguments)
            line = f"    {call.function}({joined});"
            if len(line) > 100:
                line = f"    {call.function}(\n        {joined});"
            lines.append(line)
            if "error" in call.arguments:
                lines.append("    if (error->code) return error->code;")
            if self.profile:
                lines.append(f"    fx_ticks[{number + 1}] = fx_nanoseconds();")
        lines += self._copies()
        body = "\n".join(lines[2:])
        for name in ("n_threads", "weights", "workspace", "scratch", "arena", *program.dims,
                     *(buffer_name(n) for n in program.inputs)):  # fmt: skip
            if len(re.findall(rf"\b{name}\b", body)) < (2 if name in ("scratch", "arena") else 1):
                lines.append(f"    (void){name};")
        return [*lines, "    return 0;", "}"]

    def _copies(self) -> list[str]:
        """Results that no kernel stores: inputs or weights handed through, one value twice."""
        lines = []
        for node, name in zip(self.program.results, self.outputs):
            if name != buffer_name(node):
                lines.append(f"    memcpy({name}, {buffer_name(node)}, {dim_c(node.type.nbytes)});")
        return lines


_PREAMBLES = (
    PREAMBLE, BF16_PREAMBLE, CONV_PREAMBLE, DEPTHWISE_PREAMBLE, WINOGRAD_PREAMBLE,
    ATTENTION_PREAMBLE, RECURRENCE_PREAMBLE,
)  # fmt: skip
"""Tiles and transforms that the functions of templates call; each may call those before it."""


def prelude(functions: str) -> str:
    """What the functions of a program need before them: includes, and what they call."""
    head = ["#include <math.h>", "#include <stdbool.h>", "#include <string.h>", "",
            '#include "fx_math.h"', ""]  # fmt: skip
    library = "\n".join([C_HELPERS, *_PREAMBLES])
    return "\n".join([*head, needed(library, functions)])


def len_text(weights: _Weights) -> str:
    """Size of the blob as text."""
    end = 0
    for name, (position, _) in weights.offsets.items():
        array = weights.packed.get(name)
        if array is None:
            array = next(a for n, a in weights.arrays.items() if buffer_name(n) == name)
        end = max(end, position + -(-array.nbytes // ALIGNMENT) * ALIGNMENT)
    return str(end)
