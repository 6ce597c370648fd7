"""Facts about the values of a named dim: bounds, and a number of which they are multiples.

In: numbers, or text such as ``1..512%8``. Out: :class:`Facts`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fxlite.base.errors import ArgumentError
from fxlite.base.outside_text import LARGEST_INT


@dataclass(frozen=True)
class Facts:
    """Conditions that every value of a named dim fulfils: ``minimum <= value <= maximum`` (None: no
    bound), and ``multiple_of`` divides it. Raises ArgumentError if no value fulfils them."""

    minimum: int = 0
    maximum: int | None = None
    multiple_of: int = 1

    def __post_init__(self) -> None:
        given = {"min": self.minimum, "max": self.maximum, "multiple_of": self.multiple_of}
        for name, value in given.items():
            if type(value) is not int and not (name == "max" and value is None):
                raise ArgumentError(f"{name} of a named dim must be an int, not {value!r}")
            if value is not None and abs(value) > LARGEST_INT:
                raise ArgumentError(f"{name} of a named dim has {value.bit_length()} bits")
        if self.minimum < 0:
            raise ArgumentError(f"min={self.minimum}: a size cannot be negative")
        if self.multiple_of < 1:
            raise ArgumentError(f"multiple_of={self.multiple_of} must be at least 1")
        if self.maximum is not None and self.maximum < self.minimum:
            raise ArgumentError(f"min={self.minimum} is larger than max={self.maximum}")
        if self.highest is not None and self.highest < self.lowest:
            raise ArgumentError(f"no multiple of {self.multiple_of} lies between {self.minimum} and {self.maximum}")

    @property
    def lowest(self) -> int:
        """The smallest possible value."""
        return -(-self.minimum // self.multiple_of) * self.multiple_of

    @property
    def highest(self) -> int | None:
        """The largest possible value; None if there is none."""
        if self.maximum is None:
            return None
        return self.maximum // self.multiple_of * self.multiple_of

    def broken_by(self, value: int) -> str | None:
        """The condition that a value violates, such as ``at most 512``; None if it fulfils all."""
        if value < self.minimum:
            return f"at least {self.minimum}"
        if self.maximum is not None and value > self.maximum:
            return f"at most {self.maximum}"
        if value % self.multiple_of:
            return f"a multiple of {self.multiple_of}"
        return None

    def nearest(self, value: int) -> int:
        """The possible value that is nearest to the given one; of two, the larger."""
        value = -(-value // self.multiple_of) * self.multiple_of
        if self.highest is not None:
            value = min(value, self.highest)
        return max(value, self.lowest)

    def __str__(self) -> str:
        """``1 to 512, a multiple of 8``"""
        end = "or more" if self.maximum is None else f"to {self.maximum}"
        multiple = f", a multiple of {self.multiple_of}" if self.multiple_of > 1 else ""
        return f"{self.minimum} {end}{multiple}"


NO_FACTS = Facts()
_FACTS = re.compile(r"(?:(\d{0,19})\.\.(\d{0,19}))?(?:%(\d{1,19}))?")


def parse_facts(text: str) -> Facts:
    """Facts from text: ``"1..512%8"`` means from 1 to 512 and a multiple of 8; each part may be left out.
    Raises ArgumentError for other text."""
    found = _FACTS.fullmatch(text.replace(" ", ""))
    if not text.strip() or found is None:
        raise ArgumentError(f"{text!r} does not say facts of a dim; write MIN..MAX%MULTIPLE, 1..512%8")
    low, high, multiple = found.groups()
    return Facts(int(low or 0), int(high) if high else None, int(multiple or 1))
