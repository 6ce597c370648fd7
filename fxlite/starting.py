"""Functions that answer at once: ``fx.compile(model, x="f32[B,64]", warm=False)``.

In: a traced module, and what compiles it. Out: a callable on the same arguments. Another thread compiles; until it is
done, NumPy computes what the graph says, and from the next call on the compiled code runs. States go over from one to
the other. (Tiered compilation: U. Hölzle, D. Ungar: Reconciling responsiveness with performance in pure object-oriented
languages, 1996.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from fxlite.backend import described
from fxlite.base.errors import PicklingError
from fxlite.graph.graph_module import GraphModule


class StartingFunction:
    """A compiled function that can be called before it is compiled. It has the attributes of the compiled function;
    asking for one that only this has, such as ``sources`` or ``save``, waits for it."""

    def __init__(self, module: GraphModule, compile: Callable[[GraphModule], Any]) -> None:
        self._graph = module.copy()  # later passes on the user's module do not change what is computed
        self._made: Any = None
        self._error: Exception | None = None
        self._lock = threading.RLock()
        given = compile, module.copy()
        self._thread = threading.Thread(target=self._compile, args=given, name=f"compile {module.name}", daemon=True)
        self._thread.start()

    def _compile(self, compile: Callable[[GraphModule], Any], module: GraphModule) -> None:
        try:
            made = compile(module)
        except Exception as error:
            self._error = error
            return
        with self._lock:
            holder = getattr(made, "holder", made.graph_module)
            for _, path in self._graph.states:
                holder.put_state(path, np.array(self._graph.get_attribute(path)))
            self._made = made

    @property
    def is_ready(self) -> bool:
        """Whether calls run compiled code."""
        return self._made is not None

    @property
    def graph_module(self) -> GraphModule:
        """The traced module. Its buffers hold the states."""
        return self._graph if self._made is None else self._made.graph_module

    def wait(self, timeout: float | None = None) -> Any:
        """The compiled function, when it is ready. Raises what compiling raises, and TimeoutError after ``timeout``
        seconds."""
        self._thread.join(timeout)
        if self._error is not None:
            raise self._error
        if self._made is None:
            raise TimeoutError(f"{self._graph.name} is not compiled after {timeout:g} seconds; calls go on with NumPy")
        return self._made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._made is None and self._error is None:
            if not self._graph.states:
                return self._graph(*args, **kwargs)
            with self._lock:  # a call that began takes its states along
                if self._made is None:
                    return self._graph(*args, **kwargs)
        return self.wait()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python looks for its own without calling anything
            raise AttributeError(name)
        return getattr(self.wait(), name)

    def __repr__(self) -> str:
        if self._error is not None:
            return f"{described(self)[:-1]}, which did not compile: {type(self._error).__name__}>"
        return described(self) if self._made is None else repr(self._made)

    def __reduce__(self) -> NoReturn:
        raise PicklingError(
            f"{self._graph.name}: code compiled for this process cannot be pickled; pickle function.graph_module and "
            "compile it there, or write a folder: function.save(folder)"
        )
