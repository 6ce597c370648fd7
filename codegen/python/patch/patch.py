"""The changes that passes made to a program as a patch on the user's own files: planned, proven, applied.

In: how to load a program, types of its inputs, passes. Out: a :class:`Patch`: unified diffs, hunks to choose from, and
a converter of weights. Nothing is returned that was not run: the patched program is loaded beside the original, with
weights from the converter, and its results must equal those of the optimized graph; so must those of the original with
weights from the converter's inverse.

LibCST edits the files and keeps the rest of them byte for byte.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import libcst as cst
import numpy as np
from libcst.metadata import MetadataWrapper, PositionProvider

from fxlite.base.console import write_whole
from fxlite.base.errors import FxliteError
from fxlite.codegen.program.example_inputs import make_cases
from fxlite.codegen.python.patch.converter import Converter, make_converter, with_warning
from fxlite.codegen.python.patch.plan import Plan
from fxlite.codegen.python.patch.recording import ADVICE, Edit, PatchError, Recording
from fxlite.codegen.python.patch.spelling import needs_brackets
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module
from fxlite.passes.base import Pass
from fxlite.passes.derived import Derivation, derivations, sources_in
from fxlite.passes.manager import PassManager
from fxlite.show.comparison.graph_diff import diff
from fxlite.tracing.symbolic_trace import symbolic_trace
from fxlite.types.agreement import Exactness, compare, computed, leaves

#: Makes the program anew, reading these files' bytes in place of what is on disk.
Load = Callable[[Mapping[str, bytes]], Any]


@dataclass(frozen=True)
class Hunk:
    """A part of a diff: lines ``start`` to ``stop`` of the old file (from 0) become ``new``; ``text`` is the hunk in
    the diff."""

    file: str
    start: int
    stop: int
    new: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Patch:
    """``old`` and ``new`` are the bytes of the changed files, by path. ``converter`` is None for a program that is a
    function. ``attributes`` maps paths of new weights in the graph ``after`` passes to those in the patched
    program."""

    name: str
    old: Mapping[str, bytes]
    new: Mapping[str, bytes]
    converter: Converter | None
    title: str
    load: Load
    program: Any
    before: GraphModule
    after: GraphModule
    attributes: Mapping[str, str]
    names: frozenset[str] = frozenset()  # of the weights of the patched program
    #: Where the text could not say what passes did, and does what it did.
    left: tuple[str, ...] = ()
    #: How close passes promise to stay to the original.
    promise: Exactness = computed

    def hunks(self) -> list[Hunk]:
        """All hunks, in the order of the diff."""
        return [h for file in self.new for h in _hunks(file, self.old[file], self.new[file])]

    def diff(self, hunks: Sequence[Hunk] | None = None) -> str:
        """A unified diff with paths relative to the working folder, as ``patch -p1`` and ``git apply`` expect; if a
        file is elsewhere, paths are relative to the common folder of all files."""
        chosen = self.hunks() if hunks is None else hunks
        lines: list[str] = []
        start = os.getcwd()
        if any(os.path.relpath(file).startswith(os.pardir) for file in self.new):
            start = os.path.commonpath([os.path.dirname(file) for file in self.new])
        for file in dict.fromkeys(h.file for h in chosen):
            shown = os.path.relpath(file, start).replace(os.sep, "/")
            lines += [f"--- a/{shown}\n", f"+++ b/{shown}\n"]
            lines += [h.text for h in chosen if h.file == file]
        return "".join(lines)

    def choose(self, hunks: Sequence[Hunk]) -> Patch:
        """The patch with only these hunks, proven like a whole one. Raises PatchError if they do not make a program
        without the others."""
        made: dict[str, bytes] = {}
        for file in self.new:
            chosen = [h for h in hunks if h.file == file]
            if chosen:
                lines = _lines(self.old[file])
                for hunk in reversed(chosen):
                    lines[hunk.start : hunk.stop] = hunk.new
                made[file] = "".join(lines).encode("utf-8", "surrogateescape")
        if made == dict(self.new) or not made:
            return replace(self, new=made)
        try:
            converter = self.prove(made, self.before, self.promise)
        except (FxliteError, Exception) as error:
            raise PatchError(f"these hunks do not make a program without the others: {error}") from error
        return replace(self, new=made, converter=converter)

    def prove(
        self, made: Mapping[str, bytes], expected: GraphModule, promise: Exactness = computed
    ) -> Converter | None:
        """Run the program with these files, and the original with weights that were converted there and back; returns
        the converter. Raises PatchError, and whatever the program raises."""
        patched = self.load(made)
        if not isinstance(patched, Module) or not isinstance(self.program, Module):
            _agree("the patched program", patched, expected, promise=promise)
            return None
        own = dict(self.program.state_dict())
        converter = self._converter(patched)
        functions = converter.functions()
        patched.load_state_dict(functions["convert"](own))
        _agree("the patched program", patched, expected, promise=promise)
        original = self.load({})
        if not converter.stored:  # then it is valid for any weights
            original.load_state_dict(own := _others(own))
            patched.load_state_dict(functions["convert"](own))
            what = "the patched program with other weights"
            _agree(what, patched, self.before, original, self.promise)
        original.load_state_dict(functions["invert"](patched.state_dict(), own))
        what = "the program with weights that were converted back"
        _agree(what, original, self.before, patched, self.promise)
        try:
            patched.load_state_dict(_others(patched.state_dict()))
            original.load_state_dict(functions["invert"](patched.state_dict(), own))
            _agree(what, original, self.before, patched, self.promise)
        except PatchError:
            return replace(converter, text=with_warning(converter.text))
        return converter

    def _converter(self, patched: Module) -> Converter:
        names = {new: old for old, new in self.attributes.items()}
        for module in (self.program, patched):  # weights at two paths are traced under the first
            first: dict[int, str] = {}
            for key, array in module.state_dict().items():
                kept = first.setdefault(_address(array), key)
                if kept != key:
                    names[key] = names.get(kept, kept)
        mine = {k: np.asarray(v) for k, v in self.program.state_dict().items()}
        reads = {str(n.target) for n in self.before.graph.find_nodes(op="get_attr")}
        constants = {p: np.asarray(self.before.get_attribute(p)) for p in reads - mine.keys()}
        keys = list(patched.state_dict())
        read = {str(n.target) for n in self.after.graph.find_nodes(op="get_attr")}
        own = {names.get(key, key) for key in keys}
        steps = _applied(derivations(self.after), {*mine, *constants}, own, self.names or own)
        changed = {path for step in derivations(self.after) for path in step.results}
        undone = changed - {path for step in steps for path in step.results}
        wanted = {
            key: np.asarray(self.after.get_attribute(names.get(key, key)))
            for key in keys
            if names.get(key, key) in read - undone
        }
        return make_converter(self.title, mine, keys, names, wanted, steps, constants, read)

    def check_unchanged(self) -> None:
        """Raise PatchError if a file has changed since the program was traced."""
        for file, content in self.old.items():
            try:
                now = Path(file).read_bytes()
            except OSError as error:
                raise PatchError(f"{file} cannot be read any more: {error.strerror}") from error
            if now != content:
                first = next(
                    (i for i, (a, b) in enumerate(zip(_lines(content), _lines(now)), 1) if a != b),
                    min(len(_lines(content)), len(_lines(now))),
                )
                raise PatchError(
                    f"{file}:{first}: the file changed after the program was traced; run the command again"
                )

    def write(self) -> None:
        """Replace the text of the files. Raises PatchError for a file that has changed, and OSError."""
        self.check_unchanged()
        for file, content in self.new.items():
            write_whole(file, content)


def make_patch(name: str, folder: Path, load: Load, inputs: Mapping[str, Any], passes: Iterable[Pass]) -> Patch:
    """The patch that applies to a program, whose files are below ``folder``, the changes that passes made to its
    graph.

    Raises PatchError for changes that cannot be expressed in the program's text, or cannot be proven; and whatever
    tracing and passes raise."""
    names = list(passes)
    with Recording(folder.resolve()) as recording:
        program = load({})
        before = symbolic_trace(program, inputs=dict(inputs))
    after = PassManager(names)(before)
    plan = Plan(program, before, after, recording)
    old = {file: text.content for file, text in recording.texts.items() if text is not None}
    new = {file: edited(old[file], edits) for file, edits in plan.edits.items()}
    new = {file: content for file, content in new.items() if content != old[file]}
    old = {file: old[file] for file in new}
    title = (
        f"Converts weights of {name} between {', '.join(Path(f).name for f in new)} as it was and "
        f"as {', '.join(p.name for p in names)} made it."
    )
    made = Patch(name, old, new, None, title, load, program, before, after, plan.attributes)
    lossy = [p.exactness for p in names if p.exactness.kind not in ("exact", "allclose")]
    if lossy:
        made = replace(made, promise=min(lossy, key=lambda e: e.db or 0))
    made = replace(made, left=tuple(dict.fromkeys(plan.left.values())))
    if not new:
        why = made.left or tuple(_outside(before, after, recording))
        if why:
            raise PatchError(why[0])
        return made
    try:
        converter = made.prove(new, after)
    except Exception as error:
        said = str(error) if isinstance(error, PatchError) else f"{type(error).__name__}: {error}"
        why = (*made.left, *_outside(before, after, recording))
        left = "".join(f"\n  {text}" for text in why[:5])
        because = f"; it may be because of what stayed as it was:{left}" if left else ""
        raise PatchError(f"the patch is not proven: {said}{because}") from error
    return replace(made, converter=converter, names=converter.names if converter else frozenset())


def _outside(before: GraphModule, after: GraphModule, recording: Recording) -> Iterator[str]:
    """For each node that passes removed or changed and whose text cannot change, the reason."""
    found = diff(before, after)
    for node in (change.old for change in (*found.removed, *found.changed)):
        place = node.loc if node is not None else None
        if place is not None and recording.text(place.file) is None:
            yield f"{place.short}: `{node}` would change, but {place.file} {recording.not_below}"


def _applied(steps: Sequence[Derivation], before: set[str], names: set[str], whole: Container[str]) -> list[Derivation]:
    """The steps whose results are in a program with weights of these names; of steps that share weights, all or none.
    ``whole`` has the names in the whole patch. Raises PatchError."""
    groups: list[tuple[set[str], list[Derivation]]] = []
    for step in steps:
        paths, own = {*step.results, *sources_in(step.arguments)}, [step]
        for group in [g for g in groups if g[0] & paths]:
            groups.remove(group)
            paths, own = paths | group[0], [*group[1], *own]
        groups.append((paths, own))
    made: list[Derivation] = []
    for paths, own in groups:
        new = {p for p in paths if p in whole and p not in before}
        gone = {p for p in paths if p in before and p not in whole}
        if new <= names and not gone & names:
            made += own
        elif new & names or gone - names:
            raise PatchError(f"the weights {', '.join(sorted(new | gone))} belong together")
    return [step for step in steps if any(step is one for one in made)]


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0]) if array.size else id(array)


def _others(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Weights close to these, but certainly different."""
    generator = np.random.default_rng(0)
    made: dict[int, Any] = {}  # weights with two names stay shared
    for array in map(np.asarray, weights.values()):
        if _address(array) not in made:
            is_float = array.dtype.kind not in "biu"
            factor = 1 + generator.random(array.shape) / 4 if is_float else 1
            made[_address(array)] = np.asarray(array * factor, array.dtype)
    return {key: made[_address(np.asarray(value))] for key, value in weights.items()}


def _agree(what: str, program: Any, graph: GraphModule, reference: Any = None, promise: Exactness = computed) -> None:
    """Compare a program with a graph, or with ``reference``, on inputs drawn for the graph. Raises PatchError."""
    for module in (program, reference):
        if isinstance(module, Module):
            module.eval()
    for case in make_cases(graph):
        with np.errstate(all="ignore"):
            wanted = leaves((reference or graph)(**case.inputs))
            try:
                found = leaves(program(**case.inputs))
            except Exception as error:
                raise PatchError(f"{what} fails at {case.label}: {type(error).__name__}: {error}; {ADVICE}") from error
        agreement = compare(wanted, found, promise)
        if not agreement.agrees:
            raise PatchError(f"{what} does not give the right result at {case.label}: {agreement}; {ADVICE}")


# -- text ------------------------------------------------------------------------------------------
def _lines(content: bytes) -> list[str]:
    """Lines with their line ends, as diff counts them."""
    parts = content.decode("utf-8", "surrogateescape").split("\n")
    lines = [f"{part}\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def _hunks(file: str, old: bytes, new: bytes) -> list[Hunk]:
    before, after = _lines(old), _lines(new)
    made = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for group in matcher.get_grouped_opcodes(3):
        first, last = group[0], group[-1]
        text = f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@\n"
        for kind, i, j, k, m in group:
            if kind == "equal":
                text += "".join(map(_shown, before[i:j], [" "] * (j - i)))
                continue
            text += "".join(map(_shown, before[i:j], ["-"] * (j - i)))
            text += "".join(map(_shown, after[k:m], ["+"] * (m - k)))
        made.append(Hunk(file, first[1], last[2], tuple(after[first[3] : last[4]]), text))
    return made


def _shown(line: str, mark: str) -> str:
    end = "" if line.endswith("\n") else "\n\\ No newline at end of file\n"
    return f"{mark}{line}{end}"


def _range(start: int, stop: int) -> str:
    """A range as diff writes it: the first line, counted from 1, and the number of lines."""
    size = stop - start
    return f"{start + (size > 0)},{size}"


# -- edits of files --------------------------------------------------------------------------------
Place = tuple[int, int, int, int]


def edited(content: bytes, edits: Iterable[Edit]) -> bytes:
    """The content of a file after the edits."""
    module = cst.parse_module(content)
    lines = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    encoding = module.encoding

    def place(edit: Edit) -> Place:
        """The place as LibCST counts: columns in characters."""
        first, last, start, stop = edit.span
        columns = (len(lines[n - 1][:c].decode(encoding)) for n, c in ((first, start), (last, stop)))
        return (first, last, *columns) if first else edit.span  # type: ignore[return-value]

    wrapper = MetadataWrapper(module)
    transformer = _Edits(wrapper, [(place(edit), edit) for edit in edits])
    changed = wrapper.visit(transformer)
    assert not transformer.at, f"no part of the file is at {list(transformer.at)}"
    return bytes(_with_imports(changed, transformer.imports).bytes)


_STATEMENTS = (cst.SimpleStatementLine, cst.For, cst.If, cst.While, cst.With, cst.Try)


def _needs_lines(text: str) -> bool:
    """Whether a line ends outside all brackets."""
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
        """A new expression in place of an old one, in brackets if it needs them."""
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
        names = [a.keyword.value if a.keyword is not None else None for a in arguments]
        count = names.count(None)  # of positional arguments
        is_given = edit.name in names or edit.position < count
        index = names.index(edit.name) if edit.name in names else edit.position
        if edit.text is None:
            if is_given and index < count - 1:
                raise ValueError(f"{edit.name} is given by position before others")
            if is_given:
                gone = arguments.pop(index)
                if index == len(arguments) and arguments:
                    ends = {"comma": gone.comma, "whitespace_after_arg": gone.whitespace_after_arg}
                    arguments[-1] = arguments[-1].with_changes(**ends)
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

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock) -> Any:
        made = [cst.parse_statement("pass\n", self.config)]
        return updated_node if updated_node.body else updated_node.with_changes(body=made)

    def _attributes(self, original: cst.ClassDef, updated: cst.ClassDef) -> cst.ClassDef:
        """New lines at the end of the constructor."""
        lines = self._take(original, "attribute")
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
    """The module with these lines after its last import at the top."""
    if not lines:
        return module
    body = list(module.body)
    last = 0
    for position, item in enumerate(body):
        if isinstance(item, cst.SimpleStatementLine) and isinstance(item.body[0], (cst.Import, cst.ImportFrom)):
            last = position + 1
    new = [cst.parse_statement(f"{line}\n", module.config_for_parsing) for line in dict.fromkeys(lines)]
    return module.with_changes(body=[*body[:last], *new, *body[last:]])
