"""``fx.migrate``: convert a file written for torch.fx to one for fxlite.

In: a Python file or a folder of them. Out: a :class:`Migration`: each file's new text, in which imports,
names and op targets are replaced, and a :class:`Finding` for each line that changes or on which a person
must decide. Nothing is guessed: a name that has no counterpart stays as it is, and is listed with the
reason.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fxlite.base.errors import ArgumentError, ParseError, number_of
from fxlite.codegen.porting.verdicts import ROOTS, Finding

#: What a line may hold that only a person can port: a regular expression, the kind, and why.
_SIGNS: tuple[tuple[str, str, str], ...] = (
    (
        r"""==\s*['"]call_method['"]|['"]call_method['"]\s*(?:==|:)""",
        "hand",
        "methods are recorded as ops: node.op == 'call_function', node.target an op",
    ),
    (
        r"""create_node\(\s*['"]call_method['"]""",
        "hand",
        "graph.call_method(...) records the ops that the method computes",
    ),
    (
        r"""meta(?:\.get\(|\[)\s*['"](?:tensor_meta|val|example_value|type)['"]""",
        "hand",
        "types are node.type (node.type.shape, node.type.dtype)",
    ),
    (
        r"""meta(?:\.get\(|\[)\s*['"](?:nn_module_stack|source_fn_stack|stack_trace)['"]""",
        "hand",
        "modules are node.scope, places node.loc",
    ),
    (
        r"\._(?:tracer_cls|codegen|out_spec|in_spec|update_args_kwargs|Node__update_args_kwargs"
        r"|input_nodes|copy_attr)\b",
        "hand",
        "this is private to torch.fx",
    ),
    (
        r"\.(?:args|kwargs)(?:\[[^\]]*\])+\s*=[^=]|\.users(?:\.pop\(|\[[^\]]*\]\s*=[^=])",
        "hand",
        "arguments and users are read-only: assign node.args, or call node.update_arg",
    ),
    (
        r"\bargs\[(?:[1-9]|-\d|\d*:)",
        "check",
        "args are the tensors of an op, its attributes are kwargs: node.arguments['dim'], node.bound",
    ),
    (
        r"\.(?:device|requires_grad|is_cuda|layout)\b|\.(?:to|cpu|cuda|detach|contiguous|clone|numel"
        r"|requires_grad_|data_ptr|is_contiguous)\(",
        "check",
        "arrays have none of torch's devices, layouts and gradients",
    ),
    (
        r"\.(?:permute|view|unsqueeze|expand|chunk|transpose|masked_fill|size|dim|repeat|gather|norm"
        r"|softmax|add_|mul_)\(",
        "check",
        "arrays have NumPy's methods; ops are functions, fx.ops",
    ),
)


#: What findings are called, one and several, if not by the name of their kind.
_CALLED = {
    "leaf": ("leaf", "leaves"),
    "hand": ("place to port by hand", "places to port by hand"),
    "check": ("place to check", "places to check"),
}


@dataclass(frozen=True)
class FilePort:
    """One file: its text before and after, and the findings in order of lines."""

    path: Path
    before: str
    after: str
    findings: tuple[Finding, ...]

    def lines(self, *kinds: str) -> set[int]:
        """The lines with findings of these kinds."""
        return {f.line for f in self.findings if f.kind in kinds}

    @property
    def diff(self) -> str:
        """The changes as a unified diff."""
        before, after = self.before.splitlines(True), self.after.splitlines(True)
        name = str(self.path)
        return "".join(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}"))

    def __str__(self) -> str:
        counts = Counter(f.kind for f in self.findings)
        said = ", ".join(number_of(n, *_CALLED.get(kind, (kind,))) for kind, n in counts.items()) or "nothing to do"
        lines = [f"{self.path} ({number_of(len(self.before.splitlines()), 'line')}): {said}"]
        return "\n".join([*lines, *map(str, self.findings)])


@dataclass
class Migration:
    """The result of :func:`migrate`; prints as a list of lines for each file."""

    files: list[FilePort] = field(default_factory=list)

    def write(self, folder: str | Path) -> list[Path]:
        """Write the ported files into a folder, which is created; returns the files. Raises OSError."""
        root, made = Path(folder), []
        starts = [f.path.parent for f in self.files]
        common = min(starts, key=lambda p: len(p.parts), default=Path())
        for file in self.files:
            target = root / file.path.relative_to(common)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(file.after, encoding="utf-8")
            made.append(target)
        return made

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.files)) or "no file names torch.fx"

    __repr__ = __str__


def migrate(path: str | Path) -> Migration:
    """Convert a file (or the files of a folder) written for torch.fx so that it runs with fxlite:
    ``print(fx.migrate("passes.py"))``, ``fx.migrate("passes.py").write("ported")``.

    Needs the extra "patch". Raises ArgumentError if that is missing or the path does not exist, and
    ParseError for a file that is not Python."""
    try:
        import libcst  # noqa: F401
    except ImportError:
        raise ArgumentError('fx.migrate needs libcst: pip install "fxlite[patch]"') from None
    given = Path(path)
    if given.is_dir():
        files = sorted(given.rglob("*.py"))
        found = [p for p in files if "torch" in p.read_text(encoding="utf-8", errors="replace")]
    elif given.is_file():
        found = [given]
    else:
        raise ArgumentError(f"there is no file or folder {given}")
    return Migration([migrate_text(p.read_text(encoding="utf-8"), p) for p in found])


def migrate_text(text: str, path: Path) -> FilePort:
    """The port of one file's text. Raises ParseError."""
    import libcst as cst
    from libcst.metadata import MetadataWrapper

    from fxlite.codegen.porting.rewriting import Rewriter

    try:
        tree = MetadataWrapper(cst.parse_module(text))
    except cst.ParserSyntaxError as error:
        line, column = error.raw_line, error.raw_column
        raise ParseError(f"{path}:{line}:{column}: not Python: {error.message}") from None
    rewriter = Rewriter(text, _free_roots(text))
    after: Any = tree.visit(rewriter)
    findings = [*rewriter.findings, *_signs(text)]
    order = sorted(set(findings), key=lambda f: (f.line, f.kind, f.old))
    return FilePort(path, text, after.code, tuple(order))


def _free_roots(text: str) -> dict[str, str]:
    """The name of each root in a file that may use the usual name for something else."""
    made = {}
    for root in ROOTS:
        bound = re.search(
            rf"^\s*(?:def|class)\s+{root}\b|^\s*{root}\s*=|[(,]\s*{root}\s*[:=,)]"
            rf"|\bfor\s+{root}\s+in\b",
            text,
            re.MULTILINE,
        )
        made[root] = root if bound is None else f"fxlite_{root}"
    return made


def _signs(text: str) -> Iterable[Finding]:
    """Findings for lines with constructs that differ in fxlite; docstrings are ignored."""
    strings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for number, line in enumerate(text.splitlines(), 1):
        code = "" if number in strings else line.partition("#")[0]
        for sign, kind, why in _SIGNS:
            found = re.search(sign, code)
            if found is not None:
                yield Finding(number, kind, code.strip(), why=why)
