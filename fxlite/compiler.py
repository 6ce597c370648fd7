"""The entry point of code generation: ``fx.compile(model, x="f32[B,64]", backend="c")``.

In: a model, function, GraphModule or saved ``.fxl`` file, and input types. Out: a callable on NumPy
arrays that holds its sources and can save itself as a folder that runs without fxlite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fxlite.backend import DEFAULT, find_backend, take_options
from fxlite.base.checked import checked
from fxlite.graph.graph_module import GraphModule
from fxlite.starting import StartingFunction
from fxlite.tracing.symbolic_trace import symbolic_trace

if TYPE_CHECKING:
    from fxlite.show.node_cost import Roofs


@checked
def compile(
    model: Any,
    *types: Any,
    backend: str = DEFAULT,
    inputs: Mapping[str, Any] | None = None,
    warm: bool = True,
    **named: Any,
) -> Any:
    """Compile a model for a back end: "python", "c", "cuda", "embedded" (C for small
    devices) or a registered name.

    Inputs are typed as in :func:`fxlite.symbolic_trace`. The result takes the same arguments as
    ``forward`` and has ``sources`` (file name -> text) and ``save(folder)``. A keyword that names an
    option of a back end is taken as that option; an input with such a name is typed in ``inputs``.

    With ``warm=False`` the function answers at once: NumPy computes its results while another thread
    compiles, and calls run the compiled code as soon as it is ready (``is_ready``; ``wait()`` returns it,
    and raises errors of compiling, as the next call does). Results differ by rounding from one to the other.

    Options:

    ``threads``: default OMP_NUM_THREADS, else the number of usable processors; at most 4096.

    ``matmul_precision`` has torch's meaning: "high" and "medium" permit lower precision, which is used
    where it is faster. With "medium" the c back end rounds the operands of float32 products with
    constant weights (linear layers, matmul, most convolutions) to bf16 and sums in float32; the error
    is 2e-3 to 4e-3 of the largest output. With "high", on processors with AMX, it splits each operand
    into two bf16 numbers and sums three products; the error is 4e-6 to 2e-5. All other operations, and
    the other back ends, compute as with "highest".

    ``device``, for "cuda": the number of a GPU (default 0), "shim" to run the kernels on the CPU,
    or an architecture such as "sm_90" to compile without running.

    ``profile=True``, for "c": time each kernel. ``kernel_ticks()`` returns the times, and
    :func:`fxlite.passes.profile` reads them. ``optimize=False``, for "c": of the
    :func:`standard_passes`, run only those that code generation needs.

    ``autotune=True``, for "c": where a kernel can be computed in several ways, measure the most
    promising ones and take the fastest, instead of the one that the cost model predicts. ``tuning`` of
    the result prints the measurements, and the ledger of its ``optimized`` gives the reasons. Choices
    are kept in the cache folder and are not measured again. ``tune_sizes``: the sizes of named dims to
    measure at, by name.

    ``small_weights=True``, for "c": do not use Winograd's algorithm for convolutions. It is faster, but
    its transformed weights take up to four times the memory of the model's.

    ``donate=("x",)``, for "c": a result with the type of the input ``x`` is written into its memory,
    without a copy; after the call the caller's array holds that result. Raises an error if no result
    can be.

    Buffers that the model changes in ``forward`` are its state: the compiled function starts from the
    values that they have now, and then keeps a state of its own from call to call.

    ``memory_limit``, for "c" and "cuda": how many bytes a single value may take, and also the results
    and workspace of a call together; default FXLITE_MEMORY_LIMIT (gigabytes), else the memory of the
    machine. A call that would need more raises MemoryLimitError, a MemoryError, before it allocates
    anything.

    Raises TraceError, ShapeError or CodegenError for a model that cannot be compiled, CompilerNotFound
    if there is no C compiler (``backend="python"`` needs none), and CudaDeviceNotFound if there is no
    GPU."""
    chosen = find_backend(backend)
    options = chosen.checked(take_options(named))
    module = (
        model
        if isinstance(model, GraphModule) and not (types or inputs or named)
        else symbolic_trace(model, *types, inputs=inputs, **named)
    )
    if not warm:
        chosen.require()
        return StartingFunction(module, lambda copy: chosen.compile(copy, **options))
    if module.states:  # calls change the state of the compiled function, not that of the caller's module
        module = module.copy()
    return chosen.compile(module, **options)


def standard_passes() -> list[Any]:
    """The passes that :func:`compile` runs before it generates C, in order."""
    from fxlite.codegen.c import templates
    from fxlite.codegen.program import program

    return program.standard_passes(templates.claims)


def random_inputs(module: GraphModule, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Random arrays for a module's inputs, by placeholder target; the same in every run. Named dims
    that ``sizes`` leaves out get default sizes. Raises ArgumentError for a dim that does not exist."""
    from fxlite.codegen.program.example_inputs import make_cases

    return dict(make_cases(module, sizes)[-1].inputs)


def machine_roofs() -> Roofs | None:
    """The peak rates of this machine (its roofline), measured once; None if there is no C compiler to
    measure them with."""
    from fxlite.codegen.runtime import roofs
    from fxlite.codegen.runtime.toolchain import CompilerNotFound

    try:
        return roofs.machine_roofs()
    except CompilerNotFound:
        return None
