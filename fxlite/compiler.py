"""The front door of code generation: ``fx.compile(model, x="f32[B,64]", backend="c")``.

In: a model, function, GraphModule or saved ``.fxl`` file, and input types. Out: a callable on NumPy
arrays that also knows its sources and can save itself as a folder that needs no fxlite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fxlite.backend import DEFAULT, find_backend, take_options
from fxlite.base.checked import checked
from fxlite.graph.graph_module import GraphModule
from fxlite.tracing.symbolic_trace import symbolic_trace

if TYPE_CHECKING:
    from fxlite.show.node_cost import Roofs


@checked
def compile(
    model: Any, *types: Any, backend: str = DEFAULT, inputs: Mapping[str, Any] | None = None, **named: Any
) -> Any:
    """Compile a model for a back end: "python", "c", "cuda", "embedded" (C for small
    devices) or a registered name.

    Inputs are typed as in :func:`fxlite.symbolic_trace`. The result takes the same arguments as
    ``forward`` and has ``sources`` (file name -> text) and ``save(folder)``. A name that is an
    option of a back end is not an input; one with such a name is given in ``inputs``. Options:

    ``threads``: default OMP_NUM_THREADS, else the usable processors; 4096 at most.

    ``matmul_precision`` has torch's meaning: what "high" and "medium" permit is done where it is
    faster. With "medium" the c back end rounds the operands of float32 products with constant
    weights (linear layers, matmul, most convolutions) to bf16 and sums in float32, which is off by
    2e-3 to 4e-3 of the largest output; with "high", on processors with AMX, it sums three products
    of operands split in two bf16, which is off by 4e-6 to 2e-5. Everything else, and the other
    back ends, compute as "highest".

    ``device``, for "cuda": the number of a GPU (default 0), "shim" to run the kernels on the CPU,
    or an architecture such as "sm_90" to compile without running.

    ``profile=True``, for "c": take the time of each kernel, which ``kernel_ticks()`` gives and
    :func:`fxlite.passes.profile` reads. ``optimize=False``, for "c": run none of the
    :func:`standard_passes` but what code generation needs.

    ``autotune=True``, for "c": where there are several ways to compute a kernel, measure the most
    likely ones and take the fastest, not the one that a model of its cost predicts; ``tuning`` of
    the result prints what was found, and the ledger of its ``optimized`` says why. Choices are
    kept in the cache folder, so that the next time nothing is measured. ``tune_sizes``: sizes of
    named dims to measure at, by name.

    ``small_weights=True``, for "c": no convolution by Winograd's algorithm, which is faster, but
    whose weights take up to four times as much as the model's.

    ``donate=("x",)``, for "c": a result of the type of the input ``x`` takes its memory, without a copy:
    the caller's array is that result afterwards. An error where no result can.

    Buffers that the model changes in ``forward`` are its state: the compiled function begins with what
    they hold now, and keeps its own from call to call.

    ``memory_limit``, for "c" and "cuda": bytes that a value, and the results and workspace of a
    call together, may take; default FXLITE_MEMORY_LIMIT (gigabytes), else what the machine has. A
    call that would need more raises MemoryLimitError, a MemoryError, before it allocates anything.

    Raises TraceError, ShapeError, CodegenError for models that cannot be compiled; CompilerNotFound
    where no C compiler is found (``backend="python"`` needs none); CudaDeviceNotFound where there
    is no GPU."""
    chosen = find_backend(backend)
    options = chosen.checked(take_options(named))
    module = (
        model
        if isinstance(model, GraphModule) and not (types or inputs or named)
        else symbolic_trace(model, *types, inputs=inputs, **named)
    )
    if module.states:  # calls change what the compiled function has, and not the caller's module
        module = module.copy()
    return chosen.compile(module, **options)


def standard_passes() -> list[Any]:
    """The passes that :func:`compile` runs before it generates C, in order."""
    from fxlite.codegen.c import templates
    from fxlite.codegen.program import program

    return program.standard_passes(templates.claims)


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
