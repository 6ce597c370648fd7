"""Checks that the sizes of a call's values are possible, before anything is allocated or computed.

In: the values of a program whose sizes depend on named dims, the dims of a call, and the most bytes
that one value may take. Out: nothing, or the error that names the value, its type and its bytes.

Compiled code counts elements and offsets in 64-bit integers, which wrap silently. Therefore no value,
even one that is never stored, may have more than :data:`ANY_VALUE` bytes, where empty axes count as
one, as in NumPy: then no product of some of its axes wraps either. Values that take memory are also
bounded by the *memory limit*. Systems promise more memory than they have and kill processes that use
it, so that an allocation would fail too late.
"""

from __future__ import annotations

import contextlib
import math
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import ArgumentError, MemoryLimitError, OptionError, ShapeError

if TYPE_CHECKING:
    from fxlite.codegen.runtime.abi import Dim

ANY_VALUE = 1 << 56
"""The most bytes of a value, stored or not, with empty axes counted as one element."""
STORED_VALUE = 1 << 47
"""The most bytes of a stored value: the address space of a process on x86-64."""
HOLLOW = 1 << 32
"""Number of bytes from which a value without elements is *hollow*: kernels would loop over its other axes."""
CONSTANT = 1 << 30
"""Number of bytes from which a value is checked in each call although its sizes are numbers."""
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class ValueSize:
    """A value that is checked before a call: its name, its dtype's name and bytes, its shape, the line of
    the program that computes it, and whether it takes memory of its own."""

    name: str
    dtype: str
    itemsize: int
    shape: tuple[Dim, ...]
    where: str
    stored: bool

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.name}{place}, {self.dtype}[{','.join(map(str, self.shape))}]"

    def sizes(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """Its shape in a call. Raises ValueError if a divisor is not positive."""
        return tuple(d if isinstance(d, int) else d.evaluate(dims) for d in self.shape)

    @property
    def known_bytes(self) -> int:
        """Bytes as far as its sizes are numbers."""
        return self.bytes_counted([d for d in self.shape if isinstance(d, int)])

    def bytes_counted(self, sizes: Sequence[int]) -> int:
        """Bytes at these sizes, with empty axes counted as one element."""
        return self.itemsize * math.prod(max(size, 1) for size in sizes)


def count_values(
    values: Iterable[ValueSize], dims: Mapping[str, int], most: int, title: str, sources: str = ""
) -> ValueSize | None:
    """Check the values of a call of ``title`` that may store values of ``most`` bytes; ``sources`` says
    where its dims come from. Returns the first hollow value, or None.

    Raises MemoryLimitError for a value that is too large, and ShapeError for one with a negative size
    or a divisor that is not positive."""
    hollow = None
    given = f" for {sources}" if sources else ""
    for value in values:
        sizes = value.sizes(dims)
        if any(size < 0 for size in sizes):
            raise ShapeError(f"{title}: {value} would have the shape {sizes}{given}")
        counted, is_empty = value.bytes_counted(sizes), 0 in sizes
        told = f"{title}: {value}, has the shape {sizes}{given}: {counted:,} bytes"
        if counted > ANY_VALUE:
            raise MemoryLimitError(
                f"{told}, which is more than any value may have (2^56, empty axes counted as one "
                "element); call it with smaller sizes"
            )
        if value.stored and not is_empty and counted > min(most, STORED_VALUE):
            raise MemoryLimitError(
                f"{told}, but a value may take {min(most, STORED_VALUE):,}; call it for a part of "
                "the data at a time, or allow more: memory_limit=BYTES of fx.compile, or "
                "FXLITE_MEMORY_LIMIT=GIGABYTES"
            )
        if is_empty and counted > HOLLOW and hollow is None:
            hollow = value
    return hollow


def memory_limit() -> int:
    """The most bytes of a value, and of the results and workspace of a call together. It is
    ``FXLITE_MEMORY_LIMIT`` gigabytes, where 0 means no limit; by default the memory and swap of this
    machine, or what its control group allows. A value that is not a number counts as not set."""
    try:
        gigabytes = float(os.environ.get("FXLITE_MEMORY_LIMIT", ""))
    except ValueError:
        return _memory_of_machine()
    if not gigabytes >= 0:  # also NaN
        return _memory_of_machine()
    return STORED_VALUE if gigabytes == 0 else int(min(gigabytes * 1e9, STORED_VALUE))


def whole_number(value: Any, rule: str) -> int:
    """The integer given by a caller. Raises ArgumentError, with the rule, for anything else."""
    if not isinstance(value, (bool, np.bool_)):
        with contextlib.suppress(TypeError):
            return operator.index(value)
    raise ArgumentError(f"{rule}, got {value!r}")


def checked_limit(value: Any) -> int:
    """A memory limit given by a caller, in bytes. Raises ArgumentError for anything but an integer, and
    OptionError, a ValueError, for one below 1."""
    number = whole_number(value, "memory_limit must be an integer, a number of bytes")
    if number < 1:
        raise OptionError(f"memory_limit must be 1 byte or more, got {number}")
    return min(number, STORED_VALUE)


@cache
def _memory_of_machine() -> int:
    found = [STORED_VALUE]
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        found.append(physical + _swap())
    except (OSError, ValueError):
        pass  # a system that does not report it
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            found.append(int((_CGROUP / name).read_text(encoding="utf-8")))
        except (OSError, ValueError):  # no such control group, or "max"
            continue
    return min(n for n in found if n > 0)


def _swap() -> int:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("SwapTotal:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return 0
