"""The lines of the user's program that a page shows: those around the places of nodes.

In: locations. Out: the lines as data, each once, and for each location where to find it in them.
"""

from __future__ import annotations

import os
from typing import Any

from fxlite.base.location import Location

#: Lines shown before and behind the one of a node.
CONTEXT = 6


class SourceLines:
    """Collects lines by file."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._lines: list[dict[int, str]] = []

    def place(self, location: Location | None) -> dict[str, Any] | None:
        """Number of the file, line, and first and last column of the expression (None: unknown);
        None where the source is not at hand."""
        if location is None:
            return None
        lines = location.file_lines()
        if not 0 < location.line <= len(lines):
            return None
        number = self._numbers.setdefault(location.file, len(self._lines))
        if number == len(self._lines):
            self._lines.append({})
        first = max(1, location.line - CONTEXT)
        for line in range(first, min(len(lines), location.line + CONTEXT) + 1):
            self._lines[number][line] = lines[line - 1].rstrip()
        return {"file": number, "line": location.line, "columns": location.columns}

    def data(self) -> list[dict[str, Any]]:
        """Name and lines of each file. A name is a path below the current folder, or without
        folders: where a user keeps files is no matter of a page."""
        return [
            {"name": _shown_name(file), "lines": self._lines[number]}
            for file, number in self._numbers.items()
        ]


def _shown_name(file: str) -> str:
    folder = os.path.join(os.getcwd(), "")
    return file.removeprefix(folder) if file.startswith(folder) else os.path.basename(file)
