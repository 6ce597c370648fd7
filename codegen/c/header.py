"""The header of an emitted model: everything a C programmer must know to call it.

In: a program, the C names of its outputs and the two prototypes. Out: the text of ``NAME.h``; and of
``NAME_weights.h``, with which a program that loads weights checks them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from fxlite.codegen.c.structs import STATE, State
from fxlite.codegen.c.tiles.library import error_type
from fxlite.codegen.c.weights import FACTOR
from fxlite.codegen.c.workspace import SIZE_DOCUMENTATION, head_of
from fxlite.codegen.kernel.lower import buffer_name
from fxlite.codegen.kernel.names import dim_name
from fxlite.codegen.kernel.text import comment, filled
from fxlite.codegen.program.program import Program
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule

MODEL = files("fxlite.codegen.c").joinpath("model")
"""The folder of files that are the same for all models, except for words such as the model's name."""


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
    ``run`` are the prototypes; ``counts`` says whether sizes of values are checked before a call."""
    impossible = "; -1 for impossible sizes" if counts else ""
    needs = f"/** Bytes of workspace that a call with these arguments needs{impossible}. */"
    values = {
        "PLACES": places_text(locations),
        "SIZE_OF_WEIGHTS": weights_bytes,
        "STATE": "\n".join([*state.definition(), *state.declaration()]).rstrip() if state else "",
        "COUNT": f"{SIZE_DOCUMENTATION}\n{head_of(f'int64_t {name}_largest_bytes', program.dims)};" if counts else "",
        "CHECK": f"{head_of(f'int {name}_check', program.dims)};",
        "WORKSPACE": f"{needs}\n{workspace}",
        "RUN": f"{documentation(_run_documentation(name, program, outputs, state))}\n{run}",
    }
    return interface(MODEL, name, program, values)


def interface(folder: Traversable, name: str, program: Program, values: Mapping[str, str]) -> str:
    """The header of a target, from ``MODEL.h`` in its folder."""
    common = {"ABOUT": comment(about(name, program)), "ERROR_TYPE": error_type().rstrip()}
    common |= {"MODEL": name, "UPPER": name.upper()}
    return filled(folder.joinpath("MODEL.h"), common | dict(values))


def places_text(locations: Sequence[str]) -> str:
    """The places that errors may name, as comments."""
    return "\n".join(comment(f"where {i}: {t}") for i, t in enumerate(locations))


def about(name: str, program: Program) -> str:
    """``digits: (x: f32[B,1,8,8]) -> f32[B,10]``, and the program that it comes from."""
    inputs = ", ".join(f"{n.target}: {n.type}" for n in program.given)
    outputs = ", ".join(str(n.type) for n in program.results)
    result = outputs if len(program.results) == 1 else f"({outputs})"
    return f"{name}: ({inputs}) -> {result}\nMade by fxlite from {program.module.name}."


def weights_header(name: str, digest: int, version: str, expansion: Sequence[str] = (), stored: int = 0) -> str:
    """The header with which a program that loads weights checks them. ``expansion`` has the lines that
    make the weights from a file of ``stored`` bytes, if the file differs from them."""
    upper, kind = name.upper(), "STORED" if expansion else "WEIGHTS"
    values = {
        "MODEL": name,
        "UPPER": upper,
        "DIGEST_VALUE": f"0x{digest:016x}",
        "FACTOR": f"0x{FACTOR:016x}",
        "FX_VERSION": version,
        "STORED": "STORED" if expansion else "",
        "SIZE_OF_FILE": str(stored),
        "FILE_BYTES": f"{upper}_{kind}_BYTES",
        "LINES": "".join(f"    {line}\n" for line in expansion),
    }
    return filled(MODEL.joinpath("MODEL_weights.h"), values)


def documentation(text: str) -> str:
    """A comment from which documentation is generated."""
    return f"/*{comment(text)[1:]}"


def _run_documentation(name: str, program: Program, outputs: Sequence[str], state: State) -> str:
    """What a caller must know about each argument."""
    rows = [
        ("[in,out]", buffer_name(n), f"{n.type}; a result afterwards: {program.owned[n].name}")
        if n in program.owned
        else ("[in]", buffer_name(n), str(n.type))
        for n in program.given
    ]
    if program.states:
        rows.append(("[in,out]", STATE, f"what {name}_state_init made, or a call before left"))
    names = dict(zip(reversed(program.results), reversed(outputs)))  # the first name of each
    for node, output, place in zip(program.results, outputs, places_of_results(program)):
        said = f"{program.type_of(node)}{f' ({place})' if place else ''}"
        if node in program.counts:
            said += f"; of which the first *{names[program.counts[node]]} are stored"
        rows.append(("[out]", output, said))
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
            f"Arrays are dense and row-major{half}; outputs must not overlap other arrays. Calls with",
            f"different workspaces{', states' if program.states else ''} and outputs may run at the same time.",
        ]
    )


def places_of_results(program: Program) -> list[str]:
    """Descriptions of the results that have memory of their own; the others use that of inputs."""
    places, owned = result_places(program.module), set(program.owned_numbers.values())
    return [place for number, place in enumerate(places) if number not in owned]


def result_places(module: GraphModule) -> list[str]:
    """The meaning of each flat result in the program: ``the program's ["logits"]``, ``what cache holds
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
