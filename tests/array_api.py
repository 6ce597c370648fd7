"""The array API standard's own test suite against ``fxlite.lazy``, beside NumPy.

    python -m tests.array_api                         # all tests, a few examples each
    python -m tests.array_api --examples 100 -k sum   # more of them; the rest goes to pytest

In: data-apis/array-api-tests (MIT), which is read where it lies: in ``../shared/programs/
array-api-tests``, or where ``FXLITE_ARRAY_API_TESTS`` says. Out: how many tests pass, fail and are
skipped with both, and each that fails, with the reason; what fails with NumPy in the same way is
NumPy's. Needs ``hypothesis`` and ``ndindex``. Exits with 1 where something fails with lazy arrays
alone.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

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
_LINE = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S+::.*?)(?: - (.*))?$")


def run(module: str, version: str, examples: int, rest: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Test -> (PASSED or FAILED or SKIPPED, first line of the error)."""
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
            outcome, name, reason = match.groups()
            found[name.rpartition("/")[2]] = (outcome, reason or "")
    if not found:
        raise SystemExit(f"nothing was run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the counts, and what fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.array_api", description=__doc__)
    parser.add_argument("--examples", type=int, default=5, help="of hypothesis for a test (5)")
    parser.add_argument("--version", default="2024.12", help="of the standard (2024.12)")
    parser.add_argument("--backend", default="interpreter", help="of fxlite.lazy (interpreter)")
    args, rest = parser.parse_known_args(arguments)
    results = {
        name: run(module.format(backend=args.backend), args.version, args.examples, rest)
        for name, module in MODULES.items()
    }
    console, table = Console(), Table("array", "passed", "failed", "skipped", "share")
    for name, found in results.items():
        count = Counter(outcome for outcome, _ in found.values())
        failed = count["FAILED"] + count["ERROR"]
        share = count["PASSED"] / max(count["PASSED"] + failed, 1)
        numbers = (count["PASSED"], failed, count["SKIPPED"])
        table.add_row(name, *map(str, numbers), f"{100 * share:.1f} %")
    console.print(table)
    own = 0
    for test, (outcome, reason) in sorted(results["fxlite.lazy"].items()):
        if outcome in ("FAILED", "ERROR"):
            with_numpy = results["numpy"].get(test, ("", ""))[0] == outcome
            own += not with_numpy
            why = "with NumPy, too" if with_numpy else reason or "no reason"
            console.print(f"{test}: {why}", markup=False, highlight=False, soft_wrap=True)
    return 1 if own else 0


if __name__ == "__main__":
    sys.exit(main())
