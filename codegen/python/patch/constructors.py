"""Which constructors change where layers or weights do.

In: what became of the layers of a program. Out: edits of the expressions that made them: arguments,
``nn.Identity()`` in place of what does nothing any more, nothing where nothing calls a layer; and
lines for new weights.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any

from fxlite import nn
from fxlite.codegen.python.patch.recording import Span, Text, span_of
from fxlite.codegen.python.patch.spelling import Spelling
from fxlite.codegen.python.patch.values import ADVICE, CONTAINERS, Edit, PatchError, Value, within


class Constructors(Spelling):
    """Edits of constructors."""

    identities: set[str]

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
            call = text.by_span.get(span) if text is not None else None
            if text is None or not isinstance(call, ast.Call):
                raise PatchError(
                    f"{file}:{span[0]}: what makes {next(iter(found.values()))[0]} is not a call; {ADVICE}"
                )
            if set(found) == {"unused"}:
                self._leave_out(file, text, call, found["unused"])
            elif len(found) > 1:
                if set(found) <= {"same", "unused"}:
                    continue  # one that is not called does no harm
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
            is_own = type(module).__module__.startswith("fxlite.")
            inside = self._layer_around(path)
            if path and is_own and not isinstance(module, CONTAINERS) and inside == path:
                yield path

    def _layer_around(self, path: str) -> str:
        parts = path.split(".")
        for end in range(1, len(parts)):
            module = self.module(".".join(parts[:end]))
            if type(module).__module__.startswith("fxlite.") and not isinstance(module, CONTAINERS):
                return ".".join(parts[:end])
        return path

    def _called_paths(self) -> set[str]:
        """Layers that the patched program still calls, or whose weights it reads, and those that
        the program never called."""
        every = {v.path for found in self.values.values() for v in found if v.path is not None}
        called = {path for path in self._all_layers() if path not in every}
        called |= {
            v.path
            for found in self.values.values()
            for v in found
            if v.path is not None and v.state in ("same", "layer", "shared", "identity") and not self._is_gone(v)
        }
        called |= {
            v.path
            for (step, span), found in self.values.items()
            for v in found
            if v.path is not None and (step.call.code.co_filename, span) in self.left
        }
        read = {str(n.target) for n in self.after.graph.find_nodes(op="get_attr")}
        called |= {path for path in every if any(target.startswith(f"{path}.") and self.has(target) for target in read)}
        return called

    def _is_gone(self, value: Value) -> bool:
        return all(self.now.get(n) is None for n in value.nodes)

    def _leave_out(self, file: str, text: Text, call: ast.Call, paths: list[str]) -> None:
        """Layers that are not called any more are not made, where nothing else mentions them."""
        statement = text.parents.get(call)
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return
        target = statement.targets[0]
        if not isinstance(target, ast.Attribute) or statement.value is not call:
            return
        if not self._is_mentioned(target.attr, text, statement):
            self.add(file, Edit("delete", span_of(statement)))

    def _is_mentioned(self, name: str, around: Text, statement: ast.stmt) -> bool:
        """Whether text that stays has an attribute of that name, outside of a statement."""
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
        """Weights of modules of the program that nothing reads any more are not made, where nothing
        else mentions them."""
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
    """The name that ``self.NAME = ...`` or ``self.register_buffer("NAME", ...)`` makes."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target: ast.AST = statement.targets[0]
    elif isinstance(statement, ast.AnnAssign):
        target = statement.target
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        name = call.args[0] if call.args else None
        is_register = isinstance(call.func, ast.Attribute) and call.func.attr.startswith("register_")
        return str(name.value) if is_register and isinstance(name, ast.Constant) else None
    else:
        return None
    return target.attr if isinstance(target, ast.Attribute) else None


def _module_of(call: ast.Call) -> str:
    """``nn.`` of ``nn.Linear(...)``"""
    return f"{ast.unparse(call.func.value)}." if isinstance(call.func, ast.Attribute) else "nn."


def _shown(changes: dict[str, Any]) -> str:
    return ", ".join(f"{k}={v!r}" for k, v in changes.items()) or "nothing else"
