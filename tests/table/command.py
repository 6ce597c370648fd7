"""``python -m tests.fuzz --table`` and ``--numpy-tests``: everything against NumPy.

In: which of the two, and how much of it is compiled. Out: counts, documented differences by reason,
and the rows that differ, one of each kind; the exit status.
"""

from __future__ import annotations

import random
import re
import time

from tests.table import functional, rows
from tests.table.check import Counts, check, check_cases

#: One row in so many is compiled as C, and as CUDA for the shim, unless all are.
_COMPILED = 25
_INTERPRETED = ("graph", "python", "kernel")


def against_numpy(recorded: bool, full: bool, pattern: str = "") -> int:
    """Run the table, or the calls that NumPy's own tests make."""
    counts, start = Counts(refusals_count=not recorded), time.perf_counter()
    rng = random.Random(0)
    if recorded:
        from tests.table.numpy_tests import record

        cases, report = record()
        print(report, flush=True)
        check_cases(cases, _INTERPRETED, counts)
        some = cases if full else rng.sample(cases, len(cases) // _COMPILED)
        check_cases(some, ("c", "cuda") if full else ("c",), counts)
    else:
        every = [*rows.every(), *functional.functions()]
        table = [r for r in every if re.search(pattern, r.label)]
        check(table, _INTERPRETED, counts)
        some = table if full else rng.sample(table, max(1, len(table) // _COMPILED))
        check(some, ("c", "cuda"), counts)
    print(counts)
    print(f"{time.perf_counter() - start:.0f} s")
    shown: set[tuple[str, ...]] = set()
    for found in counts.findings:
        kind = (found.rung, found.row.function, re.sub(r"[-\d.e+]+", "#", found.problem)[:60])
        if kind not in shown:
            shown.add(kind)
            print(f"  {str(found)[:300]}")
    return 1 if counts.findings else 0
