"""The origin of a node: file, line, function and expression in the user's program, and its scope in the
module tree.

In: the running frame. Out: :class:`Location`, which is resolved on demand, and :class:`Scope`.
"""

from __future__ import annotations

import linecache
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from fxlite.base.errors import Details, FxliteError, TraceError

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_ROOT = os.path.dirname(os.path.dirname(_PACKAGE)) + os.sep
_NUMPY = os.path.dirname(os.path.abspath(np.__file__)) + os.sep  # these files are never the user's program
_OWN = (_PACKAGE, _ROOT + "passes" + os.sep, _ROOT + "codegen" + os.sep, _NUMPY)
#: Whether files belong to fxlite or NumPy, for those that have been looked up.
KNOWN_OWN: dict[str, bool] = {}
#: Code of fxlite that makes calls on behalf of a program.
FOR_PROGRAM: set[CodeType] = set()


@dataclass(frozen=True)
class Scope:
    """The module in which a value was made: its ``path`` from the root (``layers.0.attn``) and its class
    name. ``called_at`` is the place of the module's call in this trace, and ``caller`` the module that
    called it. ``arguments`` are those with which a layer of fxlite was made."""

    path: str
    class_name: str
    called_at: Location | None = field(default=None, compare=False, repr=False)
    caller: Scope | None = field(default=None, compare=False, repr=False)
    arguments: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.path} ({self.class_name})" if self.path else self.class_name


@dataclass(frozen=True, eq=False)
class FunctionCall:
    """A call of a function of the program (not of a module) during a trace: its place, the call around it,
    the module in which it happened, and its arguments as (parameter, form with names of nodes)."""

    code: CodeType
    called_at: Location
    caller: FunctionCall | None
    scope: Scope | None
    given: tuple[tuple[str, Any], ...]


class Location:
    """A place in the user's program. It holds a code object and an instruction, and is resolved on demand.
    ``call`` is the innermost function call around it, if that is known."""

    __slots__ = ("_code", "_offset", "_resolved", "call")

    def __init__(
        self,
        code: CodeType | None = None,
        offset: int = 0,
        resolved: tuple[str, int, str, str] | None = None,
        call: FunctionCall | None = None,
    ) -> None:
        self._code = code
        self._offset = offset
        self._resolved = resolved
        self.call = call

    def _resolve(self) -> tuple[str, int, str, str]:
        if self._resolved is None:
            code = self._code
            if code is None:
                self._resolved = ("<unknown>", 0, "", "")
            else:
                positions = _positions(code)[self._offset // 2]
                line = positions[0] or code.co_firstlineno
                self._resolved = (code.co_filename, line, code.co_name, _segment(code, positions))
        return self._resolved

    @property
    def file(self) -> str:
        return self._resolve()[0]

    @property
    def line(self) -> int:
        return self._resolve()[1]

    @property
    def function(self) -> str:
        return self._resolve()[2]

    @property
    def expression(self) -> str:
        """The source text of the expression, verbatim; "" if the source is not available."""
        return self._resolve()[3]

    @property
    def columns(self) -> tuple[int, int] | None:
        """The first column of the expression and the one after its last, in its first line and counted from 0;
        None if they are unknown (in a graph that was loaded)."""
        if self._code is None:
            return None
        first, last, start, stop = _positions(self._code)[self._offset // 2]
        if first is None or start is None or stop is None:
            return None
        line = linecache.getline(self._code.co_filename, first).rstrip("\n").encode()
        end = stop if last == first else len(line)
        return len(line[:start].decode()), len(line[:end].decode())

    @property
    def span(self) -> tuple[int, int, int, int] | None:
        """First line, last line, first column and last column of the expression, with columns in bytes of
        UTF-8; None if they are unknown."""
        if self._code is None:
            return None
        found = _positions(self._code)[self._offset // 2]
        return None if None in found else found

    def file_lines(self) -> list[str]:
        """The lines of the file; empty if it is not available. For a location from a saved graph, only Python
        sources are read, because the saved name could refer to any file."""
        if self._code is None and self.file not in linecache.cache:
            is_source = self.file.endswith(".py") and not self.file.startswith(("//", "\\\\"))
            if not (is_source and os.path.isfile(self.file)):
                return []
        return linecache.getlines(self.file)

    @property
    def short(self) -> str:
        """``model.py:31``"""
        name = self.file.replace("\\", "/").rpartition("/")[2]
        return f"{name}:{self.line}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def __repr__(self) -> str:
        return f"Location({self})"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Location) and self._resolve() == other._resolve()

    def __hash__(self) -> int:
        return hash(self._resolve())

    def __reduce__(self) -> tuple[Any, ...]:
        return (Location, (None, 0, self._resolve()))

    def __deepcopy__(self, memo: Any) -> Location:
        return self


#: The code object that was looked up last, with the positions of all its instructions: the nodes of a graph
#: mostly come from a few long functions.
_last_code: tuple[CodeType | None, list[Any]] = (None, [])


def _positions(code: CodeType) -> list[Any]:
    global _last_code
    if _last_code[0] is not code:
        _last_code = (code, list(code.co_positions()))
    return _last_code[1]


def _segment(code: CodeType, positions: Any) -> str:
    first, last, start, stop = positions
    if first is None or last is None or start is None or stop is None:
        return linecache.getline(code.co_filename, first).strip() if first else ""
    lines = [linecache.getline(code.co_filename, n).rstrip("\n") for n in range(first, last + 1)]
    if not any(lines):
        return ""
    encoded = [line.encode() for line in lines]  # columns count UTF-8 bytes
    encoded[-1] = encoded[-1][:stop]
    encoded[0] = encoded[0][start:]
    return " ".join(part.decode(errors="replace").strip() for part in encoded)


#: The beginning of the file names of regenerated programs that are held in memory.
REGENERATED = "<fxlite python>"


def is_own_file(filename: str) -> bool:
    """True for files of fxlite itself."""
    known = KNOWN_OWN.get(filename)
    if known is None:
        absolute = os.path.abspath(filename)
        known = KNOWN_OWN[filename] = absolute.startswith(_OWN) or filename.startswith(("<fxlite", "<frozen"))
    return known


def described(error: BaseException, file: Path | None = None) -> str:
    """``NameError: name 'x' is not defined (model.py:12)``, with the innermost line of the user's program."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SyntaxError):
        return text  # the text itself names the line
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if (not is_own_file(f.filename) if file is None else Path(f.filename).resolve() == file)]
    return f"{text} ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else text


def program_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame outside of fxlite, from this one outwards."""
    while frame is not None and (KNOWN_OWN.get(frame.f_code.co_filename) or is_own_file(frame.f_code.co_filename)):
        frame = frame.f_back
    return frame


def here(depth: int = 1) -> Location | None:
    """The location of the innermost caller outside of fxlite."""
    frame = program_frame(sys._getframe(depth))
    return None if frame is None else Location(frame.f_code, frame.f_lasti)


def definition_of(function: Any) -> Location | None:
    """The location where a function begins; None for a function that is not written in Python."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    return Location(resolved=(code.co_filename, code.co_firstlineno, code.co_name, ""))


def with_place(error: FxliteError, location: Location | None) -> FxliteError:
    """The error with the line of the program that caused it, before the part on the origin of its values. A
    TraceError already names the line."""
    if location is None or isinstance(error, TraceError):
        return error
    known = error.details or Details(str(error))
    lines = [known.problem, f"at {location}: {location.expression}", *known.origin.splitlines()]
    made = type(error)("\n  ".join(lines))
    made.details = replace(known, location=location)
    return made
