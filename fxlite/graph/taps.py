"""Values of a graph that somebody is told of whenever a module runs (:func:`fxlite.passes.tap`).

In: what a graph's output node gives, ``(result, *values)``, or ``(result, *writes, *values)`` where
the program writes into inputs. Out: the output without these values, and who is told which. They
are results like others, so that passes keep them and compiled code computes them; only a call by a
user, in Python or compiled, tells them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.base.errors import GraphError


@dataclass(frozen=True)
class Tap:
    """Someone who is told a value: ``function(name, value)``, with the name that the node had."""

    name: str
    function: Callable[[str, Any], Any]

    def tell(self, value: Any) -> None:
        """Call the function. It cannot write into the array: the result may share its memory. What
        it raises is raised by the call, with a note that says of which tap."""
        if isinstance(value, np.ndarray):
            value = value.view()
            value.flags.writeable = False
        try:
            self.function(self.name, value)
        except Exception as error:
            error.add_note(f"raised by the function of passes.tap, told the value of {self.name}")
            raise


def take(name: str, taps: Sequence[Tap], has_writes: bool, result: Any) -> tuple[Any, list[tuple[Tap, Any]]]:
    """What the output node gives without the values at its end, and these by tap. Raises GraphError
    for an output that does not have them."""
    if not taps:
        return result, []
    count = len(taps)
    least = count + (2 if has_writes else 1)
    if not isinstance(result, tuple) or len(result) < least or (not has_writes and len(result) > least):
        raise GraphError(
            f"{name} has taps, so its output must be (result, {', '.join(t.name for t in taps)}); "
            "take the taps off before editing the output (passes.untap), or set graph.taps = () to "
            "make these values plain results"
        )
    own = result[:-count]
    return (own if has_writes else own[0]), list(zip(taps, result[-count:], strict=True))
