"""Passes named on the command line: ``cse,my_pass.py:my_pass``.

In: names, with commas between them: of registered passes, or FILE.py:NAME for a pass (or a plain
function of a GraphModule) in a file, which is run. Out: passes.
"""

from __future__ import annotations

from fxlite.cli.program_file import ProgramError, find_object
from fxlite.passes.base import Pass, as_pass


def find_passes(text: str) -> list[Pass]:
    """The passes that ``text`` names, in order. Raises PassError for an unknown name, ProgramError
    for a file that cannot be imported or has no such pass."""
    return [_find(name.strip()) for name in text.split(",") if name.strip()]


def _find(text: str) -> Pass:
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py"):
        return as_pass(text)
    found = find_object(path, name)
    if isinstance(found, type) or not callable(found):
        raise ProgramError(f"{text} is not a pass, but a {type(found).__name__}")
    return as_pass(found)
