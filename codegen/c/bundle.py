"""The C bundle: a folder that builds, tests itself and runs with just a C compiler and make.

In: a model compiled to C, and example inputs. Out: source, header, weights, a self-test with stored
inputs and NumPy's outputs for them, a README for the C programmer; and the files that build it: a
Makefile, files for CMake and pkg-config, and C that only some builds use: weights inside the program,
and the choice of the processor at run time.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import fxlite
from fxlite.backend import Case
from fxlite.base.errors import number_of
from fxlite.codegen.c.emit import CProgram
from fxlite.codegen.c.header import MODEL, places_of_results, weights_header
from fxlite.codegen.c.selftest import output_files, selftest_source
from fxlite.codegen.c.tiles.library import needed
from fxlite.codegen.c.weights import digest_of, stored_weights
from fxlite.codegen.folder import facts_of, write_folder
from fxlite.codegen.kernel.builder import parameter_names
from fxlite.codegen.kernel.text import filled, table
from fxlite.codegen.program.example_inputs import make_cases
from fxlite.codegen.runtime.toolchain import march_flag
from fxlite.types import dtypes
from fxlite.types.agreement import leaves

if TYPE_CHECKING:
    from fxlite.codegen.backends import CFunction

Array = np.ndarray[Any, Any]
#: Folder of the stored inputs and outputs.
DATA = "selftest"


def save_bundle(
    function: CFunction, folder: str | os.PathLike[str], cases: Sequence[Case] | None = None, force: bool = False
) -> None:
    """Write the bundle. ``cases`` are the inputs of the self-test, by default random ones of two sizes.

    Raises FolderError if the folder cannot be written, or holds other files (``force`` writes into it
    nevertheless and leaves those files alone); after an error no file is incomplete."""
    chosen = make_cases(function.graph_module)[-2:] if cases is None else cases
    write_folder(folder, lambda work: write_bundle(function, work, chosen), force)


def _facts(function: CFunction) -> dict[str, Any]:
    """The facts about the model for the folder's list of files."""
    program = function.program
    entry = program.entry
    own = [file for file in program.sources if not file.startswith(f"{program.name}.")]
    options = function.options | {"architecture": march_flag()}
    return facts_of(function.graph_module, function.optimized, options, own) | {
        "inputs": {spec.name: str(spec) for spec in entry.inputs},
        "outputs": {n: str(spec) for n, spec in zip(program.outputs, entry.outputs)},
        "dims": list(entry.dims),
    }


def write_bundle(function: CFunction, folder: Path, cases: Sequence[Case]) -> dict[str, Any]:
    """Write the bundle's files into an existing folder; returns the facts for its list of files."""
    program = function.program
    name = program.name
    for file, text in program.sources.items():
        (folder / file).write_text(text, encoding="utf-8")
    stored = stored_weights(program, function.graph_module)
    expansion, size = stored.expansion(name), stored.data.size
    (folder / f"{name}_weights.bin").write_bytes(stored.data.data)
    check = weights_header(name, digest_of(stored.data), fxlite.__version__, expansion, size)
    (folder / f"{name}_weights.h").write_text(check, encoding="utf-8")
    (folder / DATA).mkdir()
    for number, case in enumerate(cases, start=1):
        _store(function, folder / DATA, number, case)
    (folder / f"{name}_selftest.c").write_text(selftest_source(program, cases, bool(expansion)), encoding="utf-8")
    header = program.sources[f"{name}.h"]
    for file, text in build_files(name, header, march_flag(), fxlite.__version__).items():
        (folder / file).write_text(text, encoding="utf-8")
    (folder / "README.txt").write_text(readme(function, cases, size), encoding="utf-8")
    return _facts(function) | {"weights": weights_bytes(function) | {"file": size}}


def weights_bytes(function: CFunction) -> dict[str, int]:
    """Bytes of the model's own arrays, and of the weights as kernels read them."""
    arrays = {id(array): array.nbytes for array in function.graph_module.state_dict().values()}
    return {"model": sum(arrays.values()), "memory": len(function.program.weights)}


def larger_weights(function: CFunction) -> str:
    """Why weights take much more memory than the model's own arrays; empty if they do not."""
    found = weights_bytes(function)
    if found["memory"] <= 1.5 * found["model"]:
        return ""
    why = "kernels read panels of whole vectors, and as floats what the model has as integers"
    if "winograd" in function.program.functions:
        why = (
            "Winograd's convolutions, which are faster, read up to four times as many numbers; "
            "small_weights=True (--small-weights) does without"
        )
    return f"the model's own arrays have {found['model']:,} bytes: {why}"


def _store(function: CFunction, folder: Path, number: int, case: Case) -> None:
    """Store inputs and NumPy's outputs of one case as dense arrays, one file each."""
    module, program = function.graph_module, function.program

    def write(name: str, array: Any) -> None:
        (folder / f"{number}_{name}.bin").write_bytes(np.ascontiguousarray(array).tobytes())

    for name, node in zip(program.inputs, program.program.given):
        if node not in program.program.owned:
            write(name, case.inputs[node.target])
    result = case.expected
    if result is None:
        with np.errstate(all="ignore"):
            result = module.run_flat(case.inputs)
    flat, owned = leaves(result), program.program.owned_numbers
    for target, member in program.owned.items():
        write(f"before_{member}", case.inputs[target])
        write(f"after_{member}", flat[owned[target]])
    own = [array for place, array in enumerate(flat) if place not in owned.values()]
    for name, array in zip(output_files(program), own, strict=True):
        write(name, array)


def readme(function: CFunction, cases: Sequence[Case], stored: int) -> str:
    """What a C programmer needs to know, as text of at most 100 columns."""
    program, case = function.program, cases[-1]
    title = f"{program.name}: {program.program.module.name} as C"
    is_same, precision = stored == len(program.weights), program.matmul_precision
    is_split = precision == "high" and "multiply_tile_split" in program.functions
    sizes = zip(program.entry.dims, program.dims)
    state = ["state"] if program.states else []
    given = [*program.inputs, *state, *program.outputs, *program.dims, "weights", "workspace", "n_threads", "&error"]
    values = {
        "TITLE": title,
        "UNDERLINE": "=" * len(title),
        "FX_VERSION": fxlite.__version__,
        "FILES": _indented(table([(file.replace("MODEL", program.name), said) for file, said in _FILES])),
        "ARGUMENTS": "\n".join(_arguments(program)),
        "RULES": "\n".join(_rules(program)),
        "MEDIUM": "yes" if precision == "medium" else "",
        "HIGH": "yes" if is_split else "",
        "MEMORY": _indented(_memory(function, cases, stored)),
        "SIZES": _indented([f"int64_t {name} = {case.dims[dim]};" for dim, name in sizes]),
        "READ": "weights" if is_same else "file",
        "KIND": "WEIGHTS" if is_same else "STORED",
        "STORED": "" if is_same else "STORED",
        "STATES": "yes" if state else "",
        "ARGUMENTS_OF_SIZE": ", ".join([*program.dims, "n_threads"]),
        "ARGUMENTS_OF_RUN": ", ".join(given),
        "MODEL": program.name,
        "UPPER": program.name.upper(),
    }
    return filled(MODEL.joinpath("README.txt"), values)


_FILES = (
    ("MODEL.h", "the interface: read this first"),
    ("MODEL.c", "the model"),
    ("MODEL_tiles.h", "what it calls: tiles of products and convolutions, helpers"),
    ("fx_math.h", "exp, tanh, conversions, ... that it uses"),
    ("MODEL_weights.bin", "its weights, as the code wants them in memory"),
    ("MODEL_weights.h", "a check that memory holds these weights"),
    ("MODEL_selftest.c", "the self-test: also an example of a caller"),
    (f"{DATA}/", "stored inputs and NumPy's outputs, one dense array each"),
    ("MODEL_portable.c", "chooses among builds for AVX-512, AVX2 and any x86-64 (PORTABLE=1)"),
    ("MODEL_embedded.c", "the weights as a part of the program (EMBED=1)"),
    ("Makefile", "make test | shared | sanitize | install | clean"),
    ("CMakeLists.txt", "the same for CMake"),
    ("MODEL.pc.in", "for pkg-config, when installed"),
)


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _rules(program: CProgram) -> list[str]:
    """Statements about named dims."""
    graph, dims = program.program.module.graph, program.entry.dims
    known = {name: dim.facts for name, dim in graph.declared_dims.items()}
    rules = [f"    {name} is {known[name]}" for name in dims if name in known]
    rules += [f"    {guard.reason}" for guard in graph.guards]
    low = "as said below" if rules else "0 or more"
    said = f"{', '.join(dims)}: sizes you choose with every call ({low}); one build serves all."
    return [said, *rules] if dims else []


def _arguments(program: CProgram) -> list[str]:
    entry = program.entry
    rows = [("in", name, str(spec), "") for name, spec in zip(program.inputs, entry.inputs)]
    if program.states:
        made = f"made by {program.name}_state_init, kept by the caller, written in place"
        rows.append(("in, out", "state", f"struct {program.name}_state", made))
    places = places_of_results(program.program)
    rows += [("out", name, str(spec), place) for name, spec, place in zip(program.outputs, entry.outputs, places)]
    used = {spec.dtype for spec in (*entry.inputs, *entry.outputs)}
    notes = [f"{d.name} is {d.c_note}" for d in dtypes.ALL if d.name in used]
    return [_indented(table(rows)), "", "; ".join(notes) + "."]


def _memory(function: CFunction, cases: Sequence[Case], stored: int) -> list[str]:
    threads = function.function.n_threads
    found = weights_bytes(function)
    lines = [f"weights    {found['memory']:,} bytes, shared by all calls"]
    if stored != found["memory"]:
        lines.append(f"           (their file has {stored:,} bytes: some are integers there)")
    if said := larger_weights(function):
        lines += [f"           {line}" for line in textwrap.wrap(f"({said})", 84)]
    for case in cases:
        size = function.workspace_bytes(case.dims)
        lines.append(f"workspace  {size:,} bytes for {case.label} and {number_of(threads, 'thread')}")
    return lines


# -- what builds it --------------------------------------------------------------------------------
_BUILD_FILES = ("Makefile", "CMakeLists.txt", "MODEL.pc.in", "MODEL_embedded.c", "MODEL_portable.c")


def build_files(name: str, header: str, architecture: str, version: str) -> dict[str, str]:
    """File name -> text. ``architecture`` is the compiler's flag for a processor, ``version`` that of
    fxlite."""
    functions = _declared(name, header)
    choices = []
    for result, function, parameters in functions:
        names = "" if parameters == "void" else ", ".join(parameter_names(parameters))
        choices.append(f"CHOICE({result}, {function},\n    ({parameters}),\n    ({names}))")
    words = {
        "FUNCTIONS": " ".join(function for _, function, _ in functions),
        "ARCHITECTURE": architecture,
        "FX_VERSION": version,
        "HELPERS": needed("processor_has").rstrip(),
        "CHOICES": "\n\n".join(choices),
        "MODEL": name,
    }
    return {file.replace("MODEL", name): filled(MODEL.joinpath(file), words) for file in _BUILD_FILES}


def _declared(name: str, header: str) -> list[tuple[str, str, str]]:
    """Result type, name and parameters of each function that a header declares."""
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    found = re.findall(rf"^(\w[\w ]*?[ *]+)({name}_\w+)\(([^)]*)\);", code, re.MULTILINE)
    return [(result.strip(), function, " ".join(p.split())) for result, function, p in found]
