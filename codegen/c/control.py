"""Loops and conditions in C: one function for each such node of the program, which also contains the
ones nested inside it.

In: a planned group of a control op. Out: the call of a function with ``for``, ``while`` and ``if``,
whose bodies are the loops of their kernels. Numbers are local variables. Values that a loop carries are
written in place; if an iteration computes an array from scratch, two places alternate. Arrays between
the kernels of a body lie in the scratch of the function.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from fxlite.base.errors import CodegenError, number_of
from fxlite.codegen.c.interchange import columns_first, rows_first
from fxlite.codegen.c.tiles.library import macros
from fxlite.codegen.kernel.carry import carried_elements, recurrences_first
from fxlite.codegen.kernel.changed_part import changed_part
from fxlite.codegen.kernel.hold import held_element, read_before_loops, reads_columns
from fxlite.codegen.kernel.kernel_ir import Alloc, For, Kernel, Let, Store, statements
from fxlite.codegen.kernel.lower import NEEDED, buffer_name
from fxlite.codegen.kernel.names import derived, dim_name, resolved, value_name
from fxlite.codegen.kernel.printer import CPrinter
from fxlite.codegen.kernel.schedule import loops
from fxlite.codegen.kernel.text import comment, signature, wrap
from fxlite.codegen.program.control import BodyPlan, ControlPlan, known_index
from fxlite.codegen.program.program import Program, rounded
from fxlite.graph.graph import Node
from fxlite.graph.subgraph import bodies_of
from fxlite.ops.control import BODIES
from fxlite.passes.group import Group, constant_of
from fxlite.scalar import expr
from fxlite.scalar.index import Given, Index, to_text
from fxlite.types import shapes
from fxlite.types.shapes import Dim

_BYTES = "scratch"
#: Where the functions that are called have their scratch, one after the other.
_CALLED = "called"


@dataclass(frozen=True)
class ControlFunction:
    """The text of a function, the arguments of its call, and its bytes of scratch as C."""

    text: str
    arguments: tuple[str, ...]
    scratch: str


#: Of a group that a template computes, a name and texts that errors refer to: its function's text, the arguments
#: of its call, bytes of scratch as C, and whether it is for threads to share. Raises CodegenError if loops have to
#: compute the group.
RoutineMaker = Callable[[Group, str, list[str]], tuple[str, tuple[str, ...], str, bool]]


def control_function(group: Group, name: str, locations: list[str], routine: RoutineMaker) -> ControlFunction:
    """The function of a group; ``routine`` writes the functions that it calls."""
    return _Function(group, name, locations, routine).function()


def dim_c(dim: Dim) -> str:
    """A dim as a C integer expression."""
    return to_text(Index.of(dim), repr, "/", CPrinter.extremum_text, dim_name)


class _Printer(CPrinter):
    """Prints kernels inside a function: values of rank 0 are its variables, and values that share memory
    have one name."""

    def __init__(self, locations: list[str]) -> None:
        super().__init__((), locations)
        self.places: dict[str, str] = {}
        self.numbers: set[str] = set()

    def place(self, buffer: str) -> str:
        """The variable or array of a buffer."""
        return self.places.get(buffer, buffer)

    def address(self, buffer: str, index: Sequence[Index]) -> str:
        place = self.place(buffer)
        if place in self.numbers:
            return place
        return place + super().address(buffer, index).removeprefix(buffer)


class _Function:
    def __init__(self, group: Group, name: str, locations: list[str], routine: RoutineMaker) -> None:
        self.group, self.name, self.routine = group, name, routine
        self.printer = _Printer(locations)
        self.scratch: Dim = 0
        self.pointers: list[str] = []  # declarations of arrays in scratch
        #: Those that stand before the loop or condition at hand: of places that take turns in it, and
        #: of results of a branch that cannot be computed where they are wanted.
        self.turning: list[str] = []
        #: Arrays before and behind an iteration of the loop at hand whose memory takes turns, by the id of its body and
        #: the memory of the one behind; and such memory that does not take turns, see `_of_changed_part`.
        self.before: dict[tuple[int, str], tuple[Node, Node]] = {}
        self.alike: set[str] = set()
        self.kernels = 0
        self.made: dict[int, Kernel] = {}  # by id of the group, which the plan keeps alive
        self.functions: list[str] = []  # of the templates that are called
        self.called: list[str] = []  # their bytes of scratch
        #: Whether some loop is better done with narrow vectors, and whether some kernel has loops of its own.
        self.narrow = self.has_loops = False

    # -- the whole -----------------------------------------------------------------------------
    def function(self) -> ControlFunction:
        node, taken = self.group.root, set(self.group.taken.values())
        parameters: list[str] = []
        arguments: list[str] = []
        lines: list[str] = []
        for operand in node.all_input_nodes:
            own = _own_name(operand)
            if operand in self.group.members:
                continue
            if not operand.type.rank:
                self.printer.numbers.add(own)
                known = _literal(self.printer, operand)
                if known is None:
                    pointer = derived(own, "at")
                    parameters.append(f"const {operand.type.dtype.c_stored} *{pointer}")
                    arguments.append(buffer_name(operand))
                    known = f"*{pointer}"
                lines.append(f"    const {operand.type.dtype.c_stored} {own} = {known};")
            elif operand not in taken:
                parameters.append(f"const {operand.type.dtype.c_stored} *{own}")
                arguments.append(buffer_name(operand))
        for part in self.group.parts:
            parameters.append(f"{part.type.dtype.c_stored} *{_result(part)}")
            arguments.append(buffer_name(part))
        body = self.control(self.group, None, 1)
        for part in self.group.parts:
            if not part.type.rank:
                body.append(f"    *{_result(part)} = {buffer_name(part)};")
        size = dim_c(self.scratch) if self.scratch != 0 else "1"  # arrays without elements have a place, too
        if self.called:
            self.pointers += wrap(f"    unsigned char *const {_CALLED} = {_BYTES} + {size};")
            size = f"{size} + {_largest(self.called)}"
        body = _without_unread([*self.pointers, *body])
        text = "\n".join([*lines, *body])
        dims = [d for d in sorted(self._dims()) if re.search(rf"\b{dim_name(d)}\b", text)]
        parameters += [f"int64_t {dim_name(d)}" for d in dims]
        arguments += map(dim_name, dims)
        for word, kind in ((_BYTES, "unsigned char *"), ("error", "fx_error *"), ("n_threads", "int ")):
            if re.search(rf"\b{word}\b", text):
                parameters.append(f"{kind}{word}")
                arguments.append(word)
        counts = Counter(re.findall(r"\w+", text))
        lines = [line for line in lines if (found := _VARIABLE.match(line)) and counts[found[1]] > 1]
        kind = "FX_NARROW static void" if self.narrow and not self.has_loops else "static void"
        whole = [comment(_about(self.group)), *signature(self.name, parameters, kind), *lines, *body, "}"]
        used = _BYTES in arguments
        text = resolved("\n\n".join([*self.functions, "\n".join(whole)]), macros())
        return ControlFunction(text, tuple(arguments), size if used else "0")

    def _dims(self) -> set[str]:
        node = self.group.root
        bounds = [n.arguments.values() for n in node.all_input_nodes if n.op == "call_function"]  # full(N)
        parts = (*node.arguments.values(), *bodies_of(node).values(), *itertools.chain.from_iterable(bounds))
        return {name for part in parts for name in shapes.names(part)}

    # -- loops and conditions ------------------------------------------------------------------
    def control(self, group: Group, program: Program | None, depth: int) -> list[str]:
        """The lines of a group of ``program``; None stands for the function itself."""
        around, self.turning = self.turning, list[str]()
        is_cond = group.root.target.name == "cond"
        inside = (self._cond if is_cond else self._loop)(group, group.bodies, program, depth)
        lines = [*("    " * depth + line for line in self.turning), *inside]
        self.turning = around
        return lines

    def _loop(self, group: Group, plan: ControlPlan, program: Program | None, depth: int) -> list[str]:
        pad, node = "    " * depth, group.root
        lines, places = self._start(group, plan, program, depth)
        after: list[str] = []
        for each in plan.bodies.values():
            self._bind(each, group, program)
        body = plan.bodies["body_fn"]
        if node.target.name == "while_loop":
            test = plan.bodies["cond_fn"]
            inner = self._body(test, depth + 1)
            condition = self._place(test.program, test.results[0])
            short = re.fullmatch(rf"\s*const bool {condition} = (.*);", inner[0]) if (len(inner) == 1) else None
            head = [f"{pad}while ({short[1] if short else condition if not inner else 1}) {{"]
            if inner and short is None:
                head += [*inner, f"{pad}    if (!{condition}) break;"]
            checks = [f"{pad}    if (error->code) break;"]
        else:
            lower, upper = (self._number(program, node.arguments[n]) for n in ("lower", "upper"))
            index = buffer_name(body.inputs[0])
            self.printer.numbers.add(index)
            start = f"for (int64_t {index} = {lower}; {index} < {upper}; ++{index})"
            by_rows = self._rows_first(body, plan.carried, node, start, depth)
            if by_rows:
                return [*lines, *by_rows, *self._end(group, plan, places, depth)]
            head, checks = [f"{pad}{start} {{"], []
            before, after = self._held(plan, pad)
            lines += before
        if not after:
            lines += self._carried(plan, pad)
        around, self.before = self.before, self._turning(plan)
        inner = [*self._body(body, depth + 1), *self._next(body, plan.carried, depth + 1)]
        for (_, other), (value, _) in self.before.items():
            if other in self.alike:
                lines.append(f"{pad}fx_copy({other}, {buffer_name(value)}, {dim_c(value.type.nbytes)});")
        self.before = around
        if self.printer.uses_error:
            inner += checks
        return [*lines, *head, *inner, f"{pad}}}", *after, *self._end(group, plan, places, depth)]

    def _held(self, plan: ControlPlan, pad: str) -> tuple[list[str], list[str]]:
        """Lines before and after a loop whose iterations write one element, which stays in a variable meanwhile."""
        body, number = plan.bodies["body_fn"], known_index(plan.index)
        program, iteration = body.program, None if number is None else number.single_atom
        if not isinstance(iteration, Given) or any(g.kind != "loops" or g.anchor for g in program.groups):
            return [], []
        if any(self._place(program, r) != buffer_name(n) for n, r in zip(plan.carried, body.results)):
            return [], []
        made = self._brought(program)
        found = held_element(made, self.printer.shapes, self.printer.place, iteration)
        if found is None:
            return [], []
        store, kernels = found
        self.made |= {id(group): kernel for group, kernel in zip(program.groups, kernels)}
        self.narrow |= store.value.dtype.is_integer and reads_columns(kernels, self.printer.shapes, iteration)
        (line,) = self.printer.block((store,), 0)
        element, _, name = line.removesuffix(";").partition(" = ")
        return [f"{pad}{store.value.dtype.c_name} {name} = {element};"], [pad + line]

    def _carried(self, plan: ControlPlan, pad: str) -> list[str]:
        """Lines before a loop, whose iterations then have at hand what the one before computed."""
        body, number = plan.bodies["body_fn"], known_index(plan.index)
        program, iteration = body.program, None if number is None else number.single_atom
        if program.apart or any(g.kind != "loops" or g.anchor for g in program.groups):
            return []
        if any(isinstance(s, For) for g in program.groups for s in statements(self._lowered(g).body)):
            return []
        made, lines = self._brought(program), list[str]()
        ready = {buffer_name(n) for n in plan.carried if not n.type.rank}
        pairs = [(n, r) for n, r in zip(plan.carried, body.results) if n.type.rank]
        if isinstance(iteration, Given) and all(self._place(program, r) == buffer_name(n) for n, r in pairs):
            found, made = carried_elements(made, self.printer.shapes, self.printer.place, iteration)
            for each in found:
                text = self.printer.value(each.first)
                if not iteration.least < iteration.extent:  # then the element may not exist
                    text = (
                        f"{self.printer.index(iteration.least)} < {self.printer.index(iteration.extent)} ? {text} : 0"
                    )
                lines.append(f"{pad}{each.variable.dtype.c_name} {each.variable.name} = {text};")
                ready.add(each.variable.name)
        kernels = recurrences_first(made, ready, self.printer.place)
        self.made |= {id(group): kernel for group, kernel in zip(program.groups, kernels)}
        return lines

    def _rows_first(self, body: BodyPlan, carried: Sequence[Node], node: Node, head: str, depth: int) -> list[str]:
        """The lines of a loop whose arrays are processed row by row; none if that is impossible or no faster."""
        program = body.program
        if any(g.kind != "loops" or not g.root.type.rank for g in program.groups):
            return []
        if any(self._place(program, r) != buffer_name(n) for n, r in zip(carried, body.results)):
            return []
        if program.apart or any(_mixes_rows(program, n, m) for n, m in itertools.combinations(program.slot_of, 2)):
            return []
        made, own, printer = self._brought(program), {buffer_name(n) for n in program.slot_of}, self.printer
        found = rows_first(made, printer.shapes, printer.place, head, own)
        if found is None and (found := columns_first(made, printer.shapes, printer.place, head)) is None:
            return []
        self._arena(program, self.scratch)
        count = [known_index(node.arguments[name]) for name in ("upper", "lower")]
        times = Index.of(1) if None in count else Index.of(count[0]) - Index.of(count[1])
        printer.work = sum((kernel.work for kernel in made), Index.of(0)) * times
        return printer.block((found,), depth)

    def _start(
        self, group: Group, plan: ControlPlan, program: Program | None, depth: int
    ) -> tuple[list[str], dict[int, str]]:
        """Lines that set the initial values that a loop carries, and where arrays must be at the end."""
        pad, lines, places = "    " * depth, list[str](), dict[int, str]()
        parts = {part.kwargs["index"]: part for part in group.parts}
        for number, value in enumerate(group.root.arguments["carried"]):
            inner = plan.carried[number]
            name, ctype, part = buffer_name(inner), _ctype(inner), parts.get(number)
            start = self._number(program, value)
            if not inner.type.rank:
                self.printer.numbers.add(name)
                lines.append(f"{pad}{ctype} {name} = {start};")
                continue
            if part is None:
                place = derived(name, "place")
                self.pointers += wrap(f"    {self._reserved(place, ctype, inner.type.nbytes)}")
            else:
                place = _result(part) if program is None else self._place(program, part)
            if part is None or part not in group.taken:
                lines.append(f"{pad}fx_copy({place}, {start}, {dim_c(inner.type.nbytes)});")
            places[number] = place
            lines.append(f"{pad}{ctype} *{name} = {place};")
        return lines, places

    def _turning(self, plan: ControlPlan) -> dict[tuple[int, str], tuple[Node, Node]]:
        """Arrays before and behind an iteration whose memory takes turns."""
        body = plan.bodies["body_fn"]
        program, results = body.program, Counter(body.results)
        pairs = [(n, r) for n, r in zip(plan.carried, body.results) if n.type.rank and n not in results]
        apart = [(n, r) for n, r in pairs if results[r] == 1 and program.memory(r) in program.apart]
        return {(id(program), self._place(program, r)): (n, r) for n, r in apart}

    def _next(self, body: BodyPlan, carried: Sequence[Node], depth: int) -> list[str]:
        """Lines that make the results of an iteration the inputs of the next one."""
        pad, before, lines = "    " * depth, list[str](), list[str]()
        own = {buffer_name(n) for n in carried}
        for inner, result in zip(carried, body.results):
            name, ctype = buffer_name(inner), _ctype(inner)
            value = self._place(body.program, result)
            if value == name or value in self.alike:
                continue
            memory = body.program.memory(result)
            if not inner.type.rank:
                if value in own:
                    new = derived(name, "next")
                    before.append(f"{pad}const {ctype} {new} = {value};")
                    value = new
                lines.append(f"{pad}{name} = {value};")
                continue
            if memory not in body.program.apart:
                other = derived(name, "next")
                self.turning.append(self._reserved(other, ctype, inner.type.nbytes))
                before.append(f"{pad}fx_copy({other}, {value}, {dim_c(inner.type.nbytes)});")
                value = other
            swap = derived(name, "last")
            lines += [f"{pad}{ctype} *const {swap} = {name};", f"{pad}{name} = {value};", f"{pad}{value} = {swap};"]
        return [*before, *lines]

    def _end(self, group: Group, plan: ControlPlan, places: dict[int, str], depth: int) -> list[str]:
        pad, lines = "    " * depth, list[str]()
        body = plan.bodies["body_fn"]
        for part in group.parts:
            number = part.kwargs["index"]
            inner = plan.carried[number]
            name = buffer_name(inner)
            if not inner.type.rank:
                self.printer.numbers.add(buffer_name(part))
                lines.append(f"{pad}const {_ctype(inner)} {buffer_name(part)} = {name};")
            elif self._place(body.program, body.results[number]) not in (name, *self.alike):
                size = dim_c(inner.type.nbytes)
                lines.append(f"{pad}if ({name} != {places[number]}) fx_copy({places[number]}, {name}, {size});")
        return lines

    def _cond(self, group: Group, plan: ControlPlan, program: Program | None, depth: int) -> list[str]:
        pad, lines = "    " * depth, list[str]()
        for part in group.parts:
            if not part.type.rank:
                self.printer.numbers.add(buffer_name(part))
                lines.append(f"{pad}{_ctype(part)} {buffer_name(part)};")
        for name, head in (("true_fn", self._number(program, group.root.arguments["pred"])), ("false_fn", "")):
            body = plan.bodies[name]
            self._bind(body, group, program)
            for part in group.parts:  # a branch computes new values directly in their place
                memory = body.program.memory(body.results[part.kwargs["index"]])
                if memory in body.program.apart and part not in group.taken:
                    place = _result(part) if program is None else self._place(program, part)
                    self.printer.places[buffer_name(memory)] = place
            inside = self._body(body, depth + 1)
            copies: list[tuple[str, str, Node]] = []
            for part in group.parts:
                result = body.results[part.kwargs["index"]]
                value = self._place(body.program, result)
                if not part.type.rank:
                    inside.append(f"{pad}    {buffer_name(part)} = {value};")
                    continue
                place = _result(part) if program is None else self._place(program, part)
                if value != place:
                    copies.append((place, value, part))
            inside += self._copied(copies, depth + 1)
            if name == "true_fn":
                lines += [f"{pad}if ({head}) {{", *inside]
            elif inside:
                lines += [f"{pad}}} else {{", *inside]
        return [*lines, f"{pad}}}"]

    def _bind(self, body: BodyPlan, group: Group, program: Program | None) -> None:
        """Bind the values that a body captures to their places outside."""
        node = group.root
        captured = node.arguments.get(BODIES[node.target][1], ())
        inputs = body.inputs[len(body.inputs) - len(captured) :]
        for inner, outer in zip(inputs, captured):
            self.printer.places[buffer_name(inner)] = self._number(program, outer)

    def _copied(self, copies: list[tuple[str, str, Node]], depth: int) -> list[str]:
        """Lines that copy arrays (to, from, value) as if all were read before any is written."""
        pad, lines, left = "    " * depth, list[str](), list(copies)
        while left:
            read = [source for _, source, _ in left]
            free = next((c for c in left if c[0] not in read), None)
            if free is None:  # they exchange places
                place, source, value = left.pop(0)
                kept = derived(place, f"kept{self.kernels}")
                self.kernels += 1
                size = dim_c(value.type.nbytes)
                declared = self._reserved(kept, _ctype(value), value.type.nbytes)
                self.pointers += wrap(f"    {declared}")
                lines.append(f"{pad}fx_copy({kept}, {source}, {size});")
                left.append((place, kept, value))
                continue
            left.remove(free)
            place, source, value = free
            lines.append(f"{pad}fx_copy({place}, {source}, {dim_c(value.type.nbytes)});")
        return lines

    # -- bodies --------------------------------------------------------------------------------
    def _body(self, body: BodyPlan, depth: int) -> list[str]:
        """The kernels of a body."""
        program, lines = body.program, list[str]()
        base = self.scratch
        self._arena(program, base)
        for node in body.inputs:
            if not node.type.rank:
                self.printer.numbers.add(buffer_name(node))
        for group in program.groups:
            if group.kind == "control":
                lines += self.control(group, program, depth)
                continue
            called = [] if group.anchor is None else self._called(group, program, depth)
            if called:
                lines += called
                continue
            kernel = self._lowered(group)
            self.kernels += 1
            lines += self._inline(kernel, group, program, depth)
        return lines

    def _lowered(self, group: Group) -> Kernel:
        """The loops of a group, which are built once."""
        if id(group) not in self.made:
            self.made[id(group)] = loops(group, f"kernel{self.kernels}")
        return self.made[id(group)]

    def _called(self, group: Group, program: Program, depth: int) -> list[str]:
        """The call of a template's function, which is printed before this one; none if loops have to compute it."""
        assert group.anchor is not None
        name = f"{self.name}_{group.anchor.target.name}{self.kernels}"
        places = len(self.printer.locations)
        try:
            text, arguments, size, is_shared = self.routine(group, name, self.printer.locations)
        except CodegenError:
            if not group.anchor.target.has_body:
                raise
            del self.printer.locations[places:]
            return []
        self.kernels += 1
        self.functions.append(text)
        given = {buffer_name(n): self._place(program, n) for n in (*group.inputs, *group.stored)}
        numbers = [n for n in group.inputs if not n.type.rank and known_index(n) is None]
        given |= {buffer_name(n): f"&{self._place(program, n)}" for n in numbers}
        if group.needed:
            self.printer.places |= {buffer_name(n): self._place(program, n) for n in numbers}
            self.printer.numbers |= {self._place(program, n) for n in numbers}
            ((_, end),) = group.needed.values()
            given[NEEDED] = self.printer.index(end)
        given["n_threads"] = "n_threads" if is_shared else "1"
        if "scratch" in arguments:
            given["scratch"] = _CALLED
            self.called.append(size if is_shared else re.sub(r"\bn_threads\b", "1", size))
        self.printer.uses_error |= "error" in arguments
        return wrap(f"{'    ' * depth}{name}({', '.join(given.get(a, a) for a in arguments)});")

    def _arena(self, program: Program, base: Dim) -> None:
        """Declare where the arrays of a body lie, after those of the surrounding bodies."""
        starts: list[Dim] = [base]
        for slot in program.slots:
            starts.append(shapes.normalize(starts[-1] + slot.size))
        for node in program.slot_of:
            start = starts[program.slot_of[node]] + program.offset_of.get(node, 0)
            name, ctype = buffer_name(node), _ctype(node)
            self.pointers += wrap(f"    {ctype} *const {name} = {_at(ctype, start)};")
        self.scratch = starts[-1]
        for node in sorted(n for n in program.apart if buffer_name(n) not in self.printer.places):
            made = self._reserved(buffer_name(node), _ctype(node), node.type.nbytes)
            self.turning.append(made)

    def _reserved(self, name: str, ctype: str, size: Dim) -> str:
        """The declaration of an array with memory of its own."""
        start = self.scratch
        self.scratch = shapes.normalize(start + rounded(size))
        return f"{ctype} *{name} = {_at(ctype, start)};"

    def _brought(self, program: Program) -> list[Kernel]:
        """The kernels of a body, whose values the printer knows."""
        made = [self._lowered(group) for group in program.groups]
        for kernel, group in zip(made, program.groups):
            self._bring(kernel, group, program)
        return made

    def _bring(self, kernel: Kernel, group: Group, program: Program) -> None:
        """Declare the values of a kernel to the printer."""
        printer = self.printer
        for node in (*group.inputs, *group.stored):
            printer.places[buffer_name(node)] = self._place(program, node)
            if not node.type.rank:
                printer.numbers.add(self._place(program, node))
        for buffer in kernel.buffers:
            printer.shapes[buffer.name], printer.dtypes[buffer.name] = buffer.shape, buffer.dtype

    def _inline(self, kernel: Kernel, group: Group, program: Program, depth: int) -> list[str]:
        """A kernel's loops, printed inline."""
        printer, pad, root = self.printer, "    " * depth, group.root
        self._bring(kernel, group, program)
        kernel = self._of_changed_part(kernel, group, program)
        kernel = replace(kernel, body=read_before_loops(kernel.body, printer.place))
        printer.work = kernel.work
        self.has_loops |= any(isinstance(statement, For) for statement in statements(kernel.body))
        if not root.type.rank:
            ctype, name = _ctype(root), self._place(program, root)
            if len(kernel.body) == 1 and isinstance(kernel.body[0], Store):
                (line, *rest) = printer.block(kernel.body, depth)
                return [f"{pad}const {ctype} {line.strip()}", *rest]
            return [f"{pad}{ctype} {name};", f"{pad}{{", *printer.block(kernel.body, depth + 1), f"{pad}}}"]
        if any(isinstance(s, (Let, Alloc)) for s in kernel.body):
            return [f"{pad}{{", *printer.block(kernel.body, depth + 1), f"{pad}}}"]
        return printer.block(kernel.body, depth)

    def _of_changed_part(self, kernel: Kernel, group: Group, program: Program) -> Kernel:
        """The kernel over the part of an array that it changes. Two arrays that would take turns from one iteration to
        the next are equal before the loop, and again behind such a kernel, if nothing else reads the old one."""
        part = changed_part(kernel, self.printer.place) if kernel.body else None
        if part is None:
            return kernel
        if not part.has_copy:
            return part.kernel
        turned = self._place(program, group.root)
        inner, result = self.before.get((id(program), turned), (None, None))
        later = program.groups[program.groups.index(group) + 1 :]
        if inner is None or buffer_name(inner) != part.old or any(inner in g.inputs for g in later):
            return kernel
        if result is not group.root:  # parts of the array behind are stored later
            return kernel
        if any(self._place(program, n) == turned for g in program.groups if g is not group for n in g.stored):
            return kernel  # all of the array behind is stored before
        self.alike.add(turned)
        return part.kernel

    # -- values --------------------------------------------------------------------------------
    def _place(self, program: Program | None, node: Node) -> str:
        """The name of the variable or pointer of a value."""
        if program is None:
            return _own_name(node)
        return self.printer.place(buffer_name(program.memory(node)))

    def _number(self, program: Program | None, value: Any) -> str:
        """An operand of a loop or condition: its variable, or a number."""
        if not isinstance(value, Node):
            return dim_c(value)
        constant = constant_of(value)
        if constant is not None:
            return self.printer.narrow(self.printer.value(constant), value.type.dtype)
        if program is None and value.type.rank and value in self.group.taken.values():
            part = next(p for p, v in self.group.taken.items() if v is value)
            return _result(part)
        return self._place(program, value)


def _mixes_rows(program: Program, one: Node, other: Node) -> bool:
    """Whether a row of one value may overlap another row of the other."""
    if program.slot_of[one] != program.slot_of[other]:
        return False
    (start, size, *kind), (begin, length, *same) = (
        (program.offset_of.get(n, 0), n.type.nbytes, n.type.shape, n.type.dtype.itemsize) for n in (one, other)
    )
    if (start, kind) == (begin, same):
        return False
    return not (shapes.at_least(begin, start + size) or shapes.at_least(start, begin + length))


def _largest(sizes: Sequence[str]) -> str:
    """The largest of several numbers of bytes."""
    return reduce("fx_max({}, {})".format, sorted(set(sizes)))


def _ctype(node: Node) -> str:
    """The C type of a value in memory, or of its variable."""
    dtype = node.type.dtype
    name: str = dtype.c_name if dtype.is_bool and not node.type.rank else dtype.c_stored
    return name


def _at(ctype: str, start: Dim) -> str:
    """A place in scratch."""
    start = shapes.normalize(start)
    return f"({ctype} *)" + (_BYTES if start == 0 else f"({_BYTES} + {dim_c(start)})")


def _own_name(node: Node) -> str:
    """The name of an operand in the function; a weight is named like a value."""
    return value_name(node.name)


def _result(part: Node) -> str:
    """The pointer parameter of the function for a result."""
    return derived(buffer_name(part), "out") if not part.type.rank else buffer_name(part)


def _literal(printer: CPrinter, node: Node) -> str | None:
    """A constant of rank 0 as a number."""
    if node.op != "get_attr" or node.graph.owning_module is None:
        return None
    value = node.graph.owning_module.get_attribute(node.target).item()
    return printer.narrow(printer.value(expr.const(value, node.type.dtype)), node.type.dtype)


_VARIABLE = re.compile(r"\s*(?:const )?[\w ]+?\*?(?:const )?(\w+)(?: = |;)")
_DECLARED = re.compile(r"\s*(?:const \w+|\w+ \*(?:const )?)\s?(\w+) = [^;]*;$")


def _without_unread(lines: Sequence[str]) -> list[str]:
    """Lines without the declarations of variables that nothing reads, such as iteration numbers for which
    all readers use another name."""
    left = list(lines)
    while True:
        counts = Counter(word for line in left for word in re.findall(r"\w+", line))
        declared = [(line, _DECLARED.match(line)) for line in left]
        kept = [line for line, found in declared if found is None or counts[found[1]] > 1]
        if len(kept) == len(left):
            return kept
        left = kept


def _about(group: Group) -> str:
    node = group.root
    kind = "a condition" if "true_fn" in bodies_of(node) else "a loop"
    parts = ", ".join(f"{p.name}: {p.type}" for p in group.parts)
    lines = [f"{node.name}: {kind} that gives {parts}"]
    count = sum(len(body.calls) for body in bodies_of(node).values())
    lines.append(f"{number_of(count, 'call')} in its bodies")
    return "\n".join([*lines, *([node.origin] if node.origin else [])])
