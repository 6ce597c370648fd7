"""What a user gets from `pip install`: every sub-package, its data files, and a small install.

pyproject.toml is compared with the folders; a wheel is built and opened.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: Where the packages lie -> the name they are imported by.
TOPS = {"fxlite": "fxlite", "passes": "fxlite.passes", "codegen": "fxlite.codegen"}
DATA = (
    "fxlite/py.typed",
    "fxlite/codegen/c/fx_math.h",
    "fxlite/codegen/c/tiles/matrix.h",
    "fxlite/codegen/cuda/shim.h",
    "fxlite/codegen/cuda/prelude.cuh",
)


def pyproject() -> dict[str, Any]:
    with open(ROOT / "pyproject.toml", "rb") as file:
        return tomllib.load(file)


def package_folders() -> dict[str, str]:
    """Import name -> folder, for every folder with an __init__.py (links are not followed)."""
    found = {}
    for top, name in TOPS.items():
        for init in (ROOT / top).rglob("__init__.py"):
            folder = init.parent.relative_to(ROOT)
            if any((ROOT / p).is_symlink() for p in (folder, *folder.parents)):
                continue
            found[".".join((name, *folder.parts[1:]))] = folder.as_posix()
    return found


def test_every_package_is_listed() -> None:
    listed = pyproject()["tool"]["setuptools"]
    folders = package_folders()
    assert "fxlite.codegen.c" in folders
    assert sorted(listed["packages"]) == sorted(folders)
    assert listed["package-dir"] == folders


def test_every_folder_with_python_is_a_package() -> None:
    folders = set(package_folders().values())
    for top in TOPS:
        for file in (ROOT / top).rglob("*.py"):
            folder = file.parent.relative_to(ROOT)
            if not any((ROOT / p).is_symlink() for p in (folder, *folder.parents)):
                assert folder.as_posix() in folders, f"{file} lies in no package"


@pytest.mark.parametrize("name", ["passes", "codegen"])
def test_links(name: str) -> None:
    link = ROOT / "fxlite" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name


def test_data_files_are_listed() -> None:
    """Every file in a package that is not Python matches a pattern of package-data."""
    patterns = pyproject()["tool"]["setuptools"]["package-data"]
    for name, folder in package_folders().items():
        for file in (ROOT / folder).iterdir():
            if file.is_file() and file.suffix not in (".py", ".pyc"):
                globs = patterns.get(name, [])
                assert any(file.match(glob) for glob in globs), f"{file} is in no wheel"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy of the sources, so that no build/ is left in the tree."""
    setuptools = importlib.util.find_spec("setuptools")
    version = importlib.metadata.version("setuptools") if setuptools else "0"
    if int(version.split(".")[0]) < 77:
        pytest.skip(f"building a wheel without isolation needs setuptools >= 77, not {version}")
    work = tmp_path_factory.mktemp("wheel")
    copy_sources(work / "source")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
            "-w",
            str(work),
            str(work / "source"),
        ],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    (path,) = work.glob("*.whl")
    return zipfile.ZipFile(path)


def copy_sources(target: Path) -> None:
    """What a build reads. Links are left out: no build may depend on them."""
    target.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (target / name).write_bytes((ROOT / name).read_bytes())
    for folder in package_folders().values():
        (target / folder).mkdir(parents=True, exist_ok=True)
        for file in (ROOT / folder).iterdir():
            if file.is_file():
                (target / folder / file.name).write_bytes(file.read_bytes())


def test_wheel_holds_every_module(wheel: zipfile.ZipFile) -> None:
    inside = set(wheel.namelist())
    for name, folder in package_folders().items():
        for file in (ROOT / folder).glob("*.py"):
            assert f"{name.replace('.', '/')}/{file.name}" in inside


@pytest.mark.parametrize("path", DATA)
def test_wheel_holds_data(wheel: zipfile.ZipFile, path: str) -> None:
    assert wheel.read(path) == (ROOT / path).read_bytes()


def test_wheel_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"fxlite"}
    assert any(name.endswith("LICENSE") for name in wheel.namelist())


def requirements(of: list[str]) -> set[str]:
    """Names of distributions that these requirements bring along, without extras."""
    found: set[str] = set()
    work = list(of)
    while work:
        text = work.pop()
        match = re.match(r"[A-Za-z0-9._-]+", text)
        assert match is not None, text
        name = re.sub(r"[-_.]+", "-", match[0]).lower()
        condition = text.partition(";")[2]
        if name in found or "extra" in condition or "python_version <" in condition:
            continue
        found.add(name)
        work += importlib.metadata.requires(name) or []
    return found


def test_base_install_is_small() -> None:
    """Without NumPy and SymPy, what a base install brings along is below 15 MB (bytecode aside)."""
    base = [d for d in pyproject()["project"]["dependencies"] if not d.startswith(("numpy", "sympy"))]
    names = requirements(base) - {"numpy"}
    assert {"rich", "pygments", "graphviz", "safetensors", "ml-dtypes"} <= names
    size = 0
    for name in names:
        for file in importlib.metadata.files(name) or []:
            if file.suffix != ".pyc":
                size += Path(str(file.locate())).stat().st_size
    assert 1e6 < size < 15e6, f"{size / 1e6:.1f} MB"


def test_console_script() -> None:
    assert pyproject()["project"]["scripts"] == {"fxlite": "fxlite.cli:main"}
    module = importlib.import_module("fxlite.cli")
    assert callable(module.main)


def test_version_is_the_same_everywhere() -> None:
    import fxlite

    assert fxlite.__version__ == pyproject()["project"]["version"]
    assert f"{fxlite.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_base_install_imports_only_base_dependencies() -> None:
    """`import fxlite` and all its modules work where no extra is installed."""
    listed = pyproject()["project"]["optional-dependencies"]
    blocked = ["torch", "onnx", "onnxruntime", "cuda", "resvg_py", "cairosvg", "tokenizers", "sklearn", "pytest"]
    assert {"torch", "onnx", "cuda", "draw", "minilm", "test", "bench"} <= set(listed)
    modules = [
        f"{name}.{file.stem}" if file.stem != "__init__" else name
        for name, folder in package_folders().items()
        for file in (ROOT / folder).glob("*.py")
        if file.stem not in ("__main__", "in_torch")  # which is read as text
        if name != "fxlite.importing.torch" or file.stem == "__init__"  # what from_torch imports then
    ]
    program = (
        "import importlib, sys\n"
        f"for name in {blocked}: sys.modules[name] = None\n"
        f"for name in {sorted(modules)}: importlib.import_module(name)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, stdin=subprocess.DEVNULL)


#: What takes long to import, and what is for one purpose: none of it is imported by ``import fxlite``.
_ON_DEMAND = (
    "sympy mpmath rich graphviz safetensors numpy.random html subprocess multiprocessing concurrent asyncio "
    "libcst torch onnx pygments fxlite.passes fxlite.codegen fxlite.show fxlite.files fxlite.lazy fxlite.importing "
    "fxlite.compiler fxlite.cli"
).split()
_START = """
import sys
import fxlite as fx
{then}
print(*sorted(sys.modules))
"""
_TRACE = """
from fxlite import nn
gm = fx.symbolic_trace(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval(), "f32[1,3,8,8]")
assert "conv2d" in gm.graph.text(width=80) and gm.graph.text(full=True)
"""


def _imported(then: str = "") -> set[str]:
    done = subprocess.run([sys.executable, "-c", _START.format(then=then)], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_takes_only_what_every_program_needs() -> None:
    found = _imported()
    assert {"fxlite", "numpy", "fxlite.tracing.tracer"} <= found
    assert not found.intersection(_ON_DEMAND)
    named = _imported("fx.dims('B')")
    assert "sympy" in named  # a named size is one of sympy's symbols


def test_graphs_of_numbers_need_no_algebra() -> None:
    passes = _imported("from fxlite import passes")
    assert "fxlite.passes.checking.region_check" in passes and not passes.intersection({"sympy", "mpmath"})
    found = _imported(_TRACE)
    assert "fxlite.show.text.reading" in found
    assert not found.intersection({"sympy", "mpmath", "rich", "fxlite.passes", "fxlite.codegen"})
