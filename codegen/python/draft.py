"""The class for one module of a regenerated program: its constructor and ``forward``.

In: a GraphModule that ``outline_modules`` made of a module, and how to create the modules inside it. Out: a
:class:`Draft`: the lines of its methods. Containers become ``nn.Sequential`` if their items are called in a
row, otherwise ``nn.ModuleList``; statements that repeat for one module of a list after the other become a
loop::

    for block in self.blocks:
        x = block(x)
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fxlite.base.outside_text import comment, format_text, is_number, python_string
from fxlite.codegen.python.dialect import Dialect
from fxlite.codegen.python.functions import given_names
from fxlite.codegen.python.lines import ALIKE, ANY, WIDTH, Line, displayed, hidden, last_word, note_of, rolled, singular
from fxlite.codegen.python.parameters import Record, interface_of, results_of
from fxlite.codegen.python.text import (
    CALL,
    FileNames,
    Names,
    attribute_text,
    class_name,
    dim_lines,
    dim_names,
    frozen,
    is_attribute,
    number_text,
    with_numbers,
)
from fxlite.codegen.python.written import parameter_names, plain_syntax, written, written_function
from fxlite.graph.graph import Node, nodes_in
from fxlite.graph.graph_module import GraphModule, default_of
from fxlite.graph.node import is_impure_module
from fxlite.ops.own.foreign import ForeignOp
from fxlite.types.guards import OPPOSITE
from fxlite.types.tensor_type import TensorType

_SHORT_RESULT = 80  # columns up to which results are written without brackets around them
_SHORT = 4  # the most ops of an expression that the program splits into several


@dataclass
class Chain:
    """Calls in a row of the items of a container: each gets the result of the previous one in one position,
    and otherwise the same arguments."""

    container: str
    calls: list[Node]
    position: int
    is_loop: bool = False
    item: str = ""


@dataclass(frozen=True, eq=False)
class Filled:
    """A list of similar values, each computed after the previous one, so that a loop may append them. ``key``
    identifies it in the graph."""

    number: int
    elements: tuple[Any, ...]
    reader: Node
    key: Any
    wish: str = ""

    @property
    def is_named(self) -> bool:
        """Whether the program has a name for the list."""
        return bool(self.wish)


def drafted(
    module: GraphModule, file: FileNames, dialect: Dialect, made: Callable[[GraphModule], str], is_root: bool
) -> Draft:
    """The draft of a module; lists that no loop can fill are written out."""
    draft = Draft(module, file, dialect, made, is_root)
    while draft.refused:
        apart = draft.apart | draft.refused
        draft = Draft(module, file, dialect, made, is_root, apart)
    return draft


class Draft:
    """The methods of the class for one module. ``made`` says how to create a module inside it."""

    def __init__(
        self,
        module: GraphModule,
        file: FileNames,
        dialect: Dialect,
        made: Callable[[GraphModule], str],
        is_root: bool,
        apart: frozenset[int] = frozenset(),
    ) -> None:
        self.module, self.graph, self.file, self.dialect = module, module.graph, file, dialect
        #: Lines of the constructor for what others of the class have, by part.
        self.absent: dict[str, Line] = {}
        self.made, self.is_root, self.apart = made, is_root, apart
        #: Variables, and their texts, for values that are read when what they are made of is written over.
        self.saved: dict[Node, tuple[str, str]] = {}
        #: Inputs that are written into.
        self.writes = module.written_inputs() if is_root else ()
        #: Those that are buffers, which the class of the program has, by target.
        self.states = dict(module.states) if is_root else {}
        self.key = id(module)  #: of the module of the program
        called = dict.fromkeys(n.target for n in self.graph.find_nodes(op="call_module"))
        known = {path: file.orders.get(id(module.get_submodule(path))) for path in called}
        orders = {path: order for path, order in known.items() if order is not None}
        calls = [n for n in self.graph.nodes if n.op.startswith("call_")]
        #: The call of a function that the module computes, if it is one.
        self.call = file.calls.get(id(module))
        inputs = None
        if self.call is not None:
            self.source = written_function(calls, self.call.code)
            own = given_names(self.call, self.graph.placeholders)
            inputs = parameter_names(self.graph.placeholders, self.source, orders, own)
        else:
            self.source = written(calls, (module.name, class_name(module.name)))
            if not is_root:
                inputs = parameter_names(self.graph.placeholders, self.source, orders, {})
        self.names = Names(self.graph, file, inputs)
        numbers = [n for n in self.graph.find_nodes(op="get_attr") if dialect.is_number(n)]
        functions = {path: file.kept.get(id(module.get_submodule(path))) for path in called}
        kept = {path: function for path, function in functions.items() if function is not None}
        self.tree = _tree(module, numbers, kept)
        self.tree |= {target: module.get_attribute(path) for target, path in self.states.items()}
        self.print = dialect.text(self.names, orders)
        layers = {path: file.layers.get(id(module.get_submodule(path))) for path in called}
        self.print.layers = {path: layer for path, layer in layers.items() if layer is not None}
        self.print.functions = kept
        for node in numbers:
            self.print.inline(node, self.print.scalar(module.get_attribute(node.target)))
        self.inputs = self.graph.placeholders
        if inputs is not None:
            place = {name: i for i, name in enumerate(self.source.parameters)}
            self.inputs = sorted(self.inputs, key=lambda n: place.get(inputs[n], len(place)))
        file.orders[id(module)] = [*map(self.graph.placeholders.index, self.inputs)]
        self.items: dict[str, str] = {}  # the names of loop variables
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
        #: Lists that loops fill, and what they are called.
        self.listed: dict[Filled, str] = {}
        self.refused: set[int] = set()  # numbers of the lists that no loop can fill
        self._list_values()
        self.init = list(self._init())
        method = dialect.method if self.call is None else self.call.code.co_name
        self.head = f"def {method}({', '.join(self._parameters())}):"
        self.forward = self._rolled(list(self._forward()))

    @property
    def signature(self) -> Any:
        """A key that is equal for modules that may share a class."""
        lines = (*self.init, Line(self.head, 1), *self.forward)
        blank = [(with_numbers(x.code, hidden), x.depth) for x in lines if not x.is_comment]
        return self.call is not None, class_name(self.module.name), tuple(blank)

    def lack(self, part: str, other: Draft) -> None:
        """Record that the module lacks this part, unlike another module of the class."""
        number = [*self.tree].index(part)
        line = other.init[[*other.tree].index(part)]
        code = with_numbers(line.code, lambda role, _: f"\0{role}\0{ANY}\0")
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
        """The text that creates a module, a container or, inside one, an array."""
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
        """A list of modules, with a placeholder for those that compute nothing."""
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
        if any(map(is_impure_module, held.values())):
            return None  # random numbers of other ops may be drawn between its calls
        texts = {with_numbers(self.made(held[str(i)])) for i in indices}
        classes = {text.partition("(")[0] for text in texts}
        is_alike = len(texts) == 1 or (len(classes) == 1 and "nn." not in "".join(classes))
        is_loop = len(calls) >= ALIKE and is_alike and indices == [*range(len(indices))]
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
        yield Line(f"{name} = {chain.item}({', '.join(given)})", 3, note_of(last))

    def _rolled(self, lines: list[Line]) -> list[Line]:
        """The lines with loops, if every list that they should fill can be filled by one loop."""
        sizes = {name: len(found.elements) for found, name in self.listed.items()}
        made = rolled(lines, self, sizes)
        left = {line.fills for line in made if line.fills}
        self.refused = {found.number for found, name in self.listed.items() if name in left}
        return displayed(made, {n for found, n in self.listed.items() if not found.is_named})

    # -- lists that loops go over ------------------------------------------------------------------
    def length(self, listed: str) -> int:
        """The number of modules in a list, or of items in one among the inputs; 0 for anything else."""
        if not listed.startswith("self."):
            return self.names.given.lists.get(listed, 0)
        held: Any = self.tree
        for part in _path(listed).split("."):
            held = held.get(part, {}) if isinstance(held, dict) else {}
        if not isinstance(held, dict) or {*held} != {*map(str, range(len(held)))}:
            return 0
        return len(held) if all(map(_is_module, held.values())) else 0

    def is_given(self, listed: str) -> bool:
        """Whether the caller passes a list, which may then be shorter."""
        return listed in self.names.given.lists

    def item(self, listed: str) -> str:
        """The preferred name for the variable of a loop over a list."""
        found = self.source.item(listed)
        wish = "item" if self.is_given(listed) else singular(_path(listed))
        return found.id if isinstance(found, ast.Name) else wish

    def parts(self, listed: str) -> Sequence[str]:
        """The preferred names for the variables into which the list's items are unpacked, if they are."""
        size, found = self.names.given.items.get(listed, 0), self.source.item(listed)
        if not isinstance(found, ast.Tuple) or len(found.elts) != size:
            return ()
        names = [part.id for part in found.elts if isinstance(part, ast.Name)]
        return names if len({*names} - {"_"}) + names.count("_") == size else ()

    def index(self, listed: str) -> str:
        """The name of a counting variable, with or without the variable for the list's items."""
        return self.unique(self.source.index(listed) or "i")

    def unique(self, wish: str) -> str:
        """A name for a loop variable; several loops may share it."""
        self.items[wish] = self.items.get(wish) or self.names.unique(wish)
        return self.items[wish]

    def _form(self, node: Node) -> tuple[Any, str]:
        """The form of what a module returns, with the numbers of its results, and the text that selects the
        only one; 0 if it returns just that."""
        layer = self.print.layers.get(node.target) if node.op == "call_module" else None
        if layer is not None:
            return layer.results, layer.place
        module = self.module.get_submodule(node.target) if node.op == "call_module" else None
        return tuple(self.file.results.get(id(module), ())) or 0, ""

    def _result_order(self) -> Sequence[int]:
        """The results of a module in the order in which its method returns them; empty if that is not known."""
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

    def _results(self) -> Any:
        """The returned values in their order."""
        if self.is_root:
            return results_of(self.graph)
        values = self.graph.output_node().args[0]
        return tuple(values[i] for i in self.order) if self.order else values

    # -- lists that loops fill ---------------------------------------------------------------------
    def _list_values(self) -> None:
        """Find lists of similar values that are computed one after the other."""
        self.place = {n: i for i, n in enumerate(self.shown)}
        #: For a value and what reads it from such a list: the node after which it is appended.
        self.filled: dict[tuple[Node, Node], Node] = {}
        self.appends: dict[Node, list[tuple[Filled, Any]]] = {}
        number = 0
        for reader in self.shown:
            given = reader.args
            if reader.op == "output":
                given = (self._results(),)
            elif reader.op == "call_module" or isinstance(reader.target, ForeignOp):
                continue
            found = [v for value in given for v in _lists_in(value, reader.op == "output")]
            names = [*self.source.lists(reader, len(found))]
            # a value that is also read outside the list is read later than it is appended
            beside = Counter(nodes_in(reader.args))
            beside.subtract(n for value in found for n in _nodes(value))
            for value in found:
                last = self._one_after_the_other(value)
                wish = names.pop(0) if names else ""
                if last is None or number in self.apart:
                    number += last is not None
                    continue
                one = Filled(number, tuple(value), reader, frozen(value), wish)
                number += 1
                name = self.names.unique(wish or "items")
                self.listed[one] = name
                shown = f"tuple({name})" if reader.op == "output" and type(value) is tuple else name
                self.print.listed[one.key] = shown
                for element, node in zip(value, last):
                    self.appends.setdefault(node, []).append((one, element))
                    own = [n for n in _nodes(element) if beside[n] <= 0]
                    self.filled |= {(n, reader): node for n in own}

    def _one_after_the_other(self, value: Sequence[Any]) -> list[Node] | None:
        """For each element of a list the last statement of those that compute it."""
        sorts: set[Any] = set()
        found: list[Node] = []
        for element in value:
            nodes = [*_nodes(element)]
            made = [n.args[0] if n in self.names.unpacked else n for n in nodes]
            if not nodes or any(n not in self.place for n in made):
                return None
            last = max(made, key=self.place.__getitem__)
            if found and self.place[last] <= self.place[found[-1]]:
                return None
            found.append(last)
            sorts.add(tuple(_sort(n) for n in nodes))
        return found if len(sorts) == 1 else None

    def _appended(self, node: Node) -> Iterator[Line]:
        """The lines that append values to lists once a node has been computed."""
        for found, element in self.appends.get(node, ()):
            name = self.listed[found]
            yield Line(f"{name}.append({self.print.value(element)})", fills=name)

    # -- forward ---------------------------------------------------------------------------------
    def _unpacked(self) -> Iterator[Line]:
        """Unpack nested inputs into the variables that the program uses for their parts."""
        texts = {self.names.parameters[n]: n for n in self.graph.placeholders}
        is_state = self.states.__contains__
        nodes_by_text = {t: n for t, n in texts.items() if not (t.isidentifier() or is_state(n.target))}
        known = {plain_syntax(t): t for t in (*nodes_by_text, *self.names.given.lists)}
        for target, value in self.source.plain_assignments():
            text = known.get(value, "")
            inner = [f"{text}[{i}]" for i in range(self.names.given.lists.get(text, 0))]
            if isinstance(target, ast.Name) and text in nodes_by_text:
                targets, inner = [target.id], [text]
            elif isinstance(target, ast.Tuple) and inner and len(target.elts) == len(inner):
                targets = [part.id for part in target.elts if isinstance(part, ast.Name)]
            else:
                continue
            nodes = [nodes_by_text.get(text) for text in inner]
            if len(targets) != len(inner) or {*targets} & self.names.taken or None in nodes:
                continue
            for node, name in zip(nodes, targets):
                assert node is not None
                self.names[node] = self.names.unique(name)
            names = ", ".join(self.names[node] for node in nodes if node is not None)
            yield Line(f"{names} = {text}")

    def _forward(self) -> Iterator[Line]:
        unpacked = list(self._unpacked())
        self._name_values()
        yield from unpacked
        for node in self.graph.placeholders:
            text = self.names.parameters[node]
            if self.names[node] != text and (text.isidentifier() or node.target in self.states):
                yield Line(f"{self.names[node]} = {text}")
        for text in dim_lines(self.graph, self.names, self.inputs, self.is_root):
            yield Line(text)
        if self.is_root:
            yield from self._checks()
        shown = ""
        for node in self.shown:
            if node in self.inside:
                self.print.inline(node, self._call(node))
                yield from self._appended(node)
                continue
            origin = self._origin(node)
            yield from (Line(f"# {text}") for text in self._said(node))
            if origin != shown and origin:
                yield Line(f"# {origin}")
            shown = origin
            yield from self._lines(node)
            yield from self._appended(node)

    def _lines(self, node: Node) -> Iterator[Line]:
        """The lines of a value, preceded by those of parts that would make its own line too long."""
        inlined = [n for n in self._read(node) if n in self.inside & self.print.inlined.keys()]
        width = WIDTH + 4 * (self.call is not None)  # its lines will be indented less
        apart: list[Node] = []
        while any(len(with_numbers(x.code)) + 4 * x.depth > width for x in self._line(node)):
            if not inlined:
                break
            longest = max(inlined, key=lambda n: len(self.print.inlined[n][0]))
            inlined.remove(longest)
            apart.append(longest)
            del self.print.inlined[longest]
        for other in sorted(apart, key=self.place.__getitem__):
            yield from self._lines(other)
        yield from self._line(node)

    def _read(self, node: Node) -> list[Node]:
        """The values that occur in the text of a value."""
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
        """Give values the names that the program used if they are free at that point; this includes variables
        that are assigned more than once."""
        for chain in self.chains.values():
            for node in chain.calls:
                self.names.taken.discard(self.names[node])
        self.elements = self.source.elements(self.shown[:-1])
        self.wishes = {node: self._wishes(node) for node in self.shown[:-1]}
        #: What is written where it is read.
        self.inside = self._inlined()
        place = {n: i for i, n in enumerate(self.shown)}
        for node in reversed(self.shown):
            if node in self.inside and (node, self._reader(node)) not in self.filled:
                place[node] = place[self._reader(node)]
        for chain in self.chains.values():
            place |= dict.fromkeys(chain.calls, place[chain.calls[-1]])
        last_read = dict.fromkeys(dim_names(self.graph), len(place))

        def occupy(value: Node, name: str) -> None:
            reads = (
                place[last] if (last := self.filled.get((value, user))) else place.get(user, 0) for user in value.users
            )
            last_read[name] = max(last_read.get(name, 0), *reads, 0)

        for node in self.graph.placeholders:
            occupy(node, self.names[node])
            if node.target in self.writes:
                last_read[self.names[node]] = len(place)
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
        """Names of the arguments of each module in a loop, other than the result of the previous one."""
        chain = self.by_last.get(last)
        if chain is None or not chain.is_loop:
            return set()
        given = [a for i, a in enumerate(self.print.given(last)) if i != chain.position]
        return {self.names[n] for n in nodes_in(given) if n.op != "get_attr"}

    def _wishes(self, node: Node) -> list[str]:
        """The names that the program used for a value, or for its parts."""
        chain = self.by_last.get(node)
        if chain is not None:
            return self._name_chain(chain)
        form, _ = self._form(node)
        if form == 0:
            name = self.elements.get(node)
            return [name] if name is not None else self.source.variables(node)
        found = dict(_places(form, self.source.target(node)))
        names = [found.get(i, "") for i in range(len(self.names.parts.get(node, [node])))]
        return names if all(names) else []

    def _name_chain(self, chain: Chain) -> list[str]:
        """The variables of a loop, and the program's names for its result."""
        container = last_word(chain.container)
        if not chain.is_loop:
            names = self.source.variables(chain.calls[-1], chain.container)
            self.names[chain.calls[-1]] = self.names.unique(container)
            return names
        item, value = self.source.loop(chain.container) or (singular(chain.container), "x")
        if not self.dialect.has_sequential:
            value = (*self.source.variables(chain.calls[-1], chain.container), value)[0]
        chain.item = self.unique(item)
        self.names[chain.calls[-1]] = self.names.unique(container)
        return [value]

    def _inlined(self) -> set[Node]:
        """Values that are written inside a larger expression."""
        found: set[Node] = set()
        ops: dict[Node, int] = {}  # number of ops in the expression
        for node in self.shown:
            ops[node] = 1 + sum(ops[n] for n in self._read(node) if n in found)
            if self._may_be_inlined(node, ops[node]):
                found.add(node)
        return found

    def _may_be_inlined(self, node: Node, ops: int) -> bool:
        """Whether a value is written inside a larger expression: if the program did not name it either and
        reads it where it is computed, or if the expression is short."""
        if node.op == "output" or self.wishes[node] or node in self.names.parts:
            return False
        if sum(n is node for u in node.users for n in nodes_in((u.args, u.kwargs))) != 1:
            return False
        if node.op == "call_module":
            is_random = is_impure_module(self.module.get_submodule(node.target))
        else:
            is_random = node.is_impure()
        reader = self._reader(node)
        if is_random or any(n in self.by_last and self.by_last[n].is_loop for n in (node, reader)):
            return False
        statement, last = self.statements[node], self.statements.get(reader)
        if (node, reader) in self.filled and isinstance(statement, ast.Expr):
            return True
        if statement is not None and last is statement:
            return True
        if reader.op == "output" and isinstance(statement, ast.Return):
            return True
        said = statement is not None and self.source.comments(statement)
        return ops <= _SHORT and not said and self._is_unnamed(node)

    def _is_unnamed(self, node: Node) -> bool:
        """Whether a value's name in the graph was not chosen by anybody."""
        if self.names.short or node.op == "call_module" or self.statements[node] is not None:
            return True
        return re.fullmatch(rf"{re.escape(node.target.node_name or node.target.name)}(_\d+)?", node.name) is not None

    def _reader(self, node: Node) -> Node:
        """The only reader of a value; if it is passed through modules in a row, the reader of the last result."""
        (reader,) = node.users
        chain = self.chain_of.get(reader)
        return reader if chain is None else chain.calls[-1]

    def _said(self, node: Node) -> Iterator[str]:
        """The program's comments above the statement of a value, each once."""
        statement = self.statements[node]
        if statement is not None and statement not in self.commented:
            self.commented.add(statement)
            yield from (comment(text) for text in self.source.comments(statement) if text)

    def _origin(self, node: Node) -> str:
        """Where a value comes from, unless its class shows that."""
        if node.op == "call_module" or self.statements[node] is not None:
            return ""
        scope = node.scope
        is_own = scope is not None and scope.class_name == self.module.name
        return comment(node.loc.short if is_own and node.loc is not None else node.origin)

    def _parameters(self) -> Iterator[str]:
        if self.call is None:
            yield "self"
        if self.is_root and interface_of(self.graph) is not None:
            defaults = {str(n.target): self._default(n) for n in self.inputs if n.args}
            yield from self.names.given.head({t: text for t, text in defaults.items() if text})
            return
        needed = False  # a parameter without a default follows
        parameters: list[str] = []
        for node in reversed(self.inputs):
            default = self._default(node) if node.args else ""
            needed = needed or not default
            name = self.names.parameters[node]
            parameters.append(name if needed else f"{name}={default}")
        yield from reversed(parameters)

    def _default(self, node: Node) -> str:
        """The default of an input as an array of its type; empty if it cannot be written."""
        text, declared, imports = self.print.value(node.args[0]), node.type, self.file.imports
        if not isinstance(declared, TensorType):
            return text
        if "torch" in imports:
            return f"{imports['torch']}.tensor({text}, dtype={self.print.dtype(declared.dtype)})"
        if declared.dtype.numpy.isbuiltin != 1:
            return ""  # NumPy has no name for it
        value = default_of(node)
        if declared.rank == 0:
            return self.print.scalar(value)
        return f"{imports['np']}.array({text}, {imports['np']}.{value.dtype.type.__name__})"

    def _checks(self) -> Iterator[Line]:
        """The conditions on named dims, with the place in the program, or in fx.dims, that requires them."""
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
            note = note_of(node) if self.print.inlined.keys() & {*node.all_input_nodes} else ""
            values = self._results()
            if self.order and note:
                note = note_of(node, self.order)
            yield from self._written(node, values)
            if self.writes:
                note = ""  # the types of all results, which the previous lines show
                if values is None:
                    return
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
            yield Line(f"{left} = {right}", note=note_of(node, order if parts else ()))
            return
        if parts is not None:
            left = ", ".join(parts) if len(parts) > 1 else f"({parts[0]},)"
        yield Line(f"{left} = {right}", note=note_of(node))

    def _written(self, output: Node, values: Any) -> Iterator[Line]:
        """Write into inputs and states, after saving values in them that are read later."""
        inputs = {node.target: node for node in self.graph.placeholders}
        pairs = [(inputs[name], new) for name, new in zip(self.writes, output.args[0][1:] if self.writes else ())]
        before: set[Node] = set()  # inputs that have been written already
        for target, new in (*pairs, *((None, node) for node in _nodes(values))):
            is_part = self._is_part(new)
            if target is not None and target.target not in self.states and is_part and not self.dialect.overlaps:
                before.add(target)
            if new not in self.saved and before & self._read_there(new):
                text = f"{self.print.value(new)}{self.dialect.copy if is_part else ''}"
                self.saved[new] = self.names.unique(f"old_{new.name}"), text
                self.print.inlined[new] = self.saved[new][0], CALL
            if target is not None and target.target not in self.states:
                before.add(target)
        for name, text in self.saved.values():
            yield Line(f"{name} = {text}")
        for target, new in pairs:
            if target.target in self.states:  # the former value stays in its variable
                copy = self.dialect.copy if self._is_part(new) and new not in self.saved else ""
                yield Line(f"self.{target.target} = {self.print.value(new)}{copy}")
                continue
            yield Line(f"{self.names[target]}[...] = {self.print.value(new)}")

    @staticmethod
    def _is_part(node: Node) -> bool:
        """Whether a value may be an existing array, or a part of one."""
        return node.op != "call_function" or node.target.kind == "view"

    def _read_there(self, node: Node) -> set[Node]:
        """The inputs whose memory is read together with a value: it is one, a view of one, or computed there."""
        found, waiting = {node}, [node]
        while waiting:
            value = waiting.pop()
            if value in self.print.inlined or self._is_part(value):
                waiting += {*value.all_input_nodes} - found
                found.update(value.all_input_nodes)
        return {value for value in found if value.op == "placeholder"}


def _path(text: str) -> str:
    """``self.layers[0]`` -> ``layers.0``"""
    return re.sub(r"\[(\d+)\]", r".\1", text.removeprefix("self."))


def _lists_in(value: Any, is_nested: bool) -> Iterator[Sequence[Any]]:
    """Lists with enough values, outermost first; with ``is_nested`` also lists inside other containers, and
    lists of containers."""
    is_plain = isinstance(value, (tuple, list)) and not hasattr(value, "_fields")
    if is_plain and len(value) >= ALIKE and all(map(_is_values if is_nested else _is_node, value)):
        yield value
    elif is_nested:
        for part in _inner(value):
            yield from _lists_in(part, is_nested)


def _inner(value: Any) -> Iterable[Any]:
    """The items of a container."""
    if isinstance(value, Record):
        return value.values
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (tuple, list)) else ()


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    for part in _inner(value):
        yield from _nodes(part)


def _is_node(value: Any) -> bool:
    return isinstance(value, Node)


def _is_values(value: Any) -> bool:
    inner = _inner(value)
    return all(map(_is_values, inner)) if inner else _is_node(value)


def _sort(node: Node) -> Any:
    """A key that is equal for values that modules of one list compute in the same way."""
    if node.op == "call_function" and node.target.name == "getitem":
        return node.bound["index"], _sort(node.args[0])
    target = node.target.name if node.op == "call_function" else str(node.target)
    return node.op, re.sub(r"\d+", "0", target)


def _is_module(value: Any) -> bool:
    """Whether an entry of a tree is a module, or a list of modules."""
    if isinstance(value, dict):
        return all(is_number(part) and _is_module(v) for part, v in value.items())
    return isinstance(value, GraphModule)


def _places(form: Any, target: ast.expr | None) -> Iterator[tuple[int, str]]:
    """The variables in an assignment target, by the number of the result that they get."""
    if isinstance(form, int) and isinstance(target, ast.Name):
        yield form, target.id
    elif isinstance(form, tuple) and isinstance(target, ast.Tuple):
        for part, inner in zip(form, target.elts):
            yield from _places(part, inner)


def _pattern(form: Any, names: Sequence[str], depth: int = 0) -> str:
    """The assignment target that unpacks results: ``y, (h, _)``."""
    if not isinstance(form, tuple):
        return "_" if form is None else names[form]
    inner = ", ".join(_pattern(part, names, depth + 1) for part in form)
    inner += "," if len(form) == 1 else ""
    return f"({inner})" if depth or len(form) == 1 else inner


def _tree(module: GraphModule, numbers: Collection[Node], functions: Collection[str]) -> dict[str, Any]:
    """What the graph reads and calls, as nested dicts by the parts of the paths; ``numbers`` and ``functions``
    are left out, and the contents of a called module belong to that module."""
    tree: dict[str, Any] = {}
    nodes = [n for n in module.graph.nodes if n.op == "call_module" or n.op == "get_attr"]
    nodes = [n for n in nodes if n not in numbers and n.target not in functions]
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
    """The text of a holder of arrays, or of other holders."""
    if len(texts) > 1 and list(texts) == [str(i) for i in range(len(texts))]:
        first = texts["0"]
        if all(with_numbers(t) == with_numbers(first) for t in texts.values()):  # all layers are alike
            return f"Weights({{i: {first} for i in range({len(texts)})}})"
    named, others = [], []
    for part, text in texts.items():
        if is_attribute(part):
            named.append(f"{part}={text}")
        else:
            others.append(f"{part if is_number(part) else python_string(part)}: {text}")
    first_argument = ["{" + ", ".join(others) + "}"] if others else []
    return f"Weights({', '.join([*first_argument, *named])})"
