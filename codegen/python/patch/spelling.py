"""Write values of an optimized graph as text, at a place in the program.

In: a node of the optimized graph and a run of a statement. Out: the text of a variable that holds it, of a part of the
statement that gives it, or of the calls of new nodes, which contain such texts.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import fxlite
from fxlite import nn, ops
from fxlite.codegen.python.dialect import Dialect
from fxlite.codegen.python.numpy_text import FxliteText
from fxlite.codegen.python.patch.recording import (
    Call,
    Edit,
    PatchError,
    Span,
    Step,
    Text,
    Value,
    Values,
    span_of,
    value_of,
)
from fxlite.codegen.python.text import FileNames, Names, attribute_text, numbered, with_numbers
from fxlite.graph.graph import Node
from fxlite.nn.module import Parameter
from fxlite.types import shapes
from fxlite.types.dtypes import has_same_bits

_MOST_NUMBERS = 16  # in an array that is written into the text
_LONG = 50  # characters of an operand


class Spelling(Values):
    """Edits inside statements. ``attributes`` maps paths of new weights in the optimized graph to those in the patched
    program; ``left`` says why expressions stay that could have changed."""

    edits: dict[str, dict[Edit, None]]
    attributes: dict[str, str]
    new_attributes: dict[tuple[str, Span], dict[str, str]]
    hoisted: dict[tuple[str, Span], str]
    left: dict[tuple[str, Span], str]
    named: dict[tuple[Call, Node], str]
    inserted: list[str]

    def add(self, file: str, edit: Edit) -> None:
        """Add an edit of a file, once."""
        self.edits.setdefault(file, {})[edit] = None

    def patched(self, expression: ast.AST, step: Step) -> list[Edit]:
        """The edits inside an expression; outer ones replace inner ones."""
        span = span_of(expression)
        file = step.call.code.co_filename
        name = self.hoisted.get((file, span))
        values = self.values_of(expression, step)
        if name is not None and values:
            target = self.now[values[-1].top]
            if (step.call, target) not in self.named and target is not None:
                text = self._spliced(expression, step, children_only=True)
                self.inserted.append(f"{name} = {text}")
                self.named[step.call, target] = name
            return [Edit("replace", span, name)]
        if values and (file, span) not in self.left:
            try:
                changed = self._changed(values, expression, step)
                if changed is not None:
                    self._check_settings(changed, expression, step)
            except PatchError as error:
                self.left[file, span] = str(error)
            else:
                if changed is not None:
                    return [Edit("replace", span, changed)]
        return [e for child in _children(expression) for e in self.patched(child, step)]

    def _check_settings(self, text: str, expression: ast.AST, step: Step) -> None:
        """Raise PatchError if a text drops a number of the function or module that the old text read: it may differ in
        another run, or another model."""
        kept = {
            ast.unparse(node) for node in ast.walk(ast.parse(f"({text})", mode="eval")) if isinstance(node, ast.expr)
        }
        settings = self._settings(expression, step)
        if f"{step.call.owner_name}.training" in settings:
            return  # what is computed in training is left out on purpose
        for name, value in settings.items():
            if name not in kept:
                why = f"would become `{text}`, which is right for {name}={value!r} alone"
                raise self.cannot(step, expression, why)

    def _settings(self, part: ast.AST, step: Step) -> dict[str, Any]:
        """Numbers and similar settings that a part of the text reads from variables of the function and attributes of
        the module, by their text."""
        found: dict[str, Any] = {}
        for node in ast.walk(part):
            value: Any = None
            if isinstance(node, ast.Name):
                value = step.variables.get(node.id)
            elif isinstance(node, ast.Attribute):
                is_own = ast.unparse(node.value) == (step.call.owner_name or None)
                value = vars(step.call.owner).get(node.attr) if is_own else None
            if type(value) in (int, float, bool, str, tuple):
                found[ast.unparse(node)] = value
        return found

    def _changed(self, values: list[Value], expression: ast.AST, step: Step) -> str | None:
        """A new text for an expression; None if the old one is still right. Raises PatchError."""
        states = {v.state for v in values}
        top = values[-1].top
        target = self.now[top]
        if states & {"other", "forward"}:
            if len({v.path for v in values}) > 1 and values[-1].path is not None:
                why = "calls a container, which would hold something that is not a layer of fxlite.nn"
                raise self.cannot(step, expression, why)
            parts = values[-1].parts
            if parts:
                made = [self.now[part] for part in parts]
                if None in made or len(parts) < len(top.args[0].type):
                    raise self.cannot(step, expression, "gives several values, of which some are not computed any more")
                texts = [self.spelled(part, expression, step) for part in made if part is not None]
                return f"({', '.join(texts)}{',' * (len(texts) == 1)})"
            return None if target is None else self.spelled(target, expression, step)
        if states == {"shared"} and target is not None:
            return self._known(target, step) or self._hoist(target, step)
        return None

    # -- text for values of the optimized graph ----------------------------------------------------
    def _known(self, target: Node, step: Step) -> str | None:
        """A variable that holds a value."""
        name = self.named.get((step.call, target))
        if name is not None:
            return name
        for name, value in step.variables.items():
            node = value_of(value)
            if isinstance(node, Node) and self.now.get(node) is target:
                return name
        return None

    def _hoist(self, target: Node, step: Step) -> str | None:
        """The name of a variable for a value that an earlier statement of the call computes inside an expression."""
        for other in step.call.steps[: step.number + 1]:
            for node in other.nodes:
                if self.now.get(node) is not target or self.value_of_node.get(node) is None:
                    continue
                value = self.value_of_node[node]
                if value.top is not node or value.state not in ("same", "layer"):
                    continue
                if not self._reaches(other, step):
                    return None
                file = step.call.code.co_filename
                span = node.loc.span if node.loc is not None else None
                expression = self.text(file).by_span.get(span) if span is not None else None
                if expression is None or isinstance(expression, ast.AugAssign):
                    return None
                key = (file, span_of(expression))
                if key not in self.hoisted:
                    self.hoisted[key] = self._free_name(target, step.call)
                return self.hoisted[key]
        return None

    def _reaches(self, one: Step, other: Step) -> bool:
        """Whether a statement always runs before another one, because it is not in a block that may be skipped."""
        text = self.text(one.call.code.co_filename)
        block = text.parents.get(one.statement)
        around: ast.AST | None = other.statement
        while around is not None:
            if text.parents.get(around) is block:
                return True
            around = text.parents.get(around)
        return False

    def _free_name(self, target: Node, call: Call) -> str:
        wish = re.sub(r"(?<=\D)_\d+$", "", target.name)
        function = self.text(call.code.co_filename).function(call.code)
        taken = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} if function else set()
        taken |= {*call.code.co_varnames, *self.hoisted.values(), *dir(builtins)}
        taken |= {name for (other, _), name in self.named.items() if other is call}
        return numbered(wish, taken)

    def spelled(self, target: Node, expression: ast.AST, step: Step, is_operand: bool = False) -> str:
        """Text for a value of the optimized graph, in place of an expression. A value that several read, or that is a
        long operand, becomes a variable."""
        if target.op == "get_attr":
            return self._weight(target, expression, step)
        known = self._known(target, step)
        if known is not None:
            return known
        for part in ast.walk(expression):
            if part is not expression and self._gives(part, step) is target:
                return self._spliced(part, step)
        if target in self.given:
            name = self._hoist(target, step)
            if name is not None:
                return name
        inside = {node for value in self.values_of(expression, step) for node in value.nodes}
        is_inside = not inside.isdisjoint(self.given.get(target, ()))  # of a layer's own calls
        if target.op != "call_function" or (target in self.given and not is_inside):
            raise self.cannot(
                step,
                expression,
                f"would read {target.name}, which has no name here; it is of {target.origin or 'elsewhere'}",
            )
        text = self._printed(target, expression, step)
        if len(target.users) > 1 or (is_operand and len(text) > _LONG):
            name = self._free_name(target, step.call)
            self.inserted.append(f"{name} = {text}")
            self.named[step.call, target] = name
            return name
        return text

    def _printed(self, target: Node, expression: ast.AST, step: Step) -> str:
        """The call of a new node."""
        return with_numbers(_Calls(self, expression, step).call(target))

    def _gives(self, part: ast.AST, step: Step) -> Node | None:
        """The node that an expression gives in the patched program."""
        found: Any = None
        if not isinstance(part, ast.expr):
            return None
        if isinstance(part, ast.Name):
            found = value_of(step.variables.get(part.id))
        else:
            values = self.values_of(part, step)
            if values:
                found = values[-1].top
            else:
                places = self.text(step.call.code.co_filename).spans_of(part)
                for span, call in step.calls:
                    if span in places:
                        found = value_of(call.result)
        return self.now.get(found) if isinstance(found, Node) else None

    def _spliced(self, part: ast.AST, step: Step, children_only: bool = False) -> str:
        """The text of an expression with its inner edits applied."""
        text = self.text(step.call.code.co_filename)
        if children_only:
            edits = [e for child in _children(part) for e in self.patched(child, step)]
        else:
            edits = self.patched(part, step)
        if [e.span for e in edits] == [span_of(part)]:
            return edits[0].text or ""
        return spliced(text, part, edits)

    def _weight(self, node: Node, expression: ast.AST, step: Step) -> str:
        """Text for a weight of the optimized graph."""
        path = str(node.target)
        owner = step.call.owner
        own_path = self.paths.get(id(owner))
        prefix = f"{own_path}." if own_path else ""
        if owner is not None and own_path is not None and self.has(path):
            if path.startswith(prefix):
                return step.call.owner_name + attribute_text(path[len(prefix) :]).removeprefix("self")
            raise self.cannot(step, expression, f"would read {path}, which lies outside of {own_path or 'the module'}")
        value = np.asarray(self.after.get_attribute(path))
        if owner is None or own_path is None:
            return self._literal(value, expression, step, path)
        name = path.removeprefix(prefix).replace(".", "_")
        if re.fullmatch(r"constant_\d+", name) and value.size <= _MOST_NUMBERS:
            return self._literal(value, expression, step, path)
        text = self.text(step.call.code.co_filename)
        body = text.enclosing(step.statement, ast.ClassDef)
        if body is None:
            raise self.cannot(step, expression, f"needs a new weight {path}, and no class holds it")
        self.attributes[path] = prefix + name
        zeros = self._array_text(np.zeros(0, value.dtype), value.shape, step)
        array = self.after.get_attribute(path)
        is_parameter = isinstance(array, Parameter) and array.is_parameter
        if is_parameter:
            line = f"self.{name} = {self.module_text(nn, step)}.Parameter({zeros})"
        else:
            line = f'self.register_buffer("{name}", {zeros})'
        new = self.new_attributes.setdefault((step.call.code.co_filename, span_of(body)), {})
        if new.setdefault(name, line) != line:
            raise self.cannot(
                step, expression, f"needs a new weight {name} that differs from place to place: {line} and {new[name]}"
            )
        return f"{step.call.owner_name}.{name}"

    def _literal(self, value: Any, expression: ast.AST, step: Step, path: str) -> str:
        """A small array as text."""
        for name, other in {**step.call.globals, **step.variables}.items():
            if isinstance(other, np.ndarray) and has_same_bits(other, value):
                return name
        if value.size > _MOST_NUMBERS:
            raise self.cannot(
                step,
                expression,
                f"needs the new weight {path} of {value.size} numbers, which a function cannot hold: "
                f"make the program an nn.Module",
            )
        return self._array_text(value, None, step)

    def _array_text(self, value: Any, shape: tuple[int, ...] | None, step: Step) -> str:
        module = self.module_text(np, step)
        if value.dtype.kind == "V" or value.dtype.name not in dir(np):
            kind = f'"{value.dtype.name}"'
        else:
            kind = f"{module}.{value.dtype.name}".replace(".bool", ".bool_")
        if shape is not None:
            return f"{module}.zeros({shape}, {kind})"
        return f"{module}.array({np.asarray(value).tolist()!r}, {kind})"

    def module_text(self, module: Any, step: Step) -> str:
        """The name of a Python module in the file; it is imported if it has no name yet."""
        own = step.call.globals
        for name, value in own.items():
            if value is module and not name.startswith("_"):
                return name
        for name, value in own.items():
            if value is nn and module is nn.functional:
                return f"{name}.functional"
            if value is fxlite and module in (nn, ops):
                return f"{name}.{module.__name__.rpartition('.')[2]}"
        title, line = _IMPORTS[module.__name__]
        if title in own:
            title, line = f"{title}_", f"{line} as {title}_".replace(f" as {title} as", " as")
        self.add(step.call.code.co_filename, Edit("import", (0, 0, 0, 0), line))
        return title


_IMPORTS = {
    "fxlite.nn.functional": ("F", "import fxlite.nn.functional as F"),
    "fxlite.ops": ("ops", "from fxlite import ops"),
    "fxlite.nn": ("nn", "from fxlite import nn"),
    "fxlite.types.shapes": ("shapes", "from fxlite import shapes"),
    "numpy": ("np", "import numpy as np"),
}


class _Calls(FxliteText):
    """Prints the calls of new nodes with the names known at a place in the program."""

    def __init__(self, plan: Spelling, expression: ast.AST, step: Step) -> None:
        super().__init__(Names(plan.after.graph, FileNames([plan.after.graph], "_", Dialect.imports, ())), {})
        self.plan, self.expression, self.step = plan, expression, step
        self.own = self.inlined

    def value(self, value: Any) -> str:
        if isinstance(value, Node) and value not in self.inlined:
            return self.plan.spelled(value, self.expression, self.step, is_operand=True)
        if type(value) is float and self.inlined is self.own:  # as the program calls it
            function = self.plan.text(self.step.call.code.co_filename).function(self.step.call.code)
            settings = self.plan._settings(function, self.step) if function is not None else {}
            for name, other in settings.items():
                if type(other) is float and other == value:
                    return name
        return super().value(value)

    def _operand(self, value: Any, level: int) -> str:
        if value.__class__ is Node and value in self.inlined:
            return super()._operand(value, level)
        text = self.value(value)
        if isinstance(value, Node) and not re.fullmatch(r"[\w.\[\]]+(\([^()]*\))?", with_numbers(text)):
            return f"({text})"
        return text

    def call(self, node: Node) -> str:
        modules = {"F": nn.functional, "ops": ops, "shapes": shapes, "np": np}
        text = super().call(node)
        for short, module in modules.items():
            own = self.file.imports[short]
            if re.search(rf"(?<![\w.]){own}\.", text):
                title = self.plan.module_text(module, self.step)
                text = re.sub(rf"(?<![\w.]){own}\.", f"{title}.", text)
        return text

    def dim(self, value: Any) -> str:
        text = super().dim(value)
        if self.inlined is not self.own:  # a text is proven with other names
            return text
        for symbol in value.free_symbols:
            place = self._size(symbol)
            text = re.sub(rf"\b{re.escape(symbol.name)}\b", place, text)
        return text

    def _size(self, symbol: Any) -> str:
        for name, value in self.step.variables.items():
            node = value_of(value)
            shape = getattr(getattr(node, "type", None), "shape", ())
            if symbol in shape:
                return f"{name}.shape[{list(shape).index(symbol)}]"
        raise self.plan.cannot(self.step, self.expression, f"needs the size {symbol}, which no variable there has")


def _children(expression: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(expression):
        if isinstance(child, ast.keyword):
            yield child.value
        elif isinstance(child, (ast.FormattedValue, ast.JoinedStr)):
            continue
        elif isinstance(child, ast.expr) and not isinstance(getattr(child, "ctx", None), ast.Store):
            yield child


def spliced(text: Text, part: ast.AST, edits: Sequence[Edit]) -> str:
    """The text of a part in which some inner expressions are replaced."""
    first, last, start, stop = span_of(part)
    lines = [bytes(line) for line in text.lines[first - 1 : last]]
    ends = [0]
    for line in lines:
        ends.append(ends[-1] + len(line) + 1)
    whole = b"\n".join(lines)

    def place(line: int, column: int) -> int:
        return ends[line - first] + column

    result, position = b"", place(first, start)
    for edit in sorted(edits, key=lambda e: (e.span[0], e.span[2])):
        begin, end = place(edit.span[0], edit.span[2]), place(edit.span[1], edit.span[3])
        new, node = edit.text or "", text.by_span[edit.span]
        if isinstance(text.parents.get(node), OPERATORS):
            before, after = whole[:begin].rstrip(), whole[end:].lstrip()
            if before.endswith(b"(") and after.startswith(b")"):
                begin, end = len(before) - 1, len(whole) - len(after) + 1
            new = f"({new})" if needs_brackets(new) else new
        result += whole[position:begin] + new.encode()
        position = end
    return (result + whole[position : place(last, stop)]).decode()


#: Parts of which operands may need brackets.
OPERATORS = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Attribute, ast.Subscript)


def needs_brackets(text: str) -> bool:
    """Whether an expression is neither a name nor a call nor similar."""
    node = ast.parse(f"({text})", mode="eval").body
    plain = (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.Constant, ast.Tuple, ast.List)
    return not isinstance(node, plain)
