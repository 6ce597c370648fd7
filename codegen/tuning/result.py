"""What measuring the alternatives of kernels found: choices, speeds, and how they print.

In: for each kernel its options and their measurements. Out: :class:`Tuning`, a table of them, and
what C is then emitted from.

What was measured is kept in the cache folder, a JSON file for each kernel and machine, so that the
next process measures nothing. A file says in words what it is about; removing it makes the next
compilation measure again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from typing import Any

from fxlite.base.console import plain_text
from fxlite.codegen.c.calls import Choices
from fxlite.codegen.c.decisions import Choice, Decision
from fxlite.codegen.runtime.cache import cache_folder, find_note, keep_note
from fxlite.codegen.runtime.toolchain import cpu_identity, find_compiler, processor_name
from fxlite.graph.graph import Node

# -- kept ------------------------------------------------------------------------------------------
#: Its folder in the cache folder.
FOLDER = "tuning"


@dataclass(frozen=True)
class Measured:
    """One candidate: its name, the usual seconds of a run, and how many times as fast as the
    model's choice it was."""

    name: str
    seconds: float
    speedup: float


@dataclass(frozen=True)
class Entry:
    """What was measured about a kernel: ``candidates``, the model's choice first, and the number of
    the one to take."""

    candidates: tuple[Measured, ...]
    winner: int


def find_measured(key: Sequence[Any]) -> Entry | None:
    """What was kept under a key; None if nothing, or nothing that can be read."""
    with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):
        data = find_note(cache_folder() / FOLDER, _name(key)) or {}
        found = tuple(Measured(**candidate) for candidate in data["candidates"])
        if 0 <= data["winner"] < len(found):
            return Entry(found, data["winner"])
    return None


def keep_measured(key: Sequence[Any], kernel: str, sizes: str, threads: int, entry: Entry) -> None:
    """Keep what was measured about a kernel at these sizes. A cache that cannot be written costs
    time only."""
    about = {
        "kernel": kernel,
        "sizes": sizes,
        "processor": processor_name(),
        "threads": threads,
        "compiler": find_compiler().version.splitlines()[0],
    }
    keep_note(cache_folder() / FOLDER, _name(key), {**about, **asdict(entry)})


def _name(key: Sequence[Any]) -> str:
    facts = (*key, cpu_identity(), find_compiler().identity, _templates())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


@functools.cache
def _templates() -> str:
    """Digest of the files that print kernels, in all rooms of code generation: other kernels need
    other measurements."""
    digest = hashlib.sha256()
    work = [files("fxlite.codegen")]
    while work:
        for file in sorted(work.pop().iterdir(), key=lambda f: f.name):
            if file.is_dir():
                work.append(file)
            elif file.name.endswith((".py", ".h", ".c")):
                digest.update(file.read_bytes())
    return digest.hexdigest()


# -- results ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Option:
    """One way to do it: ``choice`` in place of the model's, and the decision that it differs in."""

    choice: Choice = field(default_factory=dict)
    decision: Decision | None = None

    @property
    def name(self) -> str:
        """``plan: channels``; for the model's choice what the model decided."""
        return ", ".join(f"{k}: {v}" for k, v in self.choice.items()) or "the model's choice"

    @property
    def predicted(self) -> float | None:
        """How many times faster than its own choice the model says this is."""
        if self.decision is None:
            return None
        ours = self.decision.cycles(self.choice[self.decision.subject])
        model = self.decision.cycles(self.decision.chosen)
        return model / ours if ours and model else None


@dataclass(frozen=True)
class TunedKernel:
    """The kernels of one form: the first one's name and node, how many there are, what was
    measured (seconds of a run and speed-up over the model's choice, by option), and which won;
    ``found``: in the cache, so that nothing was measured now."""

    name: str
    node: Node
    count: int
    options: tuple[Option, ...]
    entry: Entry
    found: bool

    @property
    def winner(self) -> Option:
        """What is done now."""
        return self.options[self.entry.winner]

    @property
    def speedup(self) -> float:
        """Over what the model would have done."""
        return self.entry.candidates[self.entry.winner].speedup

    @property
    def reason(self) -> str:
        """What the ledger says."""
        alike = f" ({self.count} kernels alike)" if self.count > 1 else ""
        if decision := self.winner.decision:
            return (
                f"{self.winner.name} measured {self.speedup:.2f}x faster than the model's choice, "
                f"{decision.chosen}{alike}"
            )
        listed = ", ".join(
            f"{option.name} {measured.speedup:.2f}x"
            for option, measured in zip(self.options[1:], self.entry.candidates[1:])
        )
        return f"the model's choice stays; the speed of others measured {listed}{alike}"


@dataclass(frozen=True)
class Tuning:
    """What was found; prints as a table. ``choices``, by form, and the nodes that are ``apart``
    from their epilogues are for `fxlite.codegen.c.emit.emit`."""

    kernels: tuple[TunedKernel, ...]
    choices: Choices
    apart: frozenset[Node]
    sizes: Mapping[str, int]
    threads: int

    @property
    def options(self) -> dict[str, Any]:
        """The options of `emit` that say what was found."""
        return {"choices": self.choices, "apart": self.apart}

    @property
    def measured(self) -> int:
        """How many kernels were measured now, and not found in the cache."""
        return sum(not kernel.found for kernel in self.kernels)

    @property
    def speedup(self) -> float:
        """Over the model's choices, of all kernels that were measured together."""
        before = sum(k.count * k.entry.candidates[0].seconds for k in self.kernels)
        after = sum(k.count * k.entry.candidates[0].seconds / k.speedup for k in self.kernels)
        return before / after if after else 1.0

    def __rich__(self) -> Any:
        from rich.table import Table

        if not self.kernels:
            return "there is nothing to choose"
        at = "".join(f", {name}={size}" for name, size in self.sizes.items())
        table = Table(
            box=None,
            header_style="bold",
            pad_edge=False,
            title_justify="left",
            title=f"speed of each alternative, where the model's choice is 1 ({self.threads} threads{at})",
            caption=f"{self.measured} of {len(self.kernels)} kernels measured now, others found in "
            f"the cache; together {self.speedup:.2f}x faster than the model's choices",
        )
        for heading in ("kernel", "decision", "the model's choice"):
            table.add_column(heading, overflow="fold")
        table.add_column("time", justify="right")
        for heading in ("measured, best first (predicted)", "taken"):
            table.add_column(heading, overflow="fold")
        for kernel in self.kernels:
            for row in _rows(kernel):
                table.add_row(*row)
        return table

    def __str__(self) -> str:
        return plain_text(self, 140)

    __repr__ = __str__


def _rows(kernel: TunedKernel) -> list[tuple[str, ...]]:
    """A row for each decision about a kernel."""
    by_subject: dict[str, list[tuple[Option, Measured]]] = {}
    for option, measured in zip(kernel.options, kernel.entry.candidates):
        if option.decision is not None:
            by_subject.setdefault(option.decision.subject, []).append((option, measured))
    rows: list[tuple[str, ...]] = []
    name = kernel.name if kernel.count == 1 else f"{kernel.name} x {kernel.count}"
    for subject, found in by_subject.items():
        found.sort(key=lambda pair: -pair[1].speedup)
        listed = []
        for option, measured in found:
            predicted = f" ({option.predicted:.2f})" if option.predicted else ""
            listed.append(f"{option.choice[subject]} {measured.speedup:.2f}{predicted}")
        decision = found[0][0].decision
        taken = kernel.winner.choice.get(subject, "")
        seconds = kernel.entry.candidates[0].seconds
        time = f"{seconds * 1e6:,.0f} us"
        rows.append((name, subject, decision.chosen if decision else "", time, ", ".join(listed), taken))
        name = ""
    return rows
