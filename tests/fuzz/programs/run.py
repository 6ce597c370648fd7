"""Runs many programs: batches in processes of their own, which may crash or hang.

In: how many, a seed, how many of them with sanitizers. Out: a :class:`Tally` and the failures, made
small. A worker writes a line before each program and one after it, so that the one that ended it is
known; the others of its batch run in the next.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.fuzz.programs.check import FLAGS, SANITIZED, Outcome, check, reason
from tests.fuzz.programs.program import Program, from_json
from tests.fuzz.programs.statements import write
from tests.fuzz.programs.templates import write_template

#: Programs in one source: much of a build is the same for few and for many.
BATCH, SANITIZED_BATCH = 60, 60
#: Seconds without a line after which a worker counts as hung: builds are part of it, on machines
#: that do much else. Python that takes too long ends by itself.
HANG = 3600
#: One program of so many tries what templates claim.
TEMPLATES = 5


def program_of(seed: tuple[int, int]) -> Program:
    """The program of a seed."""
    return (write_template if seed[1] % TEMPLATES == 0 else write)(seed)


@dataclass
class Tally:
    """What was tried: programs by outcome, refusals by reason, comparisons, ops."""

    programs: int = 0
    sanitized: int = 0
    cases: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    ops: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome, sanitized: bool) -> None:
        """Count a program."""
        self.programs += 1
        self.sanitized += sanitized
        self.cases += outcome.cases
        self.kinds[outcome.kind] += 1
        self.ops.update(outcome.ops)
        if outcome.kind == "refused":
            self.refusals[f"{outcome.stage}: {reason(outcome.text)}"] += 1
        elif outcome.kind == "failed":
            self.failures.append(outcome)

    def __str__(self) -> str:
        lines = [
            f"{self.programs} programs ({self.sanitized} with sanitizers), "
            f"{self.cases} comparisons,"
            f" {sum(self.ops.values())} calls of {len(self.ops)} ops: "
            + ", ".join(f"{n} {kind}" for kind, n in self.kinds.items()),
            "refused:",
            *(f"{n:8} {why}" for why, n in self.refusals.most_common(60)),
        ]
        if self.failures:
            by = Counter(f"{o.stage}: {reason(o.text)}" for o in self.failures)
            lines += ["FAILED:", *(f"{n:8} {why}" for why, n in by.most_common())]
        return "\n".join(lines)


def run(
    programs: int,
    seed: int,
    sanitized: int = 0,
    jobs: int = 1,
    first: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> Tally:
    """Run the programs of a seed from number ``first`` on; the first ``sanitized`` ones are built
    with sanitizers. ``say`` is told how far it is now and then."""
    tally, start = Tally(), time.perf_counter()
    work = list(_batches(first, programs, sanitized))
    running: list[Worker] = []
    while work or running:
        while work and len(running) < jobs:
            numbers, checked = work.pop(0)
            running.append(Worker([program_of((seed, n)) for n in numbers], checked))
        for worker in select.select([w.output for w in running], [], [], 1.0)[0]:
            found = next(w for w in running if w.output is worker)
            found.read()
        for found in [w for w in running if w.is_over()]:
            running.remove(found)
            outcomes, left = found.finish()
            for outcome in outcomes:
                tally.add(outcome, found.sanitized)
                if outcome.kind == "failed":
                    seed_text = "{}.{}".format(*outcome.program.seed)
                    say(f"FAILED {seed_text}: {outcome.stage}: {reason(outcome.text)}")
            if left:
                running.append(Worker(left, found.sanitized))
            spent = time.perf_counter() - start
            say(
                f"{tally.programs}/{programs} programs, {len(tally.failures)} failed, "
                f"{tally.kinds['refused']} refused, {spent:.0f} s"
            )
    return tally


def _batches(first: int, programs: int, sanitized: int) -> Iterator[tuple[range, bool]]:
    done = 0
    while done < programs:
        checked = done < sanitized
        size = min(SANITIZED_BATCH if checked else BATCH, programs - done)
        yield range(first + done, first + done + size), checked
        done += size


class Worker:
    """A process with a batch of programs."""

    def __init__(self, programs: Sequence[Program], sanitized: bool) -> None:
        self.programs, self.sanitized = list(programs), sanitized
        command = [sys.executable, "-m", "tests.fuzz.programs.run"]
        environment = dict(os.environ)
        if sanitized:
            command.append("--sanitized")
            environment |= sanitizer_environment()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.output = self.process.stdout
        os.set_blocking(self.output.fileno(), False)
        os.set_blocking(self.process.stderr.fileno(), False)
        self.text, self.errors, self.last, self.ended = b"", b"", time.monotonic(), False
        self.process.stdin.write("\n".join(p.to_json() for p in programs).encode())
        self.process.stdin.close()

    def read(self) -> None:
        """Take what it wrote."""
        made = self.output.read()
        if made == b"":
            self.ended = True
        self.text += made or b""
        self.last = time.monotonic()

    def is_over(self) -> bool:
        """Whether it ended, or hangs and was ended."""
        assert self.process.stderr
        self.errors = (self.errors + (self.process.stderr.read() or b""))[-6000:]
        if not self.ended and time.monotonic() - self.last > HANG:
            self.process.kill()
            self.errors += b"it hangs"
            self.ended = True
        return self.ended

    def finish(self) -> tuple[list[Outcome], list[Program]]:
        """The outcomes, and the programs that are left to run after a crash."""
        status = self.process.wait()
        assert self.process.stderr
        os.set_blocking(self.process.stderr.fileno(), True)
        errors = (self.errors + self.process.stderr.read())[-6000:].decode(errors="replace")
        lines = [json.loads(line) for line in self.text.decode().splitlines()]
        by_seed = {p.seed: p for p in self.programs}
        outcomes: list[Outcome] = []
        for line in lines:
            if "kind" in line:
                program = by_seed.pop(tuple(line.pop("seed")))
                outcomes.append(Outcome(program, **{**line, "ops": tuple(line["ops"])}))
        begun = [tuple(line["begun"]) for line in lines if "begun" in line]
        if by_seed and begun and begun[-1] in by_seed:
            text = f"the process ended with {status}\n{errors}"
            outcomes.append(Outcome(by_seed.pop(begun[-1]), "failed", "crash", text))
        elif by_seed and not begun:  # it did not begin at all: nothing would
            raise RuntimeError(f"the worker ended with {status}: {errors}")
        return outcomes, list(by_seed.values())


@cache
def sanitizer_environment() -> dict[str, str]:
    """Variables with which Python can load libraries that were built with the sanitizers."""
    names = ("libasan.so", "libubsan.so")
    found = (
        subprocess.run(
            [os.environ.get("CC", "gcc"), f"-print-file-name={n}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for n in names
    )
    return {
        "LD_PRELOAD": " ".join(found),
        "PYTHONMALLOC": "malloc",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    }


def again(program: Program, sanitized: bool = False) -> Outcome:
    """How one program goes, in a process of its own."""
    worker = Worker([program], sanitized)
    while not worker.is_over():
        select.select([worker.output], [], [], 1.0)
        worker.read()
    outcomes, _ = worker.finish()
    return outcomes[0]


def _work(programs: Iterable[Program], sanitized: bool) -> None:
    """What a worker does: lines of JSON."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def put(line: dict[str, Any]) -> None:
        channel.write(json.dumps(line) + "\n")
        channel.flush()

    def tell(o: Outcome) -> None:
        put(
            {
                "seed": o.program.seed,
                "kind": o.kind,
                "stage": o.stage,
                "text": o.text[:3000],
                "sizes": dict(o.sizes),
                "cases": o.cases,
                "ops": o.ops,
            }
        )

    flags, rungs = (SANITIZED, ("c",)) if sanitized else (FLAGS, None)
    check(list(programs), flags, rungs, lambda p: put({"begun": p.seed}), tell)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sanitized", action="store_true")
    _work([from_json(line) for line in sys.stdin], parser.parse_args().sanitized)
