"""The ambient state: who is tracing in this thread, where random numbers come from, and whether the
garbage collector runs.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

if TYPE_CHECKING:
    from fxlite.tracing.proxy import Proxy
    from fxlite.tracing.tracer import Tracer


#: The tracer whose program runs in this thread (None: plain eager NumPy).
active_tracer: ContextVar[Tracer | None] = ContextVar("active_tracer", default=None)


#: Iterations after which a loop of a graph ends, where what it computes is looked at with numbers
#: that were drawn: as many before a rewrite as after it.
most_iterations: ContextVar[int | None] = ContextVar("most_iterations", default=None)


def stands_for_any(value: Any) -> bool:
    """True for a parameter of a pattern, which as an attribute of a call stands for any."""
    return hasattr(value, "is_wildcard") or (is_traced(value) and value.tracer.is_pattern)


#: How the text of a value that is not known while tracing begins.
UNKNOWN_TEXT = "Proxy("


def is_traced(value: Any) -> TypeGuard[Proxy]:
    """True for what stands for a value while a program is traced: its class can record calls."""
    return hasattr(type(value), "__fx_record__")


_state: dict[str, np.random.Generator] = {}  # made when somebody draws: np.random takes time to import


def manual_seed(seed: int) -> None:
    """Start the generator anew, so that what follows can be repeated."""
    _state["generator"] = np.random.default_rng(seed)


def generator() -> np.random.Generator:
    """The generator initialization and dropout draw from."""
    if "generator" not in _state:
        _state["generator"] = np.random.default_rng()
    return _state["generator"]


@contextlib.contextmanager
def paused_gc() -> Iterator[None]:
    """No garbage collection inside, unless it was off already.

    CPython's collector walks all young containers every 700 allocations; while a graph of 100 000
    nodes is made that takes more time than the making, and finds nothing: all of it is alive."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
