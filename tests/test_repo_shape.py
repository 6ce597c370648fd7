"""The shape of the repository: imports go down only, everything public is documented, and no file
depends on one machine.

The rules are read from the sources, imports inside functions included.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fxlite.ops import REGISTRY
from tests import house

ROOT = Path(__file__).resolve().parents[1]
#: The front door: what may reach upwards.
FRONT_DOOR = ("fxlite/__init__.py", "fxlite/__main__.py", "fxlite/cli/", "fxlite/compiler.py", "fxlite/just_in_time.py")


def sources(*tops: str) -> list[Path]:
    """Python files below these folders, links not followed."""
    found = [
        path
        for top in tops
        for path in sorted((ROOT / top).rglob("*.py"))
        if not any(folder.is_symlink() for folder in path.parents)
    ]
    assert found
    return found


PACKAGE = sources("fxlite", "passes", "codegen")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(nodes: Iterable[ast.AST], package: str) -> Iterator[tuple[int, str]]:
    """(line, module) of every import among the nodes; for ``from a import b`` both ``a`` and ``a.b``."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([base] if base else [])])
            yield node.lineno, base
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if called in ("import_module", "__import__") and node.args:
                argument = node.args[0]
                if isinstance(argument, ast.Constant):
                    yield node.lineno, str(argument.value)


def package_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parent.parts
    return ".".join(parts if parts[0] == "fxlite" else ("fxlite", *parts))


def module_of(path: Path) -> str:
    return package_of(path) if path.stem == "__init__" else f"{package_of(path)}.{path.stem}"


MODULES = frozenset(map(module_of, PACKAGE))


def upward(path: Path, text: str) -> list[str]:
    """Imports in this file that go up, as ``file:line: module``."""
    top = path.relative_to(ROOT).parts[0]
    forbidden = {"fxlite": ("fxlite.passes", "fxlite.codegen"), "passes": ("fxlite.codegen",)}
    by_wrong_name = ("tests", "tutorials", "passes", "codegen")
    wrong = []
    for line, module in imported(house.walk(ast.parse(text)), package_of(path)):
        up = forbidden.get(top, ()) if not relative(path).startswith(FRONT_DOOR) else ()
        for name in (*up, *by_wrong_name):
            if module == name or module.startswith(f"{name}."):
                wrong.append(f"{relative(path)}:{line}: {module}")
    return sorted(set(wrong))


@pytest.mark.parametrize("path", PACKAGE, ids=relative)
def test_imports_go_down(path: Path) -> None:
    assert not upward(path, path.read_text())


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("fxlite/graph/graph.py", "import fxlite.passes"),
        ("fxlite/graph/graph.py", "def f():\n    from fxlite import codegen"),
        ("fxlite/nn/linear.py", "from ..passes import base"),
        ("fxlite/nn/linear.py", "from .. import codegen"),
        ("passes/rules/redundant.py", "import importlib\nimportlib.import_module('fxlite.codegen.c')"),
        ("passes/rules/redundant.py", "from passes.base import Pass"),
        ("codegen/kernel/lower.py", "from tests import oracle"),
    ],
)
def test_an_upward_import_is_found(file: str, text: str) -> None:
    assert upward(ROOT / file, text)


def test_downward_imports_pass() -> None:
    assert not upward(ROOT / "codegen/kernel/lower.py", "from fxlite.passes.group import Group")
    assert not upward(ROOT / "fxlite/compiler.py", "from fxlite.codegen import backends")


# -- rooms ---------------------------------------------------------------------------------------
#: The rooms of each folder from the ground up: a room knows those before it. A file may be a room.
#: Other files at the root of a folder come last: what only passes on names, back ends, commands.
ROOMS = {
    "fxlite": "base types scalar ops nn graph tracing show files importing backend lazy".split(),
    "passes": (
        "derived ledger inside base group rewrite cutting checking "
        "manager shape_prop rules costing profiling quantize.schemes quantize.conversion "
        "quantize.planning quantize surgery"
    ).split(),
    "codegen": (
        "kernel c.tiles runtime folder program python "
        "c c.dynamic_scale c.weights c.product c.conv c.attention "
        "c.recurrence c.render c.templates c.calls c.rolling c.structs c.workspace c.header c.run "
        "c.structure c.emit c.selftest c.bundle "
        "cuda embedded onnx tuning reporting porting"
    ).split(),
}
#: The one file that may name modules of higher rooms, in a table.
TABLE_OF_HIGHER = "fxlite/base/facade.py"


def room_of(module: str, folder: str) -> int | None:
    """The place of a module's room among those of its folder; None for other folders' modules."""
    prefix = "fxlite." if folder == "fxlite" else f"fxlite.{folder}."
    name = module.removeprefix(prefix)
    if name == module or module.startswith(("fxlite.passes", "fxlite.codegen")) != (folder != "fxlite"):
        return None
    rooms = ROOMS[folder]
    found = [r for r in rooms if name == r or name.startswith(f"{r}.")]
    return rooms.index(max(found, key=len)) if found else len(rooms)


def out_of_room(path: Path, text: str) -> list[str]:
    """What a file names of rooms above its own, as ``file:line: module``: by imports, those inside
    functions included, and by texts that are names of modules."""
    folder, package = path.relative_to(ROOT).parts[0], package_of(path)
    own = room_of(module_of(path), folder)
    if relative(path).startswith(FRONT_DOOR):
        return []
    assert own is None or own < len(ROOMS[folder]) or path.parent == ROOT / folder, "in no room"
    if own is None:  # the folder's own __init__.py
        return []
    nodes = list(house.walk(ast.parse(text), for_checkers=False))
    named = list(imported(nodes, package))
    named += [
        (node.lineno, node.value)
        for node in nodes
        if isinstance(node, ast.Constant) and relative(path) != TABLE_OF_HIGHER
        if isinstance(node.value, str) and node.value in MODULES
    ]
    rooms = ((line, module, room_of(module, folder)) for line, module in named)
    return sorted({f"{relative(path)}:{line}: {m}" for line, m, r in rooms if (r or 0) > own})


@pytest.mark.parametrize("path", sources(*ROOMS), ids=relative)
def test_rooms_know_those_below(path: Path) -> None:
    assert not out_of_room(path, path.read_text())


def test_passes_do_not_knock_at_the_front_door() -> None:
    doors = ("fxlite.compiler", "fxlite.just_in_time", "fxlite.cli")
    found = {
        relative(path)
        for path in sources("passes")
        for _, module in imported(house.walk(ast.parse(path.read_text()), for_checkers=False), package_of(path))
        if module.startswith(doors)
    }
    assert not found


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("fxlite/graph/graph.py", "def f():\n    from fxlite.show.drawing import draw"),
        ("fxlite/graph/graph.py", "from fxlite.show import drawing"),
        ("fxlite/graph/graph.py", "from fxlite.compiler import compile"),
        ("fxlite/graph/graph.py", "from fxlite import Proxy"),
        ("fxlite/types/shapes.py", "def f():\n    importlib.import_module('fxlite.ops.op')"),
        ("passes/rewrite/rule.py", "def f():\n    from fxlite.passes.checking import verify"),
        ("passes/rewrite/rule.py", "from fxlite.passes import PassManager"),
        ("passes/quantize/schemes/roles.py", "from fxlite.passes.quantize import planning"),
        ("codegen/kernel/lower.py", "from ..program import packing"),
        ("codegen/c/conv/conv.py", "from fxlite.codegen.c.render import alternatives"),
        ("fxlite/types/shapes.py", "TABLE = {'f': 'fxlite.tracing.proxy'}"),
    ],
)
def test_a_way_up_is_found(file: str, text: str) -> None:
    assert out_of_room(ROOT / file, text)


def test_ways_down_pass() -> None:
    file = ROOT / "fxlite/graph/graph.py"
    down = "from fxlite import nn, ops\nfrom fxlite.graph.node import Node\nx = 'see fxlite.show'"
    assert not out_of_room(file, down)
    assert not out_of_room(file, "if TYPE_CHECKING:\n    from fxlite.show.summary import Summary")


# -- facts of ops ----------------------------------------------------------------------------------
def test_facts_of_ops_stand_in_their_records() -> None:
    found = house.op_name_sets(ROOT, set(REGISTRY))
    assert not found, "\n".join(["state a fact in fxlite/ops/facts.py:", *found])


OF_OPS = """\
is_sum = node.target.name in ("add", "sub")
KEEPS = {"relu", "abs"}
keeps = node.target.name in KEEPS or expression.function in KEEPS
BOUNDS = {"relu": (0, None), "relu6": (0, 6.0)}
for name in ["tril", "triu"]:
    print(f"{name} keeps a triangle")
def takes(names=("max", "min")): pass
"""
OF_OTHERS = """\
is_bound = expression.function in ("lt", "ge")
FUNCTIONS = ("maximum", "minimum")
known = expression.function in FUNCTIONS or expression.function not in FUNCTIONS
for name in ("lt", "ge"):
    setattr(Proxy, f"__{name}__", operator(name))
call("clip", {"min": low, "max": high})
ROUTINES = {"sort": SORT, "argsort": (SORT, positions)}
mixed = name in ("add", "no op at all")
"""


def test_sets_of_op_names_are_found(tmp_path: Path) -> None:
    """Wherever they are planted, and not what only looks like one."""
    (tmp_path / "passes").mkdir()
    (tmp_path / "passes" / "planted.py").write_text(OF_OPS + OF_OTHERS)
    found = house.op_name_sets(tmp_path, set(REGISTRY))
    assert sorted(found) == [f"passes/planted.py:{line}" for line in (1, 2, 4, 5, 7)]


def test_folders_can_be_overlooked() -> None:
    """At most 20 files: what there is more of has rooms of its own."""
    counts = Counter(path.parent for path in PACKAGE)
    assert not [f"{relative(folder)}: {count} files" for folder, count in counts.items() if count > 20]


def test_no_files_import_each_other() -> None:
    """Imports inside functions count, those for type checkers do not."""
    graph = house.import_graph(ROOT)
    assert len(graph) > 300
    assert not house.circles(graph)


# -- documentation ---------------------------------------------------------------------------------
def undocumented(tree: ast.Module, known: frozenset[str] = frozenset()) -> Iterator[str]:
    """Public functions and classes at the top of a module without a docstring."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            if any(map(is_told, node.decorator_list)) or node.name.rstrip("_") in known:
                continue
            if ast.get_docstring(node) is None:
                yield f"{node.lineno}: {node.name}"


def is_told(decorator: ast.expr) -> bool:
    """Whether a decorator tells what a function is: another form of one, or the row of an op in a table."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Name) and called.id in ("overload", "onnx_op", "exports")


@pytest.mark.parametrize("path", PACKAGE, ids=relative)
def test_everything_public_is_documented(path: Path) -> None:
    tree = ast.parse(path.read_text())
    if tree.body:
        assert ast.get_docstring(tree), f"{relative(path)} does not say what it is for"
    # what is named as in NumPy there means what NumPy's documentation says
    is_numpy = path.name in ("numpy_api.py", "numpy_functions.py")  # NumPy's own names say it
    known = frozenset((*dir(np), *dir(np.ndarray), "round_")) if is_numpy else frozenset()
    assert not [f"{relative(path)}:{where}" for where in undocumented(tree, known)]


@pytest.mark.parametrize("path", sources("tests", "tutorials"), ids=relative)
def test_test_files_say_what_they_are_for(path: Path) -> None:
    tree = ast.parse(path.read_text())
    if tree.body:
        assert ast.get_docstring(tree), relative(path)


def test_texts_name_what_there_is() -> None:
    """What docstrings refer to is defined somewhere, and files that pages of the design name are there."""
    names = {name for path in PACKAGE for name in (path.stem, path.parent.name)}
    for node in (node for path in PACKAGE for node in house.walk(ast.parse(path.read_text()))):
        names.update(v for v in (getattr(node, field, None) for field in ("name", "id", "attr", "arg")) if v)
    reference = re.compile(r":(?:func|class|meth|data|attr|mod):`~?(?:[\w.]+\.)?(\w+)`")
    found = [(relative(path), name) for path in PACKAGE for name in reference.findall(path.read_text())]
    assert len(found) > 500 and not [each for each in found if each[1] not in names]
    files = [relative(path) for path in (*PACKAGE, *sources("tests", "docs", "tutorials"))]
    for page in (ROOT / "CONTRIBUTING.md", ROOT / "docs" / "design.md"):
        named = re.findall(r"`((?:\w+/)*[a-z]\w+\.py)`", page.read_text())
        assert not [n for n in named if not any(f == n or f.endswith(f"/{n}") for f in files)], page.name


# -- nothing that belongs to one machine -----------------------------------------------------------
def tracked_files() -> list[Path]:
    """Text files of the repository: what git knows, or would add."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    suffixes = {".py", ".md", ".toml", ".yaml", ".yml", ".cfg", ".h", ".cuh", ".c", ".sh", ""}
    paths = [ROOT / name for name in listed]
    return [p for p in paths if p.suffix in suffixes and p.is_file() and not p.is_symlink()]


#: Hosts of package registries, folders of one machine; in two parts, since this file is read too.
ELSEWHERE = re.compile(
    "|".join(["pypi" + r"\.org", "files" + r"\.pythonhosted", "--index" + "-url", "/wo" + "rk/", "/ro" + "ot/"])
)


def test_no_file_names_a_registry_or_a_machine() -> None:
    files = tracked_files()
    assert len(files) > 20
    wrong = [
        f"{relative(path)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if ELSEWHERE.search(line)
    ]
    assert not wrong


def test_what_elsewhere_finds() -> None:
    assert ELSEWHERE.search("pip install --index" + "-url x")
    assert not ELSEWHERE.search("pip install -e . && python -m pytest")


def test_files_are_read_and_written_as_utf_8() -> None:
    """The encoding of the machine's locale may lack what a program's names and comments hold."""
    found = []
    for path in PACKAGE:
        for node in house.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            named = {keyword.arg for keyword in node.keywords}
            mode = node.args[1] if called == "open" and len(node.args) > 1 else None
            binary = isinstance(mode, ast.Constant) and "b" in str(mode.value)
            text = called in ("read_text", "write_text") or (
                called == "open" and isinstance(node.func, ast.Name) and not binary
            )
            if text and "encoding" not in named:
                found.append(f"{relative(path)}:{node.lineno}")
    assert not found, "\n".join(found)


def test_all_files_have_one_style() -> None:
    wrong = [
        f"{relative(path)}:{number}"
        for path in tracked_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if path.suffix == ".py" and house.UNFORMATTED.search(line)
    ]
    assert not wrong, f"the formatter is switched off at {', '.join(wrong)}"
