"""Rewrite a syntax tree from torch's names to fxlite's.

In: a file's tree (libcst), with full names of what imports bind. Out: the tree with fxlite's imports,
names and targets, and the findings. An unknown name stays, with its import.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import ParentNodeProvider, PositionProvider, QualifiedNameProvider, QualifiedNameSource

from fxlite.codegen.porting.verdicts import Finding, Port, from_import, import_lines, is_package, package_root, port

#: Functions whose arguments may be targets; what is passed to others is called, probably.
_TAKES_TARGETS = "call_function create_node find_nodes frozenset set tuple list".split()


class Rewriter(cst.CSTTransformer):  # type: ignore[misc]
    """Replaces names and imports; ``findings`` lists them."""

    METADATA_DEPENDENCIES = (QualifiedNameProvider, PositionProvider, ParentNodeProvider)

    def __init__(self, text: str, names: Mapping[str, str]) -> None:
        super().__init__()
        self.findings: list[Finding] = []
        self.names = dict(names)
        #: Files that look at leaf modules are traced with layers as leaves.
        self.has_leaves = "call_module" in text
        self._roots: dict[str, None] = {}
        self._kept: set[str] = set()  # names bound by imports that are still used
        self._new: dict[Any, Port] = {}
        self._from_imports: dict[str, Port] = {}
        self._place: Any = None

    # -- names -----------------------------------------------------------------------------------
    def visit_Module(self, node: cst.Module) -> bool:
        self._find_aliases(node)
        return True

    def _find_aliases(self, module: cst.Module) -> None:
        """Find the names that the file uses for torch's packages; the roots keep them."""
        for line in _import_lines_of(module):
            for full, bound in _bound(line):
                root = package_root(full)
                if (root and bound == full.rpartition(".")[2]) or (root and "." not in bound):
                    self.names[root] = bound

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        return not self._look_at(node)

    def visit_Name(self, node: cst.Name) -> bool:
        self._look_at(node)
        return True

    def _look_at(self, node: cst.Attribute | cst.Name) -> bool:
        """Decide about a name; returns True if its parts need not be visited."""
        base: Any = node
        while isinstance(base, cst.Attribute):
            base = base.value
        if not isinstance(base, cst.Name):
            return False  # an attribute of a call's result
        found = self.get_metadata(QualifiedNameProvider, node, set())
        full = next((q.name for q in found if q.source is QualifiedNameSource.IMPORT), "")
        if not full.startswith(("torch.", "operator.")) and full != "torch":
            return False
        if self._is_in_import(node):
            return True
        if full == "torch" or package_root(full):
            return self._keep(node, full, "a package as a value")
        parent: Any = self.get_metadata(ParentNodeProvider, node, None)
        is_called = isinstance(parent, cst.Call) and parent.func is node
        made = port(full, is_called, len(parent.args) if is_called else 0)
        if made is None:
            return False
        if full.startswith("operator.") and not self._is_target(node):
            return True
        if made.kind == "target" and not made.why and self._is_unsure(node):
            made = Port("", f"if it is the target of a node, write {made.text}")
        if not made.text:
            return self._keep(node, full, made.why)
        text = made.text
        if text == "fx.Tracer" and self.has_leaves:
            text = "fx.LayerTracer"
        is_bound = isinstance(node, cst.Name) and made.kind != "target"
        if is_bound and text.rpartition(".")[2] == full.rpartition(".")[2]:
            self._from_imports[node.value] = Port(text)
            return True
        root, _, rest = text.partition(".")
        new = f"{self.names[root]}.{rest}"
        if _code(node) != new:
            self.note(node, made.kind, new)
        self._new[node] = Port(text)
        return True

    def _keep(self, node: cst.CSTNode, full: str, why: str) -> bool:
        parent = self.get_metadata(ParentNodeProvider, node, None)
        if full == "torch" or package_root(full):
            if isinstance(parent, cst.Attribute):
                return False
            why = f"{why}: name what is used of it"
        self.findings.append(Finding(self._line(node), "hand", _code(node), why=why))
        self._kept.add((get_full_name_for_node(node) or "").partition(".")[0])
        return True

    def note(self, node: cst.CSTNode, kind: str, new: str) -> None:
        """Record the replacement of a part."""
        self.findings.append(Finding(self._line(node), kind, _code(node), new))

    def _is_in_import(self, node: cst.CSTNode) -> bool:
        while (node := self.get_metadata(ParentNodeProvider, node, None)) is not None:
            if isinstance(node, (cst.Import, cst.ImportFrom)):
                return True
            if isinstance(node, cst.BaseStatement):
                return False
        return False

    def _is_called(self, node: cst.CSTNode) -> bool:
        parent = self.get_metadata(ParentNodeProvider, node, None)
        return isinstance(parent, cst.Call) and parent.func is node

    def _is_target(self, node: cst.CSTNode) -> bool:
        """A function of ``operator`` is a target unless it is called or passed to be called."""
        return not self._is_called(node) and not self._is_unsure(node)

    def _is_unsure(self, node: cst.CSTNode) -> bool:
        """Whether a function is passed to another one, which may call it."""
        parent = self.get_metadata(ParentNodeProvider, node, None)
        if not isinstance(parent, cst.Arg):
            return False
        call = self.get_metadata(ParentNodeProvider, parent, None)
        name = get_full_name_for_node(call.func) if isinstance(call, cst.Call) else None
        return (name or "").rpartition(".")[2] not in _TAKES_TARGETS

    def _line(self, node: cst.CSTNode) -> int:
        return int(self.get_metadata(PositionProvider, node).start.line)

    def _replaced(self, original: Any, updated: Any) -> Any:
        made = self._new.get(original)
        if made is None:
            return updated
        root, _, rest = made.text.partition(".")
        self._roots[root] = None
        return cst.parse_expression(f"{self.names[root]}.{rest}")

    leave_Attribute = leave_Name = _replaced

    def leave_Call(self, original: cst.Call, updated: cst.Call) -> Any:
        """Adapt ``symbolic_trace(model)`` in a file with leaf modules, where layers are leaves."""
        found = self.get_metadata(QualifiedNameProvider, original.func, set())
        names = {q.name.rpartition(".")[2] for q in found if q.name.startswith("torch.fx")}
        if not self.has_leaves or "symbolic_trace" not in names:
            return updated
        self._roots["nn"] = None
        leaf = cst.parse_expression(f"f(leaf={self.names['nn']})").args[0]
        made = updated.with_changes(args=[*updated.args, leaf])
        self.note(original, "leaf", _code(made))
        return made

    # -- imports -----------------------------------------------------------------------------------
    def leave_Module(self, original: cst.Module, updated: cst.Module) -> cst.Module:
        """Replace the imports, now that all uses are known."""
        return updated.visit(_Imports(self, original))

    def new_imports(self, lines: Iterable[Any]) -> dict[int, list[str]]:
        """The replacement for each import of torch, by its number among them."""
        made: dict[int, list[str]] = {}
        roots = dict(self._roots)
        first: int | None = None
        for index, line in enumerate(lines):
            taken: list[str] = []
            is_ours = False
            for full, bound in _bound(line):
                if not (full == "torch" or full.startswith("torch.")):
                    continue
                is_ours = True
                root = package_root(full)
                name = bound.partition(".")[0]
                if root and bound == name:  # a name that fxlite's package lacks is an AttributeError
                    roots[root] = None
                elif name in self._kept:
                    taken.append(_import_of(full, bound, line))
                elif name in self._from_imports:
                    taken.append(from_import(self._from_imports[name].text, bound))
                elif isinstance(line, cst.ImportFrom):
                    taken += self._unused(full, bound)
            if is_ours:
                first = index if first is None else first
                made[index] = _joined(taken)
        if first is not None:
            made[first] = [*import_lines(sorted(roots), self.names), *made[first]]
        return made

    def _unused(self, full: str, bound: str) -> list[str]:
        """A name that only other files use: its counterpart, or the finding that there is none."""
        found = port(full, is_called=False)
        if is_package(full):
            return []
        if found is None or not found.text:
            why = "it has no counterpart" if found is None else found.why
            self.findings.append(Finding(0, "hand", f"import of {full}", why=why))
            return []
        return [from_import(found.text, bound)]


class _Imports(cst.CSTTransformer):  # type: ignore[misc]
    """Puts the new imports in place of torch's."""

    def __init__(self, rewriter: Rewriter, original: cst.Module) -> None:
        super().__init__()
        self.lines = list(_import_lines_of(original))
        self.rewriter = rewriter
        self.new = rewriter.new_imports(self.lines)
        self.index = -1

    def leave_SimpleStatementLine(self, original: cst.SimpleStatementLine, updated: cst.SimpleStatementLine) -> Any:
        if not isinstance(original.body[0], (cst.Import, cst.ImportFrom)):
            return updated
        self.index += 1
        new = self.new.get(self.index)
        if new is None:
            return updated
        line = self.lines[self.index]
        if isinstance(line, cst.Import):  # `import torch, os`: the others stay
            others = [n for n in line.names if not _is_torch(_full(n.name))]
            new = [*new, *(f"import {_code(n).rstrip(', ')}" for n in others)]
        self.rewriter.note(line, "import", "; ".join(new) or "(nothing)")
        made = [cst.parse_statement(text) for text in new]
        if not made:
            return cst.RemoveFromParent()
        made[0] = made[0].with_changes(leading_lines=updated.leading_lines)
        return cst.FlattenSentinel(made)


def _import_lines_of(module: cst.Module) -> list[Any]:
    """The import statements of a file, in order, those in functions and branches included."""
    found: list[Any] = []

    class Visitor(cst.CSTVisitor):  # type: ignore[misc]
        def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> bool:
            if isinstance(node.body[0], (cst.Import, cst.ImportFrom)):
                found.append(node.body[0])
            return False

    module.visit(Visitor())
    return found


def _bound(line: Any) -> list[tuple[str, str]]:
    """(full name, bound name) for everything that an import statement imports."""
    if isinstance(line, cst.ImportFrom):
        if line.relative or line.module is None or isinstance(line.names, cst.ImportStar):
            return []
        start = f"{_full(line.module)}."
    else:
        start = ""
    made = []
    for alias in line.names:
        full = start + _full(alias.name)
        shown = alias.asname.name.value if alias.asname is not None else _full(alias.name)
        made.append((full, shown))
    return made


def _full(node: Any) -> str:
    return get_full_name_for_node(node) or ""


def _is_torch(full: str) -> bool:
    return full == "torch" or full.startswith("torch.")


def _import_of(full: str, bound: str, line: Any) -> str:
    """The import of one name as it was."""
    if isinstance(line, cst.ImportFrom):
        return from_import(full, bound)
    return f"import {full}" if bound == full else f"import {full} as {bound}"


def _joined(lines: Iterable[str]) -> list[str]:
    """Import lines, with those from one package joined."""
    made: dict[str, list[str]] = {}
    for line in lines:
        start, word, name = line.rpartition(" import ")
        made.setdefault(start + word if start.startswith("from ") else line, []).append(name)
    return [
        start + ", ".join(dict.fromkeys(names)) if start.startswith("from ") else start for start, names in made.items()
    ]


def _code(node: cst.CSTNode) -> str:
    return " ".join(cst.Module([]).code_for_node(node).split())
