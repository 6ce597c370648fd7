"""The report of a verification: how many rewrites of a pass were checked, and how.

In: counts, entered while :mod:`fxlite.passes.checking.claim_check` works. Out: a line for the
table of a pass manager, and a text that lists what was left unchecked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fxlite.types.agreement import Exactness


@dataclass
class VerificationReport:
    """How the rewrites of one pass were checked: ``alike`` are computed in the same way before and
    after, ``run`` agreed on drawn inputs, ``repeated`` have the form of one that was run,
    ``sampled`` too, but compute with weights of their own that were not tried; ``unchecked`` are
    places that could not be run, each with the reason. ``note`` says what else to know."""

    name: str
    promise: Exactness
    alike: int = 0
    run: int = 0
    repeated: int = 0
    sampled: int = 0
    unchecked: list[tuple[str, str]] = field(default_factory=list)
    note: str = ""

    @property
    def rewrites(self) -> int:
        """How many places there are."""
        return self.alike + self.run + self.repeated + self.sampled + len(self.unchecked)

    @property
    def summary(self) -> str:
        """``12 alike, 3 run, 40 repeated``."""
        counts = (("alike", self.alike), ("run", self.run), ("repeated", self.repeated),
                  ("sampled", self.sampled), ("unchecked", len(self.unchecked)))  # fmt: skip
        return ", ".join(f"{count} {name}" for name, count in counts if count) or "-"

    def __str__(self) -> str:
        lines = [f"{self.name} ({self.promise}): {self.summary}"]
        lines += [f"  unchecked: {place}: {reason}" for place, reason in self.unchecked]
        return "\n".join([*lines, f"  {self.note}"] if self.note else lines)
