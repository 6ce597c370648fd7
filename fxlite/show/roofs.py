"""What a machine can do at most: the roofs of the roofline model, and what they say of a piece of
work.

In: measured rates (:mod:`fxlite.codegen.runtime.roofs` measures them). Out: :class:`Roofs`, which
prints with how each rate was measured, and :func:`limits`: the least time that arithmetic and
memory allow for some FLOPs and bytes. The model is that of Williams, Waterman and Patterson,
"Roofline: An Insightful Visual Performance Model" (2009).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Roof:
    """One rate, in ``unit`` (``FLOP/s``, ``OP/s`` or ``B/s``) with one thread and with all, and how
    it was measured."""

    name: str
    unit: str
    one_thread: float
    all_threads: float
    how: str


@dataclass(frozen=True)
class Limits:
    """Least seconds that arithmetic and moving bytes take; ``memory`` names what holds the bytes:
    ``memory``, or ``cache`` where they fit into it."""

    compute_seconds: float
    memory_seconds: float
    memory: str

    @property
    def seconds(self) -> float:
        """Least seconds for the work: both may go on at the same time."""
        return max(self.compute_seconds, self.memory_seconds)

    @property
    def bound(self) -> str:
        """What sets the limit: ``compute``, ``memory`` or ``cache``; empty for no work."""
        if not self.seconds:
            return ""
        return "compute" if self.compute_seconds >= self.memory_seconds else self.memory


@dataclass(frozen=True)
class Roofs:
    """The rates of a machine. ``threads`` is what ``all_threads`` of a roof means, ``cache_bytes``
    the size of the last-level cache, ``left_out`` what was not measured and why, ``measured`` the
    day."""

    cpu: str
    threads: int
    cache_bytes: int
    roofs: Mapping[str, Roof]
    left_out: tuple[str, ...]
    measured: str

    def rate(self, name: str, threads: int) -> float:
        """The rate with a number of threads: that of one thread times their number, but not more
        than that of all of them. Raises KeyError for a roof that was not measured."""
        roof = self.roofs[name]
        if threads >= self.threads:
            return roof.all_threads
        return max(roof.one_thread, min(roof.one_thread * threads, roof.all_threads))

    def compute(self, dtype: str, threads: int) -> float:
        """Most operations per second on values of a dtype (``f32``). Integers of 8 bits have the
        best rate of the instructions that multiply them; half floats are computed as f32, and so
        is whatever has no roof of its own."""
        if dtype == "f64":
            return self.rate("fma_f64", threads)
        names = ["fma_f32"]
        if dtype in ("i8", "u8"):
            names += [f"{way}_int8" for way in ("pairs", "dot", "tile")]
        return max(self.rate(name, threads) for name in names if name in self.roofs)

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        many = self.threads > 1
        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column("roof", no_wrap=True)
        for heading in ("1 thread", f"{self.threads} threads") if many else ("1 thread",):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("how it was measured")
        for roof in self.roofs.values():
            rates = [rate_text(roof.one_thread, roof.unit)]
            rates += [rate_text(roof.all_threads, roof.unit)] if many else []
            table.add_row(roof.name, *rates, roof.how)
        notes = [f"{self.cpu}, measured on {self.measured}"]
        notes += [f"left out: {text}" for text in self.left_out]
        return Group(table, Text("\n".join(notes), style="dim"))

    def __str__(self) -> str:
        from fxlite.base.console import plain_text

        return plain_text(self)

    __repr__ = __str__


def limits(
    roofs: Roofs, flops: int, bytes_read: int, bytes_written: int, dtype: str, threads: int
) -> Limits:
    """The least time for some work.

    Bytes that fit into half of the last-level cache are taken to be there, as the results of the
    step before mostly are."""
    in_cache = bytes_read + bytes_written <= roofs.cache_bytes // 2
    place = "cached_" if in_cache else ""
    seconds = bytes_read / roofs.rate(f"{place}read", threads)
    seconds += bytes_written / roofs.rate(f"{place}write", threads)
    memory = "cache" if in_cache else "memory"
    return Limits(flops / roofs.compute(dtype, threads), seconds, memory)


def rate_text(value: float, unit: str) -> str:
    """``117 GFLOP/s``: three digits and a decimal prefix."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * factor:
            return f"{_three(value / factor)} {prefix}{unit}"
    return f"{_three(value)} {unit}"


def _three(value: float) -> str:
    """Three digits without an exponent: 1.23, 12.3, 123."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"
