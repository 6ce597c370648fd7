"""Programs that are kept in the cache: found again only as what they are, whole, by any process."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.base.errors import CodegenError
from fxlite.codegen import backends
from fxlite.codegen.runtime import cache as build_cache
from fxlite.codegen.runtime import kept
from tests.oracle import compare

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, for sources that nobody is editing."""
    monkeypatch.setenv("FXLITE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FXLITE_CFLAGS", "-O0")  # each test builds anew, and what is built computes little
    monkeypatch.setattr(kept, "_source_identity", lambda: "the source")
    return tmp_path / "cache"


class Scaled(nn.Module):
    """A product with a packed weight of more than a piece, and a sum with one as it is."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.weight = nn.Parameter(rng.standard_normal((8, 40), np.float32))
        self.table = nn.Parameter(rng.standard_normal((70_000, 40), np.float32))

    def forward(self, x: Any, i: Any) -> Any:
        return x @ self.weight + self.table[i]


INPUTS = np.ones((3, 8), np.float32), np.array([0, 69_999, 7])


def compiled(model: Any, **options: Any) -> Any:
    return fx.compile(model, *INPUTS, **options)


def was_found(function: Any) -> bool:
    return function._kept is not None


def program_folder(cache: Path) -> Path:
    (folder,) = (cache / "programs").iterdir()
    return folder


def test_the_second_time_nothing_is_compiled(cache: Path) -> None:
    model = Scaled()
    first, second = compiled(model), compiled(model)
    assert (was_found(first), was_found(second)) == (False, True)
    compare("found", second(*INPUTS), model(*INPUTS))
    assert "program" not in vars(second) and "_passed" not in vars(second)
    assert second.function.entry == first.program.entry
    assert second.sources == first.sources
    assert [k.name for k in second.kernels] == [k.name for k in first.kernels]
    assert second.optimized.graph.text(full=True) == first.optimized.graph.text(full=True)
    assert second.program.weights.tobytes() == first.program.weights.tobytes()
    assert second.workspace_bytes({}) == first.workspace_bytes({})


def test_measured_choices_are_kept_with_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the threads and sizes that they were measured with."""
    model, x = nn.Linear(48, 40).eval(), np.ones((40, 48), np.float32)
    asked: list[str] = []

    def find(key: str) -> Any:
        asked.append(key)
        return kept.find_program(asked[0])

    def tuned(**options: Any) -> Any:
        return fx.compile(model, x="f32[B,48]", **{"autotune": True, "threads": 1, **options})

    monkeypatch.setattr(backends, "find_program", find)
    first, second = (tuned(tune_sizes={"B": 40}) for _ in range(2))
    assert (was_found(first), was_found(second)) == (False, True)
    compare("found", second(x), model(x))
    assert "tuning" not in vars(second)
    assert second.sources == first.sources  # measurements are looked up for it, and not made
    assert second.tuning.measured == 0 < first.tuning.measured
    tuned(tune_sizes={"B": 40}, threads=2), tuned(tune_sizes={"B": 41}), tuned(autotune=False)
    assert asked[0] == asked[1] and len(set(asked)) == 4


_SCRIPT = """\
import sys
import numpy as np
import fxlite as fx
from fxlite.codegen.runtime import kept
from tests.codegen.test_kept_programs import INPUTS, Scaled

kept._source_identity = lambda: "the source"
for name in [n for n in sys.modules if n.startswith(("fxlite.passes", "fxlite.codegen.c."))]:
    del sys.modules[name]
result = fx.compile(Scaled(), *INPUTS)(*INPUTS)
print(result.sum(dtype=np.float64), "fxlite.passes" in sys.modules)
"""


def test_processes_share_programs_also_while_both_make_them(cache: Path) -> None:
    command = [sys.executable, "-c", _SCRIPT]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    results = [process.communicate()[0].split() for process in both]
    third = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    assert results[0][0] == results[1][0] == third[0]
    assert third[1] == "False", "a program that was found needs no passes"
    assert program_folder(cache).name and not list(cache.glob("work-*"))


@pytest.mark.parametrize("place", [(0, 0), (69_999, 39), (35_000, 20)])
def test_a_changed_weight_is_another_program(place: tuple[int, int]) -> None:
    model = Scaled()
    compiled(model)
    model.table[place] += 1
    found = compiled(model)
    assert not was_found(found)
    compare("c", found(*INPUTS), model(*INPUTS))


def test_what_the_key_covers() -> None:
    model = Scaled()
    module = fx.symbolic_trace(model, *INPUTS)
    key = kept.program_key(module, {})
    assert key == kept.program_key(fx.symbolic_trace(model, *INPUTS), {})
    options = {"matmul_precision": "medium"}
    cast = fx.symbolic_trace(lambda x, i: model(x * 1, i), *INPUTS)
    others = [
        kept.program_key(module, options),
        kept.program_key(cast, {}),
        kept.program_key(fx.symbolic_trace(model, INPUTS[0][:2], INPUTS[1][:2]), {}),
    ]
    assert len({key, *others}) == 4 and None not in others


def test_what_is_never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    @fx.wrap
    def doubled(x: Any) -> Any:
        return x * 2

    wrapped = fx.symbolic_trace(lambda x: doubled(x) + 1, x="f32[3]")
    assert kept.program_key(wrapped, {}) is None
    plain = fx.symbolic_trace(lambda x: x + 1, x="f32[3]")
    assert kept.program_key(plain, {}) is not None
    monkeypatch.setattr(kept, "_source_identity", lambda: None)
    assert kept.program_key(plain, {}) is None


def test_sources_that_were_edited_under_a_running_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    kept._source_identity.cache_clear()
    monkeypatch.setattr(fx, "IMPORTED_AT", 0.0)
    assert kept._source_identity() is None
    kept._source_identity.cache_clear()


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(b"\x07")


DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut": lambda f: _cut(f / "weights.bin"),
    "one byte": lambda f: _overwrite(f / "weights.bin"),
    "no weights": lambda f: (f / "weights.bin").unlink(),
    "no facts": lambda f: (f / "program.json").write_text("{}"),
    "half the facts": lambda f: _cut(f / "program.json"),
    "no library": lambda f: shutil.rmtree(f.parent.parent / json.loads((f / "program.json").read_text())["build"]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_programs_are_made_anew(cache: Path, damage: Callable[[Path], None]) -> None:
    model = Scaled()
    compiled(model)
    damage(program_folder(cache))
    again = compiled(model)
    assert not was_found(again)
    compare("c", again(*INPUTS), model(*INPUTS))
    assert was_found(compiled(model))


def test_pages_that_a_crash_left_empty(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(Scaled())
    weights = program_folder(cache) / "weights.bin"
    state = kept._state(weights.stat())
    with weights.open("r+b") as file:
        file.seek(2 << 20)
        file.write(bytes(1 << 20))
    monkeypatch.setattr(kept, "_state", lambda found: state)  # the times are those of before
    assert not was_found(compiled(Scaled()))


def test_a_cache_that_was_copied(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(Scaled())
    for name, is_found in (("same", True), ("damaged", False)):
        copied = cache.with_name(name)
        shutil.copytree(cache, copied)
        if not is_found:
            _overwrite(program_folder(copied) / "weights.bin")
        monkeypatch.setenv("FXLITE_CACHE", str(copied))
        assert was_found(compiled(Scaled())) == is_found


def test_a_cache_that_can_only_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Scaled()
    compiled(model)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise PermissionError

    for module, name in ((os, "utime"), (kept.tempfile, "mkdtemp"), (os, "rename")):
        monkeypatch.setattr(module, name, refuse)
    found = compiled(model)
    assert was_found(found)
    compare("found", found(*INPUTS), model(*INPUTS))


def test_a_program_that_cannot_be_kept(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(kept.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 8, 1))
    function = compiled(Scaled())
    assert not (cache / "programs").exists()
    compare("c", function(*INPUTS), Scaled()(*INPUTS))


def test_weights_that_are_written_to_stay_in_the_process(cache: Path) -> None:
    compiled(Scaled())
    found = compiled(Scaled())
    found.program.weights[:] = 0
    assert not found(*INPUTS).any()
    assert was_found(compiled(Scaled())) and compiled(Scaled())(*INPUTS).any()


def test_later_passes_on_the_graph_change_nothing() -> None:
    gm = fx.symbolic_trace(Scaled(), *INPUTS)
    sources = fx.compile(gm).sources
    found = fx.compile(gm)
    gm.graph.output_node().args[0].target = fx.ops.subtract
    assert was_found(found) and found.sources == sources


def test_c_that_is_not_what_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(Scaled())
    find = kept.find_program
    monkeypatch.setattr(backends, "find_program", lambda key: dataclasses.replace(find(key), sources="others"))
    with pytest.raises(CodegenError, match="changed in place since; compile it again"):
        _ = compiled(Scaled()).sources


# -- the limit of the cache ------------------------------------------------------------------------
def _fill(cache: Path) -> list[Path]:
    """Entries of a megabyte, used two to five hours ago, and one that is in use."""
    paths = []
    for number, parent in enumerate(["", "programs", "", "programs", ""]):
        path = cache / parent / f"{number:032x}"
        path.mkdir(parents=True)
        (path / "data").write_bytes(bytes(10**6))
        used = os.stat(cache).st_mtime - (3600 * (5 - number) if number < 4 else 0)
        os.utime(path, (used, used))
        paths.append(path)
    return paths


@pytest.mark.parametrize("limit, kept_entries", [("0.0035", [2, 3, 4]), ("0.000001", [4]), ("0", [0, 1, 2, 3, 4])])
def test_what_was_used_longest_ago_goes(
    cache: Path, monkeypatch: pytest.MonkeyPatch, limit: str, kept_entries: list[int]
) -> None:
    paths = _fill(cache)
    (cache / "notes").mkdir()
    monkeypatch.setenv("FXLITE_CACHE_LIMIT", limit)
    build_cache.trim_cache(cache)
    assert [i for i, path in enumerate(paths) if path.exists()] == kept_entries
    assert (cache / "notes").exists()


def test_the_sizes_are_added_up_every_ten_minutes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = _fill(cache)
    monkeypatch.setenv("FXLITE_CACHE_LIMIT", "0.0035")
    (cache / build_cache.STAMP).touch()
    build_cache.trim_cache(cache)
    assert all(path.exists() for path in paths)


def test_a_program_that_is_found_counts_as_used(cache: Path) -> None:
    model = Scaled()
    compiled(model)
    folder = program_folder(cache)
    build = cache / json.loads((folder / "program.json").read_text())["build"]
    for path in (folder, build):
        os.utime(path, (0, 0))
    compiled(model)
    assert min(folder.stat().st_mtime, build.stat().st_mtime) > 0


@pytest.mark.parametrize("text, limit", [("", 10e9), ("2.5", 2.5e9), ("0", np.inf), ("many", 10e9)])
def test_the_limit(monkeypatch: pytest.MonkeyPatch, text: str, limit: float) -> None:
    monkeypatch.setenv("FXLITE_CACHE_LIMIT", text)
    assert build_cache.cache_limit() == limit
