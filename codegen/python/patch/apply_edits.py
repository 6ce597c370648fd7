"""Edits of a file's text, by LibCST, which keeps the rest of it as it is, byte by byte.

In: the bytes of a file and :class:`~fxlite.codegen.python.patch.plan.Edit` objects. Out: new bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from fxlite.codegen.python.patch.recording import Edit
from fxlite.codegen.python.patch.spelling import needs_brackets

Place = tuple[int, int, int, int]


def edited(content: bytes, edits: Iterable[Edit]) -> bytes:
    """The file with the edits made."""
    module = cst.parse_module(content)
    lines = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    encoding = module.encoding

    def place(edit: Edit) -> Place:
        """As LibCST counts: columns in characters."""
        first, last, start, stop = edit.span
        columns = (len(lines[n - 1][:c].decode(encoding)) for n, c in ((first, start), (last, stop)))
        return (first, last, *columns) if first else edit.span  # type: ignore[return-value]

    wrapper = MetadataWrapper(module)
    transformer = _Edits(wrapper, [(place(edit), edit) for edit in edits])
    changed = wrapper.visit(transformer)
    missed = transformer.waiting
    assert not missed, f"no part of the file is at {missed}"
    return bytes(_with_imports(changed, transformer.imports).bytes)


_STATEMENTS = (cst.SimpleStatementLine, cst.For, cst.If, cst.While, cst.With, cst.Try)


def _needs_lines(text: str) -> bool:
    """Whether line ends stand outside of all brackets."""
    try:
        cst.parse_expression(text)
    except cst.ParserSyntaxError:
        return True
    return False


class _Edits(cst.CSTTransformer):  # type: ignore[misc]
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, wrapper: MetadataWrapper, edits: Sequence[tuple[Place, Edit]]) -> None:
        super().__init__()
        self.config = wrapper.module.config_for_parsing
        self.lines = wrapper.module.code.splitlines()
        self.indents = [""]
        self.imports = [e.text or "" for _, e in edits if e.kind == "import"]
        self.at: dict[tuple[Place, str], list[Edit]] = {}
        for place, edit in edits:
            if edit.kind != "import":
                self.at.setdefault((place, edit.kind), []).append(edit)

    @property
    def waiting(self) -> list[Any]:
        return list(self.at)

    def _take(self, node: cst.CSTNode, kind: str) -> list[Edit]:
        found = self.get_metadata(PositionProvider, node)
        place = (found.start.line, found.end.line, found.start.column, found.end.column)
        return self.at.pop((place, kind), [])

    # -- expressions -----------------------------------------------------------------------------
    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, _STATEMENTS):
            start = self.get_metadata(PositionProvider, node).start
            self.indents.append(self.lines[start.line - 1][: start.column])
        return bool(super().on_visit(node))

    def on_leave(self, original: Any, updated: Any) -> Any:
        updated = super().on_leave(original, updated)
        if isinstance(original, _STATEMENTS):
            self.indents.pop()
        if isinstance(original, cst.BaseExpression):
            if isinstance(original, cst.Call):
                for edit in self._take(original, "argument"):
                    updated = self._argument(updated, edit)
            for edit in self._take(original, "replace"):
                updated = self._expression(original, edit.text or "")
        elif isinstance(original, cst.AugAssign):
            for edit in self._take(original, "replace"):
                value = self._expression(original.value, edit.text or "")
                target = cst.AssignTarget(original.target)
                updated = cst.Assign([target], value, semicolon=original.semicolon)
        elif isinstance(original, cst.ClassDef):
            updated = self._attributes(original, updated)
        elif isinstance(original, _STATEMENTS):
            updated = self._statement(original, updated)
        return updated

    def _expression(self, old: Any, text: str) -> Any:
        """A new expression in place of an old one, in its brackets where it needs some."""
        first, *rest = text.split("\n")
        text = "\n".join([first, *(line.removeprefix(self.indents[-1]) for line in rest)])
        is_long = _needs_lines(text)
        new = cst.parse_expression(f"({text})" if is_long else text, self.config)
        if old.lpar and (is_long or needs_brackets(text)):
            return new.with_changes(lpar=old.lpar, rpar=old.rpar)
        return new

    def _argument(self, call: cst.Call, edit: Edit) -> cst.Call:
        assert edit.position is not None
        arguments = list(call.args)
        index = next(
            (i for i, a in enumerate(arguments) if (a.keyword.value if a.keyword is not None else None) == edit.name),
            edit.position,
        )
        by_position = [a for a in arguments if a.keyword is None]
        is_given = index < len(by_position) or (
            index < len(arguments)
            and arguments[index].keyword is not None
            and arguments[index].keyword.value == edit.name
        )
        if edit.text is None:
            if is_given and index < len(by_position) - 1:
                raise ValueError(f"{edit.name} is given by position before others")
            if is_given:
                gone = arguments.pop(index)
                if index == len(arguments) and arguments:
                    comma = gone.comma
                    arguments[-1] = arguments[-1].with_changes(
                        comma=comma, whitespace_after_arg=gone.whitespace_after_arg
                    )
            return call.with_changes(args=arguments)
        value = cst.parse_expression(edit.text, self.config)
        if is_given:
            arguments[index] = arguments[index].with_changes(value=value)
            return call.with_changes(args=arguments)
        equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        new = cst.Arg(value, cst.Name(edit.name), equal)
        if arguments:
            last = arguments[-1]
            comma = last.comma
            if not isinstance(comma, cst.Comma):
                comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
                arguments[-1] = last.with_changes(comma=comma)
            else:
                before = arguments[-2].comma if len(arguments) > 1 else comma
                arguments[-1] = last.with_changes(comma=before)
                new = new.with_changes(comma=comma)
        return call.with_changes(args=[*arguments, new])

    # -- statements --------------------------------------------------------------------------------
    def _statement(self, original: Any, updated: Any) -> Any:
        if isinstance(original, cst.SimpleStatementLine):
            gone = [bool(self._take(small, "delete")) for small in original.body]
            before = [e for small in original.body for e in self._take(small, "insert")]
        else:
            gone, before = [], self._take(original, "insert")
        if before:
            new = [cst.parse_statement(f"{e.text}\n", self.config) for e in before]
            new[0] = new[0].with_changes(leading_lines=updated.leading_lines)
            return cst.FlattenSentinel([*new, updated.with_changes(leading_lines=[])])
        if any(gone):
            left = [small for small, is_gone in zip(updated.body, gone) if not is_gone]
            if left:
                left[-1] = left[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
                return updated.with_changes(body=left)
            return cst.RemovalSentinel.REMOVE
        return updated

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        if updated_node.body:
            return updated_node
        return updated_node.with_changes(body=[cst.parse_statement("pass\n", self.config)])

    def _attributes(self, original: cst.ClassDef, updated: cst.ClassDef) -> cst.ClassDef:
        """New lines at the end of the constructor."""
        found = self.get_metadata(PositionProvider, original)
        key = ((found.start.line, found.end.line, found.start.column, found.end.column), "attribute")
        lines = self.at.pop(key, [])
        if not lines:
            return updated
        new = [cst.parse_statement(f"{e.text}\n", self.config) for e in lines]
        body = list(updated.body.body)
        for position, item in enumerate(body):
            if isinstance(item, cst.FunctionDef) and item.name.value == "__init__":
                block = item.body
                assert isinstance(block, cst.IndentedBlock)
                block = block.with_changes(body=[*block.body, *new])
                body[position] = item.with_changes(body=block)
                return updated.with_changes(body=updated.body.with_changes(body=body))
        made: Any = cst.parse_statement(
            f"def __init__(self, *args, **kwargs):\n{self.config.default_indent}super().__init__(*args, **kwargs)\n",
            self.config,
        )
        made = made.with_changes(body=made.body.with_changes(body=[*made.body.body, *new]))
        position = next((i for i, x in enumerate(body) if isinstance(x, cst.FunctionDef)), len(body))
        if position < len(body):
            following: Any = body[position]
            made = made.with_changes(leading_lines=following.leading_lines)
            body[position] = following.with_changes(leading_lines=[cst.EmptyLine(indent=False)])
        body.insert(position, made)
        return updated.with_changes(body=updated.body.with_changes(body=body))


def _with_imports(module: cst.Module, lines: Sequence[str]) -> cst.Module:
    """The module with these behind its last import at the top."""
    if not lines:
        return module
    body = list(module.body)
    last = 0
    for position, item in enumerate(body):
        if isinstance(item, cst.SimpleStatementLine) and isinstance(item.body[0], (cst.Import, cst.ImportFrom)):
            last = position + 1
    new = [cst.parse_statement(f"{line}\n", module.config_for_parsing) for line in dict.fromkeys(lines)]
    return module.with_changes(body=[*body[:last], *new, *body[last:]])
