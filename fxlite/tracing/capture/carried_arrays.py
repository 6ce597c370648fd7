"""Arrays that a loop carries under names: that each has memory of its own.

In: the arrays before the loop, in a round, and after it. Out: nothing, or the memory of which it is
not known behind the loop what stands in it; or an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxlite.base.state import is_traced
from fxlite.tracing.capture.regions import Region, is_callers
from fxlite.tracing.writes.shared_memory import Memory, root_of, view_of

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer

#: A carried array: its name, and the array before the loop, in a round, and after it.
Array = tuple[str, Any, Any, Any]


def check_memory(tracer: Tracer, what: str, region: Region, arrays: Sequence[Array]) -> list[tuple[Memory, str]]:
    """Carried arrays are of their own: where a round writes into one, no other may share its
    memory. Raises TraceError where that is not so, or not known. Gives the memory of which it is
    not known behind the loop what stands in it, and why."""
    given_away = []
    ends = [root_of(view_of(last)) for _, _, _, last in arrays]
    owners = [root_of(view_of(inner)) for _, _, inner, _ in arrays]
    starts = [root_of(view_of(before)) if is_traced(before) else None for _, before, _, _ in arrays]
    for (name, before, _, last), end, owner, start in zip(arrays, ends, owners, starts):
        is_part = view_of(last).parent is not None
        shared = is_part or end.home is not region.graph or ends.count(end) > 1
        written = {end, owner} & region.written
        if shared and written:
            raise tracer.error(
                f"{name} shares memory with another array after a round of {what}, and the loop "
                "writes into one of them",
                f"copy it: {name} = ....copy()",
                last.node,
            )
        if owner not in region.written or start is None or start.memory is None:
            continue
        if start.memory.refusal or is_callers(start) or view_of(before).parent is not None or (starts.count(start) > 1):
            raise tracer.error(
                f"{what} writes into {start.node.name} under the name {name}, which names another "
                "array in the next round",
                f"copy it before the loop: {name} = {name}.copy()",
                start.node,
            )
        given_away.append((start.memory, f"{what} has written into it under the name {name}"))
    return given_away
