"""The long run: ``python -m tests.fuzz --examples 2000 [--seed N]``.

Prints what was tried: graphs, nodes, rewrites by kind. On a failure it prints the smallest example
that hypothesis finds, how to run it again, and exits with 1. ``--quantized 300`` compares that many
quantized programs, each on 40 inputs, bit for bit on all back ends instead; with ``--extremes`` on
all zeros, subnormal numbers, 1e38, NaN.

``--programs 20000 [--sanitize 2000] [--jobs N]`` writes programs as people do, the source of NumPy
functions, and compares all back ends with eager NumPy; the first ones are built with the address
and undefined-behaviour sanitizers. ``--program SEED.NUMBER`` runs one of them again.

``--arguments 5000`` calls everything public with a wrong argument, and the command line with wrong
words.

``--control 1000`` compares programs with loops and conditions inside of each other, with writes
into parts, views and swaps of what they carry.

``--bindings 5000`` compares programs in which names are bound, exchanged and written into, in loops and conditions.

``--names 100`` gives that many programs of the zoo hostile names.

``--table`` compares every function x dtype x shape x hard value with NumPy, ``--numpy-tests`` the
calls that NumPy's own tests make.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.arguments import ArgumentCounts, check_arguments
from tests.fuzz.bindings import check_bindings
from tests.fuzz.control import check_control
from tests.fuzz.example import Counts, check
from tests.fuzz.files import FileCounts, check_files
from tests.fuzz.names import check_names
from tests.fuzz.programs.command import many, one
from tests.fuzz.quantized import KINDS, Kind, QuantizedCounts, check_quantized
from tests.fuzz.quantized_extremes import EXTREMES
from tests.table.command import against_numpy


def main() -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--examples", type=int, default=2000, help="programs to try (2000)")
    parser.add_argument("--seed", type=int, help="of the choices; a random one is printed")
    parser.add_argument("--repro", metavar="BLOB", help="run the example of an earlier failure")
    parser.add_argument("--quantized", type=int, metavar="PROGRAMS", help="fuzz integers instead")
    parser.add_argument("--extremes", action="store_true", help="--quantized at float32's ends")
    parser.add_argument("--flags", default="", help="of the C compiler for --quantized")
    parser.add_argument("--programs", type=int, metavar="N", help="fuzz programs as people write")
    parser.add_argument("--sanitize", type=int, default=0, metavar="M", help="of these, with ASan")
    parser.add_argument("--jobs", type=int, default=1, help="processes for --programs (1)")
    parser.add_argument("--program", metavar="SEED.NUMBER", help="one of the --programs again")
    parser.add_argument("--control", type=int, metavar="PROGRAMS", help="fuzz loops instead")
    parser.add_argument("--bindings", type=int, metavar="PROGRAMS", help="fuzz names that are exchanged")
    parser.add_argument("--names", type=int, metavar="PROGRAMS", help="try hostile names instead")
    parser.add_argument("--table", action="store_true", help="every op x dtype x shape x value")
    parser.add_argument("--numpy-tests", action="store_true", help="what NumPy's own tests call")
    parser.add_argument("--full", action="store_true", help="compile all of these, not a sample")
    parser.add_argument("--rows", default="", metavar="PATTERN", help="of --table, these alone")
    parser.add_argument("--arguments", type=int, metavar="N", help="try wrong arguments instead")
    parser.add_argument("--files", type=int, metavar="N", help="fuzz what is read from outside")
    options = parser.parse_args()
    if options.table or options.numpy_tests:
        return against_numpy(options.numpy_tests, options.full, options.rows)
    if options.program is not None:
        return one(options.program, bool(options.sanitize))
    seed = options.seed if options.seed is not None else random.randrange(10**6)
    if options.files is not None:
        return _files(options.files, seed)
    if options.arguments is not None:
        return _arguments(options.arguments, seed)
    if options.quantized is not None:
        kinds = EXTREMES if options.extremes else KINDS
        return _quantized(options.quantized, seed, options.flags.split(), kinds)
    if options.programs is not None:
        return many(options.programs, seed, options.sanitize, options.jobs)
    if options.control is not None:
        return _control(options.control, seed)
    if options.bindings is not None:
        return _bindings(options.bindings, seed)
    if options.names is not None:
        words, tried = check_names(options.names, seed)
        print(f"{options.names} programs, {tried} of {words} names; seed {seed}")
        return 0
    counts, start = Counts(), time.perf_counter()
    found = run(options.examples, seed, counts, options.repro)
    print(counts)
    print(f"seed {seed}, {time.perf_counter() - start:.0f} s")
    if found is None:
        return 0
    print("\nFAILED; the smallest example found:\n")
    traceback.print_exception(found, limit=-6)
    again = f"--examples {options.examples} --seed {seed}"
    print(f"\nThe whole run again: python -m tests.fuzz {again}")
    print("This example alone: python -m tests.fuzz --repro BLOB, with the BLOB above")
    return 1


def _control(count: int, seed: int) -> int:
    """The fuzzer of loops and conditions; returns the exit status."""
    start, lines, refused = time.perf_counter(), 0, 0
    for number in range(count):
        try:
            found = check_control(seed, number)
            lines += found
            refused += not found
        except Exception as error:
            print(f"FAILED: program {number} of seed {seed}: {error}")
            return 1
    seconds = time.perf_counter() - start
    print(f"{count} programs, {refused} of them refused, {lines} lines of graphs; seed {seed}, {seconds:.0f} s")
    return 0


def _bindings(count: int, seed: int) -> int:
    """The fuzzer of names that are exchanged; returns the exit status."""
    found: Counter[bool | None] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            try:
                found[check_bindings(Path(folder), seed, number, is_held=number % 2 == 1)] += 1
            except Exception as error:
                print(f"FAILED: program {number} of seed {seed}: {error}")
                return 1
    print(f"{count} programs, {found[False]} of them refused; seed {seed}")
    return 0


def _files(count: int, seed: int) -> int:
    """The fuzzer of files; returns the exit status."""
    counts, start = FileCounts(), time.perf_counter()
    check_files(count, seed, counts)
    print(counts)
    print(f"seed {seed}, {time.perf_counter() - start:.0f} s")
    for number, what in counts.failures:
        print(f"FAILED: --files 1 --seed {number}: {what}")
    return 1 if counts.failures else 0


def _arguments(count: int, seed: int) -> int:
    """The fuzzer of wrong arguments; returns the exit status."""
    counts = ArgumentCounts()
    check_arguments(count, seed, counts)
    print(f"{counts}; seed {seed}")
    for what in counts.failures:
        print(f"FAILED: {what}")
    return 1 if counts.failures else 0


def _quantized(programs: int, seed: int, flags: list[str], kinds: Sequence[Kind]) -> int:
    """The fuzzer of quantized programs; returns the exit status."""
    counts, start = QuantizedCounts(), time.perf_counter()
    try:
        check_quantized(programs, seed, counts, flags=flags, kinds=kinds)
    except AssertionError as error:
        print(f"FAILED after {counts.cases} cases\n{error}")
        return 1
    finally:
        print(f"seed {seed}, {time.perf_counter() - start:.0f} s")
    print(counts)
    return 0


def run(examples: int, seed: int, counts: Counts, repro: str | None = None) -> Exception | None:
    """Check ``examples`` programs; the error of the smallest that fails."""

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
    )
    @given(st.data())
    def example(data: st.DataObject) -> None:
        check(data.draw, counts)
        if counts.graphs % 500 == 0:
            print(f"{counts.graphs} graphs", file=sys.stderr, flush=True)

    if repro is not None:
        example = hypothesis.reproduce_failure(hypothesis.__version__, repro.encode())(example)
    try:
        example()
    except Exception as error:
        return error
    return None


if __name__ == "__main__":
    sys.exit(main())
