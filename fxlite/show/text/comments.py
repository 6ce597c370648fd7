"""The comments of a graph's text: types of weights, and where each value comes from.

In: lines of text. Out: what ``# weights: fc.weight f32[4,3]`` and ``# fc (Linear), model.py:31``
say, for :mod:`fxlite.show.text.parser`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fxlite.base.location import Location, Scope
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType, parse_type

_WEIGHT = re.compile(r"([^\s,]+) (\w+(?:\[[^\]]*\])?)")
_SCOPE = re.compile(r"([\w.]*) ?\((\w+)\)")
_PLACE = re.compile(r"(?:^|, )([^,]+):(\d+)$")
_CHECK = re.compile(r"([^,]+?):(\d+)(?:: (.*))?")
_SELF_PATH = re.compile(r"""self(?:\.\w+|\[\d+\]|\["[^"]*"\]|\['[^']*'\])+""")
_CALLED = re.compile(r"\s*# input: (\w+) is (self)$")
_STEP = re.compile(r"\w+")


def listed_weights(lines: Iterable[str]) -> dict[str, TensorType | None]:
    """Path -> type of the weights that the comment lists, in its order."""
    parts: list[str] = []
    last = 0  # line of the comment so far
    for number, line in enumerate(lines):
        text = line.lstrip()
        if not text.startswith("#"):
            continue
        text = text[1:].strip()
        if text.startswith("weights:"):
            parts.append(text.removeprefix("weights:"))
            last = number
        elif parts and number == last + 1 and _WEIGHT.match(text):
            parts.append(text)
            last = number
    found = _WEIGHT.findall(" ".join(parts))
    return {path: None if text == "None" else parse_type(text) for path, text in found}


def called_inputs(lines: Iterable[str]) -> dict[str, str]:
    """What inputs are called whose parameters have other names: ``# input: _self is self``."""
    return {found[1]: found[2] for line in lines if (found := _CALLED.match(line))}


def weights_in(text: str) -> set[str]:
    """Paths after ``self`` anywhere in the text."""
    found = set(_SELF_PATH.findall(text))
    return {".".join(_STEP.findall(path.removeprefix("self"))) for path in found}


def origin_of(comment: str) -> tuple[Scope | None, Location | None]:
    """Scope and location from ``fc (Linear), model.py:31``; None for what is not there."""
    scope, place = None, None
    found = _PLACE.search(comment)
    if found:
        place = Location(resolved=(found[1].strip(), int(found[2]), "", ""))
        comment = comment[: found.start()]
    found = _SCOPE.fullmatch(comment.strip())
    if found:
        scope = Scope(found[1], found[2])
    return scope, place


def check_of(comment: str) -> Location | None:
    """The place of a guard, from ``model.py:12: assert x.shape[1] <= 512``."""
    found = _CHECK.fullmatch(comment)
    if found is None:
        return None
    return Location(resolved=(found[1].strip(), int(found[2]), "", found[3] or ""))


def specialized_dims(lines: Iterable[str]) -> dict[str, Dim]:
    """The named dims that ``# specialized: T = 128`` says were replaced."""
    for line in lines:
        _, sign, said = line.partition("# specialized: ")
        if sign and not line.partition("#")[0].strip():
            pairs = (pair.partition(" = ") for pair in said.split(", "))
            return {name: shapes.parse(value) for name, _, value in pairs}
    return {}
