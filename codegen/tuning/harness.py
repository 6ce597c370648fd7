"""Candidates of one kernel, compiled into one shared object and run on data of the kernel's shapes.

In: for each candidate the calls that compute the same value, and sizes of the named dims. Out:
:func:`source`, a C file, and :class:`Harness`, which runs the library built from it and returns
seconds or results. A run finds the same data in the caches as within the model: the kernel's inputs,
and of the weights only what the rest of the model leaves there.

Candidates take turns (0 1 2, 1 2 0, ...), so that a slow moment hits all of them, and are compared
within rounds; one that is clearly worse is not run again. All must compute the same value; otherwise
an error names the one that differs.
"""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.base.errors import CodegenError
from fxlite.codegen.c.calls import Call
from fxlite.codegen.c.render.alternatives import Choice, Decision
from fxlite.codegen.c.tiles.library import includes, instantiated, macros
from fxlite.codegen.c.weights import Array, Blob, Packed, c_type, make_blob
from fxlite.codegen.kernel.lower import buffer_name
from fxlite.codegen.kernel.names import dim_name, resolved
from fxlite.codegen.kernel.text import signature
from fxlite.codegen.program.memory import ALIGNMENT
from fxlite.codegen.runtime.load import aligned_empty
from fxlite.codegen.runtime.toolchain import cache_sizes
from fxlite.graph.graph import Node
from fxlite.show.node_cost import longest_chain
from fxlite.types import shapes
from fxlite.types.agreement import USUAL, compare

#: Seconds that one measurement should take at least: short kernels run several times.
LEAST_SECONDS = 3e-4
#: The best of so many measurements counts: the others met another program.
SHOTS = 3
MOST_REPEATS = 1000

_PARAMETERS = (
    "void *const *array; const void *const *weights; const int64_t *size; void *scratch; int n_threads; fx_error *error"
).split("; ")


@dataclass(frozen=True)
class Candidate:
    """One way to compute a kernel's value: calls in order, each of a function of its own, and the
    weights that they need packed."""

    calls: tuple[Call, ...]
    packed: Packed

    @property
    def arguments(self) -> list[str]:
        """The arguments of the functions, each once."""
        return [*dict.fromkeys(a for call in self.calls for a in call.arguments)]

    @property
    def values(self) -> list[Node]:
        """The values that are read and stored, without weights."""
        found: dict[Node, None] = {}
        for call in self.calls:
            read = (n for n in call.group.inputs if n.op != "get_attr")
            found |= dict.fromkeys([*read, call.group.root])
        return [*found]


def values_of(candidates: Sequence[Candidate]) -> list[Node]:
    """The values that any of the candidates reads or stores."""
    return [*dict.fromkeys(node for c in candidates for node in c.values)]


class Harness:
    """The candidates of one kernel, in a library built from their :func:`source`."""

    def __init__(
        self,
        library: Path,
        candidates: Sequence[Candidate],
        weights: Mapping[Node, Array],
        sizes: Mapping[str, int],
        n_threads: int,
        model_bytes: int = 0,
    ) -> None:
        """``model_bytes`` is the size of all packed weights of the model."""
        self.n_threads = n_threads
        self.result = candidates[0].calls[-1].group.root
        members = [node for call in candidates[0].calls for node in call.group.members]
        self.chain = longest_chain(members, sizes)
        self.nodes = values_of(candidates)
        self.library = ctypes.CDLL(str(library))
        self.library.run.restype = self.library.scratch_bytes.restype = ctypes.c_int64
        number, pointer, size = ctypes.c_int, ctypes.c_void_p, ctypes.c_int64
        arrays = pointer, pointer, number, pointer, pointer
        self.library.run.argtypes = [number, *arrays, pointer, number, pointer, size, size]
        self._weights, self._memory = _packed_weights(candidates, weights)
        self.arrays = _examples(self.nodes, sizes)
        self._pointers = (ctypes.c_void_p * len(self.arrays))(*(a.ctypes.data for a in self.arrays))
        self._bytes = (ctypes.c_int64 * len(self.arrays))(*(a.nbytes for a in self.arrays))
        self._sizes = (ctypes.c_int64 * max(1, len(sizes)))(*sizes.values())
        scratch = self.library.scratch_bytes(self._sizes, ctypes.c_int(n_threads))
        self._scratch = aligned_empty(scratch)
        caches = cache_sizes()
        hot = model_bytes <= (caches.get(2) or 1 << 20) // 2
        most = 2 * max(caches.values(), default=32 << 20)
        self._other = np.ones(0 if hot else min(model_bytes, most), np.uint8)
        self._repeats = 1

    def seconds(self, candidate: int) -> float:
        """Seconds of one run. Raises CodegenError if it reports an error."""
        taken = self._run(candidate, self._repeats)
        while taken < LEAST_SECONDS and self._repeats < MOST_REPEATS and not self._other.size:
            self._repeats *= 2
            taken = self._run(candidate, self._repeats)
        shots = [self._run(candidate, self._repeats) for _ in range(SHOTS - 1)]
        return min(taken, *shots) / self._repeats

    def output(self, candidate: int) -> Array:
        """The value that a candidate computes from the same inputs."""
        self.arrays[self.nodes.index(self.result)].fill(0)
        self._run(candidate, 1)
        return self.arrays[self.nodes.index(self.result)].copy()

    def _run(self, candidate: int, repeats: int) -> float:
        arrays = self._pointers, self._bytes, len(self.arrays), self._weights[candidate], self._sizes
        other = self._other.ctypes.data, self._other.size
        taken = self.library.run(candidate, *arrays, self._scratch.ctypes.data, self.n_threads, *other, repeats)
        if taken < 0:
            raise CodegenError(f"{self.result.describe()}: a candidate of autotune= failed")
        return float(taken) * 1e-9


def _packed_weights(
    candidates: Sequence[Candidate], weights: Mapping[Node, Array]
) -> tuple[list[ctypes.Array[ctypes.c_void_p]], Array]:
    """Where each candidate's weights are, in the order of `Candidate.arguments`, and the memory that
    holds them. It is one block, as in a model, because memory gets large or small pages by chance, which
    makes a difference of a fifth. Candidates that pack weights in the same way share them."""
    stored = {buffer_name(node) for node in weights}
    starts: dict[Any, int] = {}
    blobs: list[Blob] = []
    addresses = []
    for c in candidates:
        read = [name for name in c.arguments if name in c.packed or name in stored]
        key = tuple((name, c.packed.get(name)) for name in read)
        if key not in starts:
            starts[key] = sum(blob.data.size for blob in blobs)
            blobs.append(make_blob(read, c.packed, weights))
        places = blobs[[*starts].index(key)].places
        addresses.append([starts[key] + places[name][0] for name in read])
    memory = aligned_empty(sum(blob.data.size for blob in blobs))
    for blob, start in zip(blobs, starts.values()):
        memory[start : start + blob.data.size] = blob.data
    first = memory.ctypes.data
    pointers = [(ctypes.c_void_p * max(1, len(p)))(*(first + at for at in p)) for p in addresses]
    return pointers, memory


def source(candidates: Sequence[Candidate], weights: Mapping[Node, Array], dims: Sequence[str]) -> str:
    """The C file: the functions of all candidates, and for each candidate a function that calls them in order."""
    sizes = [f"    const int64_t {dim_name(dim)} = size[{i}];" for i, dim in enumerate(dims)]
    lines = [*(call.text for c in candidates for call in c.calls)]
    nodes = values_of(candidates)
    stored = {buffer_name(node): node.type.dtype.c_stored for node in weights}
    for number, candidate in enumerate(candidates):
        lines += signature(f"candidate_{number}", _PARAMETERS)
        lines += sizes
        for position, node in enumerate(nodes):
            lines.append(f"    {node.type.dtype.c_stored} *const {buffer_name(node)} = array[{position}];")
        packed = {name: c_type(weight.dtype) for name, weight in candidate.packed.items()}
        types = {**stored, **packed}
        read = [name for name in candidate.arguments if name in types]
        for position, name in enumerate(read):
            lines.append(f"    const {types[name]} *const {name} = weights[{position}];")
        for call in candidate.calls:
            lines.append(f"    {call.function}({', '.join(call.arguments)});")
        lines += ["}", ""]
    listed = ", ".join(f"candidate_{i}" for i in range(len(candidates)))
    lines += [f"static Candidate *const candidates[] = {{{listed}}};", ""]
    lines += [*signature("scratch_bytes", [_PARAMETERS[2], _PARAMETERS[4]], "int64_t")]
    lines += [*sizes, "    int64_t most = 0;"]
    for scratch in dict.fromkeys(call.scratch for c in candidates for call in c.calls):
        lines.append(f"    most = fx_max(most, {scratch});")
    text = resolved("\n".join([*lines, "    return most;", "}", ""]), macros())
    file = files("fxlite.codegen.tuning").joinpath("harness.c")
    timing = instantiated(file, {"COUNT": str(len(candidates))})
    return "\n".join([includes(), timing, text])


def _examples(nodes: Sequence[Node], sizes: Mapping[str, int]) -> list[Array]:
    """Standard normal floats for each float value, and zeros for the others, which are valid positions in
    all arrays that are not empty. They lie one after another, as in a model's workspace: separate arrays
    would all start at the same place of a page, and so of the first-level cache."""
    generator = np.random.default_rng(0)
    counts = [int(np.prod(shapes.substitute(n.type.shape, sizes), dtype=np.int64)) for n in nodes]
    types = [node.type.dtype for node in nodes]
    steps = [-(-c * t.numpy.itemsize // ALIGNMENT) * ALIGNMENT for c, t in zip(counts, types)]
    memory, start, found = aligned_empty(sum(steps)), 0, []
    for count, dtype, step in zip(counts, types, steps):
        array = memory[start : start + count * dtype.numpy.itemsize].view(dtype.numpy)
        array[:] = generator.standard_normal(count, np.float32) if dtype.is_float else 0
        found.append(array)
        start += step
    return found


@dataclass(frozen=True)
class Option:
    """One way to compute a kernel: ``choice`` in place of the model's, and the decision in which it differs."""

    choice: Choice = field(default_factory=dict)
    decision: Decision | None = None

    @property
    def name(self) -> str:
        """``plan: channels``; for the model's own choice "the model's choice"."""
        return ", ".join(f"{k}: {v}" for k, v in self.choice.items()) or "the model's choice"

    @property
    def predicted(self) -> float | None:
        """How many times faster than its own choice the cost model predicts this to be."""
        if self.decision is None:
            return None
        ours = self.decision.cycles(self.choice[self.decision.subject])
        model = self.decision.cycles(self.decision.chosen)
        return model / ours if ours and model else None


#: The part of the elements that may differ by more than the bound: where rounding decides, as in
#: floor(x), a few do.
ODD_ELEMENTS = 1e-3


def check_outputs(
    harness: Harness, options: Sequence[Option], matmul_precision: str, odd: float = ODD_ELEMENTS
) -> None:
    """Raise CodegenError, naming the kernel and the candidate, unless all compute the same."""
    chain = replace(harness.chain.at_least(USUAL), precision=matmul_precision)
    for number, option in enumerate(options[1:], start=1):
        found = compare(harness.output(0), harness.output(number), chain=chain)
        if found.wrong > odd * found.size:
            raise CodegenError(
                f"{harness.result.describe()}: autotune: {option.name} computes another value than "
                f"the model's choice: {found}; one of the two is wrong: please report it, and "
                "compile without autotune= meanwhile"
            )


# -- which one is the fastest ----------------------------------------------------------------------
#: Rounds, at least and at most; between them as many as fit into the time for a kernel.
LEAST_ROUNDS, MOST_ROUNDS = 5, 21
#: Seconds for a kernel.
BUDGET = 0.4
#: Rounds after which a candidate may be given up, and how many times as long as the fastest one it
#: then took in each of them.
EARLY, CLEARLY = 3, 1.25
#: How many times faster than the model's choice another must be: less is a tie.
MARGIN = 1.03


@dataclass(frozen=True)
class Race:
    """``times[i]`` are the seconds of candidate i in each round in which it ran. Candidate 0 is the
    model's choice, with which the others are compared."""

    times: tuple[tuple[float, ...], ...]

    def median(self, candidate: int) -> float:
        """The median time of a candidate."""
        return statistics.median(self.times[candidate])

    def speedup(self, candidate: int) -> float:
        """How many times faster than candidate 0 it is: the median of the ratios within rounds."""
        return statistics.median(self._ratios(candidate))

    def _ratios(self, candidate: int) -> list[float]:
        # rounds are counted from the first: a candidate that is given up runs in no later round
        return [mine / its for mine, its in zip(self.times[0], self.times[candidate])]

    @property
    def winner(self) -> int:
        """The fastest candidate; 0 unless another is faster by more than :data:`MARGIN`, and faster in
        three of four rounds."""
        best = max(range(len(self.times)), key=self.speedup)
        ratios = sorted(self._ratios(best))
        clear = self.speedup(best) > MARGIN and ratios[len(ratios) // 4] > 1
        return best if clear else 0


def race(run: Callable[[int], float], count: int, budget: float = BUDGET) -> Race:
    """Let ``count`` candidates take turns. ``run(i)`` runs one and returns seconds. The first round
    determines how many fit into ``budget`` and does not count. The winner then runs as many rounds
    again against candidate 0, because of several candidates one is always the fastest by chance."""
    first = sum(run(i) for i in range(count))
    rounds = int(min(MOST_ROUNDS, max(LEAST_ROUNDS, budget / first if first > 0 else MOST_ROUNDS)))
    times: list[list[float]] = [[] for _ in range(count)]
    running = list(range(count))
    for number in range(rounds):
        turn = number % len(running)
        for candidate in running[turn:] + running[:turn]:
            times[candidate].append(run(candidate))
        if number + 1 < EARLY:
            continue
        best = [min(taken) for taken in zip(*(times[i] for i in running))]
        kept = [i for i in running if any(t <= CLEARLY * b for t, b in zip(times[i], best))]
        if 0 not in kept or kept == [0]:
            break
        running = kept
    first_winner = Race(tuple(map(tuple, times))).winner
    for number in range(rounds if first_winner else 0):
        for candidate in (0, first_winner) if number % 2 else (first_winner, 0):
            times[candidate].append(run(candidate))
    return Race(tuple(map(tuple, times)))
