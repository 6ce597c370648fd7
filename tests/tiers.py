"""Runs tests as on other processors: ``python -m tests.tiers [TIER ...] [-- pytest arguments]``.

In come names of tiers (all that this machine has the instructions for, where none is given) and
what pytest is to run (by default the tests whose results or choices may depend on the processor).
Out comes a table: tests passed, failed and skipped for each tier. Each tier runs in processes of
its own with ``FXLITE_MARCH`` set, by which fxlite compiles and predicts; NumPy and OpenBLAS are
told to leave out the instructions that the tier lacks.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fxlite.codegen.runtime import toolchain

ROOT = Path(__file__).parents[1]
TESTS = (
    "tests/codegen",
    "tests/passes/quantize",
    "tests/benchmarks",
    "tests/test_tutorials.py",
    "tests/test_readme.py",
    "tests/test_digits.py",
    "tests/test_minilm.py",
    "tests/test_cli_quantize.py",
    "tests/test_cli_profile.py",
    "tests/passes/test_partition.py",
    "tests/passes/test_profile.py",
    "tests/passes/test_store_bf16.py",
)
_NUMPY = ("X86_V3", "X86_V4", "AVX512_ICL", "AVX512_SPR")
"""Sets of instructions that NumPy chooses by, from the oldest."""


@dataclass(frozen=True)
class Tier:
    """A processor: its name for the compiler, how many of NumPy's sets it has, and the name of
    OpenBLAS's kernels for it."""

    march: str
    numpy_sets: int
    openblas: str

    def environment(self) -> dict[str, str]:
        """The variables under which a process takes this machine for that processor."""
        return {
            "FXLITE_MARCH": self.march,
            "NPY_DISABLE_CPU_FEATURES": " ".join(_NUMPY[self.numpy_sets :]),
            "OPENBLAS_CORETYPE": self.openblas,
        }


TIERS = {
    tier.march: tier
    for tier in (
        Tier("x86-64-v2", 0, "Nehalem"),
        Tier("haswell", 1, "Haswell"),  # AVX2
        Tier("znver3", 1, "Zen"),  # AVX2, of AMD
        Tier("skylake-avx512", 2, "SkylakeX"),
        Tier("icelake-server", 3, "SkylakeX"),  # VNNI
        Tier("cooperlake", 2, "Cooperlake"),  # VNNI and bf16, as Zen 4
        Tier("sapphirerapids", 4, "Sapphirerapids"),  # AMX
    )
}
_DECIDING = {"avx2", "fma", "avx512f", "avx512bw", "avx512vnni", "avx512bf16", "amxbf16"}
"""The sets of instructions that emitted C asks for."""


def runs_here(march: str) -> bool:
    """Whether this machine can run what the compiler makes for a processor. Raises
    `UnknownProcessor` for one that the compiler does not know."""
    named = os.environ.get("FXLITE_MARCH")
    try:
        os.environ["FXLITE_MARCH"] = march
        needed = toolchain.instruction_sets() & _DECIDING
        os.environ["FXLITE_MARCH"] = ""
        return needed <= toolchain.instruction_sets()
    finally:
        os.environ.pop("FXLITE_MARCH")
        if named is not None:
            os.environ["FXLITE_MARCH"] = named


def run(tier: Tier, arguments: Sequence[str]) -> tuple[dict[str, int], float]:
    """Run pytest as on a tier, with its output: how many tests passed, failed, …; and seconds."""
    start = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=ROOT,
        env=os.environ | tier.environment(),
        text=True,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        last = ""
        for last in process.stdout:
            print(last, end="", flush=True)
    counts = re.findall(r"(\d+) (passed|failed|error|skipped|deselected)", last)
    found = {kind: int(number) for number, kind in counts}
    if process.returncode not in (0, 1):
        found["error"] = found.get("error", 0) or 1
    return found, time.monotonic() - start


def main() -> int:
    """Run the tiers one after another; the status is 1 where a test failed."""
    given = sys.argv[1:]
    own, rest = given, []
    if "--" in given:
        own, rest = given[: given.index("--")], given[given.index("--") + 1 :]
    parser = argparse.ArgumentParser(prog="python -m tests.tiers", description=__doc__)
    parser.add_argument("tiers", nargs="*", metavar="TIER", help=f"of {', '.join(TIERS)}")
    names = parser.parse_args(own).tiers
    if unknown := set(names) - set(TIERS):
        parser.error(f"no such tier: {', '.join(sorted(unknown))}; there are {', '.join(TIERS)}")
    failed = False
    table = []
    for name in names or TIERS:
        if not runs_here(name):
            table.append(f"{name:15} left out: this machine lacks its instructions")
            failed |= bool(names)
            continue
        print(f"---- {name}", flush=True)
        found, seconds = run(TIERS[name], rest or TESTS)
        failed |= bool(found.get("failed", 0) + found.get("error", 0))
        counts = ", ".join(f"{number} {kind}" for kind, number in found.items())
        table.append(f"{name:15} {counts} ({seconds:.0f} s)")
    print("\n".join(table))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
