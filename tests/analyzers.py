"""Static analyzers and valgrind over emitted C: ``python -m tests.analyzers [TOOL ...]``.

In come the programs of the zoo, its models in 8-bit integers and with products of bf16, and small
models of each template. Each is saved as a folder, which the tools read or run: ``clang`` (its
static analyzer), ``gcc`` (-fanalyzer), ``valgrind`` (memcheck over the self-test, built for AVX2:
valgrind knows no AVX-512), ``make-filled`` (the self-test on memory filled with four different
bytes, on which no result may depend), ``gcc-warnings`` and ``clang-warnings`` (-Wall -Wextra
-Wshadow -Wconversion -pedantic, counted by kind). Out comes a table of findings for each tool; the
status is 1 where an analyzer or valgrind found something that is not in ``KNOWN``.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fxlite as fx
from fxlite.codegen.runtime.toolchain import usable_cpus
from fxlite.passes import quantize as q
from tests.zoo import ZOO
from tutorials import llama

NEEDED = ("-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-fwrapv")
#: Seconds of processor time that a tool may take for a program, since the paths that -fanalyzer
#: follows can be too many; so often it may take that long, where others use the processors too.
LIMIT, SHARED = 300, 20
LIMITED = ("sh", "-c", f'ulimit -S -t {LIMIT}; exec "$@"', "sh")
WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-pedantic", "-fopenmp")


@dataclass(frozen=True)
class Tool:
    """A command over the folder of a program; ``finding`` takes a finding's text and kind out of
    what it prints, and a finding is a failure unless the tool only counts."""

    command: Callable[[str], list[str]]
    finding: re.Pattern[str]
    counts_only: bool = False


#: Memory of a self-test begins with zeros. Integer kernels read bytes behind a row, which they
#: multiply by zero: valgrind does not know that such a product is defined. That no result depends
#: on what memory holds is what the tool "make-filled" looks at.
ZEROED = "#include <stdlib.h>\\n#include <string.h>\\n#define aligned_alloc(a, n) memset(aligned_alloc(a, n), 0, n)\\n"

_WARNING = re.compile(r"^(\S+?:\d+:\d+: warning: .*?)(?: \[([^\]]+)\])?$", re.MULTILINE)


def _analyze(name: str, *command: str) -> list[str]:
    return [*command, *NEEDED, "-march=x86-64-v3", f"{name}.c"]


TOOLS = {
    "clang": Tool(lambda name: _analyze(name, "clang", "--analyze", "--analyzer-output", "text"), _WARNING),
    "gcc": Tool(lambda name: _analyze(name, "gcc", "-fanalyzer", "-O1", "-S", "-o", "/dev/null"), _WARNING),
    "valgrind": Tool(
        lambda name: [
            "sh",
            "-c",
            f"printf '{ZEROED}' > zeroed.h && rm -f *.o *_selftest && "
            f"make -s {name}_selftest OPENMP= CFLAGS='-O1 -g -march=haswell -include zeroed.h' && "
            "valgrind -q --error-exitcode=9 --leak-check=full --track-origins=yes "
            f"./{name}_selftest",
        ],
        re.compile(r"^(==\d+== (\w[^\n]*))\n==\d+==    at", re.MULTILINE),
    ),
    "make-filled": Tool(
        lambda name: [
            "sh",
            "-c",
            f"rm -f *.o *_selftest && make -s {name}_selftest OPENMP= CFLAGS='-O1' && "
            "for byte in 1 85 128 255; do "
            f"MALLOC_PERTURB_=$byte ./{name}_selftest || exit 9; done",
        ],
        re.compile(r"^((FAILED): [^\n]*)$", re.MULTILINE),
    ),
    "gcc-warnings": Tool(lambda name: _analyze(name, "gcc", *WARNINGS, "-O1", "-S", "-o", "/dev/null"), _WARNING, True),
    "clang-warnings": Tool(lambda name: _analyze(name, "clang", *WARNINGS, "-fsyntax-only"), _WARNING, True),
}

#: (tool, the finding, the line of C) -> why it is a false alarm, or harms nobody.
KNOWN = {
    (
        "clang",
        r"garbage value|garbage or undefined",
        r"tile\[|sums\[\d\]\[",
    ): "a tile is filled by a switch over its rows, 1 to TILE_ROWS; the analyzer follows the "
    "case of none, as it does not know that the rows of tiles are cut evenly",
    ("gcc", r"use of uninitialized value .*tile", r"tile\["): "the same, of gcc's analyzer",
    (
        "clang",
        r"Value stored to 'column_0'",
        r"column_0",
    ): "the first column of a panel, in a product whose panels are all one",
    (
        "gcc",
        r"shift by count .* >= precision of type \(.[234].\)",
        r"<<|>>",
    ): "vectors of 32-bit integers; what the analyzer of gcc 12 takes for their precision is the "
    "logarithm of the number of their lanes",
}


def programs() -> Iterator[tuple[str, fx.GraphModule, dict[str, Any]]]:
    """Names, modules and options of the compiler."""
    yield "llama", llama.traced(), {}
    for entry in ZOO:
        module, _, inputs = entry.trace()
        yield entry.name, module, {}
        floats = any(np.asarray(x).dtype == np.float32 for x in inputs)
        if not floats or not any(
            n.op == "call_function" and n.target.name in ("linear", "conv2d", "matmul") for n in module.graph.nodes
        ):
            continue
        yield f"{entry.name}_medium", module, {"matmul_precision": "medium"}
        for config in (q.static_int8(), q.dynamic_int8(), q.weight_only_int4()):
            mapping = q.QConfigMapping().set_global(config)
            try:
                made = q.quantize(module, mapping, [inputs])
            except fx.errors.FxliteError:
                continue
            yield f"{entry.name}_{config.name}", made, {}


def save(given: tuple[str, fx.GraphModule, dict[str, Any]], root: Path) -> tuple[Path, str]:
    """The folder of a program, and its name in C."""
    name, module, options = given
    function = fx.compile(module, backend="c", **options)
    function.save(root / name)
    return root / name, function.program.name


def examine(tool: str, folder: Path, name: str) -> tuple[list[tuple[str, str]] | None, str]:
    """(kind, text) of what a tool found in a program, None where it did not come to an end; and its
    output where it failed without a finding."""
    made = TOOLS[tool]
    try:
        done = subprocess.run(
            [*LIMITED, *made.command(name)],
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, "OMP_NUM_THREADS": "2"},
            timeout=LIMIT * SHARED,
        )
    except subprocess.TimeoutExpired:
        return None, ""
    text = done.stdout + done.stderr
    if done.returncode == -signal.SIGXCPU or signal.strsignal(signal.SIGXCPU) in text:
        return None, ""
    found = [(kind or "other", f"{whole}\n    {_line(folder, whole)}") for whole, kind in made.finding.findall(text)]
    return found, text if done.returncode and not found else ""


def _line(folder: Path, finding: str) -> str:
    """The line of C that a finding is about; empty where it names none."""
    place = re.match(r"(\S+?):(\d+):", finding)
    if place is None or not (folder / place[1]).is_file():
        return ""
    return (folder / place[1]).read_text(encoding="utf-8").splitlines()[int(place[2]) - 1].strip()


def is_known(tool: str, finding: str) -> bool:
    """Whether a finding is in ``KNOWN``."""
    message, _, line = finding.partition("\n")
    return any(tool == t and re.search(said, message) and re.search(source, line) for t, said, source in KNOWN)


def main() -> int:
    """Run the tools and print what they found."""
    parser = argparse.ArgumentParser(prog="python -m tests.analyzers", description=__doc__)
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=f"of {', '.join(TOOLS)}")
    parser.add_argument("--programs", default="*", help="a glob over names (default: all)")
    options = parser.parse_args()
    if unknown := set(options.tools) - set(TOOLS):
        parser.error(f"no such tool: {', '.join(sorted(unknown))}; there are {', '.join(TOOLS)}")
    tools = options.tools or list(TOOLS)
    for tool in tools:
        if shutil.which(tool.partition("-")[0]) is None:
            parser.error(f"{tool.partition('-')[0]} is not installed")
    failed = 0
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(usable_cpus()) as pool:
        chosen = [p for p in programs() if fnmatch.fnmatch(p[0], options.programs)]
        folders = list(pool.map(lambda given: save(given, Path(temporary)), chosen))
        print(f"{len(folders)} programs", flush=True)
        for tool in tools:
            kinds: collections.Counter[str] = collections.Counter()
            known = unfinished = 0
            seen: set[str] = set()
            results = pool.map(lambda each, tool=tool: examine(tool, *each), folders)
            for (folder, _), (found, broken) in zip(folders, results):
                if broken:
                    failed += 1
                    print(f"{tool}: {folder.name} failed:\n{broken[-2000:]}")
                if found is None:
                    unfinished += 1
                    print(f"{tool}: {folder.name}: not finished in {LIMIT} s", flush=True)
                for kind, text in found or ():
                    if is_known(tool, text):
                        known += 1
                        continue
                    kinds[kind] += 1
                    shape = re.sub(r"\d+", "0", text)
                    if shape not in seen and not TOOLS[tool].counts_only:
                        print(f"{tool}: {folder.name}: {text}")
                    seen.add(shape)
            counts = ", ".join(f"{kind} {n}" for kind, n in kinds.most_common()) or "nothing found"
            end = f"{known} known false alarms, {unfinished} programs not finished"
            print(f"{tool:15} {counts}; {end}", flush=True)
            failed += 0 if TOOLS[tool].counts_only else sum(kinds.values())
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
