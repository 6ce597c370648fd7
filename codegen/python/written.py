"""Information from the program's own text: the source of its functions, as far as it is available.

In: the nodes of a module, which know the line and the expression that made them. Out: names of parameters
and variables, the statement to which a value belongs, documentation and comments. If a file has changed
since, or is missing, less is known; nothing here decides what a program computes.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

from fxlite import nn
from fxlite.base.location import Location
from fxlite.base.outside_text import assigned
from fxlite.graph.graph import Node
from fxlite.show.text.pretty import path_text


@dataclass(frozen=True, eq=False)
class Written:
    """The method of a module, or a function, if it was found: the names of its parameters, its syntax, and
    ``files``, the lines of all files that it was traced from, including those of functions that it calls."""

    parameters: tuple[str, ...] = ()
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    class_node: ast.ClassDef | None = None
    function: ast.FunctionDef | None = None
    statements: tuple[ast.stmt, ...] = ()

    def statement(self, node: Node) -> ast.stmt | None:
        """The statement that made a value."""
        if node.op == "call_module":
            found = self._calls.get(_path_text(node.target))
            if found is not None:
                return found
        return self._at(self._place(node))

    def _place(self, node: Node) -> Location | None:
        """Where a value was made; for a module, where it was called; and for the result of a function that is
        not a function here, where that was called."""
        loc = self._made_at(node)
        while loc is not None and loc.call is not None and self.function is not None:
            statement = self._at(loc)
            is_result = isinstance(statement, ast.Return) and statement.value is not None
            found = _syntax(loc.expression)
            if loc.function == self.function.name or not is_result or found is None:
                break
            assert isinstance(statement, ast.Return) and statement.value is not None
            if ast.dump(found) != ast.dump(statement.value):
                break
            loc = loc.call.called_at
        return loc

    @staticmethod
    def _made_at(node: Node) -> Location | None:
        scope = node.scope if node.op == "call_module" else None
        while scope is not None:
            if f".{scope.path}".endswith(f".{node.target}") and scope.called_at is not None:
                return scope.called_at
            scope = scope.caller
        return node.loc

    def _at(self, loc: Location | None) -> ast.stmt | None:
        """The innermost statement that contains a place, perhaps in a function that this one calls."""
        if self.function is None or loc is None or loc.file not in self.files:
            return None
        found = _statements(self.files[loc.file]).get(loc.line)
        if found is None or not (loc.function == found[0] or loc.function.startswith("<")):
            return None  # a part of an expression, such as <genexpr>, belongs to its statement
        return found[1]

    def target(self, node: Node) -> ast.expr | None:
        """The target to which a statement assigned the results of a call, as a whole."""
        statement = self.statement(node)
        if not isinstance(statement, ast.Assign) or not self._is_at(node, ast.dump(statement.value)):
            return None
        return assigned(statement)

    def variables(self, node: Node, container: str = "") -> list[str]:
        """The variables to which a statement assigned the value, as a whole or in parts; with ``container``,
        those assigned from the call of that container."""
        statement = self._calls.get(_path_text(container)) if container else self.statement(node)
        target = statement.target if isinstance(statement, ast.AugAssign) else assigned(statement)
        if not isinstance(statement, _ASSIGNMENTS) or target is None or statement.value is None:
            return []
        value = ast.dump(statement.value)
        if isinstance(statement, ast.AugAssign):
            is_whole = node.loc is not None and _syntax(node.loc.expression) is None
        elif node.op == "call_module" and isinstance(statement.value, ast.Call):
            called = ast.unparse(statement.value.func)
            is_whole = called == _path_text(container or node.target) or self._is_at(node, value)
        else:
            is_whole = self._is_at(node, value)
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        if isinstance(statement.value, ast.Tuple) and len(statement.value.elts) == len(parts) > 1:
            own = [p for p, v in zip(parts, statement.value.elts) if self._is_at(node, ast.dump(v))]
            return [part.id for part in own if isinstance(part, ast.Name)]
        names = [part.id for part in parts if isinstance(part, ast.Name)]
        return names if is_whole and len(names) == len(parts) else []

    def elements(self, nodes: Iterable[Node]) -> dict[Node, str]:
        """The variables that a comprehension's values are assigned to: ``q, k, v = (f(x) for ...)``."""
        found: dict[ast.Assign, list[Node]] = {}
        for node in nodes:
            statement = self.statement(node)
            if not isinstance(statement, ast.Assign):
                continue
            value: Any = statement.value
            is_made = isinstance(value, ast.GeneratorExp | ast.ListComp)
            if is_made and self._is_at(node, ast.dump(value.elt)):
                found.setdefault(statement, []).append(node)
        names: dict[Node, str] = {}
        for statement, made in found.items():
            targets = statement.targets[0]
            parts = targets.elts if isinstance(targets, ast.Tuple | ast.List) else []
            if len(parts) == len(made):
                names |= {n: p.id for n, p in zip(made, parts) if isinstance(p, ast.Name)}
        return names

    def _is_at(self, node: Node, value: str) -> bool:
        place = self._place(node)
        found = None if place is None else _syntax(place.expression)
        return found is not None and ast.dump(found) == value

    def returned(self) -> ast.stmt | None:
        """The only statement that returns something."""
        found = [s for s in self.statements if isinstance(s, ast.Return)]
        return found[0] if len(found) == 1 else None

    def gives(self, node: Node, element: ast.expr) -> bool:
        """Whether a value is that of an expression in the return statement: its variable, or the expression
        itself."""
        if isinstance(element, ast.Name):
            return self.variables(node) == [element.id] or (node.op == "placeholder" and node.target == element.id)
        return self._is_at(node, ast.dump(element))

    def container_call(self, path: str) -> ast.stmt | None:
        """The statement that calls ``self.PATH``."""
        return self._calls.get(_path_text(path))

    def loop(self, path: str) -> tuple[str, str] | None:
        """The variables of ``for ITEM in self.PATH: VALUE = ITEM(...)``."""
        found = self._loops.get(_path_text(path))
        if found is None or not isinstance(found.target, ast.Name):
            return None
        for statement in found.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                return found.target.id, statement.targets[0].id
        return None

    def item(self, listed: str) -> ast.expr | None:
        """The target to which loops assign the items of ``self.PATH`` or of a list among the inputs, or to which
        a statement assigns one of them."""
        for target, value in self._items:
            if value == listed or value.startswith(f"{listed}["):
                return target
        return None

    def index(self, listed: str) -> str:
        """The variable that counts in loops over the items of a list, or alone."""
        for loop in self._any_loops:
            target, text = loop.target, ast.unparse(loop.iter)
            if text.startswith("enumerate(") and listed and listed in text:
                target = target.elts[0] if isinstance(target, ast.Tuple) else target
            elif not text.startswith("range("):
                continue
            if isinstance(target, ast.Name) and target.id != "_":
                return target.id
        return ""

    def lists(self, reader: Node, count: int) -> list[str]:
        """The variables of ``count`` lists that a value reads and that the program fills."""
        statement: ast.AST | None = self.returned()
        if reader.op != "output":
            statement = None if reader.loc is None else _syntax(reader.loc.expression)
        names = [n.id for n in ast.walk(statement) if isinstance(n, ast.Name)] if statement else []
        found = [name for name in dict.fromkeys(names) if name in self._filled]
        return found if len(found) == count else []

    def plain_assignments(self) -> Iterator[tuple[ast.expr, str]]:
        """Target and value of assignments directly in the function, not in loops or branches."""
        for statement in self.function.body if self.function is not None else ():
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                yield statement.targets[0], ast.unparse(statement.value)

    @functools.cached_property
    def _filled(self) -> set[str]:
        """Lists to which the function appends, or that it makes in a comprehension."""
        found: set[str] = set()
        for node in ast.walk(self.function) if self.function is not None else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".append"):
                found.add(ast.unparse(node.func).removesuffix(".append"))
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.ListComp):
                found |= {ast.unparse(target) for target in node.targets}
        return found

    @functools.cached_property
    def _any_loops(self) -> list[ast.For | ast.comprehension]:
        inside = ast.walk(self.function) if self.function is not None else ()
        return [n for n in inside if isinstance(n, ast.For | ast.comprehension)]

    @functools.cached_property
    def _items(self) -> list[tuple[ast.expr, str]]:
        """Targets of loops, and what they iterate over."""
        found = [pair for n in self._any_loops for pair in _looped(n.target, n.iter)]
        for statement in self.statements:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Subscript):
                found += [(t, ast.unparse(statement.value.value)) for t in statement.targets]
        return found

    @functools.cached_property
    def _calls(self) -> dict[str, ast.stmt]:
        """Statements by the text of what they call, if that is called only once."""
        found: dict[str, list[ast.stmt]] = {}
        for statement in self.statements:
            for inner in ast.walk(statement):
                if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
                    found.setdefault(ast.unparse(inner.func), []).append(statement)
        return {text: where[0] for text, where in found.items() if len(where) == 1}

    def arguments(self, path: str) -> list[str]:
        """The variables passed by position to ``self.PATH``, itself or in a loop over its container; empty text
        for anything but a variable."""
        statement, called = self._calls.get(_path_text(path)), _path_text(path)
        loop = self._loops.get(_path_text(path.rpartition(".")[0]))
        inside: ast.AST | None = statement
        if statement is None and loop is not None and isinstance(loop.target, ast.Name):
            inside, called = loop, loop.target.id
        for node in ast.walk(inside) if inside is not None else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == called:
                return [a.id if isinstance(a, ast.Name) else "" for a in node.args]
        return []

    @functools.cached_property
    def _loops(self) -> dict[str, ast.For]:
        inside = ast.walk(self.function) if self.function is not None else ()
        return {ast.unparse(n.iter): n for n in inside if isinstance(n, ast.For)}

    def names_at(self, node: Node) -> set[str]:
        """The parameters that occur in the expression of a node."""
        if self.function is None or self._at(node.loc) is None:
            return set()
        assert node.loc is not None
        if node.loc.function != self.function.name:
            return set()
        found = _syntax(node.loc.expression)
        words = {n.id for n in ast.walk(found) if isinstance(n, ast.Name)} if found else set()
        return words & {*self.parameters}

    def comments(self, statement: ast.stmt) -> list[str]:
        """The lines of comments directly above a statement."""
        found: list[str] = []
        for line in reversed(self._lines_of(statement)[: statement.lineno - 1]):
            if not line.strip().startswith("#"):
                break
            found.insert(0, line.strip().lstrip("#").strip())
        return [text for text in found if not _DIRECTIVE.match(text)]

    def _lines_of(self, statement: ast.stmt) -> tuple[str, ...]:
        """The lines of the file that a statement is in."""
        for lines in self.files.values():
            if _statements(lines).get(statement.lineno, ("", None))[1] is statement:
                return lines
        return ()

    def documentation(self) -> tuple[str, str]:
        """The docstrings of the class and of the function; empty if there are none."""
        of_class = ast.get_docstring(self.class_node) if self.class_node is not None else None
        of_function = ast.get_docstring(self.function) if self.function is not None else None
        return (of_class or "").strip(), (of_function or "").strip()


def written(nodes: Iterable[Node], names: Sequence[str]) -> Written:
    """The method of the class, or the function, with one of the names, that made nodes. For a layer of fxlite
    only its parameters are given; for a graph read from a file nothing is known."""
    places = {
        (loc.file, loc.line): loc for loc in (node.loc for node in nodes) if loc is not None and loc.columns is not None
    }
    files = {loc.file: tuple(loc.file_lines()) for loc in places.values()}
    own = ((files[file], line) for file, line in places)
    others = ((lines, None) for lines in files.values())  # for modules that only call others
    for (lines, line), name in itertools.product(itertools.chain(own, others), names):
        found = _in_file(lines, name, line)
        if found is not None:
            return replace(found, files=files)
    layer = getattr(nn, names[0], None)
    if isinstance(layer, type) and issubclass(layer, nn.Module):
        return Written(tuple(inspect.signature(layer.forward).parameters)[1:])
    return Written()


def written_function(nodes: Iterable[Node], code: CodeType) -> Written:
    """The function, or the method, with this code object."""
    places = [node.loc for node in nodes if node.loc is not None]
    files = {loc.file: tuple(loc.file_lines()) for loc in places if loc.columns is not None}
    for _, _, function in _definitions(files.get(code.co_filename, ())):
        decorators = [d.lineno for d in function.decorator_list]
        if function.name == code.co_name and code.co_firstlineno in (function.lineno, *decorators):
            return _of(function, None, files)
    return Written()


def _of(function: ast.FunctionDef, class_node: ast.ClassDef | None, files: Mapping[str, tuple[str, ...]]) -> Written:
    given = function.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    is_method = class_node is not None or names[:1] in (["self"], ["cls"])
    own_names = tuple(names[is_method:])
    inside = tuple(s for s in ast.walk(function) if isinstance(s, _PLAIN))
    return Written(own_names, files, class_node, function, inside)


@functools.lru_cache(maxsize=64)
def _definitions(lines: tuple[str, ...]) -> list[tuple[str, ast.ClassDef | None, ast.FunctionDef]]:
    """The methods of classes and other functions of a file, by the name of the class or their own."""
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: list[tuple[str, ast.ClassDef | None, ast.FunctionDef]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            methods = (n for n in node.body if isinstance(n, ast.FunctionDef))
            found += ((node.name, node, method) for method in methods)
        elif isinstance(node, ast.FunctionDef):
            found.append((node.name, None, node))
    return found


@functools.lru_cache(maxsize=64)
def _statements(lines: tuple[str, ...]) -> dict[int, tuple[str, ast.stmt]]:
    """By line of a file, the innermost statement and the function in which it is."""
    found = [
        (s.lineno - _last_line(s), function.name, s)
        for _, _, function in _definitions(lines)
        for s in ast.walk(function)
        if isinstance(s, _PLAIN)
    ]
    found.sort(key=lambda entry: entry[0])  # innermost last
    return {n: (name, s) for _, name, s in found for n in range(s.lineno, _last_line(s) + 1)}


@functools.lru_cache(maxsize=1024)
def _in_file(lines: tuple[str, ...], name: str, line: int | None) -> Written | None:
    """The function of that name, or a method of that class, that contains a line; if the line is None, the
    only one called ``forward``."""
    found = [d for d in _definitions(lines) if d[0] == name]
    forward = [d for d in found if d[1] is not None and d[2].name == "forward"]
    if line is None:
        found = forward if len(forward) == 1 else []
    for _, class_node, function in found:
        if line is None or function.lineno <= line <= _last_line(function):
            function = next((f for _, c, f in forward if c is class_node), function)
            return _of(function, class_node, {})
    return None


_DIRECTIVE = re.compile(r"(noqa|fmt|type|ruff|mypy|pylint|pyright|isort)\b")
_ASSIGNMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign)
_PLAIN = (*_ASSIGNMENTS, ast.Return, ast.Expr)


def _last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _path_text(path: str) -> str:
    """``layers.0.fc`` -> ``self.layers[0].fc``"""
    return path_text(path, bool)


@functools.lru_cache(maxsize=4096)
def _syntax(text: str) -> ast.expr | None:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _looped(target: ast.expr, values: ast.expr) -> Iterator[tuple[ast.expr, str]]:
    """The target of each iterable in ``enumerate(zip(...))``."""
    called = ast.unparse(values.func) if isinstance(values, ast.Call) else ""
    if called == "enumerate" and isinstance(target, ast.Tuple) and isinstance(values, ast.Call):
        yield from _looped(target.elts[1], values.args[0])
    elif called == "zip" and isinstance(target, ast.Tuple) and isinstance(values, ast.Call):
        for part, value in zip(target.elts, values.args):
            yield from _looped(part, value)
    else:
        yield target, ast.unparse(values)


def plain_syntax(text: str) -> str:
    """An expression in the form that ``ast.unparse`` gives."""
    found = _syntax(text)
    return text if found is None else ast.unparse(found)


def parameter_names(
    inputs: Iterable[Node], source: Written, orders: Mapping[str, Sequence[int]], known: Mapping[Node, str]
) -> dict[Node, str]:
    """The names of a module's inputs: those in ``known``, or else the names in its method, as far as the
    expressions that read them show, or else by their order. ``orders`` gives the parameters of called modules
    as positions in their graphs."""
    found: dict[Node, str] = {**known}
    inputs = list(inputs)
    for node in inputs:
        if node in found:
            continue
        mentioned: Any = None
        for user in node.users:
            names = source.names_at(user)
            if user.op == "call_module" and user.target in orders:
                given = source.arguments(user.target)
                order = [user.args[i] if type(i) is int else None for i in orders[user.target]]
                names = {name for name, value in zip(given, order) if value is node}
            mentioned = names if mentioned is None else mentioned & names or mentioned
        left = [p for p in source.parameters if p in (mentioned or ()) and p not in found.values()]
        if len(left) == 1:
            found[node] = left[0]
    for node in inputs:
        if node not in found:
            left = [p for p in source.parameters if p not in found.values()]
            found[node] = left[0] if left else "x"
    return found
