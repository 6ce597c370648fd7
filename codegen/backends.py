"""The built-in back ends of :func:`fxlite.compile`: each turns a traced module into a callable.

A program that was compiled to C once is kept in the cache. The next time it needs neither passes nor
emission; these are imported and run only if their results are asked for.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from fxlite.backend import Backend, KernelInfo, Option, Stage, described, silent
from fxlite.base.errors import ArgumentError, CodegenError, FxliteError, PicklingError, expect, number_of
from fxlite.base.state import paused_gc
from fxlite.codegen.program.calls import call_nested, finisher, restructure, run_hollow
from fxlite.codegen.program.states import StateMemory, check_donated, donated_results, state_results, written_results
from fxlite.codegen.runtime.abi import HollowCall
from fxlite.codegen.runtime.build import build
from fxlite.codegen.runtime.kept import KeptProgram, digest_sources, find_program, keep_program, program_key
from fxlite.codegen.runtime.load import CompiledFunction, checked_threads, default_threads
from fxlite.codegen.runtime.sizes import STORED_VALUE, count_values
from fxlite.codegen.runtime.toolchain import find_compiler
from fxlite.graph.graph import Node, nodes_in
from fxlite.graph.graph_module import GraphModule

if TYPE_CHECKING:
    from pathlib import Path

    from fxlite.backend import Case
    from fxlite.codegen.c.emit import CProgram
    from fxlite.codegen.embedded.bundle import Memory
    from fxlite.codegen.tuning.tune import Tuning
    from fxlite.passes.costing.timeline import MemoryTimeline
    from fxlite.passes.manager import PassManager


def _may_write(args: Sequence[Any], places: Sequence[int]) -> bool:
    """Whether arrays can be written in place, and share no memory with others."""
    for place in places:
        array = args[place]
        if type(array) is not np.ndarray:
            return False
        flags = array.flags
        if not (flags.writeable and flags.c_contiguous and flags.aligned):
            return False
        for number, other in enumerate(args):
            if number != place and isinstance(other, np.ndarray) and np.may_share_memory(array, other):
                return False
    return True


class CFunction:
    """A model compiled to C. ``graph_module`` is the traced module.

    With ``kept``, a program from the cache for this module and these options, nothing is compiled;
    the graph, the source and other products of compiling are made when they are asked for."""

    def __init__(
        self,
        module: GraphModule,
        threads: int | None = None,
        stage: Stage = silent,
        profile: bool = False,
        optimize: bool = True,
        matmul_precision: str = "highest",
        autotune: bool = False,
        tune_sizes: Mapping[str, int] | None = None,
        kept: KeptProgram | None = None,
        memory_limit: int | None = None,
        small_weights: bool = False,
        donate: Sequence[str] = (),
    ) -> None:
        self.graph_module = module
        self._donated = donated_results(module, donate)
        numbers = state_results(module) if self.keeps_states else {}
        self._written = written_results(module) if self.keeps_states else {}
        #: The inputs in whose memory flat results lie, by the numbers of these.
        self._owned = {n: target for target, n in {**numbers, **self._donated, **self._written}.items()}
        self._small_weights = small_weights
        self.matmul_precision = matmul_precision
        """What products were compiled with, see :func:`fxlite.compile`."""
        self._profile, self._optimize, self._kept = profile, optimize, kept
        self._autotune = (threads, tune_sizes) if autotune else None
        # a snapshot of the graph: later passes on the user's module do not change what was compiled
        self._compiled = module if kept is None else module.copy()
        self.state_memory = StateMemory(module) if module.states and self.keeps_states else None
        """The states, which calls update in place; None for a model or a target that has none."""
        self._restructure = restructure(module)
        interface, placeholders = module.graph.interface, module.graph.placeholders
        self._is_flat, self._n_inputs = module.is_flat, len(placeholders)
        self._takes_no_more = interface is None or not interface.baked
        self._one_by_one = self._takes_no_more and (interface is None or interface.is_one_by_one)
        asks = interface is not None and interface.orders
        does_no_more = not (module.graph.taps or module.states or asks or any(p._args for p in placeholders))
        self._finish = finisher(module) if does_no_more and len(self._owned) == len(self._written) else None
        """Turns flat results into the program's result; None if a call must do anything besides writing inputs."""
        self._places = tuple(n for n, p in enumerate(placeholders) if p.target in self._written)
        if kept is not None:
            self.function = CompiledFunction(kept.entry, kept.library, kept.weights, threads, memory_limit=memory_limit)
            return
        from fxlite.codegen.program.program import said_of_passes

        with stage("optimize") as said:
            said.append(said_of_passes(module, *self._passed))
        if autotune:
            with stage("tune") as said:
                tuning = self.tuning
                assert tuning is not None
                said.append(f"{number_of(len(tuning.kernels), 'kernel')}, {tuning.measured} measured now")
        with stage("emit") as said:
            program = self.program
            said.append(f"{number_of(sum(t.count(chr(10)) for t in program.sources.values()), 'line')} of C")
        with stage("build") as said:
            start = time.time()
            library = build({**program.sources, **program.adapter}, program.entry)
            said.append(find_compiler().version.splitlines()[0])
            said.append("OpenMP" if library.openmp else "no OpenMP")
            if library.path.stat().st_mtime < start - 1:
                said.append("found in the cache")
            self.function = CompiledFunction(
                program.entry, library, program.weights, threads, memory_limit=memory_limit
            )

    #: Emitted code keeps states in memory of its own.
    keeps_states = True

    @property
    def options(self) -> dict[str, Any]:
        """The options given, as far as the emitted source depends on them."""
        return {
            "optimize": self._optimize,
            "matmul_precision": self.matmul_precision,
            "autotune": self._autotune is not None,
            "profile": self._profile,
            "small_weights": self._small_weights,
            "donate": tuple(self._donated),
        }

    @cached_property
    def _passed(self) -> tuple[GraphModule, PassManager]:
        from fxlite.codegen.c import templates
        from fxlite.codegen.c.render.conv_template import SMALL_WEIGHTS
        from fxlite.codegen.program.program import optimize
        from fxlite.codegen.runtime.toolchain import has_bf16_tiles

        with paused_gc():
            given = not self._optimize, templates.claims, self.matmul_precision
            module, manager = optimize(self._compiled, *given, tiles=has_bf16_tiles())
        if self._small_weights:
            for node in module.graph.find_nodes(op="call_function", target="conv2d"):
                node.meta[SMALL_WEIGHTS] = True
        return module, manager

    @cached_property
    def tuning(self) -> Tuning | None:
        """The measurements made with ``autotune=True``; prints as a table. None without it."""
        if self._autotune is None:
            return None
        from fxlite.codegen.tuning.tune import tune

        threads, sizes = self._autotune
        module, _ = self._passed
        return tune(module, threads or default_threads(), sizes, self.matmul_precision)

    @property
    def optimized(self) -> GraphModule:
        """The graph from which C was emitted. Its ledger says what passes refused to do and which
        kernels cost models or measurements chose."""
        module, _ = self._passed
        if self._kept is not None and "program" not in self.__dict__:
            from fxlite.passes.ledger import expect_refusals

            expect_refusals(module, lambda: self.program)
        return module

    @property
    def passes(self) -> PassManager:
        """The passes that made :attr:`optimized`, with their report."""
        return self._passed[1]

    @cached_property
    def program(self) -> CProgram:
        """The emitted C. For a function from the cache it is emitted when asked for. Raises CodegenError
        if the model's weights were changed in place since and the C holds such weights, or if kernels
        were measured again with another outcome."""
        from fxlite.codegen.c.calls import note_decisions
        from fxlite.codegen.c.emit import emit

        kept = self._kept
        optimized, _ = self._passed
        measured = {} if self.tuning is None else self.tuning.options
        with paused_gc():
            program = emit(
                optimized,
                profile=self._profile,
                matmul_precision=self.matmul_precision,
                weights=None if kept is None else kept.weights,
                donated=self._donated,
                **measured,
            )
        if kept is not None and digest_sources(program.sources) != kept.sources:
            anew = "" if self.tuning is None else "or kernels were measured anew "
            raise CodegenError(
                f"{program.name}: its C is not the one that was compiled, because weights were "
                f"changed in place {anew}since; compile it again"
            )
        if self.tuning is None:
            note_decisions(optimized, program.calls)
        return program

    def __reduce__(self) -> NoReturn:
        raise PicklingError(
            f"{self.graph_module.name}: code compiled for this process cannot be pickled; pickle "
            "function.graph_module and compile it there (the cache has it), or write a folder: "
            "function.save(folder)"
        )

    def __repr__(self) -> str:
        return described(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        is_whole = len(args) == self._n_inputs and not kwargs
        if not self._owned and self._is_flat and (is_whole or self._takes_no_more):
            # known since the function was made: asking the module takes longer than a call
            result = self._run(*args, **kwargs)
            return result if self._restructure is None else self._restructure(result)
        if is_whole and self._one_by_one:
            result = self.call_arrays(args)
            if result is not NotImplemented:
                return result
        run = self._step if self._owned else lambda arrays: self._run(*arrays)
        return call_nested(self.graph_module, run, args, kwargs, self.call_arrays)

    def call_arrays(self, arrays: Sequence[Any]) -> Any:
        """The program's result for the arrays of all inputs, in order. NotImplemented if only a full call of the
        program can compute it: with states, taps, a memory limit, or arrays that cannot be written in place."""
        if self._finish is None or (self._places and not _may_write(arrays, self._places)):
            return NotImplemented
        try:
            return self._finish(self.function(*arrays))
        except HollowCall:  # nothing has been written yet
            return NotImplemented

    def run_flat(self, values: Mapping[str, Any]) -> Any:
        """Run on arrays by placeholder's target; returns flat results."""
        return self._run(*[values[p.target] for p in self.graph_module.graph.placeholders])

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if self._owned:  # works on copies, so that neither arrays of the caller nor states change
            targets = [p.target for p in self.graph_module.graph.placeholders]
            values = dict(zip(targets, args)) | kwargs
            values |= {target: np.array(values[target], order="C") for target in (*self._donated, *self._written)}
            memory = None
            if self.state_memory is not None:
                memory, views = self.state_memory.filled(values)
                values |= views
            return self._called(values, memory)
        try:
            return self.function(*args, **kwargs)
        except HollowCall as call:
            return run_hollow(self.graph_module, call)

    def _step(self, arrays: Sequence[Any]) -> Any:
        """The flat results for the values of all inputs; states and donated arrays are written in
        place."""
        values = dict(zip([p.target for p in self.graph_module.graph.placeholders], arrays))
        if self._donated:
            check_donated(self.graph_module.name, self._donated, values)
        for target in self._written:
            flags = values[target].flags
            if not (flags.c_contiguous and flags.aligned):  # copied, and written back after the call
                values[target] = np.array(values[target], order="C")
        memory = None
        if self.state_memory is not None:
            self.state_memory.take()
            memory = self.state_memory.bytes
            values |= {target: self.state_memory.views[path] for target, path in self.graph_module.states}
        return self._called(values, memory)

    def _called(self, values: Mapping[str, Any], memory: Any) -> Any:
        """The flat results of a call that writes its states into this memory, and writes donated arrays."""
        states = () if memory is None else dict(self.graph_module.states)
        given = [value for target, value in values.items() if target not in states]
        found = iter(self.function(*given, *(() if memory is None else (memory,))))
        count = len(list(nodes_in(self.graph_module.graph.output_node().args)))
        flat = tuple(values[self._owned[n]] if n in self._owned else next(found) for n in range(count))
        return flat[0] if isinstance(self.graph_module.graph.output_node().args[0], Node) else flat

    @property
    def sources(self) -> Mapping[str, str]:
        """File name -> text of the emitted C."""
        return self.program.sources

    @property
    def kernels(self) -> tuple[KernelInfo, ...]:
        """A description of each kernel, in the order in which they run."""
        from fxlite.codegen.c.templates import how_computed
        from fxlite.codegen.program.data_sizes import at_most

        sizes = self.program.program.data_sizes
        largest = {name: at_most(size.bound, sizes) for name, size in sizes.items()}
        return tuple(
            KernelInfo(
                c.name,
                tuple(c.group.members),
                c.group.root,
                c.group.anchor,
                tuple(c.group.inputs),
                c.group.taken.get(c.group.root),
                how_computed(c.group.members, c.declined),
                largest,
            )
            for c in self.program.calls
        )

    def data_sizes(self, values: Mapping[str, Any]) -> dict[str, int]:
        """The sizes that depend on values, for a call with these inputs by placeholder's target."""
        sizes = self.program.program.data_sizes
        if not sizes:
            return {}
        counting = self.program.program.module.copy()
        graph = counting.graph
        nodes = {node.name: node for node in graph.nodes}
        graph.interface = None
        graph.erase_node(graph.output_node())
        graph.output(tuple(nodes[size.count.name] for size in sizes.values()))
        graph.eliminate_dead_code()
        with np.errstate(all="ignore"):
            counts = counting.run_flat(values)
        found = {name: int(count) + 1 for name, count in zip(sizes, counts)}
        return {name: min(n, sizes[name].bound) if type(sizes[name].bound) is int else n for name, n in found.items()}

    @property
    def larger_weights(self) -> str:
        """Why weights take much more memory than the model's own arrays; empty if they do not."""
        from fxlite.codegen.c.bundle import larger_weights

        return larger_weights(self)

    @property
    def threads(self) -> int:
        """How many threads a call uses."""
        return self.function.n_threads

    def kernel_ticks(self) -> list[int]:
        """Clock readings in nanoseconds during this thread's last call: before the first kernel, and
        after each. Raises ArgumentError for a function that was compiled without ``profile=True``."""
        if not self.program.profile:
            raise ArgumentError(f"{self.program.name} has no counters; compile it with profile=True")
        shared = ctypes.CDLL(str(self.function.library.path))
        ask = shared[f"{self.program.name}_ticks"]
        ask.restype = ctypes.POINTER(ctypes.c_int64)
        return list(ask()[: len(self.program.calls) + 1])

    def workspace_bytes(self, dims: Mapping[str, int]) -> int:
        """Bytes of memory that a call needs in addition to inputs, outputs and weights. Raises
        MemoryLimitError or ShapeError for impossible sizes."""
        entry = self.function.entry
        count_values(entry.values, dims, STORED_VALUE, f"{entry.name}()")
        shared = ctypes.CDLL(str(self.function.library.path))
        ask = shared[f"{self.function.entry.name}_workspace_bytes"]
        sizes = [dims[name] for name in self.function.entry.dims]
        ask.argtypes = [*([ctypes.c_int64] * len(sizes)), ctypes.c_int]
        ask.restype = ctypes.c_int64
        return int(ask(*sizes, self.function.n_threads))

    def memory_plan(self, **sizes: int) -> MemoryTimeline:
        """The slot of the arena that holds each intermediate value while each kernel runs, at sizes of
        the named dims: ``print(fn.memory_plan(B=8))``, ``fn.memory_plan(B=8).to_svg("x.svg")``.

        Raises ArgumentError for missing sizes, and for sizes of unknown dims."""
        from fxlite.codegen.program.program import memory_plan

        return memory_plan(self.program.program, [k.name for k in self.kernels], sizes)

    def save(self, folder: str | os.PathLike[str], cases: Sequence[Case] | None = None, force: bool = False) -> None:
        """Write a folder that builds and runs without fxlite: source, header, weights, Makefile and a
        self-test with stored inputs and outputs.

        ``cases`` are the inputs of the self-test, by default random ones. Raises FolderError for a
        folder that holds other files, unless ``force`` is given."""
        from fxlite.codegen.c.bundle import save_bundle

        save_bundle(self, folder, cases, force)


class EmbeddedFunction(CFunction):
    """A model compiled to C for a small device, which can also run on this machine."""

    keeps_states = False

    def __init__(self, module: GraphModule, stage: Stage = silent) -> None:
        super().__init__(module, threads=1, stage=stage)

    @cached_property
    def _passed(self) -> tuple[GraphModule, PassManager]:
        from fxlite.codegen.c.templates import plain_claims
        from fxlite.codegen.embedded.emit import require_small
        from fxlite.codegen.program.program import optimize

        require_small(self._compiled)
        with paused_gc():
            return optimize(self._compiled, keep=plain_claims, expand_weights=False)

    @cached_property
    def program(self) -> CProgram:
        """The emitted C."""
        from fxlite.codegen.embedded.emit import emit

        return emit(self.optimized)

    @cached_property
    def memory(self) -> Memory:
        """The bytes of flash and RAM that the model takes."""
        from fxlite.codegen.embedded.bundle import memory_of

        return memory_of(self.program)

    def save(self, folder: str | os.PathLike[str], cases: Sequence[Case] | None = None, force: bool = False) -> None:
        """Write a folder with source, weights as constants, a Makefile and a self-test that contains its
        data. ``cases`` are the inputs of the self-test, by default a random one. Raises FolderError for
        a folder that holds other files, unless ``force`` is given."""
        from fxlite.codegen.embedded.bundle import save_bundle

        save_bundle(self, folder, cases, force)


class PythonFunction:
    """A model as regenerated Python; needs no compiler. ``optimized`` is the graph that runs and from
    which the source is written: batch norms are folded into convolutions, constants are computed, and
    so on, but ops stay whole. It is also the ``holder`` of states."""

    def __init__(self, module: GraphModule) -> None:
        from fxlite.codegen.program.program import optimize_source

        self.graph_module = module
        self.optimized = self.holder = optimize_source(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.optimized(*args, **kwargs)

    def __repr__(self) -> str:
        return described(self)

    @property
    def sources(self) -> Mapping[str, str]:
        """File name -> text of the Python module."""
        from fxlite.codegen.python.source import module_name, python_source

        name = self.graph_module.name
        return {f"{module_name(name)}.py": python_source(self.optimized)}

    def save(self, folder: str | os.PathLike[str], force: bool = False) -> None:
        """Write the Python module and its weights. Raises FolderError if a file that fxlite did not
        write has the module's name, unless ``force`` is given."""
        from fxlite.codegen.python.source import save_python

        save_python(self.optimized, folder, force=force)


# -- the back ends ---------------------------------------------------------------------------------
def _checked_sizes(value: Any) -> Mapping[str, int]:
    expect(value, Mapping, "tune_sizes=", 'give sizes by dim: {"B": 64}')
    return dict(value)


def _checked_names(value: Any) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else value
    expect(names, (tuple, list), "donate=", 'give names of inputs: donate=("x",)')
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ArgumentError(f"donate={value!r}: give names of inputs, each once")
    return tuple(names)


_THREADS = Option(
    "threads",
    int,
    None,
    "threads of compiled code; default OMP_NUM_THREADS, else the usable processors",
    "N",
    checked_threads,
)
_PRECISION = Option(
    "matmul_precision",
    ("highest", "high", "medium"),
    "highest",
    "how products are computed; highest (the default): in their own dtype; high: as three products of bf16 where the "
    "processor has AMX, otherwise as highest; medium: operands of products with constant weights are rounded to bf16, "
    "in C only",
    "PRECISION",
)
_MEMORY = Option("memory_limit", int, None, "bytes that a call may take")


class CBackend(Backend):
    """C with OpenMP. A program is taken from the cache, or compiled and stored there; a program with
    measured choices belongs to the number of threads it was measured with."""

    name = "c"
    language = "C"
    options = (
        _THREADS,
        _PRECISION,
        _MEMORY,
        Option("profile", bool, False, "take the time of each kernel"),
        Option("optimize", bool, True, "run the standard passes"),
        Option(
            "autotune",
            bool,
            False,
            "where a kernel can be computed in several ways, measure them (at --size) and take "
            "the fastest, instead of the one that a cost model predicts; choices are kept in the cache",
            "",
        ),
        Option(
            "small_weights",
            bool,
            False,
            "do without kernels that store weights in a larger form than the model's: Winograd's "
            "convolutions, which are faster but take up to 4 times as much memory",
            "",
        ),
        Option(
            "donate",
            tuple,
            (),
            "inputs whose memory a result of the same type takes, by name: it is stored over them",
            check=_checked_names,
        ),
        Option("tune_sizes", dict, None, "sizes to measure at", check=_checked_sizes),
    )

    def compile(
        self,
        module: GraphModule,
        stage: Stage = silent,
        threads: int | None = None,
        memory_limit: int | None = None,
        **options: Any,
    ) -> CFunction:
        """Compile a module. If progress is reported, all steps are run so that they can be reported:
        only the output of the C compiler comes from the cache."""
        if options.get("tune_sizes") and not options.get("autotune"):
            raise ArgumentError("tune_sizes= says at which sizes autotune=True measures; give both")
        measured = {"threads": threads or default_threads()} if options.get("autotune") else {}
        key = program_key(module, options | measured) if stage is silent else None
        kept = None if key is None else find_program(key)
        function = CFunction(module, threads, stage, kept=kept, memory_limit=memory_limit, **options)
        if key is not None and kept is None:
            program, library = function.program, function.function.library
            keep_program(key, program.entry, library, program.weights, program.sources)
        return function

    def save(self, function: Any, folder: Path, cases: Sequence[Case]) -> Mapping[str, Any]:
        from fxlite.codegen.c.bundle import write_bundle

        return write_bundle(function, folder, cases)

    def require(self) -> None:
        find_compiler()

    def describe(self) -> Mapping[str, str]:
        try:
            compiler = find_compiler()
        except FxliteError as error:
            return {"C compiler": str(error)}
        version = compiler.version.splitlines()[0]
        return {"C compiler": f"{' '.join(compiler.command)}: {version}", "OpenMP": "yes" if compiler.openmp else "no"}

    def emit(self, optimized: GraphModule) -> CProgram:
        from fxlite.codegen.c.emit import emit

        return emit(optimized)


class EmbeddedBackend(Backend):
    """C for a small device: fixed sizes, weights as constants, and no memory except an arena."""

    name = "embedded"
    language = "embedded C"
    options = ()

    def compile(self, module: GraphModule, stage: Stage = silent, **options: Any) -> EmbeddedFunction:
        function = EmbeddedFunction(module, stage)
        if stage is not silent:
            with stage("size") as said:
                said.append(function.memory.said)
        return function

    def save(self, function: Any, folder: Path, cases: Sequence[Case]) -> Mapping[str, Any]:
        from fxlite.codegen.embedded.bundle import write_bundle

        return write_bundle(function, folder, cases)

    def require(self) -> None:
        find_compiler()

    def emit(self, optimized: GraphModule) -> CProgram:
        from fxlite.codegen.embedded.emit import emit

        return emit(optimized)


class CudaBackend(Backend):
    """CUDA C; it is imported when it is first used."""

    name = "cuda"
    language = "CUDA"
    options = (
        _THREADS,
        _PRECISION,
        _MEMORY,
        Option(
            "device", str, None, "number of a GPU, sm_90 (compile only), or shim (run on the CPU, slowly)", "DEVICE"
        ),
    )

    def compile(self, module: GraphModule, stage: Stage = silent, **options: Any) -> Any:
        from fxlite.codegen.cuda.function import CudaFunction

        options.pop("matmul_precision", None)  # it permits lower precision, which is not used here
        return CudaFunction(module, stage=stage, **options)

    def describe(self) -> Mapping[str, str]:
        from fxlite.codegen.runtime.cuda_device import describe_cuda

        return describe_cuda()


class PythonBackend(Backend):
    """Regenerated Python, run by NumPy. Options for compiled code have no effect."""

    name = "python"
    language = "Python"
    options = (_THREADS, _PRECISION)
    part = "node"

    def compile(self, module: GraphModule, stage: Stage = silent, **options: Any) -> PythonFunction:
        return PythonFunction(module)

    def save(self, function: Any, folder: Path, cases: Sequence[Case]) -> Mapping[str, Any]:
        """Write nothing: all back ends' folders contain the Python source anyway."""
        return {}


@cache
def built_in_backends() -> tuple[Backend, ...]:
    """The back ends that come with fxlite."""
    return CBackend(), CudaBackend(), EmbeddedBackend(), PythonBackend()
