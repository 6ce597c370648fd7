"""Classes of a regenerated program: one for all modules that are alike except for some numbers, or that
lack parts which others have.

In: the GraphModules that :func:`~fxlite.passes.cutting.outline_modules.outline_modules` makes of a
program's modules, and their drafts. Out: for each kind of module the lines of its class and the call that
creates one. Layers of ``fxlite.nn`` are created by name. Numbers in which modules of a class differ (sizes,
strides, ...) are parameters of its constructor.

Some modules of a class may have a part that others lack, such as the convolution on the shortcut of a
ResNet block whose shape changes: the others call a module there that returns its input.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fxlite import nn
from fxlite.base.outside_text import python_string
from fxlite.codegen.python.dialect import Dialect
from fxlite.codegen.python.draft import Draft, drafted
from fxlite.codegen.python.functions import constants, outline_functions
from fxlite.codegen.python.layers import Layer
from fxlite.codegen.python.lines import ANY, Line, docstring_lines, formatted, hidden, last_word, wrapped
from fxlite.codegen.python.text import FileNames, class_name, number_text, numbered, numbers_in, with_numbers
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.show.text.pretty import wrap_code


@dataclass
class Class:
    """Modules that share a class; ``parameters`` are those of its constructor, with a value for each module."""

    name: str
    drafts: list[Draft]
    parameters: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: Lines of the constructor after that of a number.
    added: dict[int, list[Line]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.drafts.sort(key=lambda d: len(d.absent))  # the first one has all parts
        rows = [
            [n for x in (*d.init, Line(d.head), *d.forward) if not x.is_comment for n in numbers_in(x.code)]
            for d in self.drafts
        ]
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
        """Make a part conditional on a parameter, because some modules lack it."""
        has = [part not in d.absent for d in self.drafts]
        condition = next(self._conditions(has), None)
        if condition is None:
            condition = numbered(f"has_{part}", {*self.parameters})
            self.parameters[condition] = tuple(map(str, has))
        number = [*self.drafts[0].tree].index(part)
        line = self.init[number]
        lacking = self.drafts[0].dialect.lacking(line.code.partition(" = ")[2])
        self.init[number] = Line(f"self.{part} = {lacking}")
        self.added.setdefault(number, []).extend([Line(f"if {condition}:"), Line(line.code, line.depth + 1)])

    def _conditions(self, has: Sequence[bool]) -> Iterator[str]:
        """Conditions on parameters that hold exactly for the modules that have something."""
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
        """The call that creates the module of that number."""
        values = [(name, column[number]) for name, column in self.parameters.items()]
        is_flag = any(value in ("True", "False") for _, value in values)
        by_position = len(values) <= self.drafts[0].dialect.by_position and not is_flag
        given = (f"{'' if by_position else f'{name}='}\0{name}\0{value}\0" for name, value in values)
        return f"{self.name}({', '.join(given)})"

    def lines(self, load: Sequence[str] = ()) -> list[str]:
        """The text of the class. ``load`` has the lines of a method between constructor and ``forward``."""
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
        forward = [x if x.is_comment else Line(with_numbers(x.code, kept), x.depth) for x in draft.forward]
        self._note(forward)
        base = "Weights" if draft.indexed else draft.dialect.base
        text = [f"class {self.name}({base}):" if base else f"class {self.name}:"]
        text += docstring_lines(of_class, 1)
        text += [""] if of_class else []
        if init or self.parameters:
            stored = [Line(f"self.{name} = {name}") for name in self.parameters if name in used]
            text += wrap_code(f"    def __init__({', '.join(['self', *self.parameters])}):")
            text += ["        super().__init__()"] if base else []
            text += [t for x in (*stored, *init) for t in wrapped(formatted(x))]
            text.append("")
        text += [*load, ""] if load else []
        text += [*wrap_code(f"    {head}"), *docstring_lines(of_forward, 2)]
        return text + [t for x in forward for t in wrapped(x)]

    def _note(self, forward: list[Line]) -> None:
        """Add the types after lines, if all modules have the same or they can be expressed by the
        parameters."""
        lines = [d.forward for d in self.drafts]
        own = [[x for x in found if not x.is_comment] for found in lines]
        names = self.names
        for line, alike in zip([x for x in forward if not x.is_comment], zip(*own)):
            pieces = [re.split(r"(?<![\w.])(\d+)(?!\w)", x.note) for x in alike]
            texts = [""] * 2
            if len({tuple(p[::2]) for p in pieces}) == 1:
                columns = zip(*pieces)
                texts = [c[0] if len({*c}) == 1 else names.get(c, "") for c in columns]
            line.note = "".join(texts) if all(texts[1::2]) else ""
        if len(self.drafts) > 1:
            places = [{x.code for x in found if x.is_comment} for found in lines]
            same = set.intersection(*places)
            forward[:] = [x for x in forward if not x.is_comment or x.code in same]


class Function(Class):
    """Calls that share a function; ``parameters`` are its arguments other than inputs."""

    def __post_init__(self) -> None:
        draft = self.drafts[0]
        rows = [
            [n for x in (Line(d.head), *d.forward) if not x.is_comment for n in numbers_in(x.code)] for d in self.drafts
        ]
        found: dict[str, tuple[str, ...]] = {}
        self.left = _columns(rows, {*draft.names.taken}, found)
        calls = [constants(d.call) for d in self.drafts if d.call is not None]
        known = {tuple(repr(c.get(name)) for c in calls): name for name in calls[0]}
        self.parameters = {known.get(values, name): values for name, values in found.items()}
        self.names = {values: name for name, values in self.parameters.items()}
        self.init = []

    def given(self, number: int) -> list[str]:
        """The arguments of the call of that number, other than inputs."""
        columns = self.parameters.items()
        return [f"{name}=\0{name}\0{column[number]}\0" for name, column in columns]

    def lines(self, load: Sequence[str] = ()) -> list[str]:
        columns = iter(self.left)

        def own(role: str, literal: str) -> str:
            return self.names.get(next(columns), literal)

        draft = self.drafts[0]
        with_numbers(draft.head, own)
        body = [
            replace(x, code=x.code if x.is_comment else with_numbers(x.code, own), depth=x.depth - 1)
            for x in draft.forward
        ]
        self._note(body)
        inputs = [draft.names.parameters[node] for node in draft.inputs]
        head = f"def {self.name}({', '.join([*inputs, *self.parameters])}):"
        text = [*wrap_code(head), *docstring_lines(draft.source.documentation()[1], 1)]
        return text + [t for x in body for t in wrapped(x)]


def _columns(
    rows: Sequence[Sequence[tuple[str, str]]], taken: set[str], made: dict[str, tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """Numbers at the same places of texts that are otherwise equal. If they differ, they become parameters,
    which are added to ``made``."""
    found = [tuple(zip(*column)) for column in zip(*rows)]
    columns: list[tuple[str, ...]] = [values for _, values in found]
    for number in sorted(range(len(found)), key=lambda i: ANY in columns[i]):
        role, values = found[number][0][0], columns[number]
        if ANY in values:
            known = [p for p in made.values() if all(a in (ANY, b) for a, b in zip(values, p))]
            first = next(v for v in values if v != ANY)
            filled = tuple(first if v == ANY else v for v in values)
            values = columns[number] = known[0] if known and len({*filled}) > 1 else filled
        shared = values in made.values() and role != "layers"
        if len({*values}) > 1 and not shared:
            name = numbered(role.strip("{}") or "size", taken)
            taken.add(name)
            made[name] = values
    return columns


def factored(classes: Sequence[Class], taken: set[str]) -> list[str]:
    """The lines of functions that create rows of modules which occur repeatedly in constructors; the
    constructors then call them."""
    groups: dict[str, list[tuple[Line, str]]] = {}
    for one in classes:
        for line in one.init if not one.parameters else ():
            for text in _rows_of_modules(line.code):
                groups.setdefault(with_numbers(text, hidden), []).append((line, text))
    made: list[str] = []
    for found in groups.values():
        lines = len(wrap_code(" " * 16 + with_numbers(found[0][1])))
        if len(found) * (lines - 1) <= lines + 1:
            continue
        name = numbered(f"{last_word(found[0][0].code.split()[0])}_block", taken)
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
    """The ``nn.Sequential(...)`` in a line, those nested in others separately."""
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


_FUNCTIONS = -1_000_000  # the height of functions, which come before all classes


def classes_of(root: GraphModule, name: str, dialect: Dialect) -> tuple[FileNames, list[Class], dict[str, Layer]]:
    """The names of a file, its classes in the order in which they are needed (the root's last), and the
    layers by path."""
    layers: dict[int, Layer] = {}
    found: dict[int, tuple[GraphModule, int]] = {}
    paths: dict[str, Layer] = {}

    root, calls = outline_functions(root, dialect.is_number)

    def visit(module: GraphModule, path: str) -> int:
        if id(module) not in found and module is not root and id(module) not in calls:
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
        own = 1 + max(heights, default=_FUNCTIONS if id(module) in calls else 0)
        found[id(module)] = module, own if id(module) in calls else max(own, 1)
        return found[id(module)][1]

    visit(root, "")
    ordered = [m for m, _ in sorted(found.values(), key=lambda pair: pair[1])]
    graphs = [root.graph, *(m.graph for m in ordered if m is not root)]
    file = FileNames(graphs, class_name(name), dialect.imports, dialect.helpers(graphs))
    file.calls = calls
    for key, layer in layers.items():
        file.layers[key], file.orders[key] = layer, layer.given
    _align([module for module, _ in found.values()], layers)
    made: dict[int, str] = {key: f"nn.{layer.name}({_arguments(layer)})" for key, layer in layers.items()}
    classes: list[Class] = []
    taken = {class_name(name), *file.records.values(), *file.functions.values(), *dialect.parts}
    for height in sorted({h for _, h in found.values()}):
        groups: dict[Any, list[Draft]] = {}
        for module, own in found.values():
            if own == height:
                draft = drafted(module, file, dialect, lambda m: made[id(m)], module is root)
                key = id(root) if module is root else draft.signature
                groups.setdefault(key, []).append(draft)
        _join(groups, made, file, dialect)
        for key, drafts in groups.items():
            title = class_name(name)
            if drafts[0].call is not None:
                wish = numbered(drafts[0].call.code.co_name, file.taken)
                function = Function(file.unique(wish), drafts)
                classes.append(function)
                for number, draft in enumerate(drafts):
                    file.kept[draft.key] = function.name, function.given(number)
                continue
            if key != id(root):
                title = numbered(class_name(drafts[0].module.name), taken, "")
            taken.add(title)
            one = Class(title, drafts)
            classes.append(one)
            for number, draft in enumerate(one.drafts):
                made[draft.key] = one.made(number)
    return file, classes, paths


def _align(modules: Sequence[GraphModule], layers: dict[int, Layer]) -> None:
    """Write numbers that are the default of one layer if the same layer of another module of the class has
    other numbers, so that both can share a class."""
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


def _join(groups: dict[Any, list[Draft]], made: dict[int, str], file: FileNames, dialect: Dialect) -> None:
    """Let modules that lack parts join the class of the modules that have them."""
    largest = sorted(groups.items(), key=lambda group: -len(group[1][0].tree))
    for (other, full), (key, drafts) in itertools.permutations(largest, 2):
        one, whole = drafts[0], full[0]
        parts = [part for part in whole.tree if part not in one.tree]
        if key not in groups or other not in groups or one.is_root or whole.is_root:
            continue
        if one.call is not None or whole.call is not None:
            continue
        if one.module.name != whole.module.name or not parts or {*one.tree} - {*whole.tree}:
            continue
        joined = [_with_parts(draft, whole, parts, made, file, dialect) for draft in drafts]
        if all(draft is not None and draft.signature == whole.signature for draft in joined):
            full += [draft for draft in joined if draft is not None]
            del groups[key]


def _with_parts(
    draft: Draft, whole: Draft, parts: Sequence[str], made: dict[int, str], file: FileNames, dialect: Dialect
) -> Draft | None:
    """A draft that calls the missing parts, as modules that return their input."""
    module = with_children(draft.module, whole.module, parts)
    if module is None or whole.indexed:
        return None
    used = " ".join(line.code for line in whole.forward)
    if any(f"self.{part}{end}" in used for part in parts for end in "[."):
        return None  # it is not called as a whole

    def identity(inner: GraphModule) -> str:
        return made.get(id(inner), dialect.identity)

    again = drafted(module, file, dialect, identity, False)
    again.key = draft.key
    if [*again.tree] != [*whole.tree]:
        return None
    for part in parts:
        again.lack(part, whole)
    return again


def _arguments(layer: Layer) -> str:
    """Arguments of a layer's constructor, the first ones by position."""
    texts: list[str] = []
    for name, value in layer.arguments.items():
        is_size = name in _POSITIONAL and len(texts) == sum("=" not in t for t in texts)
        text = _literal(value, name)
        texts.append(text if is_size else f"{name}={text}")
    return ", ".join(texts)


_POSITIONAL = frozenset(
    "in_features out_features in_channels out_channels kernel_size num_features num_groups num_channels "
    "normalized_shape num_embeddings embedding_dim output_size input_size hidden_size embed_dim num_heads "
    "upscale_factor p d_model nhead dim_feedforward".split()
)


def _literal(value: Any, role: str) -> str:
    if isinstance(value, (tuple, list)):
        inner = ", ".join(_literal(v, role) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return number_text(value, role)
    return python_string(value) if isinstance(value, str) else repr(value)


# -- modules that some have and others have not ----------------------------------------------------
def with_children(lacking: GraphModule, having: GraphModule, parts: Sequence[str]) -> GraphModule | None:
    """A copy of ``lacking`` that calls identities where ``having`` calls its children ``parts``, each a single
    module or a row of them; None if the two differ otherwise, except for numbers."""
    calls: list[Node] = []
    for part in parts:
        row = [
            n for n in having.graph.find_nodes(op="call_module") if n.target == part or n.target.startswith(f"{part}.")
        ]
        if not row or any(len(n.args) != 1 or isinstance(n.type, tuple) for n in row):
            return None
        if any([*a.users] != [b] for a, b in itertools.pairwise(row)):
            return None
        calls += row
    made = lacking.copy()
    mine = iter([n for n in made.graph.nodes if n.op != "get_attr"])
    same: dict[Node, Node] = {}
    given: dict[Node, Node] = {}  # the value that replaces a call in the module that lacks it
    last: Node | None = None  # the node of the copy that was visited last
    for node in having.graph.nodes:
        if node.op == "get_attr":
            continue
        if node in calls:
            source = node.args[0]
            if source not in same or last is None:
                return None
            given[node] = given.get(source, same[source])
            made.set_attribute(node.target, _identity(same[source]))
            with made.graph.inserting_after(last), made.graph.with_origin(node):
                last = same[node] = made.graph.call_module(node.target, (same[source],), {}, same[source].type)
            continue
        own = next(mine, None)
        if own is None or (own.op, _called(own)) != (node.op, _called(node)):
            return None
        same[node] = own
        arguments = _merged(node.args, own.args, same, given)
        if arguments is None or _merged(node.kwargs, own.kwargs, same, given) is None:
            return None
        if arguments != own.args:
            own.args = arguments
        last = own
    return made if next(mine, None) is None else None


def _called(node: Node) -> Any:
    return node.target if node.op.startswith("call_") else ""


def _identity(value: Node) -> GraphModule:
    graph = Graph()
    graph.output(graph.placeholder("x", value.type))
    return GraphModule({}, graph, "Identity")


def _merged(theirs: Any, own: Any, same: dict[Node, Node], given: dict[Node, Node]) -> Any:
    """The module's own arguments, with results of children where the other module reads them; None if the two
    read different values."""
    if isinstance(theirs, Node) and isinstance(own, Node):
        if theirs in given:
            return same[theirs] if own is given[theirs] else None
        if theirs.op == "get_attr":
            return own if (own.op, own.target) == (theirs.op, theirs.target) else None
        return own if same.get(theirs) is own else None
    if isinstance(theirs, Node) or isinstance(own, Node):
        return None
    if isinstance(theirs, (tuple, list)) and isinstance(own, (tuple, list)):
        parts = [_merged(a, b, same, given) for a, b in zip(theirs, own)]
        has_gap = any(p is None and b is not None for p, b in zip(parts, own))
        return None if len(theirs) != len(own) or has_gap else tuple(parts)
    if isinstance(theirs, dict) and isinstance(own, dict):
        if theirs.keys() != own.keys():
            return None
        parts = [_merged(theirs[k], own[k], same, given) for k in own]
        return None if any(p is None and v is not None for p, v in zip(parts, own.values())) else own
    return own
