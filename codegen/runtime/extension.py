"""The C text of the Python extension that calls one compiled model, from `extension.c`.

In comes an `Entry`; out comes a C file that is compiled next to the model's own files.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

from fxlite.base.outside_text import comment
from fxlite.codegen.c.tiles.library import instantiated, needed
from fxlite.codegen.runtime.abi import ArgSpec, Binding, Dim, DimText, Entry, c_variable
from fxlite.types.dtypes import dtype

MODULE_NAME = "fxlite_entry"


def extension_source(entry: Entry) -> str:
    """The extension's C file for one entry point."""
    name, dims = entry.name, "int64_t, " * len(entry.dims)
    arrays = "const void *, " * len(entry.inputs) + "void *, " * len(entry.outputs)
    declarations = [
        f"int64_t {name}_workspace_bytes({dims}int);",
        f"int {name}_run({arrays}{dims}const void *, void *, int, fx_error *);",
    ]
    if entry.values:
        parameters = ", ".join(["int64_t"] * len(entry.dims)) or "void"
        declarations.insert(0, f"int64_t {name}_largest_bytes({parameters});")
    checks, allocations = "\n    ".join(_checks(entry)), "\n    ".join(_allocations(entry))
    values = {
        "MODEL": name,
        "SIGNATURE": comment(str(entry)),
        "DECLARATIONS": "\n".join([*declarations, "", needed(checks + allocations)]).rstrip(),
        "N_INPUTS": str(len(entry.inputs)),
        "N_OUTPUTS": str(len(entry.outputs)),
        "INPUTS": "\n    ".join(map(_input_row, entry.inputs)) or "{NULL, 0, 0}",
        "CHECKS": checks,
        "ALLOCATIONS": allocations,
        "DIMS": " ".join(f"{c_variable(dim, 'dim_')}," for dim in entry.dims),
        "POINTERS": "".join(
            f"view[{i}].buf, " for i in range(len(entry.inputs) + len(entry.outputs))
        ).rstrip(),
        "RESULT": "PySequence_GetItem(outputs, 0)" if entry.single_output else "Py_NewRef(outputs)",
    }
    return instantiated(files("fxlite.codegen.runtime").joinpath("extension.c"), values)


def _input_row(spec: ArgSpec) -> str:
    kind = dtype(spec.dtype)
    rank = len(spec.shape)
    return f'{{"{kind.buffer}", {kind.itemsize}, {rank}}}, /* {comment(str(spec))} */'


def _checks(entry: Entry) -> Iterator[str]:
    """C that declares `dim_NAME` for each dim and goes to `done` unless every axis agrees and
    every condition holds."""
    solved = set()
    for binding in entry.bindings:
        yield from _solve(binding)
        solved.add((binding.argument, binding.axis))
    for argument, spec in enumerate(entry.inputs):
        for axis, dim in enumerate(spec.shape):
            if (argument, axis) not in solved:
                yield from _divisor_checks(dim)
                yield f"if (view[{argument}].shape[{axis}] != {_c(dim)}) goto done;"
    for condition in entry.conditions:
        for side in (condition.left, condition.right):
            yield from _divisor_checks(side)
        yield f"if (!({condition.c('dim_')})) goto done; /* {comment(condition.reason)} */"
    yield from _counted(entry)


def _counted(entry: Entry) -> Iterator[str]:
    """C that goes to `done` where a value cannot be counted or is larger than the memory limit."""
    if entry.values:
        dims = ", ".join(c_variable(dim, "dim_") for dim in entry.dims)
        yield f"int64_t largest = {entry.name}_largest_bytes({dims});"
        yield "if (largest < 0 || largest > *(int64_t *)state->memory_limit.buf) goto done;"


def _solve(binding: Binding) -> Iterator[str]:
    name, scale = c_variable(binding.dim, "dim_"), binding.scale
    size = f"view[{binding.argument}].shape[{binding.axis}]"
    if (scale, binding.offset) == (1, 0):
        yield f"int64_t {name} = {size};"
        return
    rest = f"({size} - ({binding.offset}))"
    yield f"int64_t {name} = {rest} / ({scale});"
    yield f"if ({name} < 0 || {name} * ({scale}) != {rest}) goto done;"


def _allocations(entry: Entry) -> Iterator[str]:
    for index, spec in enumerate(entry.outputs):
        for dim in spec.shape:
            yield from _divisor_checks(dim)
        rank = len(spec.shape)
        values = f"(int64_t[]){{{', '.join(map(_c, spec.shape))}}}" if rank else "NULL"
        yield f"if (!allocate(state, {index}, {rank}, {values}, outputs, &view[held])) goto done;"
        yield "held++;"


def _divisor_checks(dim: Dim) -> Iterator[str]:
    for divisor in dim.divisors if isinstance(dim, DimText) else ():
        yield f"if ({_c(divisor)} <= 0) goto done;"


def _c(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) else dim.c("dim_")
