"""The errors fxlite raises, in one place.

Every one of them carries a message that names what was expected, what was found, where in the
user's program (file and line) and what to do about it. They derive from the built-in error a
NumPy user would expect, so ``except ValueError`` keeps working.
"""

from __future__ import annotations


class FxliteError(Exception):
    """Base of all errors raised by fxlite."""


class ShapeError(FxliteError, ValueError):
    """Shapes do not fit the operation."""


class DTypeError(FxliteError, TypeError):
    """A dtype does not fit the operation."""


class ArgumentError(FxliteError, TypeError):
    """A call does not fit an op's or function's signature."""


class TraceError(FxliteError, TypeError):
    """The program cannot be traced: it needs a value, a file or a control flow decision at trace
    time that only exists at run time. The message names the line and what to write instead."""


class GraphError(FxliteError, RuntimeError):
    """A graph breaks an invariant (see ``Graph.lint``) or an edit would break one."""


class ParseError(FxliteError, ValueError):
    """Text is not a type, a dim or a graph."""


class CodegenError(FxliteError, RuntimeError):
    """A graph cannot be turned into source for the chosen target."""


class FileFormatError(FxliteError, ValueError):
    """A file is not a saved graph, is damaged, or was written by a newer version."""
