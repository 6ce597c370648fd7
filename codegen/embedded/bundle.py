"""The folder of a model for a small device: source, constants, a self-test that contains its data, a
Makefile, and a README with a table of the memory that the model takes.

In: a model compiled for a small device, and example inputs. Out: files that need a C compiler and its
library, and no file system. The size of the code is measured with a compiler for Cortex-M4 if there is
one, or else with that of this machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import fxlite
from fxlite.backend import Case
from fxlite.codegen.c.emit import CProgram
from fxlite.codegen.c.header import result_places
from fxlite.codegen.c.selftest import SELFTEST, comparison, compiled_chain
from fxlite.codegen.c.tiles.library import definitions_of, needed
from fxlite.codegen.embedded.emit import MODEL, constant_array
from fxlite.codegen.folder import facts_of, write_folder
from fxlite.codegen.kernel.text import filled, signature, table, wrap
from fxlite.codegen.program.example_inputs import make_cases
from fxlite.codegen.runtime.toolchain import find_compiler
from fxlite.types.agreement import leaves

if TYPE_CHECKING:
    from fxlite.codegen.backends import EmbeddedFunction

#: Flags that programs for small devices are compiled with; the first are needed for right results
#: at full speed: see the Makefile.
NEEDED = ("-std=c99", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fwrapv")
#: A processor of usual small devices, with float32 in hardware, and compilers for it.
CORTEX_M4 = ("-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard")
CROSS_COMPILERS = ("arm-none-eabi-gcc", "arm-linux-gnueabihf-gcc")


# -- memory ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Memory:
    """The bytes that a model takes. ``weights`` and ``arena`` are known. ``code`` and the largest ``stack``
    of a call (without functions of the C library) are those measured with ``compiler``, or None if it
    does not report them."""

    weights: int
    arena: int
    compiler: str = ""
    code: int | None = None
    stack: int | None = None

    def lines(self) -> list[str]:
        """A table."""
        kinds = [
            ("flash", "code", self.code),
            ("", "weights", self.weights),
            ("RAM", "arena", self.arena),
            ("", "stack", self.stack),
        ]
        lines = [
            f"    {kind:5}  {part:7}  {'?' if size is None else format(size, ','):>10}" for kind, part, size in kinds
        ]
        return [*lines, "", *([f"code and stack: {self.compiler}"] if self.compiler else [])]

    @property
    def said(self) -> str:
        """The same in one line."""
        code, stack = ("?" if n is None else f"{n:,}" for n in (self.code, self.stack))
        return (
            f"flash: {code} bytes of code, {self.weights:,} of weights; RAM: {self.arena:,} of "
            f"arena, {stack} of stack ({self.compiler or 'make size measures'})"
        )

    def facts(self) -> dict[str, Any]:
        """The same as data."""
        return {
            "flash": {"code": self.code, "weights": self.weights},
            "ram": {"arena": self.arena, "stack": self.stack},
            "compiler": self.compiler,
        }


def memory_of(program: CProgram) -> Memory:
    """The memory that a program takes."""
    weights = _macro(program, "WEIGHTS_BYTES")
    arena = _macro(program, "ARENA_BYTES")
    cross = next(filter(shutil.which, CROSS_COMPILERS), None)
    command = [cross, *CORTEX_M4] if cross else list(find_compiler().command)
    size = re.sub(r"(.*-)?(gcc|cc|clang)$", r"\1size", command[0]) if cross else "size"
    with tempfile.TemporaryDirectory(prefix="fxlite-size-") as folder:
        for file, text in program.sources.items():
            Path(folder, file).write_text(text, encoding="utf-8")
        build = [*command, *NEEDED, "-Os", "-c", f"{program.name}.c", "-o", "model.o"]
        graph = "-fcallgraph-info=su"
        done = subprocess.run([*build, graph], cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            done = subprocess.run(build, cwd=folder, capture_output=True, text=True)
        shown = " ".join([Path(command[0]).name, _version(command), "-Os", *(CORTEX_M4 if cross else ())])
        if done.returncode != 0 or shutil.which(size) is None:
            return Memory(weights, arena)
        table = subprocess.run([size, "-A", "model.o"], cwd=folder, capture_output=True, text=True)
        sections = re.findall(r"^(\.\S+)\s+(\d+)", table.stdout, re.MULTILINE)
        parts = (".text", ".rodata", ".data")
        total = sum(int(n) for name, n in sections if name.startswith(parts))
        calls = [path.read_text(encoding="utf-8") for path in Path(folder).glob("*.ci")]
        stack = largest_stack(calls[0], f"{program.name}_run") if calls else None
    return Memory(weights, arena, shown, total - weights, stack)


def _macro(program: CProgram, name: str) -> int:
    text = program.sources[f"{program.name}.h"]
    found = re.search(rf"^#define {program.name.upper()}_{name} (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0


def _version(command: Sequence[str]) -> str:
    done = subprocess.run([command[0], "-dumpversion"], capture_output=True, text=True)
    return done.stdout.strip()


def largest_stack(calls: str, function: str) -> int:
    """Bytes of stack below a function, according to GCC's call graph (-fcallgraph-info=su); functions of
    other files count as 0."""
    frames: dict[str, int] = {}
    for title, label in re.findall(r'node: \{ title: "([^"]*)" label: "([^"]*)"', calls):
        size = re.search(r"(\d+) bytes", label)
        frames[title.rpartition(":")[2]] = int(size[1]) if size else 0
    below: dict[str, list[str]] = {}
    for one, other in re.findall(r'edge: \{ sourcename: "([^"]*)" targetname: "([^"]*)"', calls):
        below.setdefault(one.rpartition(":")[2], []).append(other.rpartition(":")[2])

    def depth(name: str) -> int:  # nothing calls itself
        return frames.get(name, 0) + max(map(depth, below.get(name, ())), default=0)

    return depth(function)


# -- the folder ------------------------------------------------------------------------------------
def save_bundle(
    function: EmbeddedFunction, folder: str | os.PathLike[str], cases: Sequence[Case] | None = None, force: bool = False
) -> None:
    """Write the folder. Raises FolderError if it cannot be written, or holds other files and ``force`` is
    not given; after an error no file is incomplete."""
    chosen = make_cases(function.graph_module)[-1:] if cases is None else cases
    write_folder(folder, lambda work: write_bundle(function, work, chosen), force)


def write_bundle(function: EmbeddedFunction, folder: Path, cases: Sequence[Case]) -> Mapping[str, Any]:
    """Write the files into an existing folder; returns the facts for the list of files."""
    program = function.program
    name, entry, memory = program.name, program.entry, function.memory
    texts = dict(program.sources)
    texts[f"{name}_selftest_data.h"] = _data(function, cases)
    texts[f"{name}_selftest.c"] = _selftest(program, cases)
    headers = " ".join(file for file in program.sources if file.endswith(".h"))
    words = {"MODEL": name, "HEADERS": headers, "NEEDED": " ".join(NEEDED)}
    texts["Makefile"] = filled(MODEL.joinpath("Makefile"), words)
    texts["README.txt"] = _readme(program, memory)
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    own = [file for file in program.sources if file in ("fx_math.h", f"{name}_tiles.h")]
    return facts_of(function.graph_module, function.optimized, {"backend": "embedded"}, own) | {
        "inputs": {spec.name: str(spec) for spec in entry.inputs},
        "outputs": {n: str(spec) for n, spec in zip(program.outputs, entry.outputs)},
        "memory": memory.facts(),
    }


def _readme(program: CProgram, memory: Memory) -> str:
    name, header = program.name, program.sources[f"{program.name}.h"]
    title = f"{name}: {program.program.module.name} as C for a small device"
    entry, places = program.entry, result_places(program.program.module)
    rows = [("in", n, str(spec), "") for n, spec in zip(program.inputs, entry.inputs)]
    rows += [("out", n, str(spec), place) for n, spec, place in zip(program.outputs, entry.outputs, places)]
    described = [
        (f"{name}.c, .h", "the model; compile this one file"),
        (f"{name}_weights.h", "its weights: constants, for read-only memory"),
        ("fx_math.h", "functions that it calls, static and inline"),
        (f"{name}_selftest.c", "runs it on inputs that are in the program: make test"),
    ]
    has_arena, fails = "void *arena" in header, "fx_error *error" in header
    given = [*program.inputs, *program.outputs, *(["arena"] if has_arena else []), *(["&error"] if fails else [])]
    call = f"    {name}_run({', '.join(given)});"
    values = {
        "TITLE": title,
        "UNDERLINE": "=" * len(title),
        "FX_VERSION": fxlite.__version__,
        "FILES": "\n".join(f"    {line}" for line in table(described)),
        "ARGUMENTS": "\n".join(f"    {line}" for line in table(rows)),
        "MEMORY": "\n".join(memory.lines()),
        "ARENA": "ARENA" if has_arena else "",
        "CALL": f"    fx_error error;\n    if ({call.strip(' ;')}) ...;" if fails else call,
        "UPPER": name.upper(),
    }
    return filled(MODEL.joinpath("README.txt"), values)


# -- the self-test ---------------------------------------------------------------------------------
def _data(function: EmbeddedFunction, cases: Sequence[Case]) -> str:
    """Inputs, and NumPy's results for them, as constant arrays."""
    module, program = function.graph_module, function.program
    lines = [f"/* Inputs of {program.name}, and what NumPy computed of them. */", ""]
    for number, case in enumerate(cases, start=1):
        result = case.expected
        if result is None:
            with np.errstate(all="ignore"):
                result = module.run_flat(case.inputs)
        arrays = [case.inputs[n.target] for n in program.program.inputs]
        named = zip([*_inputs(program), *_expected(program)], [*arrays, *leaves(result)])
        for (name, node), array in named:
            lines += [*constant_array(f"{name}_{number}", node.type.dtype, np.asarray(array)), ""]
    return "\n".join(lines)


def _inputs(program: CProgram) -> list[tuple[str, Any]]:
    return [(f"in_{i}", n) for i, n in zip(program.inputs, program.program.inputs)]


def _expected(program: CProgram) -> list[tuple[str, Any]]:
    return [(f"expected_{o}", n) for o, n in zip(program.outputs, program.program.results)]


def _selftest(program: CProgram, cases: Sequence[Case]) -> str:
    name, upper = program.name, program.name.upper()
    text = program.sources[f"{name}.h"]
    inputs, expected = _inputs(program), _expected(program)
    results = [(f"out_{o}", n) for o, n in zip(program.outputs, program.program.results)]
    given = [n for n, _ in (*inputs, *results)]
    if "void *arena" in text:
        given.append("arena")
    fails = "fx_error *error" in text
    call = f"{name}_run({', '.join([*given, *(['&error'] if fails else [])])})"
    parameters = ["int number", *(f"const {node.type.dtype.c_stored} *{n}" for n, node in (*inputs, *expected))]
    chain = compiled_chain(program.program.module.graph, [{}])
    lines = [f"static {node.type.dtype.c_stored} {n}[{max(int(node.type.size), 1)}];" for n, node in results]
    if "void *arena" in text:
        lines.insert(0, f"static int64_t arena[({upper}_ARENA_BYTES + 7) / 8 + 1];")
    lines += ["", "/* Run case `number`. Returns 1 if it failed. */", *signature("test", parameters, "static int")]
    lines += ["    int failed = 0;", '    printf("case %d\\n", number);']
    if fails:
        lines += ["    fx_error error;", f"    if ({call}) {{"]
        lines += ['        printf("    error %d\\n", error.code);', "        return 1;", "    }"]
    else:
        lines += wrap(f"    {call};")
    for output, (result, node), (wanted, _) in zip(program.outputs, results, expected):
        lines += wrap(f"    failed |= {comparison(output, node, result, wanted, chain)};")
    lines += ["    return failed;", "}"]
    calls: list[str] = []
    for number in range(1, len(cases) + 1):
        arrays = [f"{n}_{number}" for n, _ in (*inputs, *expected)]
        calls += wrap(f"    failed += test({', '.join([str(number), *arrays])});")
    test = "\n".join(lines)
    own = definitions_of("selftest", filled(SELFTEST, {"MODEL": name}))
    values = {
        "MODEL": name,
        "HELPERS": needed(test, [d for d in own if d.names]).rstrip(),
        "TEST": test,
        "CALLS": "\n".join(calls),
        "NUMBER": str(len(cases)),
    }
    return filled(MODEL.joinpath("MODEL_selftest.c"), values)
