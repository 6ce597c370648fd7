"""Writing a folder as a whole: everything is written beside it first, and moved when it is
complete.

In: a path and a function that writes files into a folder. Out: the folder, with a list of its
files, ``fxlite.json``, by which a later run knows its own files. Other files in the folder are left
alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fxlite.base.errors import FxliteError

#: The list of files; only a folder that has one is written to again.
MANIFEST = "fxlite.json"


class FolderError(FxliteError, OSError):
    """A folder cannot be written, or holds what must not be overwritten."""


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
    folder: str | os.PathLike[str],
    write: Callable[[Path], Mapping[str, Any] | None],
    force: bool = False,
) -> Path:
    """Run ``write`` on a new folder and move what it made to ``folder``; the facts that it returns
    go into the list of files. When writing fails (a full disk, say) ``folder`` is as it was.

    Raises FolderError; without ``force`` also for a folder that holds files of somebody else."""
    target = Path(folder)
    check_writable(target, force)
    work: Path | None = None
    try:
        target.absolute().parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.absolute().parent))
        os.chmod(work, 0o755)  # mkdtemp's folder is private
        facts = write(work) or {}
        names = sorted(p.relative_to(work).as_posix() for p in work.rglob("*") if p.is_file())
        manifest = {"made by": "fxlite", **facts, "files": [*names, MANIFEST]}
        (work / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        _publish(work, target, [*names, MANIFEST])
    except FolderError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise FolderError(f"cannot write {target}: {reason}; it was left as it was") from error
    finally:
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)
    return target


def _publish(work: Path, target: Path, names: list[str]) -> None:
    if not target.exists():
        os.replace(work, target)
        return
    for old in _own_files(target) or ():
        if old not in names:
            (target / old).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # a folder that is not empty now stays
                (target / old).parent.rmdir()
    for name in names:  # renames within a file system: they need no space
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(work / name, target / name)


def _own_files(target: Path) -> list[str] | None:
    """Files an earlier run wrote; None where there was none."""
    try:
        manifest = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
        names = manifest["files"]
        own = manifest["made by"] == "fxlite"
    except (OSError, ValueError, KeyError, TypeError):
        return None
    inside = all(not os.path.isabs(n) and ".." not in Path(n).parts for n in names)
    return [str(n) for n in names] if own and inside else None
