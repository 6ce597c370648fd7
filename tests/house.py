"""How large the house is: ``python -m tests.house [CHECKOUT ...]``.

In come checkouts (this one by default). Out comes a table with a column for each: files and lines
of code (without blank lines, comments and docstrings), folders of many files, circles of imports,
sets of op names outside the ops, lines of C in Python strings, and how many functions and files of
fxlite four walks cross: ``tanh(x)`` from ``symbolic_trace`` to its node; the optimization and then
the emission of linear + norm + gelu; one rewriting rule. Each checkout is measured by a process of
its own.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

TOPS = ("fxlite", "passes", "codegen")
FRONT_DOOR = ("fxlite", "fxlite.compiler")
"""Modules that import what they are asked for, and that nothing below should need."""
MANY = 20
"""Files that a folder may have; a root may have ``MANY_AT_ROOT``."""
MANY_AT_ROOT = 12


def sources(root: Path, suffix: str = ".py") -> list[Path]:
    """Files of the package, links not followed."""
    found = (p for top in TOPS for p in sorted((root / top).rglob(f"*{suffix}")))
    return [p for p in found if not any(folder.is_symlink() for folder in p.parents)]


def walk(tree: ast.AST, for_checkers: bool = True) -> Iterator[ast.AST]:
    """The nodes of a file, as ``ast.walk`` finds them, which is slower; without ``for_checkers`` not those that
    only type checkers read."""
    found = [tree]
    for node in found:
        if not for_checkers and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                found += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)


def code_lines(path: Path) -> int:
    """Lines that hold code."""
    documentation: set[int] = set()
    for node in walk(ast.parse(path.read_text())):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                documentation.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    nothing = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    }
    lines: set[int] = set()
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type not in nothing:
                lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documentation)


# -- imports ---------------------------------------------------------------------------------------
def module_name(root: Path, path: Path) -> str:
    """The name by which a file is imported."""
    parts = path.relative_to(root).with_suffix("").parts
    parts = parts if parts[0] == "fxlite" else ("fxlite", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, name: str, names: set[str]) -> set[str]:
    """Modules of the package that a file imports, also inside functions; not those that are named
    for type checkers only."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()

    for node in walk(ast.parse(path.read_text()), for_checkers=False):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                parts = parts[: len(parts) - node.level + 1]
                base = ".".join([*parts, *([base] if base else [])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                found.add(whole if whole in names else base)
    return {n for n in found if n in names and n != name}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other (Tarjan 1972), the largest first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for name in sorted(graph):
        if name not in index:
            visit(name)
    return sorted(found, key=len, reverse=True)


def import_graph(root: Path) -> dict[str, set[str]]:
    """Module -> what it imports, lazy imports included."""
    paths = {module_name(root, path): path for path in sources(root)}
    paths = {name: path for name, path in paths.items() if name not in FRONT_DOOR}
    return {name: imports(path, name, set(paths)) for name, path in paths.items()}


# -- op names --------------------------------------------------------------------------------------
def op_name_sets(root: Path, op_names: set[str]) -> list[str]:
    """Places outside the ops where two or more op names stand in one literal, and no other
    string: ``file:line``. Literals that name something else are none: see :func:`names_no_ops`."""
    found = []
    for path in sources(root):
        where = path.relative_to(root).as_posix()
        if where.startswith(("fxlite/ops/", "fxlite/nn/", "fxlite/tracing/numpy_")):
            continue
        tree = ast.parse(path.read_text())
        others: set[ast.AST] | None = None
        for node in walk(tree):
            items: list[Any] = []
            if isinstance(node, ast.Set | ast.Tuple | ast.List):
                items = list(node.elts)
            elif isinstance(node, ast.Dict):
                items = list(node.keys)
            texts = [i.value for i in items if isinstance(i, ast.Constant)]
            if len(texts) >= 2 and len(texts) == len(items) and set(texts) <= op_names:
                others = names_no_ops(tree) if others is None else others
                if node not in others:
                    found.append(f"{where}:{node.lineno}")
    return found


def names_no_ops(tree: ast.AST) -> set[ast.AST]:
    """The literals of a file whose words are no ops, as their use tells:

    - what is compared with the ``function`` of an expression: scalar functions;
    - what is looped over to make names with two underscores around: Python's operators;
    - dicts whose values are computed, since a fact is a constant: arguments by their names, and
      tables that give each op code of its own, which says how it is done and not what it is."""
    found: set[ast.AST] = set()
    compared: dict[str, list[ast.expr]] = {}  # with the name of a literal: what stands left of it
    named: dict[str, ast.AST] = {}
    for node in walk(tree):
        if isinstance(node, ast.Dict) and not all(map(is_constant, node.values)):
            found.add(node)
        elif isinstance(node, ast.For):
            texts = (n for line in node.body for n in walk(line) if isinstance(n, ast.JoinedStr))
            if any(re.fullmatch(r"f'__.*__'", ast.unparse(text)) for text in texts):
                found |= set(walk(node.iter))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named[node.targets[0].id] = node.value
        elif isinstance(node, ast.Compare):
            (right, *_) = node.comparators
            if isinstance(right, ast.Name):
                compared.setdefault(right.id, []).append(node.left)
            elif is_function(node.left):
                found.add(right)
    return found | {named[name] for name, left in compared.items() if name in named and all(map(is_function, left))}


def is_constant(value: ast.expr) -> bool:
    """Whether the text of an expression is its value."""
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True


def is_function(value: ast.expr) -> bool:
    """Whether that is the function which an expression applies."""
    return isinstance(value, ast.Attribute) and value.attr == "function"


# -- C in strings ----------------------------------------------------------------------------------
_C = re.compile(r"[;{}]\s*(//.*|/\*.*)?$")


def c_lines(path: Path) -> int:
    """Lines of Python strings that look like statements of C."""
    count = 0
    for node in walk(ast.parse(path.read_text())):
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(v.value if isinstance(v, ast.Constant) else "x" for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        count += sum(bool(_C.search(line)) for line in text.splitlines())
    return count


# -- walks -----------------------------------------------------------------------------------------
def crossed(function: Callable[[], Any]) -> str:
    """``functions/files`` of the package that a call enters."""
    seen: set[Any] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    own = {c for c in seen if re.search(r"/(fxlite|passes|codegen)/", c.co_filename)}
    return f"{len(own)}/{len({c.co_filename for c in own})}"


def walks() -> Iterator[tuple[str, str]]:
    """What each walk crosses when it is gone a second time, everything imported and cached."""
    import fxlite as fx
    from fxlite import nn
    from fxlite.codegen.c.emit import emit
    from fxlite.nn import functional as F

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(16, 16), nn.LayerNorm(16)

        def forward(self, x: Any) -> Any:
            return F.gelu(self.norm(self.linear(x)))

    def tanh(x: Any) -> Any:
        import numpy as np

        return np.tanh(x)

    def trace() -> Any:
        return fx.symbolic_trace(tanh, "f32[4]")

    block = Block()

    def traced() -> Any:
        return fx.symbolic_trace(block, "f32[B,16]")

    def doubled() -> Any:
        return fx.symbolic_trace(lambda x: (x + 0.0) * 2.0, "f32[4]")

    simplify = fx.passes.PASSES["simplify"]
    trace()
    yield "walk: trace tanh(x)", crossed(trace)
    emit(fx.compile(traced(), backend="c").optimized)
    function = fx.compile(traced(), backend="c")
    yield "walk: optimize linear+norm+gelu", crossed(lambda: function.optimized)
    yield "walk: emit linear+norm+gelu", crossed(lambda: emit(function.optimized))
    simplify(doubled())
    module = doubled()
    yield "walk: one rule (x + 0)", crossed(lambda: simplify(module))


def _registry(module: str) -> Iterable[str]:
    """Names of ops, from where a checkout has them."""
    try:
        return tuple(importlib.import_module(module).REGISTRY)
    except ImportError:
        return ()


#: Lines that the formatter is told to leave alone.
UNFORMATTED = re.compile(r"#\s*fmt: *(?:skip|off)")


def measure(root: Path) -> dict[str, Any]:
    """The numbers of one checkout, by a process that imports it."""
    importlib.import_module("fxlite").ops  # noqa: B018 - fills the registry
    files = sources(root)
    headers = [*sources(root, ".h"), *sources(root, ".cuh")]
    folders: dict[Path, int] = {}
    for path in files:
        folders[path.parent] = folders.get(path.parent, 0) + 1
    found = circles(import_graph(root))
    names = {name for module in ("fxlite.ops.op", "fxlite.ops.op") for name in _registry(module)}
    return {
        "files": len(files),
        "lines of code": sum(map(code_lines, files)),
        "C and CUDA files": len(headers),
        "their lines": sum(len(p.read_text().splitlines()) for p in headers),
        "files under 100 lines": sum(len(p.read_text().splitlines()) < 100 for p in files),
        f"folders over {MANY} files": sum(
            n > (MANY_AT_ROOT if path.name in TOPS else MANY) for path, n in folders.items()
        ),
        "circles of imports": len(found),
        "files in the largest": len(found[0]) if found else 0,
        "sets of op names": len(op_name_sets(root, names)),
        "lines without formatter": sum(len(UNFORMATTED.findall(p.read_text())) for p in files),
        "lines of C in strings": sum(map(c_lines, (p for p in files if "codegen" in p.parts))),
        "test files": len(list((root / "tests").rglob("*.py"))),
        "lines of tests": sum(map(code_lines, (root / "tests").rglob("*.py"))),
        **dict(walks()),
    }


def main() -> int:
    """Print the table."""
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(Path(sys.argv[2]))))
        return 0
    roots = [Path(p).resolve() for p in sys.argv[1:]] or [Path(__file__).resolve().parents[1]]
    columns = []
    for root in roots:
        done = subprocess.run(
            [sys.executable, __file__, "--one", str(root)],
            cwd=root,
            check=True,
            text=True,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(root)},
        )
        columns.append(json.loads(done.stdout))
    for name in columns[0]:
        cells = "".join(f"{column.get(name, '')!s:>12}" for column in columns)
        print(f"{name:34}{cells}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
