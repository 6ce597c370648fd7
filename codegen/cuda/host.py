"""The host part of a saved CUDA program: a function that reads like the model, one launch after another,
with structs for the weights and the values of a call.

In: an emitted program. Out: ``NAME_run.cu``, which includes the kernels, and ``NAME.h`` for callers in C
and C++. All arrays are in the device's memory. The same text runs on the CPU shim.
"""

from __future__ import annotations

import re
from importlib.resources import files

import numpy as np

from fxlite.codegen.c.calls import dim_c
from fxlite.codegen.c.header import about, documentation, interface
from fxlite.codegen.c.rolling import Loop
from fxlite.codegen.c.structs import STATE, WEIGHTS, Weights
from fxlite.codegen.c.tiles.library import macros
from fxlite.codegen.cuda.emit import CudaProgram, Launch
from fxlite.codegen.kernel.builder import bare
from fxlite.codegen.kernel.lower import buffer_name
from fxlite.codegen.kernel.names import Scope, dim_name, file_name
from fxlite.codegen.kernel.text import comment, signature, wrap
from fxlite.graph.graph import Node
from fxlite.types.shapes import Dim

_ALIGNMENT = 64
_MODEL = files("fxlite.codegen.cuda").joinpath("model")


def host_sources(program: CudaProgram) -> dict[str, str]:
    """File name -> text."""
    host = _Host(program)
    return {f"{program.name}.h": host.header(), f"{program.name}_run.cu": host.source()}


class _Host:
    def __init__(self, program: CudaProgram) -> None:
        self.program, self.plan, self.name = program, program.program, program.name
        graph = self.plan.module.graph
        self.classes = {n.scope.path: n.scope.class_name for n in graph.nodes if n.scope is not None}
        spelled = {program.name_of(n): n for n in graph.find_nodes(op="get_attr")}
        self.weight_nodes = {name: spelled[name] for name in program.weights}
        places, at = dict[str, tuple[int, str]](), 0
        for name, array in program.weights.items():
            node = self.weight_nodes[name]
            places[buffer_name(node)] = at, node.type.dtype.cuda_name
            at += array.nbytes + -array.nbytes % _ALIGNMENT
        self.weights_bytes = at
        self.weights = Weights(f"{self.name}_weights", places, self._tag)
        entered = {
            name: self.weights.add(np.array(buffer_name(node), object), ()) for name, node in self.weight_nodes.items()
        }
        self.weights.settle()
        self.reached = {name: made() for name, made in entered.items()}
        self.fails = any("error" in launch.arguments for launch in program.launches)
        self.outputs = [self._output(n, node) for n, node in enumerate(self.plan.results)]

    def _tag(self, of: Loop | str) -> str:
        path = of if isinstance(of, str) else "layer"
        return f"{self.name}_{file_name(self.classes.get(path) or re.split(r'[.][0-9]', path)[0])}"

    def _is_own(self, number: int, node: Node) -> bool:
        """Whether a result is computed directly where the caller wants it."""
        first = node not in self.plan.results[:number]
        return first and node.op == "call_function" and node not in self.plan.slot_of

    def _output(self, number: int, node: Node) -> str:
        own = self._is_own(number, node) and node not in self.plan.stored
        return self.program.name_of(node) if own else f"out{number}"

    # -- the interface -------------------------------------------------------------------------
    @property
    def sizes(self) -> list[str]:
        return [f"int64_t {self.program.names(dim_name(d))}" for d in self.plan.dims]

    def parameters(self) -> list[str]:
        name_of = self.program.name_of
        parts = [f"const {n.type.dtype.cuda_name} *{name_of(n)}" for n in self.plan.inputs]
        parts += [f"{n.type.dtype.cuda_name} *{o}" for n, o in zip(self.plan.results, self.outputs)]
        parts += [*self.sizes, "const void *weights", "void *workspace"]
        return [*parts, *(["fx_error *error"] if self.fails else []), "cudaStream_t stream"]

    def header(self) -> str:
        """The header that a caller includes."""
        upper = self.name.upper()
        rows = [("[in]", self.program.name_of(n), str(n.type)) for n in self.plan.inputs]
        rows += [("[out]", o, str(n.type)) for n, o in zip(self.plan.results, self.outputs)]
        rows += [
            ("", "weights", f"{upper}_WEIGHTS_BYTES bytes of {self.name}_weights.bin"),
            ("", "workspace", f"as many bytes as {self.name}_workspace_bytes says"),
            *([("", "error", "its code is 1 at the end if an index was out of range")] if self.fails else []),
        ]
        width = max(len(f"{way} {label}") for way, label, _ in rows)
        text = "\n".join(
            [
                "Run the model: enqueue it on a stream.",
                "",
                *(f"@param{way + ' ' + label:<{width}}  {text}" for way, label, text in rows),
                "@return cudaSuccess, or what CUDA says of a launch",
                "",
                "Pointers are into the device's memory, to multiples of 64 bytes; arrays are dense",
                "and row-major; results must not overlap other arrays. Calls with different workspaces and",
                "results may run at the same time.",
            ]
        )
        run = "\n".join(signature(f"{self.name}_run", self.parameters(), "cudaError_t"))[:-2]
        values = {
            "SIZE_OF_WEIGHTS": str(self.weights_bytes),
            "SIZES": ", ".join(self.sizes) or "void",
            "RUN": f"{documentation(text)}\n{run};",
        }
        return interface(_MODEL, self.name, self.plan, values)

    # -- the source ----------------------------------------------------------------------------
    def source(self) -> str:
        """The functions."""
        state = list(self.plan.slot_of)
        body = [*self._workspace(), *self._weights(), *self._state(state), *self._run(state)]
        text = "\n".join(body)
        scope = Scope(text, macros())
        head = [
            comment(f"{about(self.name, self.plan)}\nThe host's part: nvcc -c {self.name}_run.cu"),
            f'#include "{self.name}.cu"',
            f'#include "{self.name}.h"',
            "",
            _MODEL.joinpath("launch.h").read_text(encoding="utf-8"),
        ]
        return "\n".join([*head, scope(text), ""])

    def _workspace(self) -> list[str]:
        """The size of the workspace, and where the slots begin in it."""
        dims = [self.program.names(dim_name(d)) for d in self.plan.dims]
        sizes = [self._size(slot.size) for slot in self.plan.slots]
        if self.program.scratch != 0:
            sizes.append(self.program.names(bare(self.program.scratch)))
        lines = [f"static void layout({', '.join([*self.sizes, 'int64_t *offset'])}) {{"]
        lines += [f"    (void){d};" for d in dims if not re.search(rf"\b{d}\b", " ".join(sizes))]
        lines.append("    offset[0] = 0;")
        for number, size in enumerate(sizes):
            lines += wrap(f"    offset[{number + 1}] = offset[{number}] + {size};")
        given = ", ".join([*dims, "offset"])
        return [
            comment("The offsets of the slots, which values share; the last one is their end."),
            *lines,
            "}",
            "",
            f"int64_t {self.name}_workspace_bytes({', '.join(self.sizes) or 'void'}) {{",
            f"    int64_t offset[{len(sizes) + 1}];",
            f"    layout({given});",
            f"    return offset[{len(sizes)}];",
            "}",
            "",
        ]

    def _size(self, dim: Dim) -> str:
        """Bytes of memory, as C."""
        return self.program.names(dim_c(dim))

    def _weights(self) -> list[str]:
        if not self.weights.root.members:
            return []
        return [
            comment("The weights, in the order in which they lie in memory."),
            *self.weights.root.text()[:-1],
            "};",
            "",
            *(
                line.replace(" = memory;", " = (const char *)memory;")
                for line in self.weights.filled(f"{self.name}_weights_at")
            ),
            "",
        ]

    def _state(self, values: list[Node]) -> list[str]:
        if not values:
            return []
        name_of = self.program.name_of
        members = [f"    {n.type.dtype.cuda_name} *{name_of(n)};  // {n.type}" for n in values]
        return [
            comment("Pointers to the values of a call, which share the workspace."),
            f"struct {self.name}_state {{",
            *members,
            "};",
            "",
        ]

    def _run(self, values: list[Node]) -> list[str]:
        name_of, plan = self.program.name_of, self.plan
        lines: list[str] = []
        held = {name_of(n): name_of(n) for n in plan.inputs}
        if self.weights.root.members:
            lines.append(f"    const {self.name}_weights {WEIGHTS} = {self.name}_weights_at(weights);")
        for name, reached in self.reached.items():
            parts = [index.text(lambda loop: "0") for index in reached.indices]
            held[name] = ".".join([WEIGHTS, *parts, reached.name])
        has_scratch = self.program.scratch != 0
        if values or has_scratch:
            dims = ", ".join([*(self.program.names(dim_name(d)) for d in plan.dims), "offset"])
            lines += [
                f"    int64_t offset[{len(plan.slots) + 1 + has_scratch}];",
                f"    layout({dims});",
                "    unsigned char *const arena = (unsigned char *)workspace;",
                *([f"    {self.name}_state {STATE};"] if values else []),
            ]
            if has_scratch:
                held["workspace"] = f"(char *)arena + offset[{len(plan.slots)}]"
            for node in values:
                held[name_of(node)] = f"{STATE}.{name_of(node)}"
                start = f"arena + offset[{plan.slot_of[node]}]"
                lines.append(f"    {held[name_of(node)]} = ({node.type.dtype.cuda_name} *)({start});")
        else:
            lines.append("    (void)workspace;")
        for number, node in enumerate(plan.results):
            if self._is_own(number, node) and node not in plan.stored:
                held[name_of(node)] = self.outputs[number]
        for node, source in plan.stored.items():
            held[name_of(node)] = held[name_of(source)]
        if self.fails:
            lines += ["    cudaMemsetAsync(error, 0, sizeof *error, stream);"]
        for launch in self.program.launches:
            lines += self._launch(launch, held)
        for result, output in zip(plan.results, self.outputs):
            memory = held[name_of(plan.memory(result))]
            if memory != output:
                copied = f"cudaMemcpyAsync({output}, {memory}, {self._size(result.type.nbytes)}, "
                lines += wrap(f"    {copied}cudaMemcpyDeviceToDevice, stream);")
        text = "\n".join(lines)
        known = ["weights", *(self.program.names(dim_name(d)) for d in plan.dims)]
        lines[:0] = [f"    (void){n};" for n in known if not re.search(rf"\b{n}\b", text)]
        head = signature(f"{self.name}_run", self.parameters(), 'extern "C" cudaError_t')
        return [*head, *lines, "    return cudaGetLastError();", "}"]

    def _launch(self, launch: Launch, held: dict[str, str]) -> list[str]:
        sizes = dict(launch.sizes)
        lines = [f"    const int64_t {name} = {self.program.names(bare(value))};" for name, value in launch.sizes]
        x, y, z = (self.program.names(bare(size)) for size in launch.grid)
        given = ", ".join(a if a in sizes else held.get(a, a) for a in launch.arguments)
        call = f"LAUNCH({launch.kernel}, {x}, {y}, {z}, {launch.threads}, {given});"
        indent = "        " if lines else "    "
        body = [f"    {line}" for line in lines] + wrap(f"{indent}{call}")
        return ["    {", *body, "    }"] if lines else body
