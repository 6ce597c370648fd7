"""Classes of a regenerated program: one for all modules that are alike but for some numbers.

In: the GraphModules that :func:`~fxlite.passes.cutting.outline_modules.outline_modules` makes of a
program's modules. Out: the lines of a class for each sort of them, and the call that makes one.
Layers of ``fxlite.nn`` are made by name, containers become ``nn.Sequential`` where what they hold
is called in a row, else ``nn.ModuleList``, and equal modules that are called in a row a loop::

    for block in self.blocks:
        x = block(x)

Numbers in which modules of a class differ (sizes, strides, ...) are parameters of its constructor.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fxlite import nn
from fxlite.base.outside_text import (
    comment,
    docstring,
    format_text,
    is_name,
    is_number,
    python_string,
)
from fxlite.codegen.python.dialect import Dialect
from fxlite.codegen.python.layers import Layer
from fxlite.codegen.python.optional import with_children
from fxlite.codegen.python.text import (
    FileNames,
    Names,
    attribute_text,
    class_name,
    dim_lines,
    dim_names,
    is_attribute,
    number_text,
    numbered,
    numbers_in,
    with_numbers,
)
from fxlite.codegen.python.written import parameter_names, written
from fxlite.graph.graph import Node, nodes_in
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.cutting.split_module import is_pure_module
from fxlite.show.text.pretty import type_text, wrap_code
from fxlite.types.guards import OPPOSITE
from fxlite.types.tensor_type import TensorType

WIDTH = 100
_ANY = "*"  # a number of what a module lacks
_ALIKE = 3  # modules in a row that become a loop
_BODIES = range(1, 13)  # lines of a loop's body
_INDEXED = re.compile(r"\bself\.([A-Za-z_][\w.]*)\[(\d+)\]")
_SHORT_RESULT = 80  # columns of results without brackets around them
_SHORT = 4  # ops of an expression that the program has in several


@dataclass
class Line:
    """A line of a method, whose numbers may still become parameters; ``note`` stands behind it."""

    code: str
    depth: int = 2
    note: str = ""

    @property
    def is_comment(self) -> bool:
        return self.code.startswith("#")


@dataclass
class Chain:
    """Calls in a row of what a container holds: each is given the result of the one before, at one
    position, and otherwise the same."""

    container: str
    calls: list[Node]
    position: int
    is_loop: bool = False
    item: str = ""


class Draft:
    """The methods of the class for one module. ``made`` says how a module inside is made."""

    def __init__(
        self, module: GraphModule, file: FileNames, dialect: Dialect,
        made: Callable[[GraphModule], str], is_root: bool,
    ) -> None:  # fmt: skip
        self.module, self.graph, self.file, self.dialect = module, module.graph, file, dialect
        #: Lines of the constructor for what others of the class have, by part.
        self.absent: dict[str, Line] = {}
        self.made, self.is_root = made, is_root
        self.key = id(module)  #: of the module of the program
        called = dict.fromkeys(n.target for n in self.graph.find_nodes(op="call_module"))
        known = {path: file.orders.get(id(module.get_submodule(path))) for path in called}
        orders = {path: order for path, order in known.items() if order is not None}
        calls = [n for n in self.graph.nodes if n.op.startswith("call_")]
        self.source = written(calls, (module.name, class_name(module.name)))
        inputs = None
        if not is_root:
            inputs = parameter_names(self.graph.placeholders, self.source, orders)
        self.names = Names(self.graph, file, inputs)
        numbers = [n for n in self.graph.find_nodes(op="get_attr") if dialect.is_number(n)]
        self.tree = _tree(module, numbers)
        self.print = dialect.text(self.names, orders)
        layers = {path: file.layers.get(id(module.get_submodule(path))) for path in called}
        self.print.layers = {path: layer for path, layer in layers.items() if layer is not None}
        for node in numbers:
            self.print.inline(node, self.print.scalar(module.get_attribute(node.target)))
        self.inputs = self.graph.placeholders
        if inputs is not None:
            place = {name: i for i, name in enumerate(self.source.parameters)}
            self.inputs = sorted(self.inputs, key=lambda n: place.get(inputs[n], len(place)))
        file.orders[id(module)] = [*map(self.graph.placeholders.index, self.inputs)]
        self.items: dict[str, str] = {}  # what variables of loops are called
        #: In which order results are returned, where that is not the one of the graph.
        self.order = self._result_order()
        file.results[id(module)] = self.order
        self.indexed = any(not is_attribute(part) for part in self.tree)
        self.chains = {chain.container: chain for chain in self._chains()}
        self.by_last = {chain.calls[-1]: chain for chain in self.chains.values()}
        self.chain_of = {call: chain for chain in self.chains.values() for call in chain.calls}
        self.commented: set[ast.stmt] = set()
        inside = self.chain_of.keys() - self.by_last.keys()
        hidden = inside | self.names.unpacked | {*self.graph.find_nodes(op="get_attr")}
        #: What has lines of its own, in order.
        self.shown = [n for n in self.graph.nodes if n.op != "placeholder" and n not in hidden]
        self.statements = {n: self._statement(n) for n in self.shown}
        self.statements[self.shown[-1]] = self.source.returned()
        self.init = list(self._init())
        self.head = f"def {dialect.method}({', '.join(self._parameters())}):"
        self.forward = self._rolled(list(self._forward()))

    @property
    def signature(self) -> Any:
        """Equal for modules that may share a class."""
        lines = (*self.init, Line(self.head, 1), *self.forward)
        blank = [(with_numbers(x.code, _blank), x.depth) for x in lines if not x.is_comment]
        return class_name(self.module.name), tuple(blank)

    def lack(self, part: str, other: Draft) -> None:
        """Note that the module has no such part, unlike another one of the class."""
        number = [*self.tree].index(part)
        line = other.init[[*other.tree].index(part)]
        code = with_numbers(line.code, lambda role, _: f"\0{role}\0{_ANY}\0")
        self.absent[part] = self.init[number] = Line(code, line.depth)

    # -- what the module holds -------------------------------------------------------------------
    def _init(self) -> Iterator[Line]:
        for part, value in self.tree.items():
            if not (self.indexed or isinstance(value, (dict, GraphModule))):
                yield Line(self.dialect.array(self.module, part, value, self.file.imports))
                continue
            made = self._held(part, value)
            if self.indexed:
                yield Line(f"self.add({python_string(part)}, {made})")
            else:
                yield Line(f"self.{part} = {made}")

    def _held(self, path: str, value: Any) -> str:
        """What makes a module, a container or, in one, an array."""
        if isinstance(value, GraphModule):
            return self.made(value)
        if not isinstance(value, dict):
            return self.dialect.held_array(value, self.file.imports)
        texts = {part: self._held(f"{path}.{part}", v) for part, v in value.items()}
        numbers = sorted(int(part) for part in texts if is_number(part))
        is_list = len(numbers) == len(texts) and numbers[-1] < 2 * len(numbers) + 2
        if is_list and all(map(_is_module, value.values())):
            return self._numbered(path, texts, numbers[-1] + 1)
        return _weights(texts)

    def _numbered(self, path: str, texts: Mapping[str, str], size: int) -> str:
        """A list of modules, with something in place of those that compute nothing."""
        listed = [texts.get(str(i), self.dialect.identity) for i in range(size)]
        chain = self.chains.get(path)
        is_called = chain is not None and not chain.is_loop
        if len({*map(with_numbers, listed)}) == 1 and size > 1:
            inner = f"{listed[0]} for _ in range({number_text(size, 'layers')})"
            return self.dialect.module_list(f"*[{inner}]" if is_called else inner, is_called)
        return self.dialect.module_list(", ".join(listed), is_called)

    # -- calls in a row --------------------------------------------------------------------------
    def _chains(self) -> Iterator[Chain]:
        containers: dict[str, list[Node]] = {}
        for node in self.graph.find_nodes(op="call_module"):
            container, _, last = node.target.rpartition(".")
            if container and is_number(last):
                containers.setdefault(container, []).append(node)
        for container, calls in containers.items():
            chain = self._chain(container, calls)
            if chain is not None:
                yield chain

    def _chain(self, container: str, calls: list[Node]) -> Chain | None:
        indices = [int(node.target.rpartition(".")[2]) for node in calls]
        held: Any = self.tree
        for part in container.split("."):
            held = held[part]
        is_called = self.source.container_call(container) is not None
        if len(calls) < 2 - is_called or indices != sorted({*indices}) or len(held) != len(calls):
            return None
        if not all(isinstance(value, GraphModule) for value in held.values()):
            return None
        layers = filter(None, (self.print.layers.get(node.target) for node in calls))
        if any(layer.results != 0 or layer.options for layer in layers):
            return None
        given = [self.print.given(node) for node in calls]
        positions = {0} if len(calls) == 1 else set()
        for (before, node), values in zip(itertools.pairwise(calls), given[1:]):
            places = [i for i, a in enumerate(values) if a is before]
            if len(places) != 1 or [*before.users] != [node] or isinstance(node.type, tuple):
                return None
            positions.add(places[0])
        if len(positions) != 1 or len({*map(len, given)}) != 1:
            return None
        (position,) = positions
        others = {tuple(a for i, a in enumerate(values) if i != position) for values in given}
        if len(others) != 1 or isinstance(calls[0].type, tuple):
            return None
        if not all(map(is_pure_module, held.values())):
            return None  # other random numbers may be drawn between its calls
        texts = {with_numbers(self.made(held[str(i)])) for i in indices}
        classes = {text.partition("(")[0] for text in texts}
        is_alike = len(texts) == 1 or (len(classes) == 1 and "nn." not in "".join(classes))
        is_loop = len(calls) >= _ALIKE and is_alike and indices == [*range(len(indices))]
        if len(given[0]) == 1 and is_called:
            is_loop = False
        if not is_loop and (len(calls[0].args) > 1 or indices[-1] >= 2 * len(indices) + 2):
            return None
        return Chain(container, calls, position, is_loop or not self.dialect.has_sequential)

    def _loop(self, chain: Chain) -> Iterator[Line]:
        first, last = chain.calls[0], chain.calls[-1]
        name, given = self.names[last], self.print.arguments(first)
        if given[chain.position] != name:
            yield Line(f"{name} = {given[chain.position]}")
        given[chain.position] = name
        yield Line(f"for {chain.item} in {attribute_text(chain.container)}:")
        yield Line(f"{name} = {chain.item}({', '.join(given)})", 3, _note(last))

    def _rolled(self, lines: list[Line]) -> list[Line]:
        """Lines that are the same for one module of a list after the other as a loop over it: what
        runs stays the same."""
        made: list[Line] = []
        position = 0
        while position < len(lines):
            found = next(filter(None, (self._repeats(lines, position, n) for n in _BODIES)), None)
            if found is None:
                made.append(lines[position])
                position += 1
                continue
            lists, count, size = found
            items: dict[str, str] = {}
            for path in lists:
                item = self._item(path)
                items[path] = self.names.unique(item) if item in items.values() else item
            listed = [attribute_text(path) for path in lists]
            over = listed[0] if len(listed) == 1 else f"zip({', '.join(listed)})"
            made.append(Line(f"for {', '.join(items.values())} in {over}:", lines[position].depth))
            for line in lines[position : position + size]:
                made.append(Line(_with_items(line.code, items), line.depth + 1, line.note))
            position += count * size
        return made

    def _repeats(
        self, lines: list[Line], start: int, size: int
    ) -> tuple[list[str], int, int] | None:
        """The lists whose modules lines call one after the other, how often, and in how many
        lines."""
        body = lines[start : start + size]
        if not any("[0]" in line.code for line in body):
            return None
        found = [f for line in body for f in _INDEXED.findall(line.code)]
        lists = [*dict.fromkeys(path for path, index in found if index == "0")]
        counts = {self._length(path) for path in lists}
        if len(counts) != 1 or (count := counts.pop()) < _ALIKE:
            return None
        for number in range(1, count):
            begin = start + number * size
            for line, other in itertools.zip_longest(body, lines[begin : begin + size]):
                if other is None or (line.depth, line.note) != (other.depth, other.note):
                    return None
                if _with_items(line.code, {p: f"self.{p}[{number}]" for p in lists}) != other.code:
                    return None
        return lists, count, size

    def _length(self, path: str) -> int:
        """How many modules a list has; 0 for what is no list of modules only."""
        held: Any = self.tree
        for part in path.split("."):
            held = held.get(part, {}) if isinstance(held, dict) else {}
        if not isinstance(held, dict) or [*held] != [*map(str, range(len(held)))]:
            return 0
        return len(held) if all(isinstance(v, GraphModule) for v in held.values()) else 0

    def _item(self, path: str) -> str:
        """The variable of a loop over a list."""
        return self._unique_item(self.source.item(path) or _singular(path))

    def _unique_item(self, wish: str) -> str:
        """A name of loops' variables, which several loops may share."""
        self.items[wish] = self.items.get(wish) or self.names.unique(wish)
        return self.items[wish]

    def _form(self, node: Node) -> tuple[Any, str]:
        """The form of what a module returns, with the numbers of its results, and the place of the
        only one; 0 where it is just that."""
        layer = self.print.layers.get(node.target) if node.op == "call_module" else None
        if layer is not None:
            return layer.results, layer.place
        module = self.module.get_submodule(node.target) if node.op == "call_module" else None
        return tuple(self.file.results.get(id(module), ())) or 0, ""

    def _result_order(self) -> Sequence[int]:
        """The results of a module in the order in which its method returns them; empty where that
        is not known."""
        values, statement = self.graph.output_node().args[0], self.source.returned()
        if self.is_root or not isinstance(values, tuple) or not isinstance(statement, ast.Return):
            return ()
        if not isinstance(statement.value, ast.Tuple):
            return ()
        order: list[int] = []
        for element in statement.value.elts:
            found = [i for i, v in enumerate(values) if self.source.gives(v, element)]
            if len(found) == 1 and found[0] not in order:
                order += found
        return order if len(order) == len(values) else ()

    # -- forward ---------------------------------------------------------------------------------
    def _forward(self) -> Iterator[Line]:
        self._name_values()
        for node in self.graph.placeholders:
            if self.names[node] != self.names.parameters[node]:
                yield Line(f"{self.names[node]} = {self.names.parameters[node]}")
        for text in dim_lines(self.graph, self.names, self.inputs):
            yield Line(text)
        if self.is_root:
            yield from self._checks()
        shown = ""
        for node in self.shown:
            if node in self.inside:
                self.print.inline(node, self._call(node))
                continue
            origin = self._origin(node)
            yield from (Line(f"# {text}") for text in self._said(node))
            if origin != shown and origin:
                yield Line(f"# {origin}")
            shown = origin
            yield from self._lines(node)

    def _lines(self, node: Node) -> Iterator[Line]:
        """The lines of a value, and before it of those that would make its own too long."""
        lines = list(self._line(node))
        inlined = [n for n in self._read(node) if n in self.inside & self.print.inlined.keys()]
        if inlined and any(len(with_numbers(x.code)) + 4 * x.depth > WIDTH for x in lines):
            longest = max(inlined, key=lambda n: len(self.print.inlined[n][0]))
            del self.print.inlined[longest]
            yield from self._lines(longest)
            for other in inlined:
                if other in self.print.inlined:
                    self.print.inline(other, self._call(other))
            yield from self._lines(node)
        else:
            yield from lines

    def _read(self, node: Node) -> list[Node]:
        """What the text of a value reads."""
        chain = self.by_last.get(node)
        return (node if chain is None else chain.calls[0]).all_input_nodes

    def _call(self, node: Node) -> str:
        """The right-hand side of a value's line."""
        chain = self.by_last.get(node)
        if chain is None:
            return self.print.call(node)
        return f"{attribute_text(chain.container)}({self.print.value(chain.calls[0].args[0])})"

    def _statement(self, node: Node) -> ast.stmt | None:
        """The statement of the program that made a value."""
        chain = self.by_last.get(node)
        if chain is not None:
            return self.source.container_call(chain.container)
        return self.source.statement(node)

    def _name_values(self) -> None:
        """Give values the names that the program gave them, where these are free by then, as its
        variables that are assigned to more than once are."""
        for chain in self.chains.values():
            for node in chain.calls:
                self.names.taken.discard(self.names[node])
        self.wishes = {node: self._wishes(node) for node in self.shown[:-1]}
        #: What is written where it is read.
        self.inside = self._inlined()
        place = {n: i for i, n in enumerate(self.shown)}
        for node in reversed(self.shown):
            if node in self.inside:
                place[node] = place[self._reader(node)]
        for chain in self.chains.values():
            place |= dict.fromkeys(chain.calls, place[chain.calls[-1]])
        last_read = dict.fromkeys(dim_names(self.graph), len(place))

        def occupy(value: Node, name: str) -> None:
            reads = (place.get(user, 0) for user in value.users)
            last_read[name] = max(last_read.get(name, 0), *reads, 0)

        for node in self.graph.placeholders:
            occupy(node, self.names[node])
        for node in self.shown[:-1]:
            wishes, position = self.wishes[node], place[node]
            own = self.names.parts.get(node, [self.names[node]])
            names = list(own)
            if len(wishes) == len(own) == len({*wishes}):
                for number, wish in enumerate(wishes):
                    is_new = wish not in last_read and wish not in self.names.taken
                    is_past = wish in last_read and last_read[wish] <= position
                    if (is_new or is_past) and wish not in self._read_in_loop(node):
                        names[number] = wish
            self.names.rename(node, names)
            self.names.taken |= {*names}
            if node in self.names.parts:
                for user in node.users:
                    occupy(user, names[user.arguments["index"]])
            else:
                occupy(node, names[0])

    def _read_in_loop(self, last: Node) -> set[str]:
        """Names of what each module of a loop is given besides the result of the one before."""
        chain = self.by_last.get(last)
        if chain is None or not chain.is_loop:
            return set()
        given = [a for i, a in enumerate(self.print.given(last)) if i != chain.position]
        return {self.names[n] for n in nodes_in(given) if n.op != "get_attr"}

    def _wishes(self, node: Node) -> list[str]:
        """What the program called a value, or its parts."""
        chain = self.by_last.get(node)
        if chain is not None:
            return self._name_chain(chain)
        form, _ = self._form(node)
        if form == 0:
            return self.source.variables(node)
        found = dict(_places(form, self.source.target(node)))
        names = [found.get(i, "") for i in range(len(self.names.parts.get(node, [node])))]
        return names if all(names) else []

    def _name_chain(self, chain: Chain) -> list[str]:
        """The variables of a loop, and what the program called its result."""
        container = _last_word(chain.container)
        if not chain.is_loop:
            names = self.source.variables(chain.calls[-1], chain.container)
            self.names[chain.calls[-1]] = self.names.unique(container)
            return names
        item, value = self.source.loop(chain.container) or (_singular(chain.container), "x")
        if not self.dialect.has_sequential:
            value = (*self.source.variables(chain.calls[-1], chain.container), value)[0]
        chain.item = self._unique_item(item)
        self.names[chain.calls[-1]] = self.names.unique(container)
        return [value]

    def _inlined(self) -> set[Node]:
        """Values that are part of a larger expression."""
        found: set[Node] = set()
        ops: dict[Node, int] = {}  # in the expression
        for node in self.shown:
            ops[node] = 1 + sum(ops[n] for n in self._read(node) if n in found)
            if self._may_be_inlined(node, ops[node]):
                found.add(node)
        return found

    def _may_be_inlined(self, node: Node, ops: int) -> bool:
        """Whether a value is part of a larger expression: the program did not name it either, and
        reads it where it is made; else if that is a short one."""
        if node.op == "output" or self.wishes[node] or node in self.names.parts:
            return False
        if sum(n is node for u in node.users for n in nodes_in((u.args, u.kwargs))) != 1:
            return False
        if node.op == "call_module":
            is_random = not is_pure_module(self.module.get_submodule(node.target))
        else:
            is_random = node.is_impure()
        reader = self._reader(node)
        if is_random or any(n in self.by_last and self.by_last[n].is_loop for n in (node, reader)):
            return False
        statement, last = self.statements[node], self.statements.get(reader)
        if statement is not None and last is statement:
            return True
        if reader.op == "output" and isinstance(statement, ast.Return):
            return True
        said = statement is not None and self.source.comments(statement)
        return ops <= _SHORT and not said and self._is_unnamed(node)

    def _is_unnamed(self, node: Node) -> bool:
        """Whether nobody chose the name that a value has in the graph."""
        if self.names.short or node.op == "call_module" or self.statements[node] is not None:
            return True
        return (
            re.fullmatch(
                rf"{re.escape(node.target.node_name or node.target.name)}(_\d+)?", node.name
            )
            is not None
        )

    def _reader(self, node: Node) -> Node:
        """The only value that reads one; where it is given to modules in a row, the last one's."""
        (reader,) = node.users
        chain = self.chain_of.get(reader)
        return reader if chain is None else chain.calls[-1]

    def _said(self, node: Node) -> Iterator[str]:
        """Comments of the program above the statement of a value, each once."""
        statement = self.statements[node]
        if statement is not None and statement not in self.commented:
            self.commented.add(statement)
            yield from (comment(text) for text in self.source.comments(statement) if text)

    def _origin(self, node: Node) -> str:
        """Where a value comes from, unless its class says that."""
        if node.op == "call_module" or self.statements[node] is not None:
            return ""
        scope = node.scope
        is_own = scope is not None and scope.class_name == self.module.name
        return comment(node.loc.short if is_own and node.loc is not None else node.origin)

    def _parameters(self) -> Iterator[str]:
        yield "self"
        for node in self.inputs:
            name = self.names.parameters[node]
            yield f"{name}={self.print.value(node.args[0])}" if node.args else name

    def _checks(self) -> Iterator[Line]:
        """What the named dims must fulfil, and where the program or fx.dims says so."""
        shown = ""
        for guard in self.graph.conditions():
            place, said = guard.loc, "declared by fx.dims"
            if place is not None:
                said = comment(f"{place.short}: {place.expression}").removesuffix(":")
            if said != shown:
                yield Line(f"# {said}")
            shown = said
            left, right = (self.print.dim(side) for side in (guard.left, guard.right))
            given = ", ".join(f"{name}={{{name}}}" for name in sorted(guard.names))
            by = "" if place is None else f" by {format_text(place.short)}"
            yield Line(f"if {left} {OPPOSITE[guard.relation]} {right}:")
            yield Line(f'raise ValueError(f"{guard} is required{by}; got {given}")', 3)

    def _line(self, node: Node) -> Iterator[Line]:
        """``relu = F.relu(linear)  # f32[B,10]``, or the loop over modules in a row."""
        chain, parts = self.by_last.get(node), self.names.parts.get(node)
        if chain is not None and chain.is_loop:
            yield from self._loop(chain)
            return
        if node.op == "output":
            note = _note(node) if self.print.inlined.keys() & {*node.all_input_nodes} else ""
            values = node.args[0]
            if self.order:
                values = tuple(values[i] for i in self.order)
                note = _note(node, self.order) if note else ""
            text = self.print.value(values)
            is_plain = type(values) is tuple and len(values) > 1
            if is_plain and len(with_numbers(text)) < _SHORT_RESULT:
                text = text[1:-1]
            yield Line(f"return {text}", note=note)
            return
        left, right = self.names[node], self._call(node)
        form, place = self._form(node)
        if form != 0:
            left = _pattern(form, parts or [left])
            right = right.removesuffix(place)
            order = [i for i in form if isinstance(i, int)] if isinstance(form, tuple) else []
            yield Line(f"{left} = {right}", note=_note(node, order if parts else ()))
            return
        if parts is not None:
            left = ", ".join(parts) if len(parts) > 1 else f"({parts[0]},)"
        yield Line(f"{left} = {right}", note=_note(node))


@dataclass
class Class:
    """Modules that share a class; ``parameters`` are its constructor's, with a value for each
    module."""

    name: str
    drafts: list[Draft]
    parameters: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: Lines of the constructor after that of a number.
    added: dict[int, list[Line]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.drafts.sort(key=lambda d: len(d.absent))  # the first one has all
        rows = [
            [n for x in (*d.init, Line(d.head), *d.forward) if not x.is_comment
             for n in numbers_in(x.code)]
            for d in self.drafts
        ]  # fmt: skip
        self.columns = _columns(rows, {"self", *self.drafts[0].tree}, self.parameters)
        self.names = {values: name for name, values in self.parameters.items()}
        columns = iter(self.columns)

        def own(role: str, literal: str) -> str:
            name = self.names.get(next(columns))
            if name is None:
                return f"\0{role}\0{literal}\0"
            return f"{{{name}}}" if role.startswith("{") else name

        #: The lines of the constructor, with marks of numbers that all modules share.
        self.init = [Line(with_numbers(x.code, own), x.depth) for x in self.drafts[0].init]
        self.left = [*columns]
        optional = dict.fromkeys(part for d in self.drafts for part in d.absent)
        for part in optional:
            self._make_optional(part)

    def _make_optional(self, part: str) -> None:
        """Make a part only where the modules have it, of which a parameter tells."""
        has = [part not in d.absent for d in self.drafts]
        condition = next(self._conditions(has), None)
        if condition is None:
            condition = numbered(f"has_{part}", {*self.parameters})
            self.parameters[condition] = tuple(map(str, has))
        number = [*self.drafts[0].tree].index(part)
        line = self.init[number]
        self.init[number] = Line(f"self.{part} = {self.drafts[0].dialect.identity}")
        self.added.setdefault(number, []).extend(
            [Line(f"if {condition}:"), Line(line.code, line.depth + 1)]
        )

    def _conditions(self, has: Sequence[bool]) -> Iterator[str]:
        """Conditions on parameters that hold for the modules that have something."""
        flags = tuple(map(str, has))
        yield from (name for name, values in self.parameters.items() if values == flags)
        numbers = {n: v for n, v in self.parameters.items() if not {"True", "False"} & {*v}}
        for (one, left), (other, right) in itertools.combinations(numbers.items(), 2):
            if [a != b for a, b in zip(left, right)] == [*has]:
                yield f"{one} != {other}"
        for name, values in numbers.items():
            usual = {v for v, own in zip(values, has) if not own}
            if len(usual) == 1 and [v not in usual for v in values] == [*has]:
                yield f"{name} != {usual.pop()}"

    def made(self, number: int) -> str:
        """The call that makes the module of that number."""
        values = [(name, column[number]) for name, column in self.parameters.items()]
        marked = [(name, f"\0{name}\0{value}\0") for name, value in values]
        if len(marked) <= self.drafts[0].dialect.by_position and not any(
            v in ("True", "False") for _, v in values
        ):
            return f"{self.name}({', '.join(value for _, value in marked)})"
        return f"{self.name}({', '.join(f'{name}={value}' for name, value in marked)})"

    def lines(self, load: Sequence[str] = ()) -> list[str]:
        """The text of the class. ``load``: of a method between constructor and ``forward``."""
        draft = self.drafts[0]
        of_class, of_forward = draft.source.documentation()
        columns = iter(self.left)
        used: set[str] = set()

        def kept(role: str, literal: str) -> str:
            name = self.names.get(next(columns))
            if name is None:
                return literal
            used.add(name)
            return f"self.{name}"

        listed = [x for i, line in enumerate(self.init) for x in (line, *self.added.get(i, ()))]
        init = [Line(with_numbers(x.code), x.depth) for x in listed]
        head = with_numbers(draft.head, lambda _, literal: self.names.get(next(columns), literal))
        forward = [
            x if x.is_comment else Line(with_numbers(x.code, kept), x.depth) for x in draft.forward
        ]
        self._note(forward)
        base = "Weights" if draft.indexed else draft.dialect.base
        text = [f"class {self.name}({base}):" if base else f"class {self.name}:"]
        text += _docstring(of_class, 1)
        text += [""] if of_class else []
        if init or self.parameters:
            stored = [Line(f"self.{name} = {name}") for name in self.parameters if name in used]
            text += wrap_code(f"    def __init__({', '.join(['self', *self.parameters])}):")
            text += ["        super().__init__()"] if base else []
            text += [t for x in (*stored, *init) for t in _wrapped(_formatted(x))]
            text.append("")
        text += [*load, ""] if load else []
        text += [*wrap_code(f"    {head}"), *_docstring(of_forward, 2)]
        return text + [t for x in forward for t in _wrapped(x)]

    def _note(self, forward: list[Line]) -> None:
        """The types behind lines, where they are those of all modules or can be told by its
        parameters."""
        lines = [d.forward for d in self.drafts]
        own = [[x for x in found if not x.is_comment] for found in lines]
        names = self.names
        for line, alike in zip([x for x in forward if not x.is_comment], zip(*own)):
            pieces = [re.split(r"(?<![\w.])(\d+)(?!\w)", x.note) for x in alike]
            if len({tuple(p[::2]) for p in pieces}) != 1:
                continue
            texts = []
            for values in zip(*pieces):
                texts.append(values[0] if len({*values}) == 1 else names.get(values, ""))
            if all(texts[1::2]):
                line.note = "".join(texts)
        if len(self.drafts) > 1:
            places = [{x.code for x in found if x.is_comment} for found in lines]
            same = set.intersection(*places)
            forward[:] = [x for x in forward if not x.is_comment or x.code in same]


def _columns(
    rows: Sequence[Sequence[tuple[str, str]]], taken: set[str], made: dict[str, tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """Numbers in the same places of texts that are alike; where they differ they are parameters,
    which are added to those ``made``."""
    found = [tuple(zip(*column)) for column in zip(*rows)]
    columns: list[tuple[str, ...]] = [values for _, values in found]
    for number in sorted(range(len(found)), key=lambda i: _ANY in columns[i]):
        role, values = found[number][0][0], columns[number]
        if _ANY in values:
            known = [p for p in made.values() if all(a in (_ANY, b) for a, b in zip(values, p))]
            first = next(v for v in values if v != _ANY)
            filled = tuple(first if v == _ANY else v for v in values)
            values = columns[number] = known[0] if known and len({*filled}) > 1 else filled
        shared = values in made.values() and role != "layers"
        if len({*values}) > 1 and not shared:
            name = numbered(role.strip("{}") or "size", taken)
            taken.add(name)
            made[name] = values
    return columns


def factored(classes: Sequence[Class], taken: set[str]) -> list[str]:
    """Functions that make rows of modules which constructors hold again and again, as lines; the
    constructors call them then."""
    groups: dict[str, list[tuple[Line, str]]] = {}
    for one in classes:
        for line in one.init if not one.parameters else ():
            for text in _rows_of_modules(line.code):
                groups.setdefault(with_numbers(text, _blank), []).append((line, text))
    made: list[str] = []
    for found in groups.values():
        lines = len(wrap_code(" " * 16 + with_numbers(found[0][1])))
        if len(found) * (lines - 1) <= lines + 1:
            continue
        name = numbered(f"{_last_word(found[0][0].code.split()[0])}_block", taken)
        taken.add(name)
        parameters: dict[str, tuple[str, ...]] = {}
        columns = _columns([numbers_in(text) for _, text in found], {name}, parameters)
        names = {values: parameter for parameter, values in parameters.items()}
        own = iter(columns)
        body = with_numbers(found[0][1], lambda _, literal: names.get(next(own), literal))  # noqa: B023
        made += [f"def {name}({', '.join(parameters)}):", *wrap_code(f"    return {body}"), "", ""]
        for number, (line, text) in enumerate(found):
            given = (f"\0{role}\0{values[number]}\0" for role, values in parameters.items())
            line.code = line.code.replace(text, f"{name}({', '.join(given)})", 1)
    return made


def _rows_of_modules(code: str) -> Iterator[str]:
    """``nn.Sequential(...)`` in a line, those inside others apart."""
    start = code.find("nn.Sequential(")
    while start >= 0:
        end, depth = code.index("(", start), 1
        while depth:
            end += 1
            depth += (code[end] == "(") - (code[end] == ")")
        text = code[start : end + 1]
        if "*[" not in text:
            yield text
        start = code.find("nn.Sequential(", end)


def classes_of(
    root: GraphModule, name: str, dialect: Dialect
) -> tuple[FileNames, list[Class], dict[str, Layer]]:
    """The names of a file, its classes in the order in which they are needed, the root's last, and
    the layers by path."""
    layers: dict[int, Layer] = {}
    found: dict[int, tuple[GraphModule, int]] = {}
    paths: dict[str, Layer] = {}

    def visit(module: GraphModule, path: str) -> int:
        if id(module) not in found and module is not root:
            layer = dialect.layer(module)
            if layer is not None:
                layers[id(module)] = layer
        if id(module) in layers:
            paths[path] = layers[id(module)]
            return 0
        targets = dict.fromkeys(n.target for n in module.graph.find_nodes(op="call_module"))
        inner = {target: module.get_submodule(target) for target in targets}
        heights = [
            visit(child, f"{path}.{target}".strip("."))
            for target, child in inner.items()
            if isinstance(child, GraphModule)  # as all are here
        ]
        found[id(module)] = module, 1 + max(heights, default=0)
        return found[id(module)][1]

    visit(root, "")
    ordered = [m for m, _ in sorted(found.values(), key=lambda pair: pair[1])]
    graphs = [root.graph, *(m.graph for m in ordered if m is not root)]
    file = FileNames(graphs, class_name(name), dialect.imports, dialect.helpers(graphs))
    for key, layer in layers.items():
        file.layers[key], file.orders[key] = layer, layer.given
    _align([module for module, _ in found.values()], layers)
    made: dict[int, str] = {
        key: f"nn.{layer.name}({_arguments(layer)})" for key, layer in layers.items()
    }
    classes: list[Class] = []
    taken = {class_name(name), *file.tuples.values(), *file.functions.values(), *dialect.parts}
    for height in sorted({h for _, h in found.values()}):
        groups: dict[Any, list[Draft]] = {}
        for module, own in found.values():
            if own == height:
                draft = Draft(module, file, dialect, lambda m: made[id(m)], module is root)
                key = id(root) if module is root else draft.signature
                groups.setdefault(key, []).append(draft)
        _join(groups, made, file, dialect)
        for key, drafts in groups.items():
            title = class_name(name)
            if key != id(root):
                title = numbered(class_name(drafts[0].module.name), taken, "")
            taken.add(title)
            one = Class(title, drafts)
            classes.append(one)
            for number, draft in enumerate(one.drafts):
                made[draft.key] = one.made(number)
    return file, classes, paths


def _align(modules: Sequence[GraphModule], layers: dict[int, Layer]) -> None:
    """Say numbers that are the default of one layer where the same layer of another module of the
    class has others, so that both may be one class."""
    alike: dict[tuple[str, str, str], list[int]] = {}
    for module in modules:
        for target in dict.fromkeys(n.target for n in module.graph.find_nodes(op="call_module")):
            key = id(module.get_submodule(target))
            if key in layers:
                alike.setdefault((module.name, target, layers[key].name), []).append(key)
    for (_, _, name), keys in alike.items():
        said = {argument for key in keys for argument in layers[key].arguments}
        known = inspect.signature(getattr(nn, name)).parameters
        numbers = {n: known[n].default for n in said if type(known[n].default) is int}
        for key in keys:
            given = {**numbers, **layers[key].arguments}
            ordered = {argument: given[argument] for argument in known if argument in given}
            layers[key] = replace(layers[key], arguments=ordered)


def _join(
    groups: dict[Any, list[Draft]], made: dict[int, str], file: FileNames, dialect: Dialect
) -> None:
    """Put modules that lack what others of their class have to these."""
    largest = sorted(groups.items(), key=lambda group: -len(group[1][0].tree))
    for (other, full), (key, drafts) in itertools.permutations(largest, 2):
        one, whole = drafts[0], full[0]
        parts = [part for part in whole.tree if part not in one.tree]
        if key not in groups or other not in groups or one.is_root or whole.is_root:
            continue
        if one.module.name != whole.module.name or not parts or {*one.tree} - {*whole.tree}:
            continue
        joined = [_with_parts(draft, whole, parts, made, file, dialect) for draft in drafts]
        if all(draft is not None and draft.signature == whole.signature for draft in joined):
            full += [draft for draft in joined if draft is not None]
            del groups[key]


def _with_parts(
    draft: Draft, whole: Draft, parts: Sequence[str], made: dict[int, str], file: FileNames,
    dialect: Dialect,
) -> Draft | None:  # fmt: skip
    """A draft that calls what the module lacks, as modules that give back what they are given."""
    module = with_children(draft.module, whole.module, parts)
    if module is None or whole.indexed:
        return None
    used = " ".join(line.code for line in whole.forward)
    if any(f"self.{part}{end}" in used for part in parts for end in "[."):
        return None  # it is not called as a whole

    def identity(inner: GraphModule) -> str:
        return made.get(id(inner), dialect.identity)

    again = Draft(module, file, dialect, identity, is_root=False)
    again.key = draft.key
    if [*again.tree] != [*whole.tree]:
        return None
    for part in parts:
        again.lack(part, whole)
    return again


def _is_module(value: Any) -> bool:
    """Whether what a tree holds is a module, or a list of modules."""
    if isinstance(value, dict):
        return all(is_number(part) and _is_module(v) for part, v in value.items())
    return isinstance(value, GraphModule)


def _with_items(code: str, items: Mapping[str, str]) -> str:
    """A line with other text for items of lists, by path."""
    return _INDEXED.sub(lambda found: items.get(found[1], found[0]), code)


def _places(form: Any, target: ast.expr | None) -> Iterator[tuple[int, str]]:
    """The variables of a left side, by the number of what they are given."""
    if isinstance(form, int) and isinstance(target, ast.Name):
        yield form, target.id
    elif isinstance(form, tuple) and isinstance(target, ast.Tuple):
        for part, inner in zip(form, target.elts):
            yield from _places(part, inner)


def _pattern(form: Any, names: Sequence[str], depth: int = 0) -> str:
    """The left side that takes results apart: ``y, (h, _)``."""
    if not isinstance(form, tuple):
        return "_" if form is None else names[form]
    inner = ", ".join(_pattern(part, names, depth + 1) for part in form)
    inner += "," if len(form) == 1 else ""
    return f"({inner})" if depth or len(form) == 1 else inner


def _last_word(path: str) -> str:
    words = [part for part in path.split(".") if is_name(part)]
    return words[-1] if words else "layers"


def _singular(path: str) -> str:
    """What one of a list is called: ``block`` of ``blocks``."""
    name = _last_word(path)
    return name[:-1] if name.endswith("s") and len(name) > 2 else "layer"


def _arguments(layer: Layer) -> str:
    """Arguments of a layer's constructor: the first ones without their names."""
    texts: list[str] = []
    for name, value in layer.arguments.items():
        is_size = name in _POSITIONAL and len(texts) == sum("=" not in t for t in texts)
        text = _literal(value, name)
        texts.append(text if is_size else f"{name}={text}")
    return ", ".join(texts)


_POSITIONAL = frozenset((
    "in_features", "out_features", "in_channels", "out_channels", "kernel_size", "num_features",
    "num_groups", "num_channels", "normalized_shape", "num_embeddings", "embedding_dim",
    "output_size", "input_size", "hidden_size", "embed_dim", "num_heads", "upscale_factor",
    "p", "d_model", "nhead", "dim_feedforward",
))  # fmt: skip


def _literal(value: Any, role: str) -> str:
    if isinstance(value, (tuple, list)):
        inner = ", ".join(_literal(v, role) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return number_text(value, role)
    return python_string(value) if isinstance(value, str) else repr(value)


def _docstring(text: str, depth: int) -> list[str]:
    """Documentation that the program had."""
    if not text:
        return []
    indent = "    " * depth
    width = WIDTH - len(indent) - 6
    first, *rest = [
        part
        for line in text.split("\n")
        for part in textwrap.wrap(docstring(line), width, drop_whitespace=True) or [""]
    ]
    if not rest:
        return [f'{indent}"""{first}"""']
    return [f'{indent}"""{first}', *(f"{indent}{x}".rstrip() for x in rest), f'{indent}"""']


def _blank(role: str, literal: str) -> str:
    return "\0"


def _note(node: Node, order: Sequence[int] = ()) -> str:
    """The type of a value, or those of several in that order."""
    found = node.type
    if isinstance(found, tuple) and len(found) > 1:
        if len({*map(str, found)}) == 1 and isinstance(found[0], TensorType):
            return f"{comment(type_text(found[0]))} each"
        found = tuple(found[i] for i in order) or found
    return comment(type_text(found)) if found is not None else ""


def _formatted(line: Line) -> Line:
    """Types with parameters in them, ``"f32[{size}]"``, as formatted strings."""
    return Line(re.sub(r'(?<!f)("[a-z0-9]+\[[^"\]]*\{)', r"f\1", line.code), line.depth)


def _wrapped(line: Line) -> list[str]:
    """A line in lines of at most 100 columns, its note behind it or before it."""
    code, note = f"{'    ' * line.depth}{line.code}", line.note
    if line.is_comment:
        width = WIDTH - 4 * line.depth - 2
        parts = textwrap.wrap(line.code[2:], width, break_long_words=False) or [""]
        return [f"{'    ' * line.depth}# {part}".rstrip() for part in parts]
    if note and len(code) + len(note) + 4 <= WIDTH:
        return [f"{code}  # {note}"]
    lines = wrap_code(code)
    if note and (len(lines) == 1 or len(lines[-1]) + len(note) + 4 > WIDTH):
        return [f"{'    ' * line.depth}# {note}"[:WIDTH], *lines]
    return [*lines[:-1], f"{lines[-1]}  # {note}"] if note else lines


def _tree(module: GraphModule, numbers: Collection[Node]) -> dict[str, Any]:
    """What the graph reads and calls as nested dicts by the parts of the paths, ``numbers`` apart;
    what a module that is called holds is in that module."""
    tree: dict[str, Any] = {}
    nodes = [n for n in module.graph.nodes if n.op == "call_module" or n.op == "get_attr"]
    nodes = [n for n in nodes if n not in numbers]
    called = {n.target for n in nodes if n.op == "call_module"}
    for node in nodes:
        *parents, name = node.target.split(".")
        around = {".".join(parents[:end]) for end in range(1, len(parents) + 1)}
        if not (node.op == "call_module" or node.users) or around & called:
            continue
        inner = tree
        for part in parents:
            inner = inner.setdefault(part, {})
        is_module = node.op == "call_module"
        inner[name] = (module.get_submodule if is_module else module.get_attribute)(node.target)
    return tree


def _weights(texts: Mapping[str, str]) -> str:
    """A holder of arrays, or of other holders."""
    if len(texts) > 1 and list(texts) == [str(i) for i in range(len(texts))]:
        first = texts["0"]
        if all(with_numbers(t) == with_numbers(first) for t in texts.values()):  # layers all alike
            return f"Weights({{i: {first} for i in range({len(texts)})}})"
    named, others = [], []
    for part, text in texts.items():
        if is_attribute(part):
            named.append(f"{part}={text}")
        else:
            others.append(f"{part if is_number(part) else python_string(part)}: {text}")
    first_argument = ["{" + ", ".join(others) + "}"] if others else []
    return f"Weights({', '.join([*first_argument, *named])})"
