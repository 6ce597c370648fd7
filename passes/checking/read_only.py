"""Weights that cannot be written: while a pass runs, they belong to the program it was given.

A pass works on a copy of the graph over the *same* arrays. One that writes into an array would
change the caller's model, which neither a journal nor a copy could take back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from fxlite.graph.graph_module import GraphModule


@contextlib.contextmanager
def read_only_weights(gm: GraphModule) -> Iterator[None]:
    """Inside, NumPy refuses (ValueError) to write into the parameters and buffers that ``gm`` has
    at the start. Arrays that are put in their place meanwhile are writable."""
    locked: list[np.ndarray[Any, Any]] = []
    for module in gm.modules():
        for group in (module._parameters, module._buffers):
            locked += [a for a in group.values() if isinstance(a, np.ndarray) and a.flags.writeable]
    for array in locked:
        array.flags.writeable = False
    try:
        yield
    finally:
        while locked:  # a view cannot be unlocked before the array it shows
            left = []
            for array in locked:
                try:
                    array.flags.writeable = True
                except ValueError:
                    left.append(array)
            locked = left if len(left) < len(locked) else []
