"""Writes files whole or not at all.

In: a path and what it is to hold. A full disk or an interrupt while writing leaves what was there:
the text goes into a file beside it, which then takes the name.
"""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Make ``content`` (a str as UTF-8) the file at ``path``; pipes and devices are written to.
    Raises OSError, and leaves an earlier file as it was."""
    data = content.encode() if isinstance(content, str) else content
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        Path(path).write_bytes(data)
        return
    draft = target.with_name(f".{target.name[:100]}.{os.getpid()}")
    try:
        draft.write_bytes(data)
        if target.exists():
            draft.chmod(target.stat().st_mode & 0o7777)
        os.replace(draft, target)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from None
    finally:
        draft.unlink(missing_ok=True)
