"""The errors that fxlite raises.

Each message names what was expected, what was found, where in the user's program (file and line), and
what to do about it. Each error derives from the built-in error that a NumPy user would expect, so
``except ValueError`` keeps working.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fxlite.base.location import Location


@dataclass(frozen=True)
class Details:
    """The parts of an error's message: what is wrong and where, where the value came from ("" if that adds
    nothing), and what to write instead ("" if unknown)."""

    problem: str
    location: Location | None = None
    origin: str = ""
    instead: str = ""


class FxliteError(Exception):
    """The base class of all errors that fxlite raises."""

    #: The details of errors that are raised while a program is traced.
    details: Details | None = None


class ShapeError(FxliteError, ValueError):
    """Shapes do not fit the operation."""


class PositionError(ShapeError, IndexError):
    """An index or axis is out of range; also an IndexError, as in NumPy."""


class DTypeError(FxliteError, TypeError):
    """A dtype does not fit the operation."""


class LiteralError(DTypeError, OverflowError):
    """A number in the program does not fit its dtype; also an OverflowError, as in NumPy."""


class ArgumentError(FxliteError, TypeError):
    """A call does not fit the signature of an op or function."""


class OptionError(FxliteError, ValueError):
    """An option has a value outside its range."""


class MemoryLimitError(FxliteError, MemoryError):
    """A value would take more memory than the limit allows, or than any array can have."""


class TraceError(FxliteError, TypeError):
    """The program cannot be traced, because while tracing it needs something that only exists at run time:
    a value, a file, a decision about control flow. The message names the line and what to write instead."""


class MemberError(FxliteError, AttributeError):
    """A module has no member with this name; also an AttributeError, so that ``hasattr`` works."""


class TraceAttributeError(TraceError, AttributeError):
    """A traced value lacks an attribute; also an AttributeError, so that ``hasattr`` works."""


class TruthError(TraceError, ValueError):
    """An array of several elements is used as a single truth value; also a ValueError, as in NumPy."""


class GraphError(FxliteError, RuntimeError):
    """A graph violates an invariant (see ``Graph.lint``), or an edit would violate one."""


class ParseError(FxliteError, ValueError):
    """A text cannot be read as a type, a dim or a graph."""


class QueryError(FxliteError, ValueError):
    """A text is not a graph query, or the query cannot be decided without types or sizes."""


class CodegenError(FxliteError, RuntimeError):
    """A graph cannot be turned into source for the chosen target."""


class PicklingError(FxliteError, TypeError):
    """An object belongs to this process and cannot be copied or sent to another one."""


class FileFormatError(FxliteError, ValueError):
    """A file is not a saved graph, is damaged, or was written by a newer version."""


class ModelImportError(FxliteError, ValueError):
    """A model of another library cannot be imported: the file is damaged, or one of its ops has no
    equivalent in fxlite or has arguments that it cannot have. The message names the op and its node."""

    #: The name of the node that the error is about, once the message names it.
    node: str = ""


class ModelExportError(FxliteError, ValueError):
    """A graph cannot be written as a model of another library, because that has no equivalent for an op, a
    dtype or a size. The message names it and its node."""


def expect(value: Any, kinds: Any, what: str, instead: str = "") -> None:
    """Raise ArgumentError unless ``value`` is an instance of ``kinds``, a class or a tuple of classes. The
    message names ``what`` the value stands for, what it must be, what it is, and what to give ``instead``."""
    if isinstance(value, kinds):
        return
    names = [kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,))]
    known = {
        "Mapping": "dict",
        "Iterable": "list",
        "Callable": "function",
        "int": "whole number",
        "integer": "whole number",
    }
    wanted = " or ".join(dict.fromkeys(known.get(name, name) for name in names))
    shown = repr(value) if isinstance(value, (int, float, str)) else type(value).__name__
    hint = f"; {instead}" if instead else ""
    raise ArgumentError(f"{what} must be a {wanted}, not {shown[:60]}{hint}")


class OutOfRoom(RuntimeError):
    """A list or array of a program has more elements than the compiled program has room for: ``what`` at a place of the
    program. ``is_array``: a write behind its end may fail before."""

    def __init__(self, what: str, room: int, place: Location | None, is_array: bool = False) -> None:
        at = "" if place is None else f"\n  at {place}: {place.expression}".removesuffix(": ")
        super().__init__(
            f"{what}: there are more than {room} elements, and no room for more{at}\n"
            "  instead: let the numbers that its size depends on have a bound, np.minimum(n, 1000), or make it before "
            "the call, and give it as an argument"
        )
        self.is_array = is_array


def number_of(count: Any, noun: str, several: str = "") -> str:
    """``1 node``, ``1,234 nodes``, ``B nodes``; ``several`` is the plural if it is not the noun with an s."""
    if count == 1:
        return f"1 {noun}"
    shown = f"{count:,}" if isinstance(count, int) else str(count)
    return f"{shown} {several or noun + ('es' if noun.endswith(('s', 'ch')) else 's')}"


def sizes_text(sizes: Mapping[str, Any]) -> str:
    """``, B=8, T=16``: named sizes, to follow other words."""
    return "".join(f", {name}={size}" for name, size in sizes.items())


def did_you_mean(name: str, known: Iterable[str], most: int = 3) -> str:
    """``; did you mean conv1 or conv2?`` with the most similar names; empty if there is none."""
    import difflib

    near = difflib.get_close_matches(name, list(known), most)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def __dir__() -> list[str]:
    return sorted(name for name in globals() if name.endswith("Error"))
