"""The converter of weights that goes with a patch, as a Python file.

In: how passes computed new weights (:mod:`fxlite.passes.derived`), and the names of the program's weights before and
after. Out: the text of a file with ``convert(state_dict)`` and ``invert(state_dict)``, which needs NumPy, and
fxlite if its ops computed weights.
"""

from __future__ import annotations

import inspect
import textwrap
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.base.console import write_whole
from fxlite.base.outside_text import docstring, python_string
from fxlite.files.serialize import save_safetensors
from fxlite.ops.op import Op
from fxlite.passes.derived import Derivation, Source, sources_in
from fxlite.types.dtypes import DType, has_same_bits

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Converter:
    """``text`` is the file; ``names`` are the names of the weights after conversion, as used while computing them;
    ``stored`` are arrays that must be in a safetensors file beside it, because no pass recorded how it computed
    them."""

    text: str
    names: frozenset[str]
    stored: Mapping[str, Array]

    def save(self, path: Path) -> list[Path]:
        """Write the file, and a file of stored arrays if there are any; returns their paths."""
        write_whole(path, self.text)
        if not self.stored:
            return [path]
        beside = path.with_suffix(".safetensors")
        save_safetensors(dict(self.stored), beside)
        return [path, beside]

    def functions(self, file: str = "converter.py") -> dict[str, Any]:
        """The functions that the file defines."""
        space: dict[str, Any] = {"__name__": "converter", "__file__": file}
        exec(compile(self.text, file, "exec"), space)
        if self.stored:
            space["_stored"] = lambda: dict(self.stored)
        return space


def make_converter(
    title: str,
    before: Mapping[str, Array],
    after: Sequence[str],
    names: Mapping[str, str],
    wanted: Mapping[str, Array],
    steps: Iterable[Derivation],
    constants: Mapping[str, Array],
    read: Container[str],
) -> Converter:
    """Make the converter. ``before`` are the weights of the original program; ``after`` the keys of the patched one;
    ``names`` maps weights to their names in ``steps`` if these differ; ``wanted`` are the values they must have;
    ``constants`` are arrays that are not weights of the program; ``read`` is what the patched program reads."""
    needed = _needed(list(steps), [names.get(key, key) for key in after])
    sources = {name for step in needed for name in sources_in(step.arguments)}
    fixed = {name: array for name, array in constants.items() if name in sources}
    weights: dict[str, Any] = {**before, **fixed}
    for step in needed:
        weights |= dict(zip(step.results, step.run(weights)))
    stored = {
        key: np.asarray(array)
        for key, array in wanted.items()
        if names.get(key, key) not in weights or not has_same_bits(weights[names.get(key, key)], array)
    }
    kept = {name: array for name, array in fixed.items() if array.size > _MOST_NUMBERS}
    lines = _head(title, stored or kept, needed)
    for function in _functions(needed):
        lines += [*_source(function), "", ""]
    keys = {*after, *before}
    renamed = {key: name for key, name in names.items() if key in keys and key != name}
    lines += _table("BEFORE", list(before)) + _table("AFTER", list(after))
    if renamed:
        lines += [f"NAMES = {_literal(renamed)}  # of weights, while they are computed"]
    lines += _convert(needed, renamed, stored, fixed)
    lines += _invert(needed, renamed, stored, before, after, read)
    own = frozenset(names.get(key, key) for key in after)
    return Converter("\n".join([*lines, *_MAIN, ""]), own, {**stored, **kept})


def with_warning(text: str) -> str:
    """The text of a converter if weights depend on each other in the patched program."""
    warning = (
        "invert() is for weights that convert() made: of one weight several were computed, which "
        "training makes independent."
    )
    place = text.index("    python THIS_FILE before")
    return "\n".join([text[:place] + textwrap.fill(warning, 96), "", text[place:]])


_MOST_NUMBERS = 64  # in an array that is written into the text


def _needed(steps: list[Derivation], keys: list[str]) -> list[Derivation]:
    """The steps that lead to weights of these names."""
    kept: list[Derivation] = []
    wanted = set(keys)
    for step in reversed(steps):
        if wanted & {*step.results}:
            kept.insert(0, step)
            wanted |= {*sources_in(step.arguments)}
    return kept


def _head(title: str, stored: Mapping[str, Array], steps: Sequence[Derivation]) -> list[str]:
    lost = list(dict.fromkeys(step.about for step in steps if step.about))
    said = textwrap.wrap(f"{docstring(title)} Written by fxlite optimize.", 96)
    lines = [f'"""{said[0]}', *said[1:], ""]
    for text in lost:
        lines += [*textwrap.wrap(f"invert() is no way back to the very numbers: {text}", 96), ""]
    lines += [
        "    python THIS_FILE before.safetensors after.safetensors",
        "    python THIS_FILE --invert after.safetensors before.safetensors",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "import sys",
        *(["from pathlib import Path"] if stored else []),
        "from typing import Any",
        "",
        "import numpy as np",
        "from safetensors.numpy import load_file, save_file",
        "",
    ]
    if any(isinstance(step.function, Op) for step in steps):
        lines += ["from fxlite import ops", ""]
    return [*lines, ""]


def _functions(steps: Iterable[Derivation]) -> list[Any]:
    found = [f for s in steps for f in (s.function, s.inverse)]
    return list(dict.fromkeys(f for f in found if f is not None and not isinstance(f, Op)))


def _source(function: Any) -> list[str]:
    lines = textwrap.dedent(inspect.getsource(function)).rstrip().split("\n")
    return lines[next(i for i, line in enumerate(lines) if line.startswith("def ")) :]


def _table(name: str, keys: Sequence[str]) -> list[str]:
    return [f"{name} = [", *(f"    {python_string(key)}," for key in keys), "]"]


def _convert(
    steps: Sequence[Derivation], renamed: Mapping[str, str], stored: Mapping[str, Array], constants: Mapping[str, Array]
) -> list[str]:
    lines = [
        "",
        "",
        "def convert(state_dict: Any) -> Any:",
        '    """The weights of the patched program, from those of the program as it was."""',
        "    weights = {key: np.asarray(value) for key, value in state_dict.items()}",
    ]
    large = [name for name, array in constants.items() if array.size > _MOST_NUMBERS]
    if stored or large:
        lines += ["    stored = _stored()"]
    for name, array in constants.items():
        value = f"np.array({array.tolist()!r}, {python_string(array.dtype.name)})"
        value = f"stored[{python_string(name)}]" if name in large else value
        lines += [f"    {_weight(name)} = {value}"]
    for step in steps:
        left = ", ".join(_weight(name) for name in step.results)
        given = [*map(_literal, step.arguments)]
        name = f"ops.{step.function.name}" if isinstance(step.function, Op) else step.function.__name__
        lines += _call(f"    {left} = {name}(", [*given, *_options(step.options)])
    if stored:
        lines += ["    # computed by a pass that does not say how", "    weights |= stored"]
    name = "NAMES.get(key, key)" if renamed else "key"
    if stored and renamed:
        name = "key if key in stored else NAMES.get(key, key)"
    lines += [f"    return {{key: weights[{name}] for key in AFTER}}"]
    if stored or large:
        lines += ["", "", "def _stored() -> Any:", '    return load_file(Path(__file__).with_suffix(".safetensors"))']
    return lines


def _invert(
    steps: Sequence[Derivation],
    renamed: Mapping[str, str],
    stored: Mapping[str, Array],
    before: Mapping[str, Array],
    after: Sequence[str],
    still_read: Container[str],
) -> list[str]:
    lines = [
        "",
        "",
        "def invert(state_dict: Any, original: Any = None) -> Any:",
        '    """Weights with which the program as it was computes what the patched one does. What',
        "    cannot be found from those of the patched program is taken from the state_dict",
        '    ``original``."""',
        "    weights = {key: np.asarray(value) for key, value in state_dict.items()}",
    ]
    if renamed:
        lines += ["    weights = {NAMES.get(key, key): value for key, value in weights.items()}"]
    known = {renamed.get(key, key) for key in after if key not in stored}
    lost: list[str] = []
    read: set[str] = set()
    shared = _shared(steps)
    for step in reversed(steps):
        sources = [a if isinstance(a, Source) else None for a in step.arguments]
        flat = sources_in(step.arguments)
        read |= {*flat}
        wanted = [s for s in flat if s in step.results or s not in known or s not in still_read]
        if not wanted:
            continue
        if (
            step.inverse is None
            or id(step) in shared
            or not known.issuperset(step.results)
            or len(flat) != len([s for s in sources if s is not None])
        ):
            lost += [s for s in wanted if not s.startswith("%")]
            known -= {*step.results} - {*flat}
            continue
        left = [_weight(s) if s in wanted else "_" for s in sources]
        results = [*map(_weight, step.results)]
        first = results[0] if len(results) == 1 else f"({', '.join(results)})"
        given = [first, _literal(step.given), *_options(step.options)]
        joined = f"{', '.join(left)}{',' * (len(left) == 1)}"
        if len(joined) > 60:
            *first_lines, joined = _call("    (", left)
            lines += first_lines
            joined = joined.strip()
        lines += _call(f"    {joined} = {step.inverse.__name__}(", given)
        known |= {*flat}
    lost = [key for key in dict.fromkeys(lost) if key in before]
    missing = [k for k in before if renamed.get(k, k) not in known and k not in lost]
    unused = [k for k in missing if k not in stored and k not in read]
    lost += [k for k in missing if k not in unused]
    if unused:
        lines += ["    # nothing that the patched program computes depends on these"]
    for key in unused:
        shape, kind = before[key].shape, before[key].dtype.name
        lines += [f"    {_weight(key)} = np.zeros({shape}, {python_string(kind)})"]
    if lost:
        keys = ", ".join(map(python_string, lost))
        lines += [
            f"    for key in [{keys}]:",
            "        if original is None:",
            '            raise ValueError(f"{key} cannot be computed back: give `original`, too")',
            "        weights[key] = np.asarray(original[key])",
        ]
    name = "NAMES.get(key, key)" if renamed else "key"
    return [*lines, f"    return {{key: weights[{name}] for key in BEFORE}}"]


def _shared(steps: Sequence[Derivation]) -> set[int]:
    """The steps, by identity, that read an array which another step reads as well: their inverses need not give the
    same value for it."""
    readers: dict[tuple[str, int], list[int]] = {}
    written: Counter[str] = Counter()
    for step in steps:
        for name in {*sources_in(step.arguments)}:
            readers.setdefault((name, written[name]), []).append(id(step))
        written.update(step.results)
    return {step for found in readers.values() if len(found) > 1 for step in found}


def _call(head: str, arguments: Sequence[str]) -> list[str]:
    one = f"{head}{', '.join(arguments)})"
    if len(one) <= 100:
        return [one]
    made: list[str] = []
    line = ""
    for argument in arguments:
        if line and len(line) + len(argument) > 88:
            made.append(line)
            line = ""
        line += f"{argument}, "
    return [head, *(f"        {x.rstrip()}" for x in [*made, line]), "    )"]


def _options(options: Mapping[str, Any]) -> list[str]:
    return [f"{name}={_literal(value)}" for name, value in options.items()]


def _weight(name: str) -> str:
    return f"weights[{python_string(name)}]"


def _literal(value: Any) -> str:
    if isinstance(value, Source):
        return _weight(value)
    if isinstance(value, DType):
        return python_string(value.name)
    if isinstance(value, str):
        return python_string(value)
    if isinstance(value, (tuple, list)):
        inner = ", ".join(map(_literal, value))
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, float) and not np.isfinite(value):
        return f'float("{value}")'
    return repr(value)


_MAIN = [
    "",
    "",
    'if __name__ == "__main__":',
    "    *flags, source, target = sys.argv[1:]",
    '    save_file((invert if "--invert" in flags else convert)(load_file(source)), target)',
]
