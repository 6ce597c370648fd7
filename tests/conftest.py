"""Random weights that are the same in every run, the options of tests, and the smoke suite.

The generator of `fxlite.nn` is started anew before each test file is imported (models at module
level) and before each test, so no result depends on which tests ran before, nor in which process.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

# The processes of a run share the cores. Threads that wait should sleep: those of OpenBLAS, which spin for some
# hundredths of a second after each product, took most of the time of some tests.
os.environ.pop("COLUMNS", None)  # of the terminal that the tests were started in; pytest-xdist sets it, too
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from fxlite.codegen.runtime import cuda_shim
from fxlite.nn import init

#: Most of the time of the suite is that of the C compiler, and most programs run once. With these flags GCC rounds as
#: with -O3 (`test_target.py` compares bits): it fuses products and sums, which -O1 alone does not, nor -Og, and
#: vectorizes the loops that are marked. What is switched off takes a fifth of the compiler's time (of large functions,
#: two fifths) and rounds nothing. ``FXLITE_CFLAGS= python -m pytest`` compiles as fxlite does.
SUITE_FLAGS = "-O1 -fexpensive-optimizations -fno-tree-bit-ccp -fno-ivopts -fno-tree-pta -fira-region=one"
os.environ.setdefault("FXLITE_CFLAGS", SUITE_FLAGS)

#: A first look, in under a minute (``pytest -m smoke``): tracing, files, passes, emitted text, and
#: all back ends on what the fuzzers found. Folders are meant whole.
SMOKE = (
    "codegen/test_golden.py",
    "codegen/test_names.py",
    "core/test_agreement.py",
    "core/test_graph_edits.py",
    "core/test_guards.py",
    "core/test_in_place.py",
    "core/test_interpreter.py",
    "core/test_nonempty.py",
    "core/test_parse_save.py",
    "core/test_pytree.py",
    "core/test_retrace.py",
    "core/test_tracer.py",
    "nn/test_module.py",
    "passes/test_manager.py",
    "test_fuzz_programs.py",
    "test_readme.py",
    "test_repo_shape.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    what = "write the texts of tests/codegen/golden and tests/captures anew"
    parser.addoption("--update-golden", action="store_true", help=what)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    files = {here / name for name in SMOKE}
    assert all(file.exists() for file in files), "conftest.SMOKE names a file that is not there"
    for item in items:
        if item.path in files:
            item.add_marker(pytest.mark.smoke)


def pytest_configure() -> None:
    """Kernels of CUDA run a few threads on the CPU: compiling them takes all the time."""
    cuda_shim.OPTIMIZATION = "-Og"


def pytest_collectstart(collector: pytest.Collector) -> None:
    gc.disable()  # what is imported stays
    if isinstance(collector, pytest.Module):
        init.manual_seed(0)


def pytest_collection_finish() -> None:
    """What was imported stays until the end: tests that collect garbage need not look at it. Most of what tests
    make is gone before so many objects are new, so that walking them costs little; after a million, all are walked."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 4, 5)


if os.environ.pop("PYTHONDONTWRITEBYTECODE", None) and "PYTHONPYCACHEPREFIX" not in os.environ:
    # Or each program that a test starts parses fxlite anew; both test processes share the folder.
    os.environ["PYTHONPYCACHEPREFIX"] = bytecode = tempfile.mkdtemp(prefix="fxlite-tests-")
    atexit.register(shutil.rmtree, bytecode, ignore_errors=True)


#: What tests of deep graphs rely on; benchmarks of torch.fx raise it.
RECURSION_LIMIT = sys.getrecursionlimit()


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests leave in temporary folders, and programs that they start, goes when pytest's own folders go: it
    keeps those of three runs."""
    folder = str(tmp_path_factory.mktemp("temporary"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture(autouse=True)
def as_new() -> None:
    """No test depends on what ran before it in its process."""
    init.manual_seed(0)
    sys.setrecursionlimit(RECURSION_LIMIT)


@pytest.fixture
def registry() -> Iterator[None]:
    """Ops and passes that the test registers are gone after it."""
    from fxlite.ops.op import REGISTRY
    from fxlite.passes.base import PASSES

    before = [(table, dict(table)) for table in (REGISTRY, PASSES)]
    yield
    for table, content in before:
        table.clear()
        table.update(content)


@pytest.fixture
def own_ops(registry: None) -> ModuleType:
    """The module tests.ops.own_ops, whose ops are registered during the test."""
    from fxlite.ops.op import REGISTRY

    own = importlib.import_module("tests.ops.own_ops")
    return own if "swiglu" in REGISTRY else importlib.reload(own)
