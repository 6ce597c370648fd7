"""What an emitted model keeps from call to call: ``struct NAME_state``, which the caller owns.

In: a planned program whose states are owned. Out: the struct, and the function that gives it the
values that the model's buffers had when it was compiled. The run function writes states in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fxlite.base import outside_text
from fxlite.codegen.c.structs import STATE
from fxlite.codegen.c.tiles.library import macros
from fxlite.codegen.c.weights import Array
from fxlite.codegen.kernel.lower import buffer_name
from fxlite.codegen.kernel.names import Scope, derived, own_name
from fxlite.codegen.kernel.text import comment, wrap
from fxlite.codegen.program.program import Program
from fxlite.codegen.program.states import Place, state_places
from fxlite.graph.graph import Node


@dataclass(frozen=True)
class Member:
    """A state as a member of the struct: its name, and what it is at the start."""

    node: Node
    place: Place
    name: str
    initial: Array

    @property
    def pointer(self) -> str:
        """The state as the run function reads and writes it."""
        return f"{STATE}->{self.name}"

    @cached_property
    def stored(self) -> str:
        """The name of the initial value among the weights; none where all bytes are 0."""
        return derived(buffer_name(self.node), "initial") if self.initial.view(np.uint8).any() else ""


class State:
    """The struct of a program's states, under the name of the model, with its ``members``."""

    def __init__(self, name: str, program: Program) -> None:
        self.name = name
        self.members: dict[Node, Member] = {}
        nodes = {node.target: node for node in program.states}
        spelled = Scope(" ".join(map(own_name, nodes)), macros())
        for place in state_places(program.module) if nodes else ():
            value = np.array(program.module.get_attribute(place.path), place.type.dtype.numpy, order="C")
            node = nodes[place.target]
            self.members[node] = Member(node, place, spelled.names[own_name(place.target)], value.reshape(-1))

    def __bool__(self) -> bool:
        return bool(self.members)

    @property
    def initial(self) -> dict[str, tuple[Node, Array]]:
        """The initial values that lie among the weights, by their names there."""
        return {m.stored: (m.node, m.initial) for m in self.members.values() if m.stored}

    #: Of the parameter that points to it.
    label = STATE

    @property
    def tag(self) -> str:
        return f"struct {self.name}_state"

    def definition(self) -> list[str]:
        """The struct, for the header."""
        said = "What the model keeps from call to call, dense and row-major. The caller owns it."
        lines = [f"/*{comment(said)[1:]}", f"{self.tag} {{"]
        for member in self.members.values():
            about = outside_text.comment(f"{member.place.type}, {member.place.path}")
            line = f"    {member.node.type.dtype.c_stored} {member.name}[{member.place.count}];"
            lines.append(f"{line}  /* {about} */")
        return [*lines, "};", ""]

    @property
    def signature(self) -> str:
        """The head of the function that gives the initial values."""
        return f"void {self.name}_state_init({self.tag} *{STATE}, const void *weights)"

    def declaration(self) -> list[str]:
        """The prototype of that function, for the header."""
        return ["/** The values that the model begins with. */", *wrap(f"{self.signature};"), ""]

    def init(self, places: Mapping[str, tuple[int, str]]) -> list[str]:
        """The function that gives the initial values, of which some lie among the weights."""
        if not self.members:
            return []
        lines = [f"    memset({STATE}, 0, sizeof *{STATE});"]
        for member in self.members.values():
            if member.stored:
                start, size = places[member.stored][0], member.initial.nbytes
                lines += wrap(f"    memcpy({member.pointer}, (const char *)weights + {start}, {size});")
        if not self.initial:
            lines.append("    (void)weights;  // all is 0 at first")
        return [f"{self.signature} {{", *lines, "}", ""]
