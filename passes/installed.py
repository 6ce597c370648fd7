"""Passes of other distributions: what is installed under the entry points ``fxlite.passes``.

In: a name. Out: what its distribution has under it: a pass, or a function of a GraphModule. Listing
them imports nothing; what is asked for is imported::

    [project.entry-points."fxlite.passes"]
    fold_scales = "acme_passes.folding:fold_scales"
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from fxlite.base.errors import FxliteError
from fxlite.base.location import described

GROUP = "fxlite.passes"


class InstalledPassError(FxliteError, RuntimeError):
    """A pass of another distribution cannot be used. The message names the distribution."""


@dataclass(frozen=True)
class InstalledPass:
    """A pass that a distribution offers. ``where`` is what is imported: ``module:name``."""

    name: str
    distribution: str
    version: str
    where: str
    entry: EntryPoint

    @property
    def full_name(self) -> str:
        """The name by which it is found whatever else is installed: ``acme-passes:fold_scales``."""
        return f"{self.distribution}:{self.name}"

    def load(self) -> Any:
        """What the distribution has there, which is imported. Raises InstalledPassError."""
        try:
            found = self.entry.load()
        except (Exception, SystemExit) as error:
            raise InstalledPassError(f"{self} cannot be imported: {described(error)}") from error
        if isinstance(found, type) or not callable(found):
            raise InstalledPassError(
                f"{self} is not a pass: {self.where} is a {type(found).__name__}, not a function of a GraphModule"
            )
        return found

    def __str__(self) -> str:
        return f"the pass {self.name} of {self.distribution} {self.version} ({self.where})"


def installed_passes() -> list[InstalledPass]:
    """All that are installed, by name and distribution; nothing is imported."""
    found = [
        InstalledPass(
            entry.name,
            entry.dist.name if entry.dist is not None else "?",
            entry.dist.version if entry.dist is not None else "?",
            entry.value,
            entry,
        )
        for entry in entry_points(group=GROUP)
    ]
    return sorted(found, key=lambda p: (p.name, p.distribution))


def installed_pass(name: str) -> Any:
    """What the one distribution has under ``name``, or ``DISTRIBUTION:NAME``; None where nobody
    has. Raises InstalledPassError where several have it, or it cannot be imported."""
    found = [p for p in installed_passes() if name in (p.name, p.full_name)]
    if len(found) > 1:
        listed = " and ".join(f"{p.full_name} ({p.version})" for p in found)
        raise InstalledPassError(f"several distributions have a pass {name}: {listed}; name one so")
    return found[0].load() if found else None
