"""The header of an emitted model: what a C programmer has to know to call it.

In: a program, the C names of its outputs and the two prototypes. Out: the text of ``NAME.h``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxlite.codegen.c.text.template_text import SIZE_DOCUMENTATION, size_signature
from fxlite.codegen.c.tiles.library import error_type
from fxlite.codegen.kernel.lower import buffer_name
from fxlite.codegen.kernel.names import dim_name
from fxlite.codegen.kernel.text import comment
from fxlite.codegen.program.program import Program
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule

if TYPE_CHECKING:
    from fxlite.codegen.c.state import State


def header_text(
    name: str,
    program: Program,
    outputs: Sequence[str],
    locations: Sequence[str],
    weights_bytes: str,
    workspace: str,
    run: str,
    counts: bool,
    state: State,
) -> str:
    """The header. ``locations`` are the places that an index error may name; ``workspace`` and
    ``run`` are the prototypes; ``counts``: values are counted before a call."""
    guard = f"FX_{name.upper()}_H"
    impossible = "; -1 for impossible sizes" if counts else ""
    lines = [
        comment(about(name, program)),
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        *error_type().splitlines(),
        "",
        *(comment(f"where {i}: {t}") for i, t in enumerate(locations)),
        *([""] if locations else []),
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        "/** Bytes of the weights in memory. */",
        f"#define {name.upper()}_WEIGHTS_BYTES {weights_bytes}",
        "",
        _MESSAGES.replace("NAME", name),
        "",
        *((*state.definition(), *state.declaration()) if state else ()),
        *([SIZE_DOCUMENTATION, f"{size_signature(name, program.dims)};", ""] if counts else ()),
        "/** Whether a call with these sizes is possible on this processor: 0, or the code of the",
        " * error that it would end with. The run function asks this itself. */",
        f"{check_signature(name, program.dims)};",
        "",
        f"/** Bytes of workspace that a call with these arguments needs{impossible}. */",
        workspace,
        "",
        documentation(_run_documentation(name, program, outputs, state)),
        run,
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def about(name: str, program: Program) -> str:
    """``digits: (x: f32[B,1,8,8]) -> f32[B,10]``, and where that comes from."""
    inputs = ", ".join(f"{n.target}: {n.type}" for n in program.given)
    outputs = ", ".join(str(n.type) for n in program.results)
    result = outputs if len(program.results) == 1 else f"({outputs})"
    return f"{name}: ({inputs}) -> {result}\nMade by fxlite from {program.module.name}."


_MESSAGES = """\
/** What the code of an error means, as a sentence. */
static inline const char *NAME_error_message(int code) {
    switch (code) {
    case 0: return "No error.";
    case FX_INDEX_OUT_OF_RANGE: return "An index is out of range for its axis.";
    case FX_OUT_OF_MEMORY: return "There is no memory.";
    case FX_WRONG_PROCESSOR: return "The processor lacks instructions that it was compiled for.";
    case FX_IMPOSSIBLE_SIZES: return "No call with these sizes of the named dims is possible.";
    case FX_WRONG_WEIGHTS: return "The weights are not those that the code was made for.";
    case FX_NO_FACTORS: return "A matrix is singular, or not positive definite.";
    default: return "The code of the error is unknown.";
    }
}"""


_WEIGHTS = """\
/* The weights of NAME: whether memory holds them. */
#ifndef FX_UPPER_WEIGHTS_H
#define FX_UPPER_WEIGHTS_H

#include <string.h>

#include "NAME.h"

/** What made NAME_weights.bin, and the digest of its contents. */
#define UPPER_WEIGHTS_MADE_BY "fxlite VERSION"
#define UPPER_WEIGHTS_DIGEST UINT64_C(DIGEST)

/** Whether memory, read or mapped from NAME_weights.bin, holds the weights that the code was made
 * for, at an address that it can read them from. Costs one pass over them.
 *
 * @param memory  64-byte aligned
 * @param bytes   how many there are
 * @return 0, or FX_WRONG_WEIGHTS */
static inline int NAME_weights_check(const void *memory, int64_t bytes) {
    if (bytes != FILE_BYTES || (uintptr_t)memory % 64) return FX_WRONG_WEIGHTS;
    uint64_t digest = 0, word;
    for (int64_t i = 0; i < bytes; i += 8) {
        memcpy(&word, (const char *)memory + i, 8);
        digest = digest * UINT64_C(FACTOR) + word;
    }
    return digest == UPPER_WEIGHTS_DIGEST ? 0 : FX_WRONG_WEIGHTS;
}
EXPANSION
#endif
"""

_EXPANSION = """
/** Bytes of NAME_weights.bin, which holds some weights as integers. */
#define UPPER_STORED_BYTES STORED

/* Floats from integers times scales, of which a row of `width` is for `run` numbers. */
static inline void NAME_expand(const char *file, char *floats, int bits, int64_t count,
                               int64_t run, int64_t width) {
    const float *scale = (const float *)(const void *)file;
    const signed char *const integers = (const signed char *)(scale + count / run * width);
    float *const to = (float *)(void *)floats;
    for (int64_t i = 0; i < count; i += run, scale += width) {
        for (int64_t j = 0; j < run; ++j) {
            int value = integers[bits == 4 ? (i + j) / 2 : i + j];
            if (bits == 4) value = ((((i + j) % 2 ? value >> 4 : value) & 15) ^ 8) - 8;
            to[i + j] = (float)value * scale[j % width];
        }
    }
}

/** Make of the contents of NAME_weights.bin what NAME_run reads. The file is not needed then.
 *
 * @param file          what NAME_weights_check finds to be right
 * @param[out] weights  UPPER_WEIGHTS_BYTES bytes, 64-byte aligned */
static inline void NAME_weights_expand(const void *file, void *weights) {
    const char *const from = file;
    char *const to = weights;
LINES}
"""


def weights_header(
    name: str, digest: int, factor: int, version: str, expansion: Sequence[str] = (), stored: int = 0
) -> str:
    """The header with which a program that loads weights checks them; ``expansion``: the lines that
    make them of a file of so many ``stored`` bytes, where that is something else."""
    upper = name.upper()
    values = {
        "NAME": name,
        "UPPER": upper,
        "DIGEST": f"0x{digest:016x}",
        "FACTOR": f"0x{factor:016x}",
        "VERSION": version,
        "STORED": str(stored),
        "FILE_BYTES": f"{upper}_{'STORED' if expansion else 'WEIGHTS'}_BYTES",
        "LINES": "".join(f"    {line}\n" for line in expansion),
    }
    head, text = _WEIGHTS.split("/** Whether", 1)
    declared, lines = _EXPANSION.split("\n\n/* Floats", 1) if expansion else ("", "")
    whole = f"{head}{declared.lstrip()}\n\n/** Whether{text}" if expansion else _WEIGHTS
    whole = whole.replace("EXPANSION", f"\n/* Floats{lines}" if expansion else "")
    words = r"NAME|UPPER|\bDIGEST\b|FACTOR|VERSION|\bSTORED\b|FILE_BYTES|LINES"
    return re.sub(words, lambda found: values[found[0]], whole)


def documentation(text: str) -> str:
    """A comment that documentation is made from."""
    return f"/*{comment(text)[1:]}"


def check_signature(name: str, dims: Sequence[str]) -> str:
    """The head of the function that checks sizes, without what follows it."""
    parameters = ", ".join(f"int64_t {dim_name(d)}" for d in dims)
    return f"int {name}_check({parameters or 'void'})"


def _run_documentation(name: str, program: Program, outputs: Sequence[str], state: State) -> str:
    """What a caller has to know about each argument."""
    rows = [
        ("[in,out]", buffer_name(n), f"{n.type}; a result afterwards: {program.owned[n].name}")
        if n in program.owned
        else ("[in]", buffer_name(n), str(n.type))
        for n in program.given
    ]
    if program.states:
        rows.append(("[in,out]", state.label, f"what {name}_state_init made, or a call before left"))
    for node, output, place in zip(program.results, outputs, places_of_results(program)):
        rows.append(("[out]", output, f"{node.type} ({place})" if place else str(node.type)))
    declared = program.module.graph.declared_dims
    for dim in program.dims:
        facts = declared[dim].facts if dim in declared else "0 or more"
        rows.append(("", dim_name(dim), f"size of a named dim, {facts}"))
    guards = [f"         {guard.reason}" for guard in program.module.graph.guards]
    behind = [
        ("", "weights", f"{name.upper()}_WEIGHTS_BYTES bytes, 64-byte aligned; only read"),
        ("", "workspace", "memory to compute in, 64-byte aligned; may be NULL if none is needed"),
        ("", "n_threads", "how many OpenMP threads to use at most, 1 to 4096"),
        ("[out]", "error", "filled in: what went wrong"),
    ]
    width = min(24, max(len(f"{way} {label}") for way, label, _ in (*rows, *behind)))

    def lines(given: Sequence[tuple[str, str, str]]) -> list[str]:
        return [f"@param{way + ' ' + label:<{width}}  {text}" for way, label, text in given]

    has_half = any(n.type.dtype.is_half for n in (*program.inputs, *program.results))
    half = ", f16 and bf16 as their bits" if has_half else ""
    return "\n".join(
        [
            "Run the model.",
            "",
            *lines(rows),
            *guards,
            *lines(behind),
            "@return 0, or error->code",
            "",
            f"Arrays are dense and row-major{half}; outputs may overlap nothing else. Calls with",
            f"different workspaces{', states' if program.states else ''} and outputs may run at the same time.",
        ]
    )


def places_of_results(program: Program) -> list[str]:
    """What each result is that lies in memory of its own; the others take that of inputs."""
    places, owned = result_places(program.module), set(program.owned_numbers.values())
    return [place for number, place in enumerate(places) if number not in owned]


def result_places(module: GraphModule) -> list[str]:
    """What each flat result is to the program: ``the program's ["logits"]``, ``what cache holds
    afterwards``, ``the tapped relu``; empty text for a program that returns one array."""
    value, told = module.take_taps(module.graph.output_node().args[0])
    writes = module.written_inputs()
    states = dict(module.states)
    own, *_ = value if writes else (value,)
    places = [f"the program's {path}" if path else "" for path in _paths(own)]
    labels = {target: f"self.{path}" for target, path in states.items()}
    places += [f"what {labels.get(t, t)} holds afterwards" for t in writes]
    return [*places, *(f"the tapped {tap.name}" for tap, _ in told)]


def _paths(result: Any) -> list[str]:
    paths: list[str] = []
    work: list[tuple[str, Any]] = [("", result)]
    while work:
        path, value = work.pop()
        if isinstance(value, Node):
            paths.append(path)
        elif isinstance(value, dict):
            work += reversed([(f'{path}["{k}"]', v) for k, v in value.items()])
        elif hasattr(value, "_fields"):
            work += reversed([(f"{path}.{k}", v) for k, v in zip(value._fields, value)])
        elif isinstance(value, (tuple, list)):
            work += reversed([(f"{path}[{i}]", v) for i, v in enumerate(value)])
    return paths
