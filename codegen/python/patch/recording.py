"""A run of a program as its text sees it: which call of which function made which value.

In: the making of a program and its trace, inside a :class:`Recording`. Out: for each call of one of
the user's functions its steps (statements that were run, with the values of the variables before
them) and its result; for each node of the graph the step and the expression that made it; for each
module the expression that made it. Python's trace function tells all that, so programs run as they
stand.
"""

from __future__ import annotations

import ast
import functools
import itertools
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from fxlite.base.location import is_own_file
from fxlite.base.state import active_tracer
from fxlite.graph.graph import Node
from fxlite.nn.module import Module
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
        """As the parser counts them, ends included."""
        return self.content.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")

    def segment(self, node: ast.AST) -> str:
        """The text of a part, verbatim but for line ends."""
        first, last, start, stop = span_of(node)
        lines = self.lines[first - 1 : last]
        lines[-1] = lines[-1][:stop]
        lines[0] = lines[0][start:]
        return b"\n".join(lines).decode()

    def spans_of(self, node: ast.AST) -> list[Span]:
        """The places that instructions tell of an expression."""
        return [span_of(node)] if not isinstance(node, ast.Call) else [span_of(node), _span_of_call(node)]

    def enclosing(self, node: ast.AST, kind: Any) -> Any:
        """The nearest part of that kind around one; None where there is none."""
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
    """Where a part of the text stands."""
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _span_of_call(node: Any) -> Span:
    """What instructions say of a call of a method whose name stands on a line of its own."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return span_of(node)
    called = node.func
    assert called.end_lineno is not None and called.end_col_offset is not None
    assert node.end_lineno is not None and node.end_col_offset is not None
    if called.end_lineno == called.lineno:
        return span_of(node)
    start = called.end_col_offset - len(called.attr.encode())
    return called.end_lineno, node.end_lineno, start, node.end_col_offset


@dataclass(eq=False)
class Step:
    """A statement that was run in a call; ``variables`` holds values before it by name."""

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
    """Records what files below ``folder`` do inside of it::

    with Recording(folder) as made:
        gm = symbolic_trace(make_program())"""

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
        """The text of a file of the user's; None where it is not at hand or no Python."""
        if file not in self.texts:
            try:
                path = Path(file).resolve()
                is_own = path.is_relative_to(self.folder) and "site-packages" not in path.parts
                self.texts[file] = Text(file) if is_own else None
            except (OSError, SyntaxError, ValueError):
                self.texts[file] = None
        return self.texts[file]

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
            names = code.co_varnames[: code.co_argcount]
            owner = frame.f_locals.get(names[0]) if names else None
            is_method = isinstance(owner, Module)
            self_ = (owner, names[0]) if is_method else (None, "")
            call = Call(code, frame.f_globals, *self_)
            self.calls.append(call)
            self._stack.append((frame, call))
            frame.f_trace_opcodes = code.co_name in _COMPREHENSIONS
        return self._inside

    def _inside(self, frame: FrameType, kind: str, argument: Any) -> Any:
        self._flush()
        if not self._stack or self._stack[-1][0] is not frame:
            return self._inside  # left by an exception, or a generator that goes on
        call = self._stack[-1][1]
        if kind == "line":
            text = self.texts[call.code.co_filename]
            statement = text.by_line.get(frame.f_lineno) if text is not None else None
            step = call.steps[-1] if call.steps else None
            is_again = step is not None and frame.f_lasti < step.last  # in a loop
            if statement is not None and (step is None or step.statement is not statement or is_again):
                step = Step(call, len(call.steps), statement, dict(frame.f_locals))
                call.steps.append(step)
            if step is not None:
                step.last = frame.f_lasti
        elif kind == "opcode":  # of a comprehension: its variable is set within a line
            step = call.steps[-1] if call.steps else None
            if step is not None and not step.nodes and not step.calls:
                step.variables = dict(frame.f_locals)
            if step is not None:
                step.last = frame.f_lasti
        elif kind == "return":
            call.result = argument
            self._stack.pop()
            outer = self._outer(frame.f_back)
            if outer is not None and self._stack and self._stack[-1][0] is outer:
                steps = self._stack[-1][1].steps
                span = _span(outer)
                if steps and span is not None:
                    steps[-1].calls.append((span, call))
        return self._inside

    def _flush(self) -> None:
        """Enter the nodes made since the last event into the step that made them."""
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
        outer = self._outer(frame.f_back)
        span = None if outer is None else _span(outer)
        if outer is not None and span is not None:
            self.created[id(made)] = outer.f_code.co_filename, span

    @staticmethod
    def _outer(frame: FrameType | None) -> FrameType | None:
        while frame is not None and is_own_file(frame.f_code.co_filename):
            frame = frame.f_back
        return frame


_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


def _span(frame: FrameType) -> Span | None:
    found = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    return found if None not in found else None  # type: ignore[return-value]


def value_of(value: Any) -> Any:
    """The node of a traced value, or what it is."""
    return value.node if isinstance(value, Proxy) else value
