"""``autotune=True``: for each kernel, measure what its models decided against the alternatives.

In: an optimized module, the number of threads and sizes of the named dims. Out: a :class:`Tuning`:
what to do about each kernel, and the measurements, which print as a table. Kernels of one form are
measured once; what an earlier process measured on this machine is taken from the cache folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fxlite.codegen.c import templates
from fxlite.codegen.c.calls import form_of, group_call, planned_calls, title_of
from fxlite.codegen.c.decisions import Choice
from fxlite.codegen.c.tiles.library import headers
from fxlite.codegen.c.weights import Packed, module_arrays
from fxlite.codegen.program import example_inputs as examples
from fxlite.codegen.program.program import plan
from fxlite.codegen.runtime.build import build_shared
from fxlite.codegen.runtime.toolchain import usable_cpus
from fxlite.codegen.tuning.harness import Candidate, Harness, check_outputs, race, source
from fxlite.codegen.tuning.result import Entry, Measured, Option, TunedKernel, Tuning, find_measured, keep_measured
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.group import Group, group
from fxlite.passes.ledger import add_refusals, refusal

#: Candidates that are measured at most, the model's choice among them.
MOST_CANDIDATES = 6
#: A candidate is not measured if the model predicts so many times the cycles of its own choice.
HOPELESS = 3.0
#: Runs a candidate of a kernel once and gives seconds.
Timer = Callable[[Harness, int], float]


def measured_seconds(harness: Harness, candidate: int) -> float:
    """The usual timer."""
    return harness.seconds(candidate)


def tune(
    module: GraphModule,
    threads: int,
    sizes: Mapping[str, int] | None = None,
    matmul_precision: str = "highest",
    timer: Timer = measured_seconds,
) -> Tuning:
    """Decide about every kernel of an optimized module by measuring, and say so in its ledger.

    ``sizes`` of named dims are those to measure at; others get usual ones. Raises ArgumentError for
    names that the module has not; CodegenError where candidates compute different values."""
    return _Tuner(module, threads, sizes or {}, matmul_precision, timer).run()


@dataclass(frozen=True)
class _Work:
    """The kernels of one form; ``parts`` are the first one without its epilogue, and that."""

    key: tuple[Any, ...]
    groups: tuple[Group, ...]
    parts: tuple[Group, ...]
    options: tuple[Option, ...]

    @property
    def node(self) -> Node:
        return self.groups[0].anchor or self.groups[0].root


class _Tuner:
    """One run of :func:`tune`."""

    def __init__(
        self, module: GraphModule, threads: int, sizes: Mapping[str, int], matmul_precision: str, timer: Timer
    ) -> None:
        self.module, self.threads, self.timer = module, threads, timer
        self.matmul_precision = matmul_precision
        self.sizes = examples.make_cases(module, sizes)[-1].dims
        self.arrays = module_arrays(module)
        self.model_bytes = 0
        """Of packed weights, when all kernels were seen."""

    def run(self) -> Tuning:
        planned_calls(self.module, self.matmul_precision)  # expands what templates decline
        works = self.works()
        known = [find_measured(self.store_key(work)) for work in works]
        missing = [work for work, entry in zip(works, known) if entry is None]
        candidates = [self.candidates(work) for work in missing]
        with ThreadPoolExecutor(usable_cpus()) as pool:
            built = zip(candidates, list(pool.map(self.build, candidates)))
        kernels: list[TunedKernel] = []
        choices: dict[tuple[Any, ...], Choice] = {}
        apart: set[Node] = set()
        for work, found in zip(works, known):
            kernel = TunedKernel(
                title_of(work.groups[0]),
                work.node,
                len(work.groups),
                work.options,
                found or self.measure(work, *next(built)),
                found is not None,
            )
            kernels.append(kernel)
            if kernel.winner.choice.get("epilogue") == "separate":
                apart |= {g.anchor for g in work.groups if g.anchor is not None}
            elif kernel.winner.choice:
                choices[work.key] = kernel.winner.choice
        notes = [refusal("autotune", k.node, k.reason) for k in kernels]
        add_refusals(self.module, notes)
        return Tuning(tuple(kernels), choices, frozenset(apart), self.sizes, self.threads)

    def store_key(self, work: _Work) -> tuple[Any, ...]:
        names = tuple(option.name for option in work.options)
        sizes = tuple(self.sizes.items())
        return repr(work.key), names, self.matmul_precision, self.threads, sizes

    # -- candidates ------------------------------------------------------------------------------
    def works(self) -> list[_Work]:
        """The kernels about which there is something to decide, those of one form together."""
        by_form: dict[tuple[Any, ...], list[Group]] = {}
        groups = plan(self.module, templates.claims_in(self.matmul_precision)).groups
        for found in groups:
            by_form.setdefault(form_of(found).key, []).append(found)
        parts = self.separated(groups)
        works = []
        for key, alike in by_form.items():
            apart = tuple(parts.get(alike[0].root, ()))
            options = self.options(alike, bool(apart))
            if len(options) > 1:
                works.append(_Work(key, tuple(alike), apart, options))
        return works

    def separated(self, groups: Sequence[Group]) -> dict[Node, list[Group]]:
        """By their roots, groups with an epilogue as several: the template's and the epilogue's.
        Not those whose epilogue would go to another contraction instead."""
        fused = {g.anchor: g for g in groups if g.anchor is not None and g.anchor is not g.root}
        if not fused:
            return {}
        of_member = {member: g for g in fused.values() for member in g.members}
        found: dict[Node, list[Group]] = {}
        claims = templates.claims_in(self.matmul_precision)
        for part in group(self.module, claims, frozenset(fused)):
            whole = of_member.get(part.root)
            if whole is not None and part.members.keys() <= whole.members.keys():
                found.setdefault(whole.root, []).append(part)
        roots = {g.root: g for g in fused.values()}
        return {
            root: parts
            for root, parts in found.items()
            if roots[root].members.keys() == {m for part in parts for m in part.members}
        }

    def options(self, alike: Sequence[Group], has_parts: bool) -> tuple[Option, ...]:
        """The model's choice for kernels of one form, and the likeliest of the others."""
        without = set() if has_parts else {"epilogue"}
        without |= {"threads"} if self.threads == 1 else set()
        packed: Packed = {}
        call = group_call(alike[0], "kernel", self.arrays, packed, [], self.matmul_precision)
        self.model_bytes += len(alike) * sum(w.size * w.dtype.itemsize for w in packed.values())
        others = [
            Option({decision.subject: other.name}, decision)
            for decision in call.decisions
            if decision.subject not in without
            for other in decision.others
        ]
        likely = [o for o in others if o.predicted is None or o.predicted * HOPELESS >= 1]
        likely.sort(key=lambda o: -(o.predicted or 1))
        return (Option(), *likely[: MOST_CANDIDATES - 1])

    def candidates(self, work: _Work) -> list[Candidate]:
        """The code of each option."""
        found = []
        for number, option in enumerate(work.options):
            separate = option.choice.get("epilogue") == "separate"
            packed: Packed = {}
            calls = [
                group_call(
                    part,
                    f"kernel_{number}_{step}",
                    self.arrays,
                    packed,
                    [],
                    self.matmul_precision,
                    {work.key: option.choice},
                )
                for step, part in enumerate(work.parts if separate else work.groups[:1])
            ]
            found.append(Candidate(tuple(calls), packed))
        return found

    # -- measuring -------------------------------------------------------------------------------
    def build(self, candidates: Sequence[Candidate]) -> Path:
        """The candidates of one kernel, compiled."""
        text = source(candidates, self.arrays, [*self.sizes])
        return build_shared({"candidates.c": text, **headers(text)}, "candidates.so")

    def measure(self, work: _Work, candidates: Sequence[Candidate], library: Path) -> Entry:
        """Check the candidates and let them race; keeps what was found."""
        harness = Harness(library, candidates, self.arrays, self.sizes, self.threads, self.model_bytes)
        check_outputs(harness, work.options, self.matmul_precision)
        found = race(lambda i: self.timer(harness, i), len(work.options))
        measured = tuple(
            Measured(option.name, found.median(i), found.speedup(i)) for i, option in enumerate(work.options)
        )
        entry = Entry(measured, found.winner)
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        about = ", ".join(f"{n.target.name}: {n.type}" for n in work.groups[0].members)
        keep_measured(self.store_key(work), about, sizes, self.threads, entry)
        return entry
