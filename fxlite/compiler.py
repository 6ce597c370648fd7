"""The front door of code generation: ``fx.compile(model, x="f32[B,64]", backend="c")``.

In: a model, function, GraphModule or saved ``.fxl`` file, and input types. Out: a callable on NumPy
arrays that also knows its sources and can save itself as a folder that needs no fxlite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, expect
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.tracing.symbolic_trace import symbolic_trace

if TYPE_CHECKING:
    from fxlite.show.roofs import Roofs

_BACKENDS: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True)
class KernelInfo:
    """One kernel of a compiled function: the nodes of the optimized graph that it computes, the one
    whose value it stores, the contraction that a template computes (if any), and what it reads."""

    name: str
    nodes: tuple[Node, ...]
    root: Node
    anchor: Node | None
    reads: tuple[Node, ...]


def register_backend(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a back end: ``make(module: GraphModule, **options) -> callable``."""

    def register(make: Callable[..., Any]) -> Callable[..., Any]:
        _BACKENDS[name] = make
        return make

    return register


@checked
def compile(
    model: Any,
    *types: Any,
    backend: str = "c",
    inputs: Mapping[str, Any] | None = None,
    threads: int | None = None,
    matmul_precision: str = "highest",
    device: int | str | None = None,
    profile: bool = False,
    optimize: bool = True,
    autotune: bool = False,
    tune_sizes: Mapping[str, int] | None = None,
    memory_limit: int | None = None,
    **named: Any,
) -> Any:
    """Compile a model for a back end: "python", "c", "cuda" or a registered name.

    Inputs are typed as in :func:`fxlite.symbolic_trace`. The result takes the same arguments as
    ``forward`` and has ``sources`` (file name -> text) and ``save(folder)``. ``threads``: default
    OMP_NUM_THREADS, else the usable processors; 4096 at most. ``device``, for "cuda": the number of
    a GPU (default 0), "shim" to run the kernels on the CPU, or an architecture such as "sm_90" to
    compile without running. ``profile``, for "c": take the time of each kernel, which
    ``kernel_ticks()`` gives and :func:`fxlite.passes.profile` reads. ``optimize=False``, for "c":
    run none of the :func:`standard_passes` but what code generation needs. ``matmul_precision`` has
    torch's meaning: what "high" and "medium" permit is done where it is faster. With "medium" the c
    back end rounds the operands of float32 products with constant weights (linear layers, matmul,
    most convolutions) to bf16 and sums in float32, which is off by 2e-3 to 4e-3 of the largest
    output; with "high", on processors with AMX, it sums three products of operands split in two
    bf16, which is off by about 4e-6. Everything else, and the other back ends, compute as
    "highest".

    ``autotune=True``, for "c": where there are several ways to compute a kernel, measure the most
    likely ones and take the fastest, not the one that a model of its cost predicts; ``tuning`` of
    the result prints what was found, and the ledger of its ``optimized`` says why. Choices are
    kept in the cache folder, so that the next time nothing is measured. ``tune_sizes``: sizes of
    named dims to measure at, by name.

    ``memory_limit``, for "c" and "cuda": bytes that a value, and the results and workspace of a
    call together, may take; default FXLITE_MEMORY_LIMIT (gigabytes), else what the machine has. A
    call that would need more raises MemoryLimitError, a MemoryError, before it allocates anything.

    Raises TraceError, ShapeError, CodegenError for models that cannot be compiled; CompilerNotFound
    where no C compiler is found (``backend="python"`` needs none); CudaDeviceNotFound where there
    is no GPU."""
    if matmul_precision not in ("highest", "high", "medium"):
        raise ArgumentError(
            f"matmul_precision must be 'highest', 'high' or 'medium', not {matmul_precision!r}"
        )
    check_backend(backend)
    for option, value in (("profile", profile), ("optimize", optimize), ("autotune", autotune)):
        expect(value, (bool, np.bool_), f"{option}=")
    expect(tune_sizes or {}, Mapping, "tune_sizes=", 'give sizes by dim: {"B": 64}')
    if threads is not None:
        from fxlite.codegen.runtime.load import checked_threads

        threads = checked_threads(threads)
    if memory_limit is not None and backend == "python":
        raise ArgumentError("memory_limit= is an option of compiled code, not of 'python'")
    if device is not None and backend in ("c", "python"):
        raise ArgumentError(f"device= is an option of the cuda back end; {backend!r} has none")
    if profile and backend in ("cuda", "python"):
        raise ArgumentError(
            f"profile=True is an option of the c back end; {backend!r} has no counters"
        )
    if not optimize and backend in ("cuda", "python"):
        raise ArgumentError(f"optimize=False is an option of the c back end, not of {backend!r}")
    if autotune:
        check_autotune(backend)
    if tune_sizes and not autotune:
        raise ArgumentError("tune_sizes= says at which sizes autotune=True measures; give both")
    module = (
        model
        if isinstance(model, GraphModule) and not (types or inputs or named)
        else symbolic_trace(model, *types, inputs=inputs, **named)
    )
    options: dict[str, Any] = {} if device is None else {"device": device}
    if memory_limit is not None:
        options["memory_limit"] = memory_limit
    if profile:
        options["profile"] = True
    if not optimize:
        options["optimize"] = False
    if autotune:
        options |= {"autotune": True, "tune_sizes": tune_sizes}
    if backend == "c" and matmul_precision != "highest":
        options["matmul_precision"] = matmul_precision
    return _BACKENDS[backend](module, threads=threads, **options)


def check_backend(name: str) -> None:
    """Raise ArgumentError, with the names there are, for a back end that does not exist."""
    from fxlite.codegen import backends  # noqa: F401  registers the built-in ones

    if not isinstance(name, str) or name not in _BACKENDS:
        known = ", ".join(sorted(_BACKENDS))
        raise ArgumentError(f"there is no back end {name!r}; choose one of {known}")


def check_autotune(backend: str) -> None:
    """Raise ArgumentError for a back end that measures no alternatives."""
    if backend in ("cuda", "python"):
        raise ArgumentError(f"autotune is an option of the c back end, not of {backend!r}")


def standard_passes() -> list[Any]:
    """The passes that :func:`compile` runs before it generates C, in order."""
    from fxlite.codegen.c import templates
    from fxlite.codegen.program import optimize

    return optimize.standard_passes(templates.claims)


def random_inputs(module: GraphModule, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Arrays for a module's inputs, by placeholder's target; the same in every run. Named dims that
    ``sizes`` leaves out get usual ones. Raises ArgumentError for a dim that does not exist."""
    from fxlite.codegen.program.example_inputs import make_cases

    return dict(make_cases(module, sizes)[-1].inputs)


def machine_roofs() -> Roofs | None:
    """What this machine can do at most, measured once; None where there is no C compiler to measure
    it with."""
    from fxlite.codegen.runtime import roofs
    from fxlite.codegen.runtime.toolchain import CompilerNotFound

    try:
        return roofs.machine_roofs()
    except CompilerNotFound:
        return None
