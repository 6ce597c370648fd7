"""The header of an emitted model: what a C programmer has to know to call it.

In: a program, the C names of its outputs and the two prototypes. Out: the text of ``NAME.h``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxlite.codegen.c.text.sizes import SIZE_DOCUMENTATION, size_signature
from fxlite.codegen.c.tiles.library import error_type
from fxlite.codegen.kernel.lower import buffer_name
from fxlite.codegen.kernel.names import dim_name
from fxlite.codegen.kernel.text import comment
from fxlite.codegen.program.program import Program
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule


def header_text(
    name: str,
    program: Program,
    outputs: Sequence[str],
    locations: Sequence[str],
    weights_bytes: str,
    workspace: str,
    run: str,
    counts: bool,
) -> str:
    """The header. ``locations`` are the places that an index error may name; ``workspace`` and
    ``run`` are the prototypes; ``counts``: values are counted before a call."""
    guard = f"FX_{name.upper()}_H"
    impossible = "; -1 for impossible sizes" if counts else ""
    lines = [
        comment(about(name, program)), f"#ifndef {guard}", f"#define {guard}", "",
        *error_type().splitlines(), "",
        *(comment(f"where {i}: {t}") for i, t in enumerate(locations)),
        *([""] if locations else []), "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
        f"/* Bytes of the weights, the contents of {name}_weights.bin. */",
        f"#define {name.upper()}_WEIGHTS_BYTES {weights_bytes}", "",
        *([SIZE_DOCUMENTATION, f"{size_signature(name, program.dims)};", ""] if counts else ()),
        f"/* Bytes of workspace that a call with these arguments needs{impossible}. */",
        workspace, "",
        comment(_run_documentation(name, program, outputs)), run, "",
        "#ifdef __cplusplus", "}", "#endif", "#endif", "",
    ]  # fmt: skip
    return "\n".join(lines)


def about(name: str, program: Program) -> str:
    """``digits: (x: f32[B,1,8,8]) -> f32[B,10]``, and where that comes from."""
    inputs = ", ".join(f"{n.target}: {n.type}" for n in program.inputs)
    outputs = ", ".join(str(n.type) for n in program.results)
    result = outputs if len(program.results) == 1 else f"({outputs})"
    return f"{name}: ({inputs}) -> {result}\nMade by fxlite from {program.module.name}."


def _run_documentation(name: str, program: Program, outputs: Sequence[str]) -> str:
    """What a caller has to know about each argument."""
    rows = [(buffer_name(n), f"in   {n.type}") for n in program.inputs]
    for node, output, path in zip(program.results, outputs, result_paths(program.module)):
        rows.append((output, f"out  {node.type}" + (f"  (the program's {path})" if path else "")))
    declared = program.module.graph.declared_dims
    plain = [dim for dim in program.dims if dim not in declared]
    if plain:
        rows.append((", ".join(map(dim_name, plain)), "sizes of the named dims, 0 or more"))
    for dim in program.dims:
        if dim in declared:
            rows.append((dim_name(dim), f"size of a named dim, {declared[dim].facts}"))
    rows += [("", guard.reason) for guard in program.module.graph.guards]
    rows += [
        ("weights", f"{name.upper()}_WEIGHTS_BYTES bytes, 64-byte aligned; only read"),
        ("workspace", "memory to compute in, 64-byte aligned; may be NULL if no bytes are needed"),
        ("n_threads", "how many OpenMP threads to use at most, 1 to 4096"),
        ("error", "filled in: what went wrong"),
    ]
    width = min(24, max(len(label) for label, _ in rows))
    has_half = any(n.type.dtype.is_half for n in (*program.inputs, *program.results))
    half = ", f16 and bf16 as their bits" if has_half else ""
    return "\n".join([
        "Run the model.", "", *(f"  {label:<{width}}  {text}" for label, text in rows), "",
        f"Arrays are dense and row-major{half}; outputs may overlap nothing else.",
        "Returns 0, or error->code. Calls with different workspaces and outputs may run at the",
        "same time.",
    ])  # fmt: skip


def result_paths(module: GraphModule) -> list[str]:
    """Where each flat result stands in the program's result: ``["logits"]``, ``[1]``, ``.hidden``;
    empty text for a program that returns one array."""
    paths: list[str] = []
    work: list[tuple[str, Any]] = [("", module.graph.output_node().args[0])]
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
