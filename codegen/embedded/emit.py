"""Emit a program as C for a small device: loops, weights as constants, an arena of fixed size.

In: a GraphModule whose sizes are numbers and whose ops all have a body. Out: a
:class:`~fxlite.codegen.c.emit.CProgram` whose source allocates no memory, opens no file, starts no
thread and contains no instructions specific to a processor; and C through which Python calls it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from importlib.resources import files
from typing import Any

import numpy as np

from fxlite.base.errors import CodegenError
from fxlite.codegen.c.calls import Call, loops_call, planned_calls
from fxlite.codegen.c.emit import CProgram, Source, c_name, entry_of
from fxlite.codegen.c.header import documentation, interface, places_text, result_places
from fxlite.codegen.c.run import Steps
from fxlite.codegen.c.structs import VALUES, WEIGHTS, Struct
from fxlite.codegen.c.structure import structure_of
from fxlite.codegen.c.tiles.library import headers
from fxlite.codegen.kernel.kernel_ir import For, Kernel, expressions, statements
from fxlite.codegen.kernel.lower import buffer_name
from fxlite.codegen.kernel.names import apart, own_name, spelled
from fxlite.codegen.kernel.printer import CPrinter
from fxlite.codegen.kernel.schedule import schedule
from fxlite.codegen.kernel.text import comment, filled, signature
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node import types_of
from fxlite.passes.group import Group
from fxlite.scalar import expr
from fxlite.scalar.expr import IndexValue
from fxlite.scalar.index import Index, Value
from fxlite.types import shapes
from fxlite.types.dtypes import DType

MODEL = files("fxlite.codegen.embedded").joinpath("model")
"""The folder of files that are the same for all models, except for words such as the model's name."""

LARGEST = 1 << 31
"""The largest index: indices are 32-bit integers."""


def require_small(module: GraphModule) -> None:
    """Raise CodegenError for sizes that are not numbers, for values that are too large, and for 64-bit
    floats. The message names the node and says what to do."""
    for node in module.graph.placeholders:
        names = sorted({n for dim in node.type.shape for n in shapes.names(dim)})
        if names:
            given, listed = ", ".join(f"{name}=1" for name in names), ", ".join(names)
            raise CodegenError(
                f"{node.describe()}: {node.target} is {node.type}, and a program for a small "
                f"device has fixed sizes; trace it with numbers in place of {listed}, or "
                f"give them: gm.specialize({given})"
            )
    for node in module.graph.nodes:
        for kind in types_of(node) if node.op != "output" else ():
            if kind is not None and kind.dtype.real.name == "f64":
                raise CodegenError(
                    f"{node.describe()} is {kind}: small devices compute float64 by functions, at "
                    "a fiftieth of the speed; use float32 (x.astype(np.float32))"
                )
            if kind is not None and type(kind.size) is int and kind.size >= LARGEST:
                raise CodegenError(f"{node.describe()} is {kind}: too large for a small device")


def emit(module: GraphModule) -> CProgram:
    """C source of an optimized module. Raises CodegenError."""
    require_small(module)
    prefix = c_name(module.name)
    arrays = {n: np.asarray(module.get_attribute(n.target)) for n in module.graph.nodes if n.op == "get_attr"}
    # One function may read all weights of a type.
    infinite = {n.type for n, a in arrays.items() if not (n.type.dtype.is_inexact and np.isfinite(a).all())}
    finite = frozenset(buffer_name(n) for n in arrays if n.type not in infinite)
    planned = planned_calls(module, plain=partial(_call, finite))
    structure = structure_of(prefix, planned, (), None, loops=True)
    printed = _Source(prefix, structure, planned.calls, planned.locations, False, ())
    header, source = printed.texts()
    entry = entry_of(prefix, structure.program, planned.locations, ())
    sources = {f"{prefix}.c": source, f"{prefix}.h": header}
    sources |= headers(printed.functions, prefix)
    if printed.arrays_of_weights:
        sources[f"{prefix}_weights.h"] = printed.weights_text()
    inputs = tuple(printed.public(buffer_name(n)) for n in structure.program.inputs)
    outputs = tuple(map(printed.public, printed.outputs))
    adapter = {f"{prefix}_model.h": source, f"{prefix}.c": printed.adapter()}
    return CProgram(
        prefix,
        sources,
        structure.blob.data,
        entry,
        structure.program,
        tuple(planned.calls),
        inputs,
        (),
        outputs,
        printed.functions,
        adapter=adapter,
    )


def _call(finite: frozenset[str], locations: list[str], found: Group, name: str) -> Call:
    """The call of a group's function, which consists of loops."""
    kernel = schedule(found, name, lanes=False, finite=finite)
    return loops_call(found, kernel, _Printer(kernel, locations))


class _Printer(CPrinter):
    """Prints for one thread, with 32-bit indices if all of them are known to fit."""

    extremum_text: Callable[[str], str] = "fx_{}imum_i32".format

    def __init__(self, kernel: Kernel, locations: list[str]) -> None:
        super().__init__(kernel.buffers, locations)
        is_small = all(map(_is_small, _indices(kernel)))
        self.index_type = "int32_t" if is_small else "int64_t"
        if not is_small:
            self.extremum_text = CPrinter.extremum_text

    def pragma(self, s: For) -> list[str]:
        """There are no threads."""
        return []


def _indices(kernel: Kernel) -> Iterator[Index]:
    """The indices that a kernel computes from its loop variables, except addresses, which are within arrays."""
    for statement in statements(kernel.body):
        for value in expressions(statement):
            yield from (n.index for n in expr.walk(value) if isinstance(n, IndexValue))


def _is_small(index: Index) -> bool:
    """Whether no sum or product in the index exceeds 31 bits."""
    bounds = [Index({monomial: abs(factor)}).upper() for monomial, factor in index.terms.items()]
    known = [b.constant for b in bounds if b is not None]
    is_local = all(isinstance(a, Value) for m in index.terms for a in m)
    return is_local or (None not in known and len(known) == len(bounds) and sum(k or 0 for k in known) < LARGEST)


class _Source(Source):
    """Prints the files. The model's function takes its arrays, the arena if there is one, and, if
    something may go wrong, a struct for the error."""

    @property
    def fails(self) -> bool:
        """Whether an index may be out of range."""
        return any("error" in call.arguments for call in self.calls)

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena."""
        return int(self.program.arena_bytes)

    def _parameters(self) -> list[str]:
        arena = ["void *arena"] if self.workspace.filled else []
        return [*self.arrays, *arena, *(["fx_error *error"] if self.fails else [])]

    # -- header --------------------------------------------------------------------------------
    def _header(self) -> str:
        upper = self.name.upper()
        arena = [
            "/** Bytes of the arena, in which a call computes. Its content before a call does not",
            " * matter, and nothing is kept in it for the next call. */",
            f"#define {upper}_ARENA_BYTES {self.arena_bytes}",
        ]
        head = "\n".join(signature(f"{self.name}_run", self._parameters(), self.result))
        values = {
            "PLACES": places_text(self.locations),
            "SIZE_OF_WEIGHTS": str(self.weights_bytes),
            "ARENA": "\n".join(arena) if self.workspace.filled else "",
            "RUN": f"{documentation(self._about_run())}\n{head[:-2]};",
        }
        values |= {} if self.fails else {"ERROR_TYPE": "#include <stdint.h>"}
        return interface(MODEL, self.name, self.program, values)

    @property
    def result(self) -> str:
        return "int" if self.fails else "void"

    def _about_run(self) -> str:
        rows = [("[in]", buffer_name(n), str(n.type)) for n in self.program.inputs]
        places = result_places(self.program.module)
        for node, output, place in zip(self.program.results, self.outputs, places):
            rows.append(("[out]", output, f"{node.type} ({place})" if place else str(node.type)))
        if self.workspace.filled:
            bytes_ = f"{self.name.upper()}_ARENA_BYTES bytes to compute in, 8-byte aligned"
            rows.append(("", "arena", bytes_))
        if self.fails:
            rows.append(("[out]", "error", "what went wrong, if something did"))
        width = max(len(f"{way} {label}") for way, label, _ in rows)
        return "\n".join(
            [
                "Run the model.",
                "",
                *(f"@param{way + ' ' + label:<{width}}  {text}" for way, label, text in rows),
                *(["@return 0, or error->code"] if self.fails else []),
                "",
                "Arrays are dense and row-major; results must not overlap any other array. Calls with",
                "different arenas may run at the same time.",
            ]
        )

    # -- source --------------------------------------------------------------------------------
    @cached_property
    def _functions(self) -> str:
        return "\n".join([*self.workspace.functions, *self._run()])

    def _run(self) -> list[str]:
        found, name = self.structure, self.name
        declared = {"error": "fx_error *error"} if self.fails else {}
        printer = Steps(self.calls, found.arguments, found.bodies, f"{name}_values", declared, False)
        steps = [*printer.lines(found.steps), *self.copies(printer)]
        lines = ["    error->code = 0;"] if self.fails else []
        if self.workspace.filled:
            lines.append(f"    const struct {name}_values {VALUES} = {name}_values_at(arena);")
        lines += [*printer.tables, *steps, *(["    return 0;"] if self.fails else [])]
        text = "\n".join(lines)
        names = [buffer_name(n) for n in self.program.inputs]
        ignored = [f"    (void){n};" for n in names if not re.search(rf"\b{n}\b", text)]
        head = signature(f"{name}_run", self._parameters(), self.result)
        return [*printer.functions, *head, *ignored, *lines, "}"]

    def _more_names(self) -> Sequence[str]:
        return [*super()._more_names(), *self.arrays_of_weights.values()]

    def _behind_structs(self) -> list[str]:
        has_weights = bool(self.structure.weights.root.members)
        return [f'#include "{self.name}_weights.h"', ""] if has_weights else []

    # -- weights -------------------------------------------------------------------------------
    @cached_property
    def arrays_of_weights(self) -> dict[str, str]:
        """Names of constant arrays, by the names of weights."""
        found: dict[str, str] = {}
        for weight in self.structure.blob.places if self.structure.weights.root.members else ():
            wish = own_name(f"{self.name}_{spelled(weight)}")
            found[weight] = apart(wish, found.values())
        return found

    @property
    def weights_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(int(node.type.nbytes) for node in self._weight_nodes.values())

    @property
    def _weight_nodes(self) -> dict[str, Node]:
        nodes = self.program.module.graph.find_nodes(op="get_attr")
        return {n: node for node in nodes if (n := buffer_name(node)) in self.arrays_of_weights}

    def weights_text(self) -> str:
        """The header with the constants: an array for each weight, and the struct of pointers to
        them."""
        guard = f"FX_{self.name.upper()}_WEIGHTS_H"
        module, lines = self.program.module, list[str]()
        for weight, node in self._weight_nodes.items():
            name = self.public(self.arrays_of_weights[weight])
            values = np.asarray(module.get_attribute(node.target))
            lines += [comment(f"{node.target}: {node.type}")]
            lines += [*constant_array(name, node.type.dtype, values), ""]
        root = self.structure.weights.root
        at = {place: self.public(self.arrays_of_weights[w]) for w, (place, _) in self.structure.blob.places.items()}
        head = f"static const struct {root.tag} {WEIGHTS} = {{"
        struct = self.public("\n".join([head, *_initializer(root, at, ()), "};"]))
        about = comment(f"The weights of {self.name}: constants, for read-only memory.")
        begin = [about, f"#ifndef {guard}", f"#define {guard}", ""]
        return "\n".join([*begin, *lines, struct, "", "#endif", ""])

    # -- Python --------------------------------------------------------------------------------
    def adapter(self) -> str:
        """C through which Python calls the model like any other, as ``NAME_run``."""
        arrays = [f"const void *in{i}" for i in range(len(self.program.inputs))]
        arrays += [f"void *out{i}" for i in range(len(self.program.results))]
        given = [p.rpartition("*")[2] for p in arrays]
        given += ["workspace"] if self.workspace.filled else []
        given += ["error"] if self.fails else []
        parameters = [*arrays, "const void *weights", "void *workspace", "int n_threads", "fx_error *error"]
        values = {
            "SIZE_OF_ARENA": str(self.arena_bytes),
            "HEAD": "\n".join(signature(f"{self.name}_run", parameters, "int")),
            "GIVEN": ", ".join(given),
            "MODEL": self.name,
        }
        return filled(MODEL.joinpath("adapter.c"), values)


def _initializer(struct: Struct, names: dict[int, str], index: tuple[int, ...]) -> Iterator[str]:
    """The lines between the braces of a struct's value."""
    indent = "    " * (len(index) + 1)
    for member in struct.members.values():
        name = struct.name(member)
        if isinstance(member.kind, Struct):
            yield f"{indent}.{name} = {{"
            for number in range(member.count):
                yield f"{indent}{{"
                yield from _initializer(member.kind, names, (*index, number))
                yield f"{indent}}},"
            yield f"{indent}}},"
        else:
            assert member.places is not None
            yield f"{indent}.{name} = {names[member.places[index]]},"


def constant_array(name: str, dtype: DType, values: np.ndarray[Any, Any]) -> list[str]:
    """The definition of a constant array."""
    flat = np.ascontiguousarray(values).ravel()
    if dtype.name == "f32":
        texts = [_float(v) for v in flat]
    elif dtype.name == "c64":
        texts = [f"__builtin_complex({_float(v.real)}, {_float(v.imag)})" for v in flat]
    elif dtype.itemsize == 8:
        end = "ULL" if dtype.is_unsigned else "LL"
        texts = ["INT64_MIN" if v == -(1 << 63) else f"{v}{end}" for v in flat.tolist()]
    else:
        texts = [str(int(v)) for v in flat.view(dtype.stored).tolist()]
    head = f"static const {dtype.c_stored} {name}[{max(flat.size, 1)}] = {{"
    return [head, *(f"    {line}" for line in _filled(texts or ["0"])), "};"]


def _float(value: Any) -> str:
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"{np.format_float_scientific(value, trim='0')}f" if value else "0.0f"


def _filled(texts: Sequence[str]) -> Iterator[str]:
    """Numbers in lines of up to 96 columns."""
    line: list[str] = []
    width = 0
    for text in texts:
        if width + len(text) + 2 > 96:
            yield " ".join(line)
            line, width = [], 0
        line.append(f"{text},")
        width += len(text) + 2
    yield " ".join(line)
