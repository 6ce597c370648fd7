"""Decisions about a kernel as data: what could be done, what each would cost, what is done and why.

Templates record theirs beside the text that they print; `fxlite.codegen.tuning` measures the
alternatives and gives its choice to the template in place of the model's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

#: By the subject of a decision, the name of the alternative to take in place of the model's.
Choice = Mapping[str, str]
#: Everything as the model has it.
NO_CHOICE: Choice = MappingProxyType({})


@dataclass(frozen=True)
class Alternative:
    """One way to compute a kernel. ``cycles`` is what the model predicts, on one core that does a
    vector of multiply-adds a cycle; None where sizes are not known, or no model says."""

    name: str
    cycles: float | None = None

    def __str__(self) -> str:
        return self.name if self.cycles is None else f"{self.name} ({self.cycles:.3g} cycles)"


@dataclass(frozen=True)
class Decision:
    """What a kernel does about ``subject``: the ``chosen`` one of the alternatives, because of
    ``reason``. Any of them gives the kernel's result, up to rounding."""

    subject: str
    alternatives: tuple[Alternative, ...]
    chosen: str
    reason: str

    @property
    def others(self) -> list[Alternative]:
        """The alternatives that were not chosen, the cheapest first, unknown costs last."""
        left = [a for a in self.alternatives if a.name != self.chosen]
        return sorted(left, key=lambda a: (a.cycles is None, a.cycles or 0))

    def cycles(self, name: str) -> float | None:
        """The prediction for an alternative. Raises KeyError for a name that is none of them."""
        return {a.name: a.cycles for a in self.alternatives}[name]

    def __str__(self) -> str:
        chosen = next(a for a in self.alternatives if a.name == self.chosen)
        others = "".join(f", not {other}" for other in self.others)
        return f"{self.subject}: {chosen}{others}: {self.reason}"
