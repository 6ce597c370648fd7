"""What is found in a file to be ported, and what ported files import.

In: lines of a file. Out: one record for each that changes or needs a person.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: What the texts of :class:`Port` begin with, and what is imported for it.
ROOTS = {
    "fx": "import fxlite as fx",
    "nn": "from fxlite import nn",
    "passes": "from fxlite import passes",
    "F": "import fxlite.nn.functional as F",
    "np": "import numpy as np",
    "contextlib": "import contextlib",
}
#: Which of them a package of torch is.
_PACKAGES = {"torch.fx": "fx", "torch.nn": "nn", "torch.nn.functional": "F"}


@dataclass(frozen=True)
class Finding:
    """A line of the file that was given. ``kind``: "import", "name", "target" or "leaf" were
    replaced by ``new``; "hand" needs a person, "check" may need one; ``why`` says so."""

    line: int
    kind: str
    old: str
    new: str = ""
    why: str = ""

    def __str__(self) -> str:
        what = f"{self.old} → {self.new}" if self.new else f"{self.old}: {self.why}"
        return f"{self.line:5}  {self.kind:7}{what}"


def import_lines(roots: Sequence[str], names: dict[str, str]) -> list[str]:
    """Imports of roots under the names they have in a file."""
    made = []
    for root in roots:
        line, name = ROOTS[root], names[root]
        if name != root:
            line = f"{line.removesuffix(f' as {root}')} as {name}"
        made.append(line)
    return made


def package_root(package: str) -> str:
    """The root that a package of torch is, "" for another."""
    return _PACKAGES.get(package, "")
