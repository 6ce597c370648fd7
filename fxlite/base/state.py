"""Ambient state: the active tracer of a thread, the random generator, and pauses of the garbage collector."""

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


#: The number of iterations after which a loop of a graph is stopped if it runs on random inputs to compare
#: a graph before a rewrite with the one after it.
most_iterations: ContextVar[int | None] = ContextVar("most_iterations", default=None)


def stands_for_any(value: Any) -> bool:
    """True for a parameter of a pattern that is used as an attribute of a call and stands for any value."""
    return hasattr(value, "is_wildcard") or (is_traced(value) and value.tracer.is_pattern)


#: The beginning of the text of a value that is not known while tracing.
UNKNOWN_TEXT = "Proxy("


def is_traced(value: Any) -> TypeGuard[Proxy]:
    """True for an object that stands for a value while a program is traced: its class records calls."""
    return hasattr(type(value), "__fx_record__")


_state: dict[str, np.random.Generator] = {}  # filled on the first use, because np.random is slow to import


def manual_seed(seed: int) -> None:
    """Seed the generator of initialization and dropout, so that their numbers can be reproduced."""
    _state["generator"] = np.random.default_rng(seed)


def generator() -> np.random.Generator:
    """The generator for initialization and dropout."""
    if "generator" not in _state:
        _state["generator"] = np.random.default_rng()
    return _state["generator"]


@contextlib.contextmanager
def paused_gc() -> Iterator[None]:
    """Disable garbage collection inside the body.

    CPython's collector walks all young containers every 700 allocations. While a graph of 100 000 nodes
    is built, that would take more time than the building itself, and free nothing, as all of it is in use."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
