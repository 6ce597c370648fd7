"""The functions of a program in C and the calls of them.

In: a :class:`~fxlite.codegen.program.program.Program` and the module's weights. Out: one
:class:`Call` for each group, with the text of its function; packed weights; and the places to which
error messages refer.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from fxlite.base.errors import CodegenError
from fxlite.codegen.c import templates
from fxlite.codegen.c.control import control_function
from fxlite.codegen.c.control import dim_c as dim_c
from fxlite.codegen.c.dynamic_scale import join_scales
from fxlite.codegen.c.horizontal import join_reductions
from fxlite.codegen.c.render.alternatives import (
    NO_CHOICE,
    OUTSIDE,
    Choice,
    Decision,
    epilogue_decision,
    thread_decision,
)
from fxlite.codegen.c.render.template_parts import TemplateFunction
from fxlite.codegen.c.tiles.library import macros
from fxlite.codegen.c.weights import Packed, PackedWeight, module_arrays
from fxlite.codegen.kernel.changed_part import changed_part
from fxlite.codegen.kernel.kernel_ir import Kernel
from fxlite.codegen.kernel.lower import buffer_name
from fxlite.codegen.kernel.names import derived, dim_name, file_name, plain, resolved
from fxlite.codegen.kernel.printer import CPrinter
from fxlite.codegen.kernel.ranges import range_of
from fxlite.codegen.kernel.schedule import loops
from fxlite.codegen.program.data_sizes import DataSize, with_data_sizes
from fxlite.codegen.program.program import Program, no_routine, plan
from fxlite.codegen.program.rounds import with_two_rounds
from fxlite.codegen.program.states import state_results
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.group import Group
from fxlite.passes.ledger import add_refusals, refusal
from fxlite.passes.rules.decompose import decompose
from fxlite.types import shapes
from fxlite.types.shapes import Dim


@dataclass(frozen=True)
class Call:
    """One step of the run function: its name; the C function that it calls, which was written for an
    earlier call unless this one ``is_first``; and its arguments, of which the ``shifted`` ones point into a
    value from some element on. ``decisions`` are those made about the function. ``declined`` says why the
    anchor's template could not take the group, which consists of loops instead."""

    name: str
    function: str
    text: str
    arguments: tuple[str, ...]
    group: Group
    scratch: str = "0"
    kernel: Kernel | None = None
    decisions: tuple[Decision, ...] = ()
    declined: str = ""
    shifted: Mapping[str, tuple[Node, Dim]] = field(default_factory=dict)
    is_first: bool = True


class TemplateDeclined(CodegenError):
    """Neither a template nor loops can compute the group of ``node``, because the op has no body of its
    own; but its expansion has one."""

    def __init__(self, node: Node, reason: str) -> None:
        super().__init__(reason)
        self.node = node


#: By the key of a group's form (`sharing.form_of`), what to do in place of what the models say.
Choices = Mapping[tuple[Any, ...], Choice]
#: Everything as the models have it.
NO_CHOICES: Choices = {}
#: Makes the call of a function of its own for a group, under a name.
Maker = Callable[[Group, str], "Call"]
#: The same, and enters the places that errors refer to into a list.
PlainMaker = Callable[[list[str], Group, str], "Call"]


@dataclass(frozen=True)
class Planned:
    """A program, a call for each of its groups, the weights that they packed by their names in C,
    the module's arrays, and the places to which error messages refer by number."""

    program: Program
    calls: list[Call]
    packed: Packed
    arrays: dict[Node, Any]
    locations: list[str]


def _joined(groups: Sequence[Group]) -> list[Group]:
    """The groups, of which some store a second value that another one of them would compute."""
    return join_reductions(join_scales(groups))


def planned_calls(
    module: GraphModule,
    matmul_precision: str = "highest",
    choices: Choices = NO_CHOICES,
    apart: Collection[Node] = (),
    plain: PlainMaker | None = None,
    donated: Mapping[str, int] = MappingProxyType({}),
) -> Planned:
    """Plan a module and print its functions; for the arguments see :func:`fxlite.codegen.c.emit`.
    ``plain`` writes the functions for a target that has no templates; ``donated`` maps targets of inputs
    to the numbers of the flat results that take their memory.

    A group that its anchor's template declines becomes loops. If the anchor's op has no loops, its node
    is expanded in ``module``, which is then planned again; the ledger says why. Raises CodegenError for
    graphs that cannot be compiled."""
    own, sizes = module, dict[str, DataSize]()
    names = {node.name for node in apart}
    if plain is None:
        module, sizes = with_data_sizes(with_two_rounds(own))
        names |= {size.count.name for size in sizes.values()}
        apart = {node for node in module.graph.nodes if node.name in names}
    while True:
        claims = templates.plain_claims if plain else templates.claims_in(matmul_precision)
        numbers = state_results(module) | dict(donated) if plain is None else {}
        owned = {n: numbers[n.target] for n in module.graph.placeholders if n.target in numbers}
        join = list if plain else _joined
        inside = no_routine if plain else templates.claims_inside
        program = plan(
            module,
            claims,
            apart,
            join,
            packed=True,
            control=plain is None,
            owned=owned,
            inside=inside,
            data_sizes=sizes,
        )
        if not program.knows_data_sizes:
            module, sizes = own, {}
            apart = {node for node in own.graph.nodes if node.name in names}
            continue
        made = Planned(program, [], {}, module_arrays(module), [])
        if plain is None:
            given = made.arrays, made.packed, made.locations, matmul_precision, choices
            make = partial(_call, given)
        else:
            make = partial(plain, made.locations)
        try:
            made.calls.extend(program_calls(made, make))
            return made
        except TemplateDeclined as declined:
            add_refusals(own, [refusal("template", declined.node, str(declined))])
            kept = {n for n in module.graph.nodes if n is not declined.node}
            decompose.function(module, keep=kept.__contains__)
            if declined.node in module.graph.nodes:
                raise


def title_of(found: Group) -> str:
    """Name of a group's function, derived from the program: the module's path, followed by the op if it
    ends in a number, as in a Sequential; or the name of the value that it computes, perhaps in another
    shape or order."""
    return _title(*_path_and_value(found))


def _title(path: str, value: str) -> str:
    return plain(re.sub(r"\W+", "_", "_".join(filter(None, (path, value)))))


def _path_and_value(found: Group) -> tuple[str, str]:
    node = found.anchor or found.root
    path = node.scope.path if node.scope is not None else ""
    value = found.root
    while value.target.kind == "view" and len(value.all_input_nodes) == 1:
        if (value := value.all_input_nodes[0]) not in found.members:
            value = found.root
            break
    said = value.name
    if found.anchor is not None and path:
        said = node.target.name if path.rpartition(".")[2].isdecimal() else ""
    return path, said


def common_title(groups: Sequence[Group], classes: Mapping[str, str]) -> str:
    """Name of a function that computes several groups: if they are in different modules, the common part
    of their paths, starting with the class of the module in a list, and the op. ``classes`` are those of
    modules by path."""
    (first, value), *others = map(_path_and_value, groups)
    if all(path == first for path, _ in others):
        return _title(first, value)
    paths = [_from_class(path, classes) for path in (first, *(path for path, _ in others))]
    value = re.sub(r"_\d+$", "", value)
    common = common_path(paths)
    if any(path != common for path in paths) and groups[0].anchor is not None:
        value = groups[0].anchor.target.name
    return _title(common, value if value != common.rpartition(".")[2] else "")


def common_path(paths: Collection[str]) -> str:
    """The innermost module that contains all the paths."""
    parts = [path.split(".") for path in paths]
    low, high = min(parts), max(parts)
    count = next((i for i, (a, b) in enumerate(zip(low, high)) if a != b), min(len(low), len(high)))
    return ".".join(low[:count])


def _from_class(path: str, classes: Mapping[str, str]) -> str:
    """A path starting with the class of its last module in a list; without numbers if the class is unknown."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        if parts[end - 1].isdecimal() and (name := classes.get(".".join(parts[:end]))):
            return ".".join([file_name(name), *parts[end:]])
    return ".".join(part for part in parts if not part.isdecimal())


def program_calls(planned: Planned, make: Maker) -> list[Call]:
    """A call for each group of a plan without calls, in order; groups of the same form call one function.
    Raises CodegenError."""
    groups = planned.program.groups
    digits = len(str(len(groups)))
    shared = shared_functions(groups)
    serving: dict[int, list[Group]] = {}
    for number, group in enumerate(groups):
        serving.setdefault(shared[number].number if number in shared else number, []).append(group)
    nodes = planned.program.module.graph.nodes
    classes = {n.scope.path: n.scope.class_name for n in nodes if n.scope is not None}
    titles = {number: common_title(served, classes) for number, served in serving.items()}
    names = [f"k{number:0{digits}d}_{title_of(group)}" for number, group in enumerate(groups)]
    calls = {number: make(groups[number], f"k{number:0{digits}d}_{title}") for number, title in titles.items()}
    values: dict[int, list[str]] = {}
    for number, found in shared.items():
        call = _shared_call(groups[number], names[number], found, calls[found.number], planned, make)
        calls[number] = call
        if not call.is_first:
            values.setdefault(found.number, []).append(call.group.root.name)
    for number, others in values.items():
        if not calls[number].text:
            continue  # nothing of these values is needed
        listed = ", ".join(others[:6]) + (", ..." if len(others) > 6 else "")
        note = "\n * ".join(textwrap.wrap(f"Also computes {listed}.", 94, subsequent_indent="  "))
        text = calls[number].text
        end = text.rindex(" */", 0, text.index(f"static void {calls[number].function}("))  # of its comment
        text = f"{text[:end]}\n * {note}{text[end:]}"
        calls[number] = replace(calls[number], text=text)
    return [replace(calls[number], name=name) for number, name in enumerate(names)]


def _shared_call(group: Group, name: str, found: Shared, serving: Call, planned: Planned, make: Maker) -> Call:
    """A call of another group's function, with weights of its own, which are packed in the same way."""
    weights = {old: new for old, (new, _) in found.operands.items() if old.op == "get_attr" and old is not new}
    if weights and any(start != 0 for _, start in found.operands.values()):
        return make(group, name)
    pairs = zip(serving.group.stored, group.stored, strict=True)
    given = {buffer_name(old): buffer_name(new) for old, new in pairs}
    shifted: dict[str, tuple[Node, Dim]] = {}
    for old, (new, start) in found.operands.items():
        text = buffer_name(new)
        if start != 0:
            text += f" + {dim_c(start)}"
            shifted[text] = new, start
        given[buffer_name(old)] = text
    for argument in serving.arguments:
        packed = planned.packed.get(argument)
        if packed is not None and packed.key[0] in weights:
            old, weight = packed.key[0], weights[packed.key[0]]
            own = packed.of(weight, planned.arrays[weight])
            given[argument] = _own_name(argument.replace(buffer_name(old), buffer_name(weight), 1), own, planned.packed)
            planned.packed[given[argument]] = own
    arguments = tuple(given.get(a, a) for a in serving.arguments)
    return replace(serving, name=name, group=group, arguments=arguments, shifted=shifted, is_first=False)


def _call(given: tuple[Any, ...], group: Group, name: str) -> Call:
    return group_call(group, name, *given)


def note_decisions(module: GraphModule, calls: Sequence[Call]) -> None:
    """Record in the module's ledger the models' decisions about each function with their reasons, and
    which templates declined."""
    notes = []
    for call in calls:
        if call.declined and call.is_first and call.group.anchor is not None:
            notes.append(refusal("template", call.group.anchor, call.declined))
        made = [str(d) for d in call.decisions if len(d.alternatives) > 1]
        if made and call.is_first:
            node = call.group.anchor or call.group.root
            notes.append(refusal("cost model", node, "; ".join(made)))
    add_refusals(module, notes)


def group_call(
    found: Group,
    name: str,
    weights: dict[Node, Any],
    packed: Packed,
    locations: list[str],
    matmul_precision: str,
    choices: Choices = NO_CHOICES,
) -> Call:
    """The call of a function written for this group. ``weights`` are the module's arrays. Packed weights
    are added to ``packed`` by their names in C, and places to which error messages refer by number to
    ``locations``. ``choices`` override the models."""
    if found.kind == "control":
        whole = control_function(found, name, locations, templates.render_inside)
        return Call(name, name, whole.text, whole.arguments, found, whole.scratch)
    choice = choices.get(form_of(found).key, NO_CHOICE) if choices else NO_CHOICE
    made = _own_call(found, name, weights, packed, locations, matmul_precision, choice)
    decisions = (*made.decisions, *epilogue_decision(found))
    if "n_threads" in made.arguments:
        decisions += thread_decision(found, choice)
    if choice.get("threads") == "one":
        arguments = tuple("1" if a == "n_threads" else a for a in made.arguments)
        made = replace(made, arguments=arguments)
    return replace(made, decisions=decisions)


def _own_call(
    found: Group,
    name: str,
    weights: dict[Node, Any],
    packed: Packed,
    locations: list[str],
    matmul_precision: str,
    choice: Choice,
) -> Call:
    declined = ""
    if found.anchor is not None:
        inner = {subject: name for subject, name in choice.items() if subject not in OUTSIDE}
        places = len(locations)
        try:
            made = templates.render(found, name, weights, locations, matmul_precision, inner)
        except CodegenError as error:
            if not found.anchor.target.has_body:
                raise TemplateDeclined(found.anchor, str(error)) from error
            del locations[places:]
            declined = str(error)
        else:
            made = _with_own_names(made, packed)
            packed.update(made.packed)
            given = made.arguments, found, made.scratch
            text = resolved(made.text, macros())
            return Call(name, name, text, *given, decisions=made.decisions)
    kernel = loops(found, name)
    part = changed_part(kernel, str) if found.taken and kernel.body else None
    if part is not None and not part.has_copy:
        kernel = part.kernel
    return loops_call(found, kernel, CPrinter(kernel.buffers, locations), declined)


def loops_call(found: Group, kernel: Kernel, printer: CPrinter, declined: str = "") -> Call:
    """The call of a function of loops; without text, of none, if nothing of the value is needed."""
    text = "" if found.needed and not kernel.body else printer.function(kernel)
    arguments = [b.name for b in kernel.buffers] + [dim_name(d) for d in kernel.dims]
    if printer.uses_error:
        arguments.append("error")
    if printer.uses_threads:
        arguments.append("n_threads")
    text = resolved(text, macros())
    name = kernel.name
    return Call(name, name, text, tuple(arguments), found, "0", kernel, declined=declined)


def _own_name(name: str, weight: PackedWeight, taken: Packed) -> str:
    """The name of a packed weight, or another one if that is already used for something else: a matrix and its
    transpose are packed differently."""
    new, number = name, 1
    while new in taken and taken[new] != weight:
        number += 1
        new = derived(name, str(number))
    return new


def _with_own_names(made: TemplateFunction, taken: Packed) -> TemplateFunction:
    """The function with names for packed weights that are not used for something else."""
    for name, weight in made.packed.items():
        new = _own_name(name, weight, taken)
        if new != name:
            made = replace(
                made,
                text=re.sub(rf"\b{name}\b", new, made.text),
                arguments=tuple(new if a == name else a for a in made.arguments),
                packed={new if n == name else n: w for n, w in made.packed.items()},
            )
    return made


# -- functions that groups share -------------------------------------------------------------------
# Groups of the same form, which one C function computes: the steps of an unrolled loop, equal layers.
#
# In: the groups of a program. Out: for each group that another group's function can serve, that group,
# and how far its operands start after those of the other. Two groups have the same form if their members
# are the same calls on the same types, wired in the same way. They may differ in the values they read,
# and in where a ``select`` or ``slice`` cuts an operand that nothing else in the group reads: the function
# then gets a pointer to a later element.


@dataclass(frozen=True)
class Form:
    """``key`` is equal for groups of the same form; ``operands`` are the values a group reads, and
    ``positions`` say where each is cut along an axis (0 if that is part of the key)."""

    key: tuple[Any, ...]
    operands: tuple[Node, ...]
    positions: tuple[int, ...]
    strides: tuple[Dim, ...]


@dataclass(frozen=True)
class Shared:
    """The number of the group whose function is used, and for each value that the function reads the value
    to pass instead, with the number of elements to skip at its start."""

    number: int
    operands: Mapping[Node, tuple[Node, Dim]]


def shared_functions(groups: Sequence[Group]) -> dict[int, Shared]:
    """By number, the groups that need no function of their own. The function of a form is that of the
    group whose operands are cut first; groups with an operand cut before that have their own."""
    by_key: dict[tuple[Any, ...], list[tuple[int, Form]]] = {}
    for number, group in enumerate(groups):
        form = form_of(group)
        by_key.setdefault(form.key, []).append((number, form))
    found: dict[int, Shared] = {}
    for same in by_key.values():
        first, form = min(same, key=lambda pair: pair[1].positions)
        for number, other in same:
            steps = [b - a for a, b in zip(form.positions, other.positions)]
            if number == first or min(steps, default=0) < 0:
                continue
            starts = [shapes.normalize(n * stride) for n, stride in zip(steps, form.strides)]
            given = zip(form.operands, zip(other.operands, starts))
            found[number] = Shared(first, dict(given))
    return found


def form_of(group: Group) -> Form:
    """What a group computes, independent of the names of its values."""
    number: dict[Node, int] = {member: n for n, member in enumerate(group.members)}
    readers: dict[Node, int] = {}
    for member in group.members:
        for node in dict.fromkeys(member.all_input_nodes):
            readers[node] = readers.get(node, 0) + 1
    operands: dict[Node, int] = {}
    cuts: dict[Node, tuple[int, Dim]] = {}
    parts: list[Any] = []

    def place(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(place, value))
        if not isinstance(value, Node):
            return repr(value)
        if value in number:
            return number[value]
        return "operand", operands.setdefault(value, len(operands))

    for member in group.members:
        attributes = dict(member.kwargs)
        source = member.args[0] if member.args else None
        if isinstance(source, Node) and source not in number and readers[source] == 1:
            cut = _cut(member, source)
            if cut is not None:
                cuts[source] = cut
                attributes = {"axis": attributes["axis"], "step": attributes.get("step")}
        parts.append((member.target.name, member.type, place(member.args), repr(attributes)))
    anchor = None if group.anchor is None else number[group.anchor]
    beside = None if group.beside is None else repr(group.beside.kwargs)
    if group.kind == "control":
        beside = group.root.name  # no other group has the same text
    over = tuple((number.get(value), operands.get(operand)) for value, operand in group.taken.items())
    looks_up = any(member.target.kind in ("gather", "scatter") for member in group.members)
    ranges = tuple(map(range_of, operands)) if looks_up else ()  # of integers, whose checks depend on them
    whole = number[group.root], anchor, beside, over, repr(group.needed), ranges
    key = (*whole, *parts, *map(_operand_key, operands))
    places = [cuts.get(node, (0, 0)) for node in operands]
    return Form(key, tuple(operands), tuple(p for p, _ in places), tuple(s for _, s in places))


def _cut(member: Node, source: Node) -> tuple[int, Dim] | None:
    """Position and stride of a select or slice with known numbers; None for other calls."""
    first = member.target.starts_at
    if first is None:
        return None
    attributes = member.kwargs
    axis = attributes["axis"]
    position, stop = attributes.get(first, 0), attributes.get("stop")
    size = source.type.shape[axis]
    known = type(size) is int and type(position) is int and (stop is None or type(stop) is int)
    if not known or position < 0 or (stop is not None and stop < 0):
        return None
    inner = source.type.shape[axis % source.type.rank + 1 :]
    return position, shapes.product(inner)


def _operand_key(node: Node) -> tuple[Any, ...]:
    """The properties of an operand that affect the text of a function: its type; whether it is a weight,
    which may be packed; and the value of a constant of rank 0, which is written as a number."""
    if node.op != "get_attr":
        return node.type, False
    owner = node.graph.owning_module
    if node.type.rank or owner is None:
        return node.type, True
    return node.type, True, repr(owner.get_attribute(node.target).item())
