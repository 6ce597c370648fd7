"""Which parts of a program's text must change because passes changed its graph.

In: the graph of a program before and after passes, and a recording of how its text made the graph. Out: for each file
the edits of its text. The value of each expression before is known; its value now follows from those of its operands,
if the optimized graph has such a node. If it has none, or has another node in that place, the expression is written
anew: as a variable or a part of the expression that has the wanted value, or else as the calls of new nodes.

A statement is changed for all calls of its function alike, or not at all: if its runs need different texts, the patch
is refused. It is also refused if no text was found. Whether the patched program is right is not decided here but by
running it (:mod:`fxlite.codegen.python.patch.patch`).

Changes of layers change the expressions that create them: their arguments, ``nn.Identity()`` for a layer that no
longer does anything, or nothing if nothing calls a layer; and new weights are new lines.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fxlite import nn
from fxlite.base.outside_text import assigned, assigned_name
from fxlite.codegen.python.patch.recording import (
    ADVICE,
    Edit,
    PatchError,
    Recording,
    Span,
    Step,
    Text,
    Value,
    is_layer,
    span_of,
    within,
)
from fxlite.codegen.python.patch.spelling import Spelling
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module


class Plan(Spelling):
    """The edits by file. Raises PatchError."""

    def __init__(self, program: Any, before: GraphModule, after: GraphModule, recording: Recording) -> None:
        super().__init__(program, before, after, recording)
        self.identities: set[str] = set()  # layers that are replaced by their input
        self.hoisted, self.left = {}, {}
        self._statements()
        self._constructors()

    # -- statements ------------------------------------------------------------------------------
    def _statements(self) -> None:
        """Find the edits of all statements; repeated if one of them needs a variable of another."""
        while True:
            before = dict(self.hoisted), dict(self.left)
            self.edits, self.named, self.attributes, self.new_attributes = {}, {}, {}, {}
            self._edit_statements()
            if (self.hoisted, self.left) == before:
                return

    def _edit_statements(self) -> None:
        self._mark_mixed()
        self.spans: dict[Step, list[Span]] = {}
        for step, span in self.values:
            self.spans.setdefault(step, []).append(span)
        runs: dict[tuple[Any, Span], list[_Run]] = {}
        for call in self.recording.calls:
            for step in call.steps:
                key = call.code, span_of(step.statement)
                runs.setdefault(key, []).append(self._run(step))
        for (code, span), found in runs.items():
            changed = [run for run in found if run.edits or run.is_gone]
            for one in changed[:1]:
                for other in found:
                    for inside in one.differing(other) if other.step in self.spans else ():
                        said = str(self._mixed(code.co_filename, one, other))
                        self.left.setdefault((code.co_filename, inside), said)
            if any(run.is_gone for run in changed):
                self.add(code.co_filename, Edit("delete", span))
                continue
            for edit in dict.fromkeys(edit for run in changed for edit in run.edits):
                self.add(code.co_filename, edit)
        self._delete_dead()

    def _run(self, step: Step) -> _Run:
        """The edits that one run of a statement needs."""
        statement = step.statement
        self.inserted = []
        edits = [e for x in _expressions(statement) for e in self.patched(x, step)]
        chosen: dict[Span, str | None] = {}
        for span in self.spans.get(step, ()):
            around = next((e for e in edits if within(span, e.span)), None)
            if around is None or around.span == span:
                chosen[span] = None if around is None else around.text
        new = [Edit("insert", span_of(statement), text) for text in self.inserted]
        is_gone = len(edits) == 1 and not new and _stores(statement, edits[0])
        return _Run(step, chosen, [*new, *edits], is_gone)

    def _mixed(self, file: str, one: _Run, other: _Run) -> PatchError:
        statement = one.step.statement
        text = self.text(file).segment(statement).strip().split("\n")[0]
        said = []
        for run in (one, other):
            where = self.paths.get(id(run.step.call.owner), "") or run.step.call.code.co_name
            texts = "; ".join(f"`{e.text}`" for e in run.edits)
            made = "is left out" if run.is_gone else f"has {texts}" if texts else "stays"
            said.append(f"in {where} it {made}")
        return PatchError(
            f"{file}:{statement.lineno}: `{text}` runs in several places, which the passes changed "
            f"differently: {', '.join(said)}; {ADVICE}"
        )

    def _mark_mixed(self) -> None:
        """Turn layers that are replaced by their input into an Identity, if they are in a line that also calls other
        layers, or in a Sequential."""
        places: dict[tuple[str, Span], list[tuple[bool, Value]]] = {}
        for (step, span), values in self.values.items():
            expression = self.text(step.call.code.co_filename).by_span.get(span)
            for value in values:
                is_direct = len(values) == 1 and self._is_called(expression, value, step)
                place = places.setdefault((step.call.code.co_filename, span), [])
                place.append((is_direct, value))
        for found in places.values():
            layers = [v for _, v in found if v.path is not None]
            states = {v.state for _, v in found}
            is_mixed = len(states - {"shared"}) > 1 or not all(direct for direct, _ in found)
            for value in layers:
                if value.state == "forward" and value.path is not None and is_mixed:
                    value.state = "identity"
                    self.identities.add(value.path)

    def _is_called(self, expression: ast.AST | None, value: Value, step: Step) -> bool:
        """Whether an expression calls the layer itself, and not a container of it."""
        if value.path is None:
            return True
        if not isinstance(expression, ast.Call):
            return False
        called = self._object(expression.func, step)
        return called is None or called is self.module(value.path)

    def _object(self, node: ast.AST, step: Step) -> Any:
        """The module that an expression refers to."""
        if isinstance(node, ast.Name):
            found = step.variables.get(node.id, step.call.globals.get(node.id))
            return found if isinstance(found, Module) else None
        if isinstance(node, ast.Attribute):
            owner = self._object(node.value, step)
            return None if owner is None else owner._modules.get(node.attr)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            owner = self._object(node.value, step)
            return None if owner is None else owner._modules.get(str(node.slice.value))
        return None

    # -- statements of which nothing is left -----------------------------------------------------
    def _delete_dead(self) -> None:
        """Delete statements whose values nothing reads any more."""
        dead: dict[tuple[str, Span], bool] = {}
        names: dict[tuple[str, Span], tuple[str, ast.AST]] = {}
        for call in self.recording.calls:
            function = self.text(call.code.co_filename).function(call.code)
            for step in call.steps:
                name = _name_set(step.statement)
                if name is not None and function is not None:
                    key = (call.code.co_filename, span_of(step.statement))
                    dead[key] = dead.get(key, True) and self._is_dead(step)
                    names[key] = name, function
        going = {key for key, is_dead in dead.items() if is_dead}
        while True:
            kept = {key for key in going if self._is_read(key[0], *names[key], going)}
            if not kept:
                break
            going -= kept
        for file, span in going:
            inside = [e for e in self.edits.get(file, {}) if within(e.span, span)]
            for edit in inside:
                del self.edits[file][edit]
            self.add(file, Edit("delete", span))

    def _is_dead(self, step: Step) -> bool:
        """Whether everything that a statement computed is gone from the optimized graph."""
        calls = [n for n in ast.walk(step.statement) if isinstance(n, ast.Call)]
        known = {span for span, _ in step.calls}
        if not step.nodes and not step.calls:
            return False
        if any(not self.values_of(c, step) and span_of(c) not in known for c in calls):
            return False
        return all(self.now.get(n) is None for n in _made_in(step))

    def _is_read(self, file: str, name: str, function: ast.AST, going: set[Any]) -> bool:
        """Whether text that stays reads the variable."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        gone = [s for f, s in going if f == file]
        gone += [
            e.span
            for e in self.edits.get(file, {})
            if e.kind == "delete" or (e.kind == "replace" and not word.search(e.text or ""))
        ]
        return bool(name) and any(
            isinstance(node, ast.Name)
            and node.id == name
            and isinstance(node.ctx, ast.Load)
            and not any(within(span_of(node), span) for span in gone)
            for node in ast.walk(function)
        )

    # -- constructors ----------------------------------------------------------------------------
    def _constructors(self) -> None:
        self._leave_out_weights()
        for (file, span), new in self.new_attributes.items():
            for line in new.values():
                self.add(file, Edit("attribute", span, line))
        wishes: dict[tuple[str, Span], dict[str, list[str]]] = {}
        called = self._called_paths()
        for path in self._all_layers():
            wish = "same"
            if path in self.identities:
                wish = "identity"
            elif path in self.layers:
                wish = "layer"
            elif path not in called:
                wish = "unused"
            place = self.recording.created.get(id(self.module(path)))
            if place is None:
                if wish in ("identity", "layer"):
                    raise PatchError(
                        f"what made the layer {path} is not known: it was copied, or made by another library; {ADVICE}"
                    )
                continue
            wishes.setdefault(place, {}).setdefault(wish, []).append(path)
        for (file, span), found in wishes.items():
            if set(found) == {"same"}:
                continue
            text = self.recording.text(file)
            one = next(iter(found.values()))[0]
            if text is None:
                raise PatchError(f"{file}:{span[0]}: {one} is made in a file that {self.recording.not_below}; {ADVICE}")
            call = text.by_span.get(span)
            if not isinstance(call, ast.Call):
                raise PatchError(f"{file}:{span[0]}: what makes {one} is not a call; {ADVICE}")
            if set(found) == {"unused"}:
                self._leave_out(file, text, call, found["unused"])
            elif len(found) > 1:
                if set(found) <= {"same", "unused"}:
                    continue  # a layer that is not called does no harm
                said = "; ".join(f"{', '.join(paths[:3])}: {_SAID[w]}" for w, paths in found.items())
                raise PatchError(
                    f"{file}:{span[0]}: `{text.segment(call)}` makes layers "
                    f"that passes changed differently ({said}); {ADVICE}"
                )
            elif "identity" in found:
                self.add(file, Edit("replace", span, f"{_module_of(call)}Identity()"))
            else:
                self._change_arguments(file, text, call, found["layer"])

    def _all_layers(self) -> Iterator[str]:
        for path, module in self.root.named_modules() if self.root is not None else ():
            if path and is_layer(module) and self.layer_around(path) == path:
                yield path

    def _called_paths(self) -> set[str]:
        """Layers that the patched program still calls or whose weights it reads, and those that the program never
        called."""
        every: set[str] = set()
        called: set[str] = set()
        for (step, span), found in self.values.items():
            is_left = (step.call.code.co_filename, span) in self.left
            for value in found:
                if value.path is None:
                    continue
                every.add(value.path)
                is_there = value.state in ("same", "layer", "shared", "identity") and not self._is_gone(value)
                if is_left or is_there:
                    called.add(value.path)
        called |= {path for path in self._all_layers() if path not in every}
        read = {str(n.target) for n in self.after.graph.find_nodes(op="get_attr")}
        called |= {path for path in every if any(target.startswith(f"{path}.") and self.has(target) for target in read)}
        return called

    def _is_gone(self, value: Value) -> bool:
        return all(self.now.get(n) is None for n in value.nodes)

    def _leave_out(self, file: str, text: Text, call: ast.Call, paths: list[str]) -> None:
        """Delete the creation of layers that are not called any more, if nothing else refers to them."""
        statement = text.parents.get(call)
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return
        target = statement.targets[0]
        if not isinstance(target, ast.Attribute) or statement.value is not call:
            return
        if not self._is_mentioned(target.attr, text, statement):
            self.add(file, Edit("delete", span_of(statement)))

    def _is_mentioned(self, name: str, around: Text, statement: ast.stmt) -> bool:
        """Whether text that stays, outside a statement, has an attribute of that name."""
        for other in [t for t in self.recording.texts.values() if t is not None]:
            for node in ast.walk(other.tree):
                if not isinstance(node, ast.Attribute) or node.attr != name:
                    continue
                own = span_of(node)
                if other is around and within(own, span_of(statement)):
                    continue
                if not any(
                    e.kind in ("replace", "delete")
                    and within(own, e.span)
                    and not re.search(rf"\.{re.escape(name)}\b", e.text or "")
                    for e in self.edits.get(other.path, {})
                ):
                    return True
        return False

    def _leave_out_weights(self) -> None:
        """Delete the creation of weights that nothing reads any more, if nothing else refers to them."""
        if self.root is None:
            return
        was = {str(n.target) for n in self.before.graph.find_nodes(op="get_attr")}
        left = {str(n.target) for n in self.after.graph.find_nodes(op="get_attr")}
        wishes: dict[tuple[type, str], list[bool]] = {}
        for path, module in self.root.named_modules():
            if not type(module).__module__.startswith("fxlite."):
                for name in (*module._parameters, *module._buffers):
                    target = f"{path}.{name}" if path else name
                    gone = target in was - left
                    wishes.setdefault((type(module), name), []).append(gone)
        for (kind, name), found in wishes.items():
            if all(found):
                self._leave_out_weight(kind, name)

    def _leave_out_weight(self, kind: type, name: str) -> None:
        for owner in kind.__mro__:
            text = self.recording.text(_file_of(owner))
            for node in ast.walk(text.tree) if text is not None else ():
                if text is None or not isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr)):
                    continue
                around = text.enclosing(node, ast.ClassDef)
                if around is None or around.name != owner.__name__:
                    continue
                if _weight_made(node) == name and not self._is_mentioned(name, text, node):
                    self.add(text.path, Edit("delete", span_of(node)))
                    return

    def _change_arguments(self, file: str, text: Text, call: ast.Call, paths: list[str]) -> None:
        changes: dict[str, dict[str, Any]] = {}
        for path in paths:
            new, old = self.layers[path].arguments, self.layer(self.before, path)
            was = old.arguments if old is not None else {}
            changes[path] = {
                k: new.get(k, _DEFAULT) for k in {**new, **was} if new.get(k, _DEFAULT) != was.get(k, _DEFAULT)
            }
        first = changes[paths[0]]
        for path in paths[1:]:
            if changes[path] != first:
                raise PatchError(
                    f"{file}:{call.lineno}: `{text.segment(call)}` would need "
                    f"{_shown(first)} for {paths[0]} and {_shown(changes[path])} for "
                    f"{path}; {ADVICE}"
                )
        if any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args):
            raise PatchError(
                f"{file}:{call.lineno}: `{text.segment(call)}` takes * or "
                f"** arguments, and needs {_shown(first)}; {ADVICE}"
            )
        order = list(inspect.signature(getattr(nn, self.layers[paths[0]].name)).parameters)
        for name, value in first.items():
            said = None if value is _DEFAULT else repr(value)
            position = order.index(name)
            self.add(file, Edit("argument", span_of(call), said, name, position))


class _Default:
    def __repr__(self) -> str:
        return "its default"


_DEFAULT = _Default()
_SAID = {
    "same": "as before",
    "identity": "does nothing any more",
    "unused": "is not called any more",
    "layer": "has other arguments",
}


def _file_of(kind: type) -> str:
    """The file in which a class is defined."""
    made = vars(kind).get("forward") or vars(kind).get("__init__")
    code = getattr(inspect.unwrap(made), "__code__", None) if made is not None else None
    return code.co_filename if code is not None else ""


def _weight_made(statement: ast.stmt) -> str | None:
    """The name that ``self.NAME = ...`` or ``self.register_buffer("NAME", ...)`` creates."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        name = call.args[0] if call.args else None
        is_register = isinstance(call.func, ast.Attribute) and call.func.attr.startswith("register_")
        return str(name.value) if is_register and isinstance(name, ast.Constant) else None
    target = assigned(statement)
    return target.attr if isinstance(target, ast.Attribute) else None


def _module_of(call: ast.Call) -> str:
    """``nn.`` of ``nn.Linear(...)``"""
    return f"{ast.unparse(call.func.value)}." if isinstance(call.func, ast.Attribute) else "nn."


def _shown(changes: dict[str, Any]) -> str:
    return ", ".join(f"{k}={v!r}" for k, v in changes.items()) or "nothing else"


# -- statements ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Run:
    """The edits that one run of a statement needs: by the place of each expression that had a value and is still
    there, its new text, or None to keep the old one."""

    step: Step
    chosen: dict[Span, str | None]
    edits: list[Edit]
    is_gone: bool

    def differing(self, other: _Run) -> list[Span]:
        """Expressions for which no single text is right for both runs."""
        both = self.chosen.keys() & other.chosen.keys()
        return [span for span in both if self.chosen[span] != other.chosen[span]]


def _stores(statement: ast.stmt, edit: Edit) -> bool:
    """Whether a statement would become ``x = x`` with an edit."""
    target = statement.target if isinstance(statement, ast.AugAssign) else assigned(statement)
    if not isinstance(target, ast.Name) or edit.text != target.id:
        return False
    whole = statement if isinstance(statement, ast.AugAssign) else getattr(statement, "value", None)
    return whole is not None and edit.span == span_of(whole)


def _name_set(statement: ast.stmt) -> str | None:
    """The variable that a statement sets, empty for an expression; None for other statements."""
    return "" if isinstance(statement, ast.Expr) else assigned_name(statement)


def _made_in(step: Step) -> Iterator[Node]:
    yield from step.nodes
    for _, call in step.calls:
        for inner in call.steps:
            yield from _made_in(inner)


def _expressions(statement: ast.stmt) -> list[ast.AST]:
    """The expressions of a statement itself, without those of nested statements."""
    if isinstance(statement, ast.AugAssign):
        return [statement]
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        return []
    found: list[ast.AST] = []
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr) and not isinstance(getattr(child, "ctx", None), ast.Store):
            found.append(child)
        elif isinstance(child, ast.withitem):
            found.append(child.context_expr)
    if isinstance(statement, ast.AnnAssign):
        return [statement.value] if statement.value is not None else []
    return found
