"""``fxlite quantize``: a program quantized to integers, by a scheme, a plan or a budget.

In: parsed options, with files of inputs, and a console. Out: the plan, the report on what became
integers and what stayed float, and a ``.fxl`` file of the quantized program; with ``--write-plan`` the
plan as TOML, with ``--draw`` a picture of the sensitivities.

``--data`` gives real inputs:

In: the values of ``--data``, each one ``FILE.npz``, ``FILE.safetensors`` (arrays by the names of the
inputs), ``FILE.npy`` (for a program with one input), ``INPUT=FILE.npy``, or a folder of the first
three; and a traced module. Out: batches for :mod:`fxlite.passes.quantize`. Arrays are cut

- along the named dim that the first input begins with, into pieces of a given size;
- along an axis before those of the type (``f32[5,1,64]`` for ``f32[1,64]``), into one batch for each
  position;
- if all first sizes are numbers and the array's is a multiple, into pieces of the first size.

An array that has exactly the shape of its type, without a named dim, goes whole into each batch.
"""

from __future__ import annotations

import argparse
import inspect
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from fxlite.base.console import show
from fxlite.base.errors import ArgumentError, DTypeError, FileFormatError, ShapeError
from fxlite.cli.program_file import trace_program
from fxlite.cli.shared import UsageError, amount, positive, program_options, repeated, say, seconds
from fxlite.codegen.program.example_inputs import check_names, load_data
from fxlite.files.serialize import load_safetensors, save
from fxlite.graph import pytree
from fxlite.graph.graph_module import GraphModule, check_inputs
from fxlite.passes import quantize as q
from fxlite.passes.quantize.planning.sensitivity import decibel_text

# -- inputs from files -----------------------------------------------------------------------------
Array = np.ndarray[Any, Any]

_KINDS = (".npz", ".npy", ".safetensors")


def read_batches(given: Sequence[str], module: GraphModule, size: int) -> list[Any]:
    """The batches in all files that were given, of at most ``size`` along a named dim. Raises
    ArgumentError, which names the file, for an array that is missing, empty, misspelt, of another type,
    or that cannot be cut."""
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
    """Complete sets of arrays by input, each with its source. All ``INPUT=FILE.npy`` form one set."""
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
    """The file of that name, or the files in the folder. Raises ArgumentError."""
    path = Path(text)
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix in _KINDS)
        if not found:
            raise ArgumentError(f"--data: the folder {text} has no file {' or '.join(_KINDS)}")
        return found
    if not path.is_file():
        raise ArgumentError(f"--data: there is no file {text}")
    if path.suffix not in _KINDS:
        raise ArgumentError(f"--data: {text} is not a file {' or '.join(_KINDS)}; write one with np.savez(path, x=...)")
    return [path]


def _arrays(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """The arrays of a file by the names of the inputs. Raises ArgumentError."""
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
        raise ArgumentError(f"{where} has no array {', '.join(missing)}; it has {', '.join(arrays)}")
    return arrays


# -- batches ---------------------------------------------------------------------------------------
def _cut(where: str, arrays: dict[str, Array], module: GraphModule, size: int) -> Iterator[dict[str, Array]]:
    """Pieces of the arrays. Raises ArgumentError for arrays of different lengths and empty ones."""
    shapes = {str(n.target): n.type.shape for n in module.graph.placeholders}
    dim = next((s[0] for s in shapes.values() if s and not isinstance(s[0], int)), None)
    steps: dict[str, int] = {}  # length of a piece; 0 for a position on an axis before the others
    for name, shape in shapes.items():
        array = arrays[name]
        if array.size == 0 and 0 not in shape:
            raise ArgumentError(
                f"--data: {where}: {name} is empty, {array.dtype}{list(array.shape)}; ranges are found on numbers"
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
    """True for an array that consists of several pieces of a length."""
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
        name: pytree.build(structure, lambda leaf: values[leaf.name]) for name, _, structure in interface.parameters
    }
    return inspect.BoundArguments(interface.signature(), OrderedDict(nested))


# -- the command -----------------------------------------------------------------------------------
_QUANTIZE = """\
Turn a float program into one of 8-bit (or 4-bit) integers, and report what became integers, what
stayed float and why, and how far the results are from the float ones."""

_QUANTIZE_EXAMPLES = """\
more examples:
  fxlite quantize model.py:Net -i "x=f32[B,64]" --scheme dynamic_int8 -o net.fxl
  fxlite quantize model.py:Net -i "x=f32[B,64]" --data calib.npz \\
      --scheme static_int8 -o net.fxl
  fxlite quantize model.py:Net -i "x=f32[B,64]" --data calib.npz --min-sqnr 30 \\
      --write-plan plan.toml -o net.fxl
  fxlite quantize model.py:Net -i "x=f32[B,64]" --data calib.npz \\
      --plan plan.toml -o net.fxl
  fxlite compile net.fxl -o out/          the result as C

schemes:
  static_int8       activations and weights; ranges from --data; the fastest
  dynamic_int8      the same, with ranges found in each call
  weight_only_int8, weight_only_int4      small weights, float arithmetic
  fp16, bf16        half floats throughout
"""

#: The presets of quantization, which ``fxlite quantize --scheme`` takes.
SCHEMES = ("static_int8", "dynamic_int8", "weight_only_int8", "weight_only_int4", "fp16", "bf16")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite quantize``."""
    parser.description = _QUANTIZE
    parser.epilog = _QUANTIZE_EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    program_options(parser)
    data = parser.add_argument_group("data", "real inputs, on which ranges of values and errors are measured")
    repeated(
        data,
        "--data",
        metavar="FILE",
        help=".npz or .safetensors with arrays by the inputs' names, .npy for the only input, "
        "INPUT=FILE.npy, or a folder of such files; repeat for more. Arrays are cut into batches "
        "along the named dim that they begin with, or an axis before those of the type",
    )
    data.add_argument(
        "--batch", type=positive, default=32, metavar="N", help="size of a batch along a named dim; default 32"
    )
    how = parser.add_argument_group("how", "one of --scheme, --plan, or a budget")
    how.add_argument(
        "--scheme",
        choices=SCHEMES,
        metavar="SCHEME",
        help="one scheme for all layers, listed below; only static_int8 needs --data",
    )
    how.add_argument(
        "--plan", metavar="FILE.toml", help="a scheme for each layer, as written by --write-plan and perhaps edited"
    )
    for option, metavar, parse, text in (
        ("--min-sqnr", "DB", float, "signal-to-noise ratio of the results on --data, in dB"),
        ("--max-bytes", "BYTES", amount("B"), "bytes of all weights: 200kB, 4MiB"),
        ("--max-latency", "TIME", seconds, "time of all products, as estimated: 200us"),
    ):
        how.add_argument(option, metavar=metavar, type=parse, help=f"make a plan that keeps this: {text}")
    written = parser.add_argument_group("files written")
    written.add_argument("-o", "--output", required=True, metavar="FILE.fxl", help="the quantized program")
    written.add_argument("--write-plan", metavar="FILE.toml", help="the plan that was made")
    written.add_argument("--draw", metavar="FILE", help="the program, coloured by the plan's SQNR: .svg, .html")


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite quantize``. Raises UsageError and ArgumentError before anything is computed; and the
    errors of tracing, planning and converting."""
    budget = {"min_sqnr": options.min_sqnr, "max_bytes": options.max_bytes, "max_latency": options.max_latency}
    budget = {name: limit for name, limit in budget.items() if limit is not None}
    _check(options, budget)
    _, module = trace_program(options.program, options.weights, options.input, need_types=True)
    batches = read_batches(options.data, module, options.batch)
    plan: q.Plan | None = None
    if budget:
        found = q.sensitivity(module, batches)
        show(console, found)
        console.print()
        plan = q.plan(module, batches, sensitivities=found, **budget)
    elif options.plan:
        plan = q.load_plan(options.plan, module)
    if plan is not None:
        show(console, plan)
        console.print()
        mapping = plan.qconfig_mapping()
    else:
        mapping = q.QConfigMapping().set_global(options.scheme)
    quantized = q.quantize(module, mapping, batches) if batches else q.convert(q.prepare(module, mapping))
    show(console, q.report(quantized))
    if batches and not budget:
        sqnr = decibel_text(q.results_sqnr(module, quantized, batches))
        console.print(f"SQNR of the results on {', '.join(options.data)}: {sqnr}", soft_wrap=True)
    written = [options.output]
    save(quantized, options.output)
    if plan is not None and options.write_plan:
        plan.save(options.write_plan)
        written.append(options.write_plan)
    if plan is not None and options.draw:
        module.graph.draw(options.draw, sqnr=plan.sqnr())
        written.append(options.draw)
    say(console, f"{', '.join(written)} written")
    return 0


def _check(options: argparse.Namespace, budget: dict[str, Any]) -> None:
    """Raise UsageError or ArgumentError for options that do not go together or files that cannot be written."""
    if bool(options.scheme) + bool(options.plan) + bool(budget) != 1:
        raise UsageError(
            "say how: one of --scheme NAME, --plan FILE.toml, or a budget (--min-sqnr, --max-bytes, --max-latency)"
        )
    if not options.data and (budget or options.scheme == "static_int8"):
        raise UsageError(
            'ranges are found on data: give --data FILE.npz, real inputs by name: np.savez("calib.npz", x=...)'
        )
    if not budget and (options.write_plan or options.draw):
        raise UsageError("--write-plan and --draw show a plan that a budget makes")
    if Path(options.output).suffix != ".fxl":
        raise ArgumentError(f"the quantized program is a .fxl file: -o {options.output}.fxl")
    for path in (options.output, options.write_plan, options.draw):
        if path and not Path(path).absolute().parent.is_dir():
            raise ArgumentError(f"there is no folder {Path(path).parent}")
