"""The memory plan of a compiled program, to look at: which value lies in which slot, and when.

In: a :class:`~fxlite.codegen.program.program.Program` and sizes of its named dims. Out: a
:class:`~fxlite.passes.costing.timeline.MemoryTimeline` whose steps are the kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from fxlite.base.errors import ArgumentError
from fxlite.codegen.program.program import Program
from fxlite.passes.costing.timeline import Buffer, MemoryTimeline
from fxlite.types import shapes


def memory_plan(
    program: Program, kernels: Sequence[str], sizes: Mapping[str, int]
) -> MemoryTimeline:
    """The slots of a program's arena over its ``kernels``, which are named in order. The scratch
    space of templates, inputs, results and weights are no part of the arena's slots.

    Raises ArgumentError for sizes that are missing or of dims that the program does not have."""
    if set(sizes) != set(program.dims):
        wanted = ", ".join(f"{name}=8" for name in program.dims) or "no sizes"
        raise ArgumentError(
            f"{program.module.name}: the memory plan takes {wanted}, not sizes of "
            f"{', '.join(sizes) or 'nothing'}"
        )
    slots = tuple(int(shapes.substitute(slot.size, sizes)) for slot in program.slots)
    starts = [0, *itertools.accumulate(slots)]
    buffers = tuple(
        Buffer(
            node,
            int(shapes.substitute(node.type.nbytes, sizes)),
            first,
            min(last, len(kernels) - 1),
            program.slot_of[node],
            starts[program.slot_of[node]] + program.offset_of.get(node, 0),
        )
        for node, (first, last) in program.lifetimes.items()
    )
    return MemoryTimeline(
        program.module.name, dict(sizes), tuple(kernels), buffers, program.arena_bytes, slots
    )
