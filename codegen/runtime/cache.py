"""The cache folder: which one it is, whether it can be trusted, and files in it that are verified.

In: the environment, and data to keep. Out: a folder that only this user (or root) can write to, and
files whose names contain a digest of their content, so that a damaged file is noticed before it is
used. Code in the cache runs in the user's process. Therefore a folder that belongs to somebody else, or
that others can write to, is not used; programs are then compiled into a private folder.

The folder is kept below ``FXLITE_CACHE_LIMIT`` gigabytes (10 by default, 0 for no limit). It has a
folder for each build and, in ``programs``, for each kept program, whose modification time says when it
was last used; the least recently used is removed first. Nothing that was used in the last hour is
removed. A process that has loaded a file keeps it. What a killed build left goes after a day.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_DIGITS = 16  # of the digest in a file's name
_DIGEST = "digest"  # the entry of a note that holds its own digest


# -- the folder ------------------------------------------------------------------------------------
def named_folder() -> Path:
    """`$FXLITE_CACHE`, or else `$XDG_CACHE_HOME/fxlite`, or else `~/.cache/fxlite`; it may not exist yet."""
    if named := os.environ.get("FXLITE_CACHE"):
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base, "fxlite").absolute()


def cache_folder() -> Path:
    """The named folder if it can be trusted; otherwise one for this process only, about which a warning
    is given once. It may not exist yet: :func:`make_folder` creates it."""
    folder = named_folder()
    problem = distrust(folder)
    return folder if problem is None else _instead_of(folder, problem)


def distrust(folder: Path) -> str | None:
    """Why nothing may be loaded from a folder; None if it can be trusted, or does not exist."""
    if not hasattr(os, "getuid"):
        return None  # Windows: folders of a user are private
    try:
        link, found = os.lstat(folder), os.stat(folder)
        above = os.stat(folder.parent)
    except OSError:
        return None  # it is created when needed, or cannot be used
    for owner in (link.st_uid, found.st_uid):
        if owner not in (0, os.getuid()):
            return f"it belongs to another user ({owner})"
    if _others_write(found):
        return f"others can write to it (mode {stat.S_IMODE(found.st_mode):o})"
    if _others_write(above) and not above.st_mode & stat.S_ISVTX:
        return f"others can replace it (mode {stat.S_IMODE(above.st_mode):o} of {folder.parent})"
    return None


def _others_write(found: os.stat_result) -> bool:
    """Whether somebody else can write to it; a group that contains only this user does not count."""
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_own_group(found.st_gid)


@functools.cache
def _is_own_group(group: int) -> bool:
    import grp
    import pwd

    try:
        user, found = pwd.getpwuid(os.getuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return group == user.pw_gid and found.gr_name == user.pw_name and set(found.gr_mem) <= {user.pw_name}


@functools.cache
def _instead_of(folder: Path, problem: str) -> Path:
    spare = spare_folder()
    warnings.warn(
        f"the cache folder {folder} is not used: {problem}, and what lies there would run as your "
        f"code. Compiling in {spare} instead, for this process only. Remove the folder, or make it "
        f"yours alone (chmod 700), or set FXLITE_CACHE to another one.",
        stacklevel=4,
    )
    return spare


@functools.cache
def spare_folder() -> Path:
    """A private folder that is removed when this process ends. Raises OSError."""
    folder = tempfile.mkdtemp(prefix="fxlite-")
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # not in a forked child
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return Path(folder)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents for this user only, whatever the umask. Raises OSError."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for made in reversed(missing):
        try:
            made.mkdir(0o700)
            made.chmod(0o700)
        except FileExistsError:
            continue  # another process was faster


# -- files with their digest -----------------------------------------------------------------------
def file_digest(path: Path) -> str:
    """The digest of a file, as used in names of files."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:_DIGITS]


def name_with_digest(name: str, path: Path) -> str:
    """``net.so`` -> ``net.0123456789abcdef.so``, with the digest of the file at ``path``."""
    stem, suffix = os.path.splitext(name)
    return f"{stem}.{file_digest(path)}{suffix}"


def intact_file(folder: Path, name: str) -> Path | None:
    """The finished file of this name in a folder of the cache. Damaged files are removed, and symbolic
    links are not accepted."""
    stem, suffix = os.path.splitext(name)
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    for found in names:
        digest = found[len(stem) + 1 : len(found) - len(suffix)]
        if len(digest) != _DIGITS or found != f"{stem}.{digest}{suffix}":
            continue
        path = folder / found
        try:
            if not path.is_symlink() and file_digest(path) == digest:
                return path
            path.unlink()
        except OSError:
            continue  # another process was faster, or the folder is read-only
    return None


def publish(data: bytes, folder: Path, name: str) -> Path:
    """Write a file under its name with its digest, so that other processes see either all of it or
    nothing; other versions of it are removed. Raises OSError."""
    make_folder(folder)
    handle, draft = tempfile.mkstemp(dir=folder, prefix="draft-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        target = folder / name_with_digest(name, Path(draft))
        stem, suffix = os.path.splitext(name)
        for old in os.listdir(folder):
            is_same = old.startswith(f"{stem}.") and old.endswith(suffix)
            if is_same and len(old) == len(target.name) and old != target.name:
                (folder / old).unlink(missing_ok=True)
        os.replace(draft, target)
        return target
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


# -- notes -----------------------------------------------------------------------------------------
def keep_note(folder: Path, name: str, data: dict[str, Any]) -> None:
    """Store facts as the JSON file ``NAME.<digest>.json``. If the cache cannot be written, only time is
    lost."""
    try:
        publish((json.dumps(data, indent=1) + "\n").encode(), folder, f"{name}.json")
    except OSError:
        return


def find_note(folder: Path, name: str) -> dict[str, Any] | None:
    """The stored facts; None if there are none, or they are damaged."""
    found = intact_file(folder, f"{name}.json")
    try:
        data = None if found is None else json.loads(found.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def sealed(data: dict[str, Any]) -> str:
    """Facts as JSON that includes their digest, for a file with a fixed name."""
    return json.dumps(data | {_DIGEST: _digest_of(data)})


def unsealed(text: str) -> dict[str, Any]:
    """The facts of :func:`sealed`. Raises ValueError if they are damaged."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("the file is damaged") from None
    if not isinstance(data, dict) or data.pop(_DIGEST, None) != _digest_of(data):
        raise ValueError("the file is damaged")
    return data


def _digest_of(data: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


# -- its size --------------------------------------------------------------------------------------
PROGRAMS = "programs"
"""The folder of kept programs in the cache."""
STAMP = "trimmed"
"""A file whose modification time is when the sizes were last added up."""
WORK = "work-"
"""How the name of a folder begins in which something is being built."""
_DEFAULT_LIMIT = 10.0  # gigabytes
_IN_USE = 3600  # seconds since the last use
_PAUSE = 600  # seconds until the sizes are added up again
_ABANDONED_AFTER = 24 * 3600  # seconds until the work folder of a killed build is removed


def cache_limit() -> float:
    """The limit in bytes; infinity for no limit. A value that is not a number counts as not set."""
    try:
        gigabytes = float(os.environ.get("FXLITE_CACHE_LIMIT", _DEFAULT_LIMIT))
    except ValueError:
        gigabytes = _DEFAULT_LIMIT
    return gigabytes * 1e9 if gigabytes > 0 else float("inf")


def mark_used(folder: Path) -> None:
    """Record that a folder of the cache is being used."""
    with contextlib.suppress(OSError):  # the cache is read-only, so nothing will be removed
        os.utime(folder)


def trim_cache(root: Path) -> None:
    """Remove what killed builds left, and the least recently used entries until the limit is kept. That looks at
    everything in the cache, so it is done at most once in ten minutes."""
    stamp = root / STAMP
    with contextlib.suppress(OSError):
        if time.time() - stamp.stat().st_mtime < _PAUSE:
            return
    try:
        stamp.touch()
    except OSError:
        return
    _remove_abandoned(root)
    found = sorted(_entries(root))
    excess = sum(size for _, size, _ in found) - cache_limit()
    for used, size, folder in found:
        if excess <= 0 or time.time() - used < _IN_USE:
            return
        shutil.rmtree(folder, ignore_errors=True)
        excess -= size


def _remove_abandoned(root: Path) -> None:
    for folder in root.glob(f"{WORK}*"):
        with contextlib.suppress(OSError):  # its owner has just removed it
            if time.time() - folder.stat().st_mtime > _ABANDONED_AFTER:
                shutil.rmtree(folder, ignore_errors=True)


def is_entry(name: str) -> bool:
    """Whether this is the name of a build or of a kept program, which is a key."""
    return len(name) == 32 and not set(name) - set("0123456789abcdef")


def _entries(root: Path) -> Iterator[tuple[float, int, str]]:
    """The last use, the bytes and the path of each build and each kept program."""
    for parent in (root, root / PROGRAMS):
        with contextlib.suppress(OSError), os.scandir(parent) as folders:
            for folder in folders:
                if is_entry(folder.name):
                    with contextlib.suppress(OSError):  # another process has just removed it
                        size = sum(file.stat().st_size for file in os.scandir(folder))
                        yield folder.stat().st_mtime, size, folder.path
