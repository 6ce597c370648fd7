"""The fuzzer of files, shortly: ``python -m tests.fuzz --files N`` is the long run."""

from __future__ import annotations

import random

from tests.fuzz.files import KINDS, FileCounts, check_files
from tests.fuzz.mutations import Subjects, mutated

FILES = 100


def test_mutated_files_are_refused_or_can_be_used() -> None:
    counts = FileCounts()
    check_files(FILES, 7_000_000, counts)
    assert not counts.failures, counts.failures
    assert counts.files.total() == FILES
    for kind in KINDS:
        assert counts.files[f"{kind}, refused"] > 0
    assert sum(n for name, n in counts.files.items() if "accepted" in name) > 5


def test_mutations_can_be_repeated() -> None:
    subjects = Subjects.make()
    for kind in KINDS:
        assert len({mutated(kind, subjects, random.Random(3)) for _ in range(3)}) == 1
        assert len({mutated(kind, subjects, random.Random(n)) for n in range(20)}) > 10
