"""What each expression of a program's text gave, and what it gives after passes.

In: the graph of a program before and after passes, and a recording of how its text made the graph.
Out: for each expression that was run a :class:`Value`: its nodes, and what became of them. What an
expression gives now follows from what its operands give, as far as the optimized graph has such a
node; where it has none, it is what readers that are still there read in its place.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from fxlite import nn
from fxlite.base.errors import CodegenError
from fxlite.codegen.python.layers import Layer, layer_of
from fxlite.codegen.python.patch.recording import Recording, Span, Step, Text, span_of
from fxlite.graph.graph import Node, nodes_in
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module
from fxlite.passes.cutting.outline_modules import outline_modules


class PatchError(CodegenError):
    """What passes did cannot be said as a patch on the program's text."""


ADVICE = "`fxlite regenerate` writes the optimized program as a new file instead"
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


@dataclass(frozen=True)
class Edit:
    """A change of a file. ``kind``: ``replace`` the expression at ``span`` by ``text``; ``delete``
    the statement there; ``insert`` the statement ``text`` before it; ``argument``: of the call
    there, ``name`` is given as ``text``, or not given where that is None; ``attribute``: the
    class there gets a line ``text`` at the end of its constructor; ``import`` a line."""

    kind: str
    span: Span
    text: str | None = None
    name: str = ""
    position: int | None = None


@dataclass
class Value:
    """An expression in one run of its statement: nodes that it made, ``path`` of the layer that is
    called there; ``state``: same, layer (the same with another layer), forward (one of its operands
    is read in place of it), dead (nothing reads it), other."""

    nodes: list[Node]
    path: str | None
    state: str = "same"

    @property
    def top(self) -> Node:
        """What the expression gives, or the last of its parts."""
        return self.nodes[-1]

    @property
    def parts(self) -> list[Node]:
        """What an expression of several results gives."""
        top = self.top
        if top.op != "call_function" or top.target.name != "getitem":
            return []
        return [n for n in self.nodes if n.target is top.target and n.args[0] is top.args[0]]


class Values:
    """The values of expressions by run and place."""

    def __init__(self, program: Any, before: GraphModule, after: GraphModule, recording: Recording) -> None:
        self.program, self.before, self.after, self.recording = program, before, after, recording
        self.root = program if isinstance(program, Module) else None
        self.paths: dict[int, str] = {}  # by the identity of a module
        if self.root is not None:
            self.paths = {id(m): path for path, m in self.root.named_modules()}
        self.layers: dict[str, Layer] = {}  # by path: those that are made with other arguments
        self._outlined: dict[int, GraphModule] = {}
        self.now: dict[Node, Node | None] = {}  # what the text that made a node gives now
        self._match()
        self._group()
        self._follow()

    # -- nodes before and after ------------------------------------------------------------------
    def _match(self) -> None:
        by_name = {n.name: n for n in self.after.graph.nodes}
        #: The node that a node still is, maybe with other operands.
        self.kept: dict[Node, Node] = {}
        for node in self.before.graph.nodes:
            other = by_name.get(node.name)
            if node.op == "output":
                other = self.after.graph.output_node()
            if other is not None and (other.op, other.target) == (node.op, node.target):
                self.kept[node] = other
        #: What readers that are still there read in place of a node.
        self.instead: dict[Node, Node] = {}
        for node, other in self.kept.items():
            mine, theirs = _operands(node), _operands(other)
            if len(mine) == len(theirs):
                for one, two in zip(mine, theirs):
                    self.instead.setdefault(one, two)
        #: New nodes by the place of the program that they are of.
        self.made: dict[Any, Node] = {}
        names = {node.name for node in self.before.graph.nodes}
        for node in self.after.graph.nodes:
            if node.name not in names and node.op == "call_function":
                self.made[node.scope, node.loc] = node
        self.by_form: dict[Any, Node] = {}
        for node in self.after.graph.nodes:
            if node.op == "call_function":
                self.by_form.setdefault(_form(node, lambda n: n), node)

    def _group(self) -> None:
        """The values of expressions, by run and place."""
        self.values: dict[tuple[Step, Span], list[Value]] = {}
        for node in self.before.graph.nodes:
            step = self.recording.step_of.get(node)
            span = node.loc.span if node.loc is not None else None
            if node.op != "call_function" or step is None or span is None:
                continue
            path = self._layer_path(node)
            found = self.values.setdefault((step, span), [])
            if found and found[-1].path == path:
                found[-1].nodes.append(node)
            else:
                found.append(Value([node], path))

    def _layer_path(self, node: Node) -> str | None:
        """The path of the layer of fxlite that made a node."""
        if self.root is None or node.scope is None or not node.scope.path:
            return None
        parts = node.scope.path.split(".")
        module: Module = self.root
        for end, part in enumerate(parts, 1):
            found = module._modules.get(part)
            if found is None:
                return None
            module = found
            is_own = type(module).__module__.startswith("fxlite.")
            if is_own and not isinstance(module, CONTAINERS):
                return ".".join(parts[:end])
        return None

    def _follow(self) -> None:
        """What the text of each node gives now, were it left as it is or spelled anew."""
        self.needed: set[Node] = set()  # by what is still there, or something was put in place of
        for node in reversed(self.before.graph.nodes):
            if any(u in self.kept or u in self.instead or u in self.needed for u in node.users):
                self.needed.add(node)
        inputs = {n.target: n for n in self.after.graph.placeholders}
        values = (value for found in self.values.values() for value in found)
        self.value_of_node = {node: value for value in values for node in value.nodes}
        #: Nodes of the optimized graph that the old text gives, by the nodes that it gave.
        self.given: dict[Node, list[Node]] = {}
        for node in self.before.graph.nodes:
            if node.op == "placeholder":
                self.now[node] = inputs.get(node.target)
            elif node.op == "get_attr":
                self.now[node] = self.kept.get(node)
            elif node.op != "output":
                self._follow_call(node)

    def _follow_call(self, node: Node) -> None:
        value = self.value_of_node.get(node)
        kept = self.kept.get(node)
        form = _form(node, lambda n: self.now.get(n) or n)
        found = kept
        if found is None or _form(found, lambda n: n) != form:
            found = self.by_form.get(form)
        if found is not None:
            self._give(node, found, "same" if found is kept else "shared")
        elif kept is not None and value is not None and self._is_layer(node, kept, value):
            self._give(node, kept, "layer")
        else:
            target = self.instead.get(node, kept) or self.made.get((node.scope, node.loc))
            if target is not None and target.type != node.type:
                target = None
            state = "other"
            if node not in self.needed:
                target, state = None, "dead"
            elif target is None:  # read by what is gone: what takes its place is like its operand
                operands = [n for n in _operands(node) if n.op != "get_attr" and n.type == node.type]
                target = self.now.get(operands[0]) if operands else None
                state = "dead" if target is None else "forward"
            elif any(self.now.get(n) is target for n in _operands(node)):
                state = "forward"
            self.now[node] = target
            others = [self.now.get(n) for n in value.nodes if n is not node] if value else []
            if value is not None and (state != "dead" or not any(others)):
                value.state = state

    def _give(self, node: Node, found: Node, state: str) -> None:
        """The old text gives a node of the optimized graph."""
        self.now[node] = found
        self.given.setdefault(found, []).append(node)
        value = self.value_of_node.get(node)
        if value is not None and value.state == "same":
            value.state = state

    def _is_layer(self, node: Node, kept: Node, value: Value) -> bool:
        """Whether a node is what the layer gives if it is made with other arguments."""
        if value.path is None or len(value.nodes) > 1:
            return False
        if not kept.args or kept.args[0] is not self.now.get(node.args[0]):
            return False
        layer = self.layer(self.after, value.path)
        if layer is None or layer.name != type(self.module(value.path)).__name__:
            return False
        self.layers[value.path] = layer
        return True

    def values_of(self, expression: ast.AST, step: Step) -> list[Value]:
        """What an expression gave in a run of its statement."""
        text = self.text(step.call.code.co_filename)
        places = text.spans_of(expression) if hasattr(expression, "lineno") else []
        found = (self.values.get((step, span)) for span in places)
        return next((values for values in found if values), [])

    def text(self, file: str) -> Text:
        """The text of a file of the program."""
        found = self.recording.text(file)
        assert found is not None
        return found

    def cannot(self, step: Step, expression: ast.AST, why: str) -> PatchError:
        """The error for an expression that no text was found for."""
        file = step.call.code.co_filename
        text = self.text(file).segment(expression).split("\n")[0]
        return PatchError(f"{file}:{span_of(expression)[0]}: `{text}` {why}; {ADVICE}")

    def has(self, path: str) -> bool:
        """Whether the program has a weight of that path."""
        try:
            return self.root is not None and self.root.get_attribute(path) is not None
        except AttributeError:
            return False

    def module(self, path: str) -> Module:
        assert self.root is not None
        return self.root.get_submodule(path)

    def layer(self, module: GraphModule, path: str) -> Layer | None:
        """The layer that computes what the module at a path does."""
        if id(module) not in self._outlined:
            self._outlined[id(module)] = outline_modules(module)
        try:
            found = self._outlined[id(module)].get_submodule(path)
        except AttributeError:
            return None
        return layer_of(found) if isinstance(found, GraphModule) else None


def within(inner: Span, outer: Span) -> bool:
    """Whether a place lies inside of another."""
    begins = (outer[0], outer[2]) <= (inner[0], inner[2])
    return begins and (inner[1], inner[3]) <= (outer[1], outer[3])


def _operands(node: Node) -> list[Node]:
    return [*nodes_in(node.args), *nodes_in(tuple(node.kwargs.values()))]


def _form(node: Node, now: Any) -> Any:
    """Equal for calls of one op with the same operands."""

    def shown(value: Any) -> Any:
        if isinstance(value, Node):
            found = now(value)
            return ("weight", found.target) if found.op == "get_attr" else ("node", id(found))
        if isinstance(value, (tuple, list)):
            return tuple(map(shown, value))
        if isinstance(value, dict):
            return tuple((k, shown(v)) for k, v in value.items())
        return type(value).__name__, repr(value)

    if node.op == "call_function" and node.is_impure():
        return id(node)
    return node.op, id(node.target), shown(node.args), shown(dict(node.kwargs))
