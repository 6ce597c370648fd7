"""The C files with which Python calls a compiled model: `extension.c`, which is the same for all
models, and `entry.c` for what is particular to one.

In comes an `Entry`; out come C texts. Only the extension includes `Python.h`, and it is compiled
once for many models; an entry takes the compiler a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files

from fxlite.base.outside_text import comment
from fxlite.codegen.c.tiles.library import instantiated, needed
from fxlite.codegen.runtime.abi import ArgSpec, Binding, Dim, DimText, Entry, c_variable
from fxlite.types.dtypes import dtype

MODULE_NAME = "fxlite_entry"
HEADER_NAME = "fxlite_entry.h"


@cache
def extension_source() -> str:
    """The C file of the extension; it includes `HEADER_NAME` and calls an entry."""
    return _read("extension.c")


@cache
def entry_header() -> str:
    """What the extension and an entry include as `HEADER_NAME`."""
    return _read("entry.h")


def entry_source(entry: Entry) -> str:
    """The C file for one entry point; it includes `HEADER_NAME`."""
    name, dims = entry.name, "int64_t, " * len(entry.dims)
    arrays = "const void *, " * len(entry.inputs) + "void *, " * len(entry.outputs)
    declarations = [
        f"int64_t {name}_workspace_bytes({dims}int);",
        f"int {name}_run({arrays}{dims}const void *, void *, int, fx_error *);",
    ]
    if entry.values:
        parameters = ", ".join(["int64_t"] * len(entry.dims)) or "void"
        declarations.insert(0, f"int64_t {name}_largest_bytes({parameters});")
    axes = [dim for spec in entry.outputs for dim in spec.shape]
    checks = "\n    ".join((*_checks(entry), *_size_checks(axes)))
    sizes = "\n    ".join(f"sizes[{i}] = {_c(dim)};" for i, dim in enumerate(axes))
    numbers = range(len(entry.inputs) + len(entry.outputs))
    counts = (len(entry.inputs), len(entry.outputs), len(entry.dims), int(entry.single_output))
    values = {
        "MODEL": name,
        "SIGNATURE": comment(str(entry)),
        "DECLARATIONS": "\n".join([*declarations, "", needed(checks + sizes)]).rstrip(),
        "COUNTS": ", ".join(map(str, counts)),
        "INPUTS": "\n    ".join(map(_input_row, entry.inputs)) or "{0, 0, 0}",
        "RANKS": ", ".join(str(len(spec.shape)) for spec in entry.outputs) or "0",
        "N_SIZES": str(len(axes)),
        "CHECKS": checks,
        "FOUND_DIMS": "\n    ".join(
            f"dims[{i}] = {c_variable(dim, 'dim_')};" for i, dim in enumerate(entry.dims)
        ),
        "FOUND_SIZES": sizes,
        "ARRAYS": " ".join(f"arrays[{i}]," for i in numbers),
        "DIMS": " ".join(f"dims[{i}]," for i in range(len(entry.dims))),
    }
    return instantiated(files("fxlite.codegen.runtime").joinpath("entry.c"), values)


def _read(name: str) -> str:
    return files("fxlite.codegen.runtime").joinpath(name).read_text(encoding="utf-8")


def _input_row(spec: ArgSpec) -> str:
    kind = dtype(spec.dtype)
    rank = len(spec.shape)
    return f'{{"{kind.buffer}", {kind.itemsize}, {rank}}}, /* {comment(str(spec))} */'


def _checks(entry: Entry) -> Iterator[str]:
    """C that declares `dim_NAME` for each dim and returns 0 unless every axis agrees and
    every condition holds."""
    solved = set()
    for binding in entry.bindings:
        yield from _solve(binding)
        solved.add((binding.argument, binding.axis))
    for argument, spec in enumerate(entry.inputs):
        for axis, dim in enumerate(spec.shape):
            if (argument, axis) not in solved:
                yield from _divisor_checks(dim)
                yield f"if (shapes[{argument}][{axis}] != {_c(dim)}) return 0;"
    for condition in entry.conditions:
        for side in (condition.left, condition.right):
            yield from _divisor_checks(side)
        yield f"if (!({condition.c('dim_')})) return 0; /* {comment(condition.reason)} */"
    yield from _counted(entry)


def _counted(entry: Entry) -> Iterator[str]:
    """C that returns 0 where a value cannot be counted or is larger than the memory limit."""
    if entry.values:
        dims = ", ".join(c_variable(dim, "dim_") for dim in entry.dims)
        yield f"int64_t largest = {entry.name}_largest_bytes({dims});"
        yield "if (largest < 0 || largest > most_bytes) return 0;"


def _solve(binding: Binding) -> Iterator[str]:
    name, scale = c_variable(binding.dim, "dim_"), binding.scale
    size = f"shapes[{binding.argument}][{binding.axis}]"
    if (scale, binding.offset) == (1, 0):
        yield f"int64_t {name} = {size};"
        return
    rest = f"({size} - ({binding.offset}))"
    yield f"int64_t {name} = {rest} / ({scale});"
    yield f"if ({name} < 0 || {name} * ({scale}) != {rest}) return 0;"


def _size_checks(axes: Sequence[Dim]) -> Iterator[str]:
    """C that returns 0 where a size of an output cannot be computed."""
    for dim in axes:
        yield from _divisor_checks(dim)


def _divisor_checks(dim: Dim) -> Iterator[str]:
    for divisor in dim.divisors if isinstance(dim, DimText) else ():
        yield f"if ({_c(divisor)} <= 0) return 0;"


def _c(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) else dim.c("dim_")
