"""Real inputs for ``fxlite quantize --data``: from files to batches.

In: what was given with ``--data``, each one ``FILE.npz``, ``FILE.safetensors`` (arrays by the
inputs' names), ``FILE.npy`` (of a program with one input), ``INPUT=FILE.npy``, or a folder of the
first three; and a traced module. Out: batches as :mod:`fxlite.passes.quantize` takes them. Arrays
are cut

- along the named dim that the first input begins with, into pieces of a given size;
- along an axis that stands before those of the type (``f32[5,1,64]`` for ``f32[1,64]``), one batch
  for each position;
- where all first sizes are numbers, into pieces of that many, if they are a multiple of it.

What has exactly the shape of its type and no named dim goes into each batch whole.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError, FileFormatError, ShapeError
from fxlite.codegen.program.example_inputs import check_names, load_data
from fxlite.files.serialize import load_safetensors
from fxlite.graph import pytree
from fxlite.graph.graph_module import GraphModule, check_inputs

Array = np.ndarray[Any, Any]

_KINDS = (".npz", ".npy", ".safetensors")


def read_batches(given: Sequence[str], module: GraphModule, size: int) -> list[Any]:
    """The batches in all that was given, ``size`` at most along a named dim. Raises ArgumentError
    naming the file for what is missing, empty, misspelt, of another type, or not to be cut."""
    batches: list[Any] = []
    for where, arrays in _sets(given, module):
        for batch in _cut(where, arrays, module, size):
            try:
                check_inputs(where, module.graph.placeholders, batch)
            except (DTypeError, ShapeError) as error:
                raise ArgumentError(f"--data {error}") from None
            batches.append(_arguments(module, batch))
    return batches


# -- files -----------------------------------------------------------------------------------------
def _sets(given: Sequence[str], module: GraphModule) -> Iterator[tuple[str, dict[str, Array]]]:
    """(where from, arrays by input), complete. ``INPUT=FILE.npy`` are parts of one set."""
    names = [str(node.target) for node in module.graph.placeholders]
    pairs: dict[str, str] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if equals and not Path(text).exists():
            if name in pairs:
                raise ArgumentError(f"--data: {name} is given twice, {pairs[name]} and {path}")
            pairs[name] = path
            continue
        for file in _files(text):
            yield str(file), _complete(str(file), _arrays(file, names), names)
    if pairs:
        check_names(names, pairs, "input (in --data)")
        yield ", ".join(pairs.values()), _complete("--data", load_data(pairs), names)


def _files(text: str) -> list[Path]:
    """The file of that name, or those in the folder. Raises ArgumentError."""
    path = Path(text)
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix in _KINDS)
        if not found:
            raise ArgumentError(f"--data: the folder {text} has no file {' or '.join(_KINDS)}")
        return found
    if not path.is_file():
        raise ArgumentError(f"--data: there is no file {text}")
    if path.suffix not in _KINDS:
        raise ArgumentError(
            f"--data: {text} is no {' or '.join(_KINDS)}; write one with np.savez(path, x=...)"
        )
    return [path]


def _arrays(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """The arrays of a file by the name of the input. Raises ArgumentError."""
    if path.suffix == ".safetensors":
        try:
            return load_safetensors(path)
        except FileFormatError as error:
            raise ArgumentError(f"--data: {error}") from None
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            arrays = {names[0] if len(names) == 1 else "": found}
        else:
            arrays = {name: found[name] for name in found.files}
    except (ValueError, EOFError, AttributeError, OSError):
        raise ArgumentError(
            f"--data: {path} holds no arrays of numbers; write them with np.savez(path, x=...)"
        ) from None
    if "" in arrays:
        raise ArgumentError(
            f"--data: {path} is one array, and the inputs are {', '.join(names)}: "
            f"--data {names[0] if names else 'INPUT'}={path}, one for each"
        )
    unnamed = [f"arr_{number}" for number in range(len(arrays))]
    if sorted(arrays) == sorted(unnamed) and len(arrays) == len(names) and set(names) != {*arrays}:
        return {name: arrays[key] for name, key in zip(names, unnamed, strict=True)}
    return arrays


def _complete(where: str, arrays: dict[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """The arrays, if there is one for each input and no other. Raises ArgumentError."""
    if not arrays and names:
        raise ArgumentError(f"--data: {where} is empty; the inputs are {', '.join(names)}")
    check_names(names, arrays, f"input (in {where})")
    if missing := [name for name in names if name not in arrays]:
        raise ArgumentError(
            f"{where} has no array {', '.join(missing)}; it has {', '.join(arrays)}"
        )
    return arrays


# -- batches ---------------------------------------------------------------------------------------
def _cut(
    where: str, arrays: dict[str, Array], module: GraphModule, size: int
) -> Iterator[dict[str, Array]]:
    """Pieces of the arrays. Raises ArgumentError for lengths that differ, and for empty ones."""
    shapes = {str(n.target): n.type.shape for n in module.graph.placeholders}
    dim = next((s[0] for s in shapes.values() if s and not isinstance(s[0], int)), None)
    steps: dict[str, int] = {}  # length of a piece; 0 for a position of an axis before the others
    for name, shape in shapes.items():
        array = arrays[name]
        if array.size == 0 and 0 not in shape:
            raise ArgumentError(
                f"--data: {where}: {name} is empty, {array.dtype}{list(array.shape)}; ranges are "
                f"found on numbers"
            )
        if array.ndim == len(shape) + 1:
            steps[name] = 0
        elif dim is None and shape and _is_multiple(array, shape[0]):
            steps[name] = shape[0]
    if not steps:
        steps = {n: size for n, s in shapes.items() if s and s[0] == dim and arrays[n].ndim}
    counts = {n: -(-len(arrays[n]) // (step or 1)) for n, step in steps.items()}
    lengths = {len(arrays[n]) for n in steps if steps[n] == size}
    if len(set(counts.values())) > 1 or len(lengths) > 1:
        listed = ", ".join(f"{n}: {arrays[n].dtype}{list(arrays[n].shape)}" for n in steps)
        raise ArgumentError(f"--data: {where}: arrays are of different length: {listed}")
    for number in range(max(counts.values(), default=1)):
        yield {n: _piece(array, number, steps.get(n)) for n, array in arrays.items()}


def _is_multiple(array: Array, length: int) -> bool:
    """True for an array of several pieces of a length."""
    return array.ndim > 0 and 0 < length < len(array) and len(array) % length == 0


def _piece(array: Array, number: int, step: int | None) -> Array:
    if step is None:
        return array
    return array[number * step : (number + 1) * step] if step else np.asarray(array[number])


def _arguments(module: GraphModule, values: Mapping[str, Array]) -> Any:
    """A batch as the arguments of a call, nested as the program's parameters are."""
    interface = module.graph.interface
    if interface is None:
        return dict(values)
    nested = {
        name: pytree.build(structure, lambda leaf: values[leaf.name])
        for name, _, structure in interface.parameters
    }
    return inspect.BoundArguments(interface.signature(), OrderedDict(nested))
