"""Emit a program as C: one source file, its header, headers of the functions it calls, and a weights
blob.

In: a GraphModule whose ops all have a body. Out: :class:`CProgram`: file texts, the packed weights
and the description of the entry point. The C calls only libm and OpenMP, and also works without OpenMP.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from types import MappingProxyType

from fxlite.base.errors import CodegenError
from fxlite.codegen.c.calls import NO_CHOICES, Call, Choices, dim_c, planned_calls
from fxlite.codegen.c.header import MODEL, about, header_text
from fxlite.codegen.c.run import Steps
from fxlite.codegen.c.structs import STATE, VALUES, WEIGHTS
from fxlite.codegen.c.structure import Structure, structure_of
from fxlite.codegen.c.tiles.library import headers, includes, macros
from fxlite.codegen.c.weights import Array, Packed
from fxlite.codegen.c.workspace import (
    divisors,
    head_of,
    real_c,
    size_check,
    size_function,
    unused,
    with_note,
    workspace_signature,
)
from fxlite.codegen.kernel.lower import buffer_name
from fxlite.codegen.kernel.names import HEADERS, LONGEST, Scope, dim_name, file_name, own_name
from fxlite.codegen.kernel.text import comment, filled, signature, wrap
from fxlite.codegen.program.calls import dim_data, value_sizes
from fxlite.codegen.program.program import Program
from fxlite.codegen.program.states import state_bytes, state_places, written_results
from fxlite.codegen.runtime.abi import ArgSpec, Condition, Entry
from fxlite.codegen.runtime.sizes import ValueSize
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule


@dataclass(frozen=True)
class CProgram:
    """Emitted C. ``sources`` maps file names to text; ``weights`` is the blob for the run function;
    ``program`` is what was emitted, and ``calls`` are its steps. ``inputs``, ``dims`` and ``outputs``
    have the C names of arrays, named sizes and results; ``functions`` is the source without the text it
    includes. With ``profile`` the run function takes the time after each call. ``adapter`` has files that
    replace sources of the same names when Python calls the model. ``places`` has the positions of arrays
    in the blob, of which some are ``packed``. ``states`` maps targets of inputs to members of ``struct
    NAME_state``, and ``donated`` to the parameters in whose memory results lie."""

    name: str
    sources: Mapping[str, str]
    weights: Array
    entry: Entry
    program: Program
    calls: tuple[Call, ...]
    inputs: tuple[str, ...]
    dims: tuple[str, ...]
    outputs: tuple[str, ...]
    functions: str
    profile: bool = False
    matmul_precision: str = "highest"
    adapter: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    packed: Packed = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    donated: Mapping[str, str] = field(default_factory=dict)

    @property
    def owned(self) -> dict[str, str]:
        """The C names of the inputs in whose memory results lie, by target."""
        return {**self.states, **self.donated}


_ENDS = (
    "_run _workspace_bytes _ticks _largest_bytes _weights _weights_at _values _values_at _state _state_init _check "
    "_error_message"
).split()
"""The names of the functions and structs that every model has."""
_LONGEST = LONGEST - max(map(len, _ENDS))


def c_name(name: str) -> str:
    """A model's name as the prefix of C identifiers and file names. It is changed to ``m_NAME`` if it could
    be confused with a kernel (``k0_...``), an included function (``fx_...``) or a standard header."""
    text = file_name(name)[:_LONGEST].strip("_")
    is_taken = text in HEADERS or re.match(r"\d|k\d+_|fx(_|$)", text) is not None
    is_taken = is_taken or not _words().isdisjoint(text + end for end in _ENDS)
    return f"m_{text}" if is_taken else text


@cache
def _words() -> frozenset[str]:
    """All words in the text that a model may include."""
    return frozenset(re.findall(r"\w+", macros()))


def emit(
    module: GraphModule,
    name: str | None = None,
    profile: bool = False,
    matmul_precision: str = "highest",
    weights: Array | None = None,
    choices: Choices = NO_CHOICES,
    apart: Collection[Node] = (),
    loops: bool = True,
    donated: Mapping[str, int] = MappingProxyType({}),
) -> CProgram:
    """C source of a module. With ``profile``, ``NAME_ticks()`` tells when each kernel of a thread's last
    run began and ended. ``matmul_precision="medium"`` rounds the operands of products with constant
    weights to bf16. ``weights`` is the blob if it exists already. ``choices`` override the models'
    decisions about kernels; nodes in ``apart`` get kernels without epilogues. With ``loops=False`` each
    kernel's call is printed separately, even if layers are equal. ``donated`` maps targets of inputs to
    the numbers of the flat results that take their memory. Values that a program writes into its
    arguments are stored there directly, or copied if that is impossible.

    A node that a template declines may be expanded in ``module``, with a line in its ledger. Raises
    CodegenError for graphs that cannot be compiled."""
    prefix = c_name(name or module.name)
    planned = planned_calls(module, matmul_precision, choices, apart, donated={**donated, **written_results(module)})
    _require_no_copies(planned.program, donated)
    calls, locations = planned.calls, planned.locations
    values = value_sizes(planned.program)
    structure = structure_of(prefix, planned, values, weights, loops)
    program = structure.program
    printed = Source(prefix, structure, calls, locations, profile, values)
    header, source = printed.texts()
    entry = entry_of(prefix, program, locations, values)
    sources = {f"{prefix}.c": source, f"{prefix}.h": header, **headers(printed.functions, prefix)}
    calls = [
        replace(c, arguments=tuple(map(printed.public, c.arguments)), scratch=printed.public(c.scratch)) for c in calls
    ]
    names = ([*map(buffer_name, program.given)], map(dim_name, program.dims), printed.outputs)
    inputs, dims, outputs = (tuple(map(printed.public, each)) for each in names)
    return CProgram(
        prefix,
        sources,
        structure.blob.data,
        entry,
        program,
        tuple(calls),
        inputs,
        dims,
        outputs,
        printed.functions,
        profile,
        matmul_precision,
        places=structure.blob.places,
        packed=planned.packed,
        states={node.target: member.name for node, member in structure.state.members.items()},
        donated={n.target: printed.public(buffer_name(n)) for n in program.owned if n not in program.states},
    )


def _require_no_copies(program: Program, donated: Collection[str]) -> None:
    """Raise CodegenError for a donated input that its result cannot be stored over."""
    for node, new in program.copied:
        if node.target in donated:
            raise CodegenError(
                f"donate={node.target!r}: {new.describe()} cannot be stored over {node.target}, elements of which "
                "are read after others are written; leave it out of donate="
            )


def entry_of(name: str, program: Program, locations: list[str], values: tuple[ValueSize, ...]) -> Entry:
    """What the wrapper must know about the emitted function: arguments, dims and results."""

    def spec(label: str, node: Node) -> ArgSpec:
        return ArgSpec(label, node.type.dtype.name, tuple(map(dim_data, program.type_of(node).shape)))

    graph = program.module.graph
    structure = graph.output_node().args[0]
    inputs = [spec(n.target, n) for n in program.given]
    if program.states:  # callers in Python see them as an array of bytes after the inputs
        taken = {each.name for each in inputs}
        label = next(f"state{'_' * n}" for n in itertools.count() if f"state{'_' * n}" not in taken)
        inputs.append(ArgSpec(label, "u8", (state_bytes(state_places(program.module)),)))
    single = not program.owned and isinstance(structure, Node)
    return Entry(
        name,
        tuple(inputs),
        tuple(spec(f"out{i}", n) for i, n in enumerate(program.results)),
        tuple(program.dims),
        tuple(locations),
        single_output=single,
        conditions=tuple(
            Condition(dim_data(g.left), g.relation, dim_data(g.right), g.reason) for g in graph.conditions()
        ),
        note=", ".join(f"{n} was specialized to {v}" for n, v in graph.specialized.items()),
        values=values,
    )


class Source:
    """Prints the header and the source file."""

    def __init__(
        self,
        name: str,
        structure: Structure,
        calls: list[Call],
        locations: list[str],
        profile: bool,
        values: tuple[ValueSize, ...],
    ) -> None:
        self.name, self.structure, self.program = name, structure, structure.program
        self.calls, self.locations, self.profile, self.values = calls, locations, profile, values
        program, self.workspace, self.state = structure.program, structure.workspace, structure.state
        self.outputs: list[str] = []
        for number, node in enumerate(program.results):
            own = node in program.slot_of or node.op != "call_function" or node in program.results[:number]
            self.outputs.append(own_name(f"out{number}") if own else buffer_name(node))

    def texts(self) -> tuple[str, str]:
        head = [comment(about(self.name, self.program)), f'#include "{self.name}.h"']
        head.append(includes(self.name))
        if self.profile:
            head.insert(1, "#define _POSIX_C_SOURCE 199309L\n#include <time.h>")
        source = "\n".join([*head, self.functions])
        return self.public(self._header()), source

    # -- header --------------------------------------------------------------------------------
    @property
    def arrays(self) -> list[str]:
        """The parameters for inputs and results."""
        owned = self.program.owned
        parts = [
            f"{'' if n in owned else 'const '}{n.type.dtype.c_stored} *{buffer_name(n)}" for n in self.program.given
        ]
        if self.state:
            parts.append(f"{self.state.tag} *{STATE}")
        return parts + [f"{n.type.dtype.c_stored} *{o}" for n, o in zip(self.program.results, self.outputs)]

    def _parameters(self) -> list[str]:
        return [
            *self.arrays,
            *(f"int64_t {dim_name(d)}" for d in self.program.dims),
            "const void *weights",
            "void *workspace",
            "int n_threads",
            "fx_error *error",
        ]

    def _header(self) -> str:
        run = "\n".join(signature(f"{self.name}_run", self._parameters(), "int"))
        size = str(self.structure.blob.data.size)
        prototypes = f"{run[:-2]};"
        if self.profile:
            prototypes += f"\n\n{ticks_prototype(self.name, len(self.calls))}"
        return header_text(
            self.name,
            self.program,
            self.outputs,
            self.locations,
            size,
            f"{workspace_signature(self.name, self.program)};",
            prototypes,
            bool(self.values),
            self.state,
        )

    # -- source --------------------------------------------------------------------------------
    @cached_property
    def functions(self) -> str:
        """The structs, the kernels, the size of the workspace and the functions that run them."""
        text: list[str] = []
        for definition in (self._weights_struct, self.workspace.definition):
            if definition:
                text += [self.public("\n".join(definition)) + ";", ""]
        text += self._behind_structs()
        for call in self.calls:
            if call.is_first and call.text:
                text += [call.text.rstrip("\n"), ""]
        return "\n".join([*text, self.public(self._functions), ""])

    def _behind_structs(self) -> list[str]:
        return []

    @cached_property
    def public(self) -> Scope:
        """How names are spelled in the header and in the functions that it declares."""
        return Scope("\n".join([self._functions, *self._more_names()]), macros())

    def _more_names(self) -> Sequence[str]:
        return self.structure.weights.tags

    @property
    def _weights_struct(self) -> list[str]:
        root = self.structure.weights.root
        if not root.members:
            return []
        return [comment("The weights, in the order in which they lie in memory."), *root.text()]

    @cached_property
    def _functions(self) -> str:
        """All functions except the kernels."""
        text = size_function(self.name, self.program.dims, self.values)
        text += [*self._check(), *self.workspace.size, *self.workspace.functions]
        if self.structure.weights.root.members:
            text += [*self.structure.weights.filled(f"{self.name}_weights_at"), ""]
        text += self.state.init(self.structure.blob.places)
        if self.profile:
            text += [ticks_source(self.name, len(self.calls)), ""]
        return "\n".join([*text, *self._run()])

    def _check(self) -> list[str]:
        """The function that checks whether a call is possible."""
        dims, failed = self.program.dims, "return FX_IMPOSSIBLE_SIZES"
        lines = ["    if (!processor_fits()) return FX_WRONG_PROCESSOR;"]
        lines += size_check(self.name, dims, self.values, failed)
        for condition in self.program.module.graph.conditions():
            left, right = dim_data(condition.left), dim_data(condition.right)
            for divisor in (d for side in (left, right) for d in divisors(side)):
                lines.append(f"    if (!({real_c(divisor)} > 0)) {failed};")
            test = f"{real_c(left)} {condition.relation} {real_c(right)}"
            lines += with_note(f"    if (!({test})) {failed};", condition.reason)
        text = "\n".join(lines)
        ignored = unused([n for n in map(dim_name, dims) if not re.search(rf"\b{n}\b", text)])
        return [f"{head_of(f'int {self.name}_check', dims)} {{", *ignored, *lines, "    return 0;", "}", ""]

    def _run(self) -> list[str]:
        found, name = self.structure, self.name
        dims = (*self.program.dims, *self.program.data_sizes)
        declared = {dim_name(d): f"int64_t {dim_name(d)}" for d in dims}
        declared |= {"n_threads": "int n_threads", "error": "fx_error *error"}
        printer = Steps(self.calls, found.arguments, found.bodies, f"{name}_values", declared, self.profile)
        self._add_data_sizes(printer)
        steps = printer.lines(found.steps)
        steps += self.copies(printer)
        sizes = ", ".join(map(dim_name, self.program.dims))
        lines = [f"    error->code = {name}_check({sizes});"]
        lines.append("    if (error->code) return error->code;")
        if found.weights.root.members:
            kind = f"const struct {found.weights.root.tag}"
            lines.append(f"    {kind} {WEIGHTS} = {name}_weights_at(weights);")
        if self.workspace.filled:
            lines += wrap(f"    const struct {name}_values {VALUES} = {self.workspace.filled};")
        lines += printer.tables
        if self.profile:
            lines += ["    fx_tick_count = 0;", "    fx_tick();"]
        lines += steps
        body = "\n".join(lines)
        names = [
            "n_threads",
            "weights",
            "workspace",
            *map(dim_name, self.program.dims),
            *(buffer_name(n) for n in self.program.given),
            *([STATE] if self.state else []),
        ]
        ignored = unused([n for n in names if not re.search(rf"\b{n}\b", body)])
        head = signature(f"{name}_run", self._parameters(), "int")
        return [*printer.functions, *head, *ignored, *lines, "    return 0;", "}"]

    def _add_data_sizes(self, printer: Steps) -> None:
        """After the call that counts, declare the size that depends on it."""
        sizes = self.program.data_sizes
        counted_at = self.program.counted_at
        counts = self.structure.results[len(self.structure.results) - len(sizes) :]
        for (name, size), count in zip(sizes.items(), counts):
            found = f"fx_min(*{printer.argument(count)} + 1, {dim_c(size.bound)})"
            lines = with_note(f"    const int64_t {dim_name(name)} = {found};", "one stands for all that do not count")
            printer.behind.setdefault(counted_at[name], []).extend(lines)

    def copies(self, printer: Steps) -> list[str]:
        """Copy results that no kernel stores (inputs or weights that are returned, one value returned
        twice), and then the new values of states and written arguments that were computed elsewhere."""
        lines = []
        results = zip(self.program.results, self.outputs, self.structure.results)
        for node, name, argument in results:
            if name != (value := printer.argument(argument)):
                lines.append(f"    fx_copy({name}, {value}, {dim_c(node.type.nbytes)});")
        behind = self.structure.results[len(self.program.results) :]
        for (node, _), argument in zip(self.program.copied, behind):
            member, value = self.state.members.get(node), printer.argument(argument)
            pointer = buffer_name(node) if member is None else member.pointer
            lines.append(f"    fx_copy({pointer}, {value}, {dim_c(node.type.nbytes)});")
        return lines


# -- counters of a profiled model ------------------------------------------------------------------
# In: a model's name and number of kernels. Out: C text for its header and its source. The run
# function reads the clock once before its first kernel and once after each, so that a kernel costs one
# reading (tens of nanoseconds) and the kernels' times add up to the time of the run.


def ticks_prototype(name: str, kernels: int) -> str:
    """The documentation and prototype for the header."""
    text = (
        "Nanoseconds of a monotonic clock during this thread's last run: before the first kernel,\n"
        f"then after each of the {kernels} kernels, in order of their numbers."
    )
    return f"/*{comment(text)[1:]}\nconst int64_t *{name}_ticks(void);"


def ticks_source(name: str, kernels: int) -> str:
    """The counters, their clock and the function that returns them. Threads that run the model at the same
    time have separate counters."""
    values = {"MODEL": name, "COUNT": str(kernels + 1)}
    return filled(MODEL.joinpath("ticks.c"), values).rstrip()
