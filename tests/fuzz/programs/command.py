"""What ``python -m tests.fuzz --programs`` and ``--program`` print.

In: options. Out: progress on stderr; on stdout a summary and the failures, one of each kind as a
script that stands alone; the exit status, 1 if a program failed.
"""

from __future__ import annotations

import sys
import time

from tests.fuzz.programs.check import Outcome, reason
from tests.fuzz.programs.run import again, program_of, run
from tests.fuzz.programs.shrink import shrunk

#: Failures that are made small; the others are named.
SHOWN = 12


def many(programs: int, seed: int, sanitized: int, jobs: int) -> int:
    """Run many programs."""
    start = time.perf_counter()
    tally = run(programs, seed, sanitized, jobs, say=lambda t: print(t, file=sys.stderr, flush=True))
    print(tally)
    print(f"seed {seed}, {time.perf_counter() - start:.0f} s")
    by_kind: dict[str, list[Outcome]] = {}
    for outcome in tally.failures:
        by_kind.setdefault(f"{outcome.stage}: {reason(outcome.text)}", []).append(outcome)
    for kind, found in list(by_kind.items())[:SHOWN]:
        print(f"\n{kind}")
        print("  " + " ".join(f"{o.program.seed[0]}.{o.program.seed[1]}" for o in found[:20]))
        show(shrunk(min(found, key=lambda o: len(o.program.source))))
    return 1 if tally.failures else 0


def one(text: str, sanitized: bool) -> int:
    """Run one program again."""
    seed, number = map(int, text.split("."))
    outcome = again(program_of((seed, number)), sanitized)
    print(outcome.program.source)
    print(f"{outcome.kind} {outcome.stage}\n{outcome.text}")
    if outcome.kind == "failed":
        show(shrunk(outcome))
    return int(outcome.kind == "failed")


def show(outcome: Outcome) -> None:
    """A failure, and a script that runs it."""
    sizes = outcome.sizes or outcome.program.sizes[0]
    print(f"{outcome.stage} at {dict(sizes)}: {outcome.text[:2000]}\n")
    print(outcome.program.script(sizes))
