"""The array API standard's own test suite against ``fxlite.lazy``, beside NumPy.

    python -m tests.array_api                         # all tests; writes docs/array_api.md
    python -m tests.array_api --examples 100 -k sum   # more examples of some; the rest goes to pytest

In: data-apis/array-api-tests (MIT), which is read where it lies: in ``../shared/programs/
array-api-tests``, or where ``FXLITE_ARRAY_API_TESTS`` says. Out: how many tests pass, fail and are
skipped with both, and each that fails, with the reason. Needs ``fxlite[array_api]``. Exits with 1
where a failure has no reason in ``REASONS``.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

FOLDER = Path(
    os.environ.get("FXLITE_ARRAY_API_TESTS")
    or Path(__file__).resolve().parents[2] / "shared" / "programs" / "array-api-tests"
)
#: What the suite is told to import.
MODULES = {
    "numpy": "numpy",
    "fxlite.lazy": ('exec(\'import fxlite.lazy as xp; xp.configure(backend="{backend}"); xp_name = "fxlite.lazy"\')'),
}
#: The versions of the standard that the page has.
VERSIONS = ("2024.12", "2023.12")
#: (version, arrays) -> the outcome of each test, and the first line of its error.
Results = dict[tuple[str, str], Mapping[str, tuple[str, str]]]
PAGE = Path(__file__).resolve().parents[1] / "docs" / "array_api.md"
#: Why tests fail: a pattern of their names, and the reason.
REASONS = {
    r"::test_(meshgrid|broadcast_arrays)$": "The result is a tuple, as NumPy's is; the standard says a list.",
    r"::test_finfo\[": "The numbers in `finfo` have the dtype, as NumPy's; the standard says Python's floats.",
    r"fftfreq\]?$": "NumPy's `fftfreq` and `rfftfreq` have no `dtype=`.",
    r"::test_(func_signature\[(arg)?sort\]|(arg)?sort)$": "NumPy's `sort` and `argsort` have no `descending=`.",
    r"::test_func_signature\[clip\]$": "NumPy's `clip` has the parameters `a_min` and `a_max` before `min` and `max`.",
    r"floor_?div.*infinity": "NumPy's `floor_divide` by an infinity rounds to -1 or 0, and of an infinity is NaN.",
    r"::test_unary\[(expm1|tanh)\(": "NumPy's complex `expm1` and `tanh` of infinities, NaN and zeros differ: NaN in "
    "place of an infinity, or another sign of a zero.",
}
_LINE = re.compile(r"^(PASSED|FAILED|ERROR|XFAIL|XPASS) (\S+::.*?)(?: - (.*))?$")
_SKIPPED = re.compile(r"^SKIPPED \[(\d+)\] (.*)$")
_START = """# The array API standard

The [array API standard](https://data-apis.org/array-api/) says what the functions of array libraries have in common.
Its own test suite, [array-api-tests](https://github.com/data-apis/array-api-tests), run against
[`fxlite.lazy`](guides/lazy.md) and, beside it, against NumPy {numpy}, for versions of the standard:

"""


def reason(test: str) -> str:
    """Why a test fails; empty if that is not known."""
    return next((text for pattern, text in REASONS.items() if re.search(pattern, test)), "")


def run(module: str, version: str, examples: int, rest: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Test -> (PASSED, FAILED, ERROR or SKIPPED, first line of the error)."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).resolve().parents[1]), *sys.path]),
        "ARRAY_API_TESTS_MODULE": module,
        "ARRAY_API_TESTS_VERSION": version,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-rA", "--no-header", "--tb=line"),
            *("-p", "no:cacheprovider", "--derandomize", "--disable-deadline"),
            *("--max-examples", str(examples), f"--rootdir={FOLDER}", "-c", f"{FOLDER}/pytest.ini"),
            *(rest or ["array_api_tests"]),
        ]
        command = [str(FOLDER / a) if a.startswith("array_api_tests") else a for a in command]
        environment["HYPOTHESIS_STORAGE_DIRECTORY"] = folder
        done = subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True, check=False)
    found: dict[str, tuple[str, str]] = {}
    for line in done.stdout.splitlines():
        match = _LINE.match(line)
        if match:
            outcome, name, error = match.groups()
            found[name.rpartition("/")[2]] = (outcome, error or "")
        elif match := _SKIPPED.match(line):
            found |= {f"{match[2]} ({number})": ("SKIPPED", "") for number in range(int(match[1]))}
    if not found:
        raise SystemExit(f"nothing was run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the counts, and what fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.array_api", description=__doc__)
    parser.add_argument("--examples", type=int, default=5, help="of hypothesis for a test (5)")
    parser.add_argument("--version", help=f"of the standard; without it, {' and '.join(VERSIONS)}")
    parser.add_argument("--backend", default="interpreter", help="of fxlite.lazy (interpreter)")
    args, rest = parser.parse_known_args(arguments)
    results: Results = {
        (version, name): run(module.format(backend=args.backend), version, args.examples, rest)
        for version in ([args.version] if args.version else VERSIONS)
        for name, module in MODULES.items()
    }
    console, table = Console(), Table("version", "arrays", "passed", "failed", "skipped", "share")
    for (version, name), found in results.items():
        table.add_row(version, name, *counted(found))
    console.print(table)
    failed = {
        test: error for found in _of_lazy(results).values() for test in failures(found) for error in found[test][1:]
    }
    for test, error in failed.items():
        console.print(f"{test}: {reason(test) or error or 'no reason'}", markup=False, highlight=False, soft_wrap=True)
    if not (rest or args.version):
        PAGE.write_text(page(results))
    return 0 if all(map(reason, failed)) else 1


def counted(found: Mapping[str, tuple[str, str]]) -> list[str]:
    """How many tests pass, fail and are skipped, and the share that passes of those that are run."""
    count = Counter(outcome for outcome, _ in found.values())
    failed = len(failures(found))
    share = 100 * count["PASSED"] / max(count["PASSED"] + failed, 1)
    return [str(count["PASSED"]), str(failed), str(count["SKIPPED"]), f"{share:.1f} %"]


def failures(found: Mapping[str, tuple[str, str]]) -> list[str]:
    """The tests that fail, in order."""
    return sorted(test for test, (outcome, _) in found.items() if outcome in ("FAILED", "ERROR"))


def _of_lazy(results: Results) -> dict[str, Mapping[str, tuple[str, str]]]:
    """The results of lazy arrays by version."""
    return {version: found for (version, name), found in results.items() if name == "fxlite.lazy"}


def page(results: Results) -> str:
    """The page of the documentation."""
    lines = [_START.format(numpy=np.__version__), "| version | arrays | passed | failed | skipped | share |\n"]
    lines += ["|---|---|---|---|---|---|\n"]
    lines += [f"| {v} | {name} | {' | '.join(counted(found))} |\n" for (v, name), found in results.items()]
    lines.append("\n`python -m tests.array_api` wrote this page.\n\n## What fails\n\n")
    lines.append("| why | tests |\n|---|---|\n")
    of_lazy = _of_lazy(results)
    versions: dict[str, list[str]] = {}
    for version, found in of_lazy.items():
        for test in failures(found):
            versions.setdefault(test, []).append(version)
    by_reason: dict[str, list[str]] = {}
    for test, of in sorted(versions.items()):
        only = "" if len(of) == len(of_lazy) else f" ({', '.join(of)} only)"
        by_reason.setdefault(reason(test) or "**not explained**", []).append(f"`{test.partition('::')[2]}`{only}")
    for why, tests in by_reason.items():
        shown = ", ".join(tests).replace("|", "\\|")
        lines.append(f"| {why} | {len(tests)}: {shown} |\n")
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
