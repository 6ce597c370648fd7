"""The cache folder: nothing is loaded from one that others can write to, and what is damaged in it
is made anew."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fxlite as fx
from fxlite.codegen.runtime import cache, kept, toolchain
from fxlite.codegen.runtime.build import find_library
from fxlite.codegen.runtime.cache import cache_folder, distrust, make_folder, named_folder
from fxlite.codegen.tuning.tune import Entry, Measured, find_measured, keep_measured

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have modes on Unix")


def _plus_one(x: Any) -> Any:
    return x + 1


def _plus_two(x: Any) -> Any:
    return x + 2


def compiled(program: Any = _plus_one) -> Any:
    """The same program each time, places in the source included."""
    return fx.compile(program, x="f32[3]")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder that does not exist yet."""
    monkeypatch.setenv("FXLITE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FXLITE_CFLAGS", "-O0")  # each test builds anew, and what is built computes little
    monkeypatch.setattr(kept, "_source_identity", lambda: "the source")
    cache._instead_of.cache_clear()
    yield tmp_path / "cache"
    cache._instead_of.cache_clear()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_folders_are_private_whatever_the_umask(folder: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        make_folder(folder / "a" / "b")
    finally:
        os.umask(before)
    for made in (folder, folder / "a", folder / "a" / "b"):
        assert made.stat().st_mode & 0o777 == 0o700
    assert distrust(folder) is None and cache_folder() == folder


@pytest.mark.parametrize("mode", [0o1777, 0o702, 0o733])
def test_modes_that_let_others_write(folder: Path, mode: int) -> None:
    make_folder(folder)
    folder.chmod(mode)
    assert distrust(folder) == f"others can write to it (mode {mode:o})"


def test_a_folder_that_others_can_write_to_is_not_used(folder: Path) -> None:
    """Said once, and what lies there is not loaded."""
    fn = compiled()
    planted = fn.function.library.path
    folder.chmod(0o777)
    with pytest.warns(UserWarning, match=r"is not used: others can write to it") as told:
        used = [cache_folder() for _ in range(3)]
    assert len(told) == 1 and used[0] != folder and used[0].stat().st_mode & 0o777 == 0o700
    again = compiled()
    assert folder not in again.function.library.path.parents and planted.exists()
    assert named_folder() == folder


def test_a_folder_of_somebody_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(folder)
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    if own != 0:  # root may own what everybody uses
        assert "belongs to another user" in str(distrust(folder))
    if own == 0:
        assert distrust(folder) is None
        os.chown(folder, own + 2, -1)
        assert "belongs to another user" in str(distrust(folder))


def test_links(folder: Path, tmp_path: Path) -> None:
    """A link to a folder of one's own is fine, and one to a folder of everybody is not; links in
    the cache are no files of it."""
    target = tmp_path / "elsewhere"
    make_folder(target)
    folder.symlink_to(target)
    assert distrust(folder) is None
    target.chmod(0o777)
    assert "others can write" in str(distrust(folder))
    target.chmod(0o700)
    cache.keep_note(folder, "note", {"a": 1})
    (note,) = target.iterdir()
    note.rename(tmp_path / note.name)
    note.symlink_to(tmp_path / note.name)
    assert cache.find_note(folder, "note") is None


def test_a_folder_that_others_can_replace(folder: Path, tmp_path: Path) -> None:
    make_folder(folder)
    tmp_path.chmod(0o777)
    assert "others can replace it" in str(distrust(folder))
    tmp_path.chmod(0o1777)
    assert distrust(folder) is None


def test_the_group_of_this_user_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(folder)
    folder.chmod(0o770)
    for alone, problem in ((True, None), (False, "others can write to it (mode 770)")):
        monkeypatch.setattr(cache, "_is_own_group", lambda group, alone=alone: alone)
        assert distrust(folder) == problem


# -- damage ----------------------------------------------------------------------------------------
def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in (".json", ".so"))


def _facts(folder: Path) -> Path:
    (found,) = (folder / "programs").glob("*/program.json")
    return found


def _replace(old: str, new: str) -> Any:
    def damage(path: Path) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return damage


DAMAGES: dict[str, Any] = {
    "another number of inputs": _replace('"f32"', '"f64"'),
    "another name": _replace('"inputs"', '"outputs"'),
    "another build": _replace('"build": "', '"build": "../../'),
    "a list": lambda path: path.write_text("[]"),
    "text": lambda path: path.write_text("\0"),
    "nesting": lambda path: path.write_text("[" * 100_000),
    "a long number": lambda path: path.write_text("9" * 9999),
    "no UTF-8": lambda path: path.write_bytes(b"\xff\xfe"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_facts_of_a_program_that_are_damaged(folder: Path, name: str) -> None:
    """A digest tells; another entry point would read and write where it should not."""
    compiled()
    path = _facts(folder)
    DAMAGES[name](path)
    again = compiled()
    assert again._kept is None and path.exists()
    assert compiled()._kept is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"version": 1, "openmp": true}',
        '{"version": "gcc", "openmp": "yes"}',
        "9" * 9999,
        '{"version": "evil 1.0", "openmp": false}',
        "[" * 100_000,
    ],
)
def test_notes_about_compilers_that_are_damaged(folder: Path, text: str) -> None:
    toolchain._find_compiler.cache_clear()
    compiler = toolchain.find_compiler()
    (note,) = (folder / "compilers").iterdir()
    good = note.read_text()
    note.write_text(text)
    toolchain._find_compiler.cache_clear()
    assert toolchain.find_compiler() == compiler
    assert note.read_text() == good


def test_measured_choices_that_are_damaged(folder: Path) -> None:
    entry = Entry((Measured("a", 1.0, 1.0), Measured("b", 0.5, 2.0)), 1)
    keep_measured(("key",), "kernel", "B=1", 1, entry)
    assert find_measured(("key",)) == entry
    (path,) = (folder / "tuning").iterdir()
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"winner": 0}))
    assert find_measured(("key",)) is None and not path.exists()


def test_a_library_that_was_exchanged(folder: Path) -> None:
    fn = compiled()
    other = compiled(_plus_two)
    path, build = fn.function.library.path, fn.function.library.path.parent.name
    entry = fn.program.entry
    assert find_library(build, entry, True) is not None
    path.unlink()  # it is loaded in this process: not in place
    shutil.copy(other.function.library.path, path)
    assert find_library(build, entry, True) is None
    for wrong in ("../evil", "/tmp", "", "."):
        assert find_library(wrong, entry, True) is None


def test_every_file_in_the_cache_has_a_digest(folder: Path) -> None:
    """Of each file with facts or code one byte is changed; nothing is then loaded from it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled()
        toolchain._find_compiler.cache_clear()
        toolchain.find_compiler()
        files = _files(folder)
        assert {path.suffix for path in files} == {".json", ".so"} and len(files) >= 3
        for path in files:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.unlink()  # the library is loaded in this process: not in place
            path.write_bytes(content)
        toolchain._find_compiler.cache_clear()
        assert compiled()._kept is None
    for path in files:
        assert path.exists(), "made anew"
