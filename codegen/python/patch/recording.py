"""A run of a program in terms of its text: which call of which function made which value; and what each expression of
the text must give after passes.

In: the creation of a program and its trace, inside a :class:`Recording`. Out: for each call of one of the user's
functions its steps (statements that ran, with the values of the variables before them) and its result; for each node
of the graph the step and the expression that made it; for each module the expression that made it. Python's trace
function reports all of this, so programs run unchanged.

In: the graph of a program before and after passes, and a recording. Out: for each expression that ran a
:class:`Value`: its nodes, and what became of them. The value of an expression now follows from those of its operands,
if the optimized graph has such a node; if it has none, it is what the remaining readers read instead.
"""

from __future__ import annotations

import ast
import functools
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

from fxlite import nn
from fxlite.base.errors import CodegenError
from fxlite.base.location import is_own_file, program_frame
from fxlite.base.state import active_tracer
from fxlite.codegen.python.layers import Layer, layer_of
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module
from fxlite.passes.cutting.outline_modules import outline_modules
from fxlite.show.comparison.compare import operands
from fxlite.show.comparison.pairing import call_key
from fxlite.tracing.proxy import Proxy

#: First line, last line, first column, last column; columns count UTF-8 bytes.
Span = tuple[int, int, int, int]


class Text:
    """A file as it was when it was read: its bytes, and its syntax by place."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.content = Path(path).read_bytes()
        self.tree = ast.parse(self.content, path)
        self.parents: dict[ast.AST, ast.AST] = {}
        self.by_span: dict[Span, ast.AST] = {}
        self.by_line: dict[int, ast.stmt] = {}
        for node in ast.walk(self.tree):  # outer ones first
            self.parents |= dict.fromkeys(ast.iter_child_nodes(node), node)
            if isinstance(node, ast.stmt):
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    self.by_line[line] = node
            if isinstance(node, (ast.expr, ast.AugAssign)):
                self.by_span[span_of(node)] = node
                self.by_span.setdefault(_span_of_call(node), node)

    @functools.cached_property
    def lines(self) -> list[bytes]:
        """Lines as the parser counts them, line ends included."""
        return self.content.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")

    def segment(self, node: ast.AST) -> str:
        """The text of a part, unchanged except for line ends."""
        first, last, start, stop = span_of(node)
        lines = self.lines[first - 1 : last]
        lines[-1] = lines[-1][:stop]
        lines[0] = lines[0][start:]
        return b"\n".join(lines).decode()

    def spans_of(self, node: ast.AST) -> list[Span]:
        """The places that instructions give for an expression."""
        return [span_of(node)] if not isinstance(node, ast.Call) else [span_of(node), _span_of_call(node)]

    def enclosing(self, node: ast.AST, kind: Any) -> Any:
        """The nearest part of that kind around a part; None if there is none."""
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, kind):
                return node
        return None

    def function(self, code: CodeType) -> ast.FunctionDef | None:
        """The definition that a code object was made from."""
        return self.functions.get((code.co_name, code.co_firstlineno))

    @functools.cached_property
    def functions(self) -> dict[tuple[str, int], ast.FunctionDef]:
        """By name and first line, which is that of the first decorator."""
        made = (n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef))
        return {(n.name, min([n.lineno, *(d.lineno for d in n.decorator_list)])): n for n in made}


def span_of(node: Any) -> Span:
    """The place of a part of the text."""
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _span_of_call(node: Any) -> Span:
    """The place that instructions give for a call of a method whose name is on a line of its own."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return span_of(node)
    whole, called = cast(Any, node), cast(Any, node.func)
    if called.end_lineno == called.lineno:
        return span_of(node)
    start = called.end_col_offset - len(called.attr.encode())
    return called.end_lineno, whole.end_lineno, start, whole.end_col_offset


@dataclass(eq=False)
class Step:
    """A statement that ran in a call; ``variables`` holds the values before it by name."""

    call: Call
    number: int
    statement: ast.stmt
    variables: dict[str, Any]
    nodes: list[Node] = field(default_factory=list)
    last: int = -1  # the instruction seen last
    #: What calls of the user's functions gave, by the place of the call.
    calls: list[tuple[Span, Call]] = field(default_factory=list)


@dataclass(eq=False)
class Call:
    """A call of one of the user's functions; ``owner`` is the module whose method it is."""

    code: CodeType
    globals: dict[str, Any]
    owner: Any
    owner_name: str
    steps: list[Step] = field(default_factory=list)
    result: Any = None


@dataclass(eq=False)
class Recording:
    """Records what code in files below ``folder`` does while it is active, as in
    ``with Recording(folder) as made: gm = symbolic_trace(make_program())``."""

    folder: Path
    calls: list[Call] = field(default_factory=list)
    #: By the identity of a module: its file and the expression that made it.
    created: dict[int, tuple[str, Span]] = field(default_factory=dict)
    texts: dict[str, Text | None] = field(default_factory=dict)
    step_of: dict[Node, Step] = field(default_factory=dict)
    _stack: list[tuple[FrameType, Call]] = field(default_factory=list)
    _last: Node | None = None
    _kept: list[Any] = field(default_factory=list)

    def __enter__(self) -> Recording:
        self._before = sys.gettrace()
        sys.settrace(self._event)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.settrace(self._before)
        self._stack.clear()

    def text(self, file: str) -> Text | None:
        """The text of one of the user's files; None if it is not available or not Python."""
        if file not in self.texts:
            try:
                path = Path(file).resolve()
                is_own = path.is_relative_to(self.folder) and "site-packages" not in path.parts
                self.texts[file] = Text(file) if is_own else None
            except (OSError, SyntaxError, ValueError):
                self.texts[file] = None
        return self.texts[file]

    @property
    def not_below(self) -> str:
        """The statement in messages about a file without :meth:`text`."""
        return f"is not below {self.folder}, and only files there are edited"

    # -- events --------------------------------------------------------------------------------
    def _event(self, frame: FrameType, kind: str, argument: Any) -> Any:
        code = frame.f_code
        if code.co_name == "__init__":
            self._created(frame)
        if is_own_file(code.co_filename) or active_tracer.get() is None:
            return None
        text = self.text(code.co_filename)
        if text is None:
            return None
        self._flush()
        if all(frame is not known for known, _ in self._stack):
            call = Call(code, frame.f_globals, *self._owner(frame))
            self.calls.append(call)
            self._stack.append((frame, call))
            frame.f_trace_opcodes = code.co_name in _COMPREHENSIONS
        return self._inside

    def _owner(self, frame: FrameType) -> tuple[Any, str]:
        """The module whose method runs, and its name there; for a comprehension, a generator expression or a nested
        function that reads the name, the module of the surrounding method."""
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount]
        owner = frame.f_locals.get(names[0]) if names else None
        if isinstance(owner, Module):
            return owner, names[0]
        for _, call in reversed(self._stack):
            name = call.owner_name
            if name in code.co_freevars and frame.f_locals.get(name) is call.owner:
                return call.owner, name
        return None, ""

    def _inside(self, frame: FrameType, kind: str, argument: Any) -> Any:
        self._flush()
        if not self._stack or self._stack[-1][0] is not frame:
            return self._inside  # left by an exception, or a generator that continues
        call = self._stack[-1][1]
        step = call.steps[-1] if call.steps else None
        if kind == "line":
            text = self.texts[call.code.co_filename]
            statement = text.by_line.get(frame.f_lineno) if text is not None else None
            is_again = step is not None and frame.f_lasti < step.last  # in a loop
            if statement is not None and (step is None or step.statement is not statement or is_again):
                step = Step(call, len(call.steps), statement, dict(frame.f_locals))
                call.steps.append(step)
        elif kind == "opcode":  # a comprehension sets its variable within a line
            if step is not None and not step.nodes and not step.calls:
                step.variables = dict(frame.f_locals)
        elif kind == "return":
            call.result = argument
            self._stack.pop()
            outer = program_frame(frame.f_back)
            if outer is not None and self._stack and self._stack[-1][0] is outer:
                steps = self._stack[-1][1].steps
                span = _span(outer)
                if steps and span is not None:
                    steps[-1].calls.append((span, call))
            return self._inside
        if step is not None and kind != "exception":
            step.last = frame.f_lasti
        return self._inside

    def _flush(self) -> None:
        """Assign the nodes made since the last event to the step that made them."""
        tracer = active_tracer.get()
        if tracer is None:
            return
        nodes = reversed(tracer.graph.nodes)
        new = list(itertools.takewhile(lambda node: node is not self._last, nodes))
        if not new:
            return
        self._last = new[0]
        if self._stack and self._stack[-1][1].steps:
            step = self._stack[-1][1].steps[-1]
            made = [n for n in reversed(new) if n.op.startswith("call_")]
            step.nodes += made
            self.step_of |= dict.fromkeys(made, step)

    def _created(self, frame: FrameType) -> None:
        names = frame.f_code.co_varnames
        made = frame.f_locals.get(names[0]) if names else None
        if not isinstance(made, Module) or id(made) in self.created:
            return
        self._kept.append(made)
        outer = program_frame(frame.f_back)
        span = None if outer is None else _span(outer)
        if outer is not None and span is not None:
            self.created[id(made)] = outer.f_code.co_filename, span


_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


def _span(frame: FrameType) -> Span | None:
    found = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    return found if None not in found else None  # type: ignore[return-value]


def value_of(value: Any) -> Any:
    """The node of a traced value; other values as they are."""
    return value.node if isinstance(value, Proxy) else value


# -- values of expressions -------------------------------------------------------------------------
class PatchError(CodegenError):
    """The changes that passes made cannot be expressed as a patch on the program's text."""


ADVICE = "`fxlite regenerate` writes the optimized program as a new file instead"
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


@dataclass(frozen=True)
class Edit:
    """A change of a file. ``kind``: ``replace`` the expression at ``span`` by ``text``; ``delete`` the statement there;
    ``insert`` the statement ``text`` before it; ``argument``: pass ``text`` as ``name`` in the call there, or do not
    pass it if that is None; ``attribute``: add a line ``text`` at the end of the constructor of the class there;
    ``import``: add a line."""

    kind: str
    span: Span
    text: str | None = None
    name: str = ""
    position: int | None = None


@dataclass
class Value:
    """An expression in one run of its statement: the nodes that it made, and the ``path`` of the layer that it calls.
    ``state``: same, layer (the same with another layer), forward (replaced by one of its operands), dead (nothing reads
    it), other."""

    nodes: list[Node]
    path: str | None
    state: str = "same"

    @property
    def top(self) -> Node:
        """The node that the expression gives, or the last of its parts."""
        return self.nodes[-1]

    @property
    def parts(self) -> list[Node]:
        """The nodes that an expression with several results gives."""
        top = self.top
        if top.op != "call_function" or top.target.name != "getitem":
            return []
        return [n for n in self.nodes if n.target is top.target and n.args[0] is top.args[0]]


class Values:
    """The values of expressions by run and place."""

    def __init__(self, program: Any, before: GraphModule, after: GraphModule, recording: Recording) -> None:
        self.program, self.before, self.after, self.recording = program, before, after, recording
        self.root = program if isinstance(program, Module) else None
        self.paths: dict[int, str] = {}  # by the id of a module
        if self.root is not None:
            self.paths = {id(m): path for path, m in self.root.named_modules()}
        self.layers: dict[str, Layer] = {}  # by path: those that get other arguments
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
            mine, theirs = operands(node), operands(other)
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
        """The path of the fxlite layer that made a node."""
        return None if node.scope is None else self.layer_around(node.scope.path)

    def layer_around(self, path: str) -> str | None:
        """The path of the outermost fxlite layer that is, or contains, the module at a path."""
        module, parts = self.root, path.split(".")
        for end, part in enumerate(parts, 1):
            module = None if module is None else module._modules.get(part)
            if module is not None and is_layer(module):
                return ".".join(parts[:end])
        return None

    def _follow(self) -> None:
        """Find what the text of each node gives now, if it is left as it is or written anew."""
        self.needed: set[Node] = set()  # by nodes that remain, or that were replaced
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
            elif target is None:  # its readers are gone, and what replaces it equals its operand
                alike = [n for n in operands(node) if n.op != "get_attr" and n.type == node.type]
                target = self.now.get(alike[0]) if alike else None
                state = "dead" if target is None else "forward"
            elif any(self.now.get(n) is target for n in operands(node)):
                state = "forward"
            self.now[node] = target
            others = [self.now.get(n) for n in value.nodes if n is not node] if value else []
            if value is not None and (state != "dead" or not any(others)):
                value.state = state

    def _give(self, node: Node, found: Node, state: str) -> None:
        """Record that the old text gives a node of the optimized graph."""
        self.now[node] = found
        self.given.setdefault(found, []).append(node)
        value = self.value_of_node.get(node)
        if value is not None and value.state == "same":
            value.state = state

    def _is_layer(self, node: Node, kept: Node, value: Value) -> bool:
        """Whether the layer gives a node if it is created with other arguments."""
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
        """The values of an expression in a run of its statement."""
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
        """The error for an expression for which no text was found."""
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
        """The layer that computes what the module at a path computes."""
        if id(module) not in self._outlined:
            self._outlined[id(module)] = outline_modules(module)
        try:
            found = self._outlined[id(module)].get_submodule(path)
        except AttributeError:
            return None
        return layer_of(found) if isinstance(found, GraphModule) else None


def is_layer(module: Module) -> bool:
    """Whether a module is a layer of fxlite that contains no modules of programs."""
    return type(module).__module__.startswith("fxlite.") and not isinstance(module, CONTAINERS)


def within(inner: Span, outer: Span) -> bool:
    """Whether a place lies inside another."""
    begins = (outer[0], outer[2]) <= (inner[0], inner[2])
    return begins and (inner[1], inner[3]) <= (outer[1], outer[3])


def _form(node: Node, now: Callable[[Node], Node]) -> Any:
    """A key that is equal for calls of one op with the same operands."""
    if node.op == "call_function" and node.is_impure():
        return id(node)
    read = [("weight", n.target) if n.op == "get_attr" else ("node", id(n)) for n in map(now, operands(node))]
    return id(node.target), call_key(node), *read
