"""Who is tracing in this thread: the one piece of ambient state, shared by ops, modules and
proxies."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer

#: The tracer whose program runs in this thread (None: plain eager NumPy).
active_tracer: ContextVar[Tracer | None] = ContextVar("active_tracer", default=None)
