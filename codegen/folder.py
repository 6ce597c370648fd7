"""Write a folder as a whole: everything is written to a temporary folder beside it, and moved when it
is complete.

In: a path and a function that writes files into a folder. Out: the folder with a list of its files,
``manifest.json``: their sources, digests and licenses. A later run recognizes its own files by that
list. Other files in the folder are left alone. The same input and version give the same bytes: no file
contains a time, a path or anything else that is specific to a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fxlite
from fxlite.base.errors import FxliteError
from fxlite.graph.graph_module import GraphModule, passes_of

#: The list of files; only a folder that has one is written to again.
MANIFEST = "manifest.json"
_OLDER = "fxlite.json"  # its former name
#: Of text that comes with fxlite, and, in the terms of SPDX, of what is made from the user's model,
#: of which fxlite claims nothing.
LICENSE, UNKNOWN_LICENSE = "Apache-2.0", "NOASSERTION"


class FolderError(FxliteError, OSError):
    """A folder cannot be written, or holds files that must not be overwritten."""


def check_writable(folder: str | os.PathLike[str], force: bool = False) -> None:
    """Raise FolderError if :func:`write_folder` could not write the folder; leaves nothing
    behind."""
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise FolderError(f"{target} is a file; choose a folder")
    if target.is_dir() and any(target.iterdir()) and not force and _own_files(target) is None:
        raise FolderError(
            f"{target} is not empty and not from an earlier run; choose another folder, or force "
            f"it (--force), which leaves the other files alone"
        )
    existing = target.absolute()
    while not existing.exists():
        existing = existing.parent
    try:
        Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=existing)).rmdir()
    except OSError as error:
        reason = error.strerror or str(error)
        raise FolderError(f"cannot write to {target}: {existing}: {reason}") from error


def write_folder(
    folder: str | os.PathLike[str], write: Callable[[Path], Mapping[str, Any] | None], force: bool = False
) -> Path:
    """Run ``write`` on a new folder and move the result to ``folder``. The facts that ``write`` returns
    (see :func:`facts_of`) go into the list of files. If writing fails (because the disk is full, for
    instance), ``folder`` stays as it was.

    Raises FolderError, also for a folder with files that fxlite did not write, unless ``force``."""
    target = Path(folder)
    check_writable(target, force)
    with _drafted(target, write) as (work, facts, names):
        _write_manifest(work, _manifest(facts, work, names))
        _publish(work, target, [*names, MANIFEST], _own_files(target) or ())
    return target


def add_to_folder(
    folder: str | os.PathLike[str], write: Callable[[Path], Mapping[str, Any]], force: bool = False
) -> Path:
    """Like :func:`write_folder`, for a folder with several models: other files stay, and the list covers
    all models. A folder of another kind keeps its own list.

    Raises FolderError, also for a list that fxlite did not write, unless ``force``."""
    target = Path(folder)
    if target.is_file():
        raise FolderError(f"{target} is a file; choose a folder")
    before = _read(target / MANIFEST)
    if before is None and (target / MANIFEST).exists() and not force:
        raise FolderError(f"{target / MANIFEST} exists and was not written by fxlite")
    with _drafted(target, write) as (work, facts, names):
        manifest, stale = _manifest(facts, work, names), list[str]()
        if before is None or {*_kinds(before)} == {*_kinds(manifest)}:
            _write_manifest(work, _merged(before, manifest))
            names.append(MANIFEST)
            listed = before["files"] if before is not None else ()
            stale = [f["path"] for f in listed if f["component"] == manifest["model"]]
        _publish(work, target, names, stale)
    return target


@contextlib.contextmanager
def _drafted(
    target: Path, write: Callable[[Path], Mapping[str, Any] | None]
) -> Iterator[tuple[Path, dict[str, Any], list[str]]]:
    """A folder beside the target with the files from ``write``; its facts and the names of the files."""
    work: Path | None = None
    try:
        target.absolute().parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.absolute().parent))
        os.chmod(work, 0o755)  # mkdtemp's folder is private
        facts = dict(write(work) or {})
        names = sorted(p.relative_to(work).as_posix() for p in work.rglob("*") if p.is_file())
        yield work, facts, names
    except FolderError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise FolderError(f"cannot write {target}: {reason}; it was left as it was") from error
    finally:
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)


def facts_of(
    module: GraphModule,
    optimized: GraphModule,
    options: Mapping[str, Any],
    own: Iterable[str],
    needs: Iterable[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """The facts that a list of files records about a model: its passes and options. ``own``: names of
    files whose text comes with fxlite; ``needs``: components that the files need to run."""
    return {
        "model": module.name,
        "passes": list(passes_of(optimized)),
        "options": dict(options),
        "own": list(own),
        "needs": list(needs),
    }


def _manifest(facts: dict[str, Any], folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """The list: facts, components with their licenses, and the files, each with its component."""
    own, needs = {*facts.pop("own", ())}, facts.pop("needs", ())
    model = {"name": facts.pop("model", "model"), "license": UNKNOWN_LICENSE}
    library = {"name": "fxlite", "version": fxlite.__version__, "license": LICENSE}
    listed = []
    for name in names:
        with (folder / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size, of = (folder / name).stat().st_size, library if name in own else model
        listed.append({"path": name, "bytes": size, "sha256": digest, "component": of["name"]})
    components = [model, *([library] if own & {*names} else []), *needs]
    made_by = {"made by": "fxlite", "version": fxlite.__version__}
    return {**made_by, "model": model["name"], **facts, "components": components, "files": listed}


def _kinds(manifest: Mapping[str, Any]) -> Iterator[frozenset[str]]:
    """The options with which each model in a list was written."""
    return (frozenset(facts.get("options", ())) for facts in _models(manifest).values())


def _models(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Facts by model; in the list of a single model they are at the top level."""
    if "models" in manifest:
        return dict(manifest["models"])
    known = ("made by", "version", "model", "components", "files")
    return {manifest["model"]: {k: v for k, v in manifest.items() if k not in known}}


def _merged(before: Mapping[str, Any] | None, made: Mapping[str, Any]) -> Mapping[str, Any]:
    """The list of all models in a folder, one of which is replaced."""
    models = {**(_models(before) if before else {}), **_models(made)}
    if before is None or len(models) == 1:
        return made
    components = {c["name"]: c for c in (*before["components"], *made["components"])}
    others = (f for f in before["files"] if f["component"] != made["model"])
    files = {f["path"]: f for f in (*others, *made["files"])}
    return {
        "made by": made["made by"],
        "version": made["version"],
        "models": dict(sorted(models.items())),
        "components": [component for _, component in sorted(components.items())],
        "files": [file for _, file in sorted(files.items())],
    }


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _publish(work: Path, target: Path, names: Sequence[str], old: Iterable[str]) -> None:
    """Move files to the target, and remove those ``old`` ones that are not among them."""
    if not target.exists():
        os.replace(work, target)
        return
    for name in {*old} - {*names}:
        (target / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a folder that is not empty stays
            (target / name).parent.rmdir()
    for name in names:  # renaming within a file system needs no space
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(work / name, target / name)


def _own_files(target: Path) -> list[str] | None:
    """Files that an earlier run wrote, perhaps with an older version; None if there was none."""
    for name in (MANIFEST, _OLDER):
        manifest = _read(target / name)
        if manifest is not None:
            listed = (f if isinstance(f, str) else f["path"] for f in manifest["files"])
            return list(dict.fromkeys([*listed, name]))
    return None


def _read(path: Path) -> dict[str, Any] | None:
    """A list that fxlite wrote, if all its files are inside the folder."""
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        names = [str(f if isinstance(f, str) else f["path"]) for f in manifest["files"]]
        own = manifest["made by"] == "fxlite"
    except (OSError, ValueError, KeyError, TypeError):
        return None
    inside = all(not os.path.isabs(n) and ".." not in Path(n).parts for n in names)
    return manifest if own and inside else None
