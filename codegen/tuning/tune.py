"""``autotune=True``: for each kernel, measure the cost models' decisions against the alternatives.

In: an optimized module, the number of threads and sizes of the named dims. Out: a :class:`Tuning`: the
decisions for each kernel, and the measurements, which print as a table. Kernels of the same form are
measured once.

Measurements are kept in the cache folder, in a JSON file for each kernel and machine, so that the next
process measures nothing. A file describes in words what it is about; removing it makes the next
compilation measure again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from fxlite.base.console import plain_text
from fxlite.base.errors import sizes_text
from fxlite.codegen.c import templates
from fxlite.codegen.c.calls import Choices, form_of, group_call, planned_calls, title_of
from fxlite.codegen.c.render.alternatives import Choice
from fxlite.codegen.c.tiles.library import headers
from fxlite.codegen.c.weights import Packed, module_arrays
from fxlite.codegen.program import example_inputs as examples
from fxlite.codegen.program.program import plan
from fxlite.codegen.runtime.build import build_shared
from fxlite.codegen.runtime.cache import cache_folder, find_note, keep_note
from fxlite.codegen.runtime.toolchain import compile_flags, cpu_identity, find_compiler, processor_name, usable_cpus
from fxlite.codegen.tuning.harness import Candidate, Harness, Option, check_outputs, race, source
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.group import Group, group
from fxlite.passes.ledger import add_refusals, refusal

# -- kept ------------------------------------------------------------------------------------------
#: Its folder in the cache folder.
FOLDER = "tuning"


@dataclass(frozen=True)
class Measured:
    """One candidate: its name, the median seconds of a run, and how many times faster than the model's
    choice it was."""

    name: str
    seconds: float
    speedup: float


@dataclass(frozen=True)
class Entry:
    """The measurements of a kernel: ``candidates``, the model's choice first, and the number of the one
    to use."""

    candidates: tuple[Measured, ...]
    winner: int


def find_measured(key: Sequence[Any]) -> Entry | None:
    """The measurements stored under a key; None if there are none that can be read."""
    with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):
        data = find_note(cache_folder() / FOLDER, _name(key)) or {}
        found = tuple(Measured(**candidate) for candidate in data["candidates"])
        if 0 <= data["winner"] < len(found):
            return Entry(found, data["winner"])
    return None


def keep_measured(key: Sequence[Any], kernel: str, sizes: str, threads: int, entry: Entry) -> None:
    """Store the measurements of a kernel at these sizes. If the cache cannot be written, only time is
    lost."""
    about = {
        "kernel": kernel,
        "sizes": sizes,
        "processor": processor_name(),
        "threads": threads,
        "compiler": find_compiler().version.splitlines()[0],
    }
    keep_note(cache_folder() / FOLDER, _name(key), {**about, **asdict(entry)})


def _name(key: Sequence[Any]) -> str:
    facts = (*key, cpu_identity(), find_compiler().identity, compile_flags(), _templates())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


@functools.cache
def _templates() -> str:
    """Digest of the source files that print kernels: other kernels need other measurements."""
    digest = hashlib.sha256()
    work = [files("fxlite.codegen")]
    while work:
        for file in sorted(work.pop().iterdir(), key=lambda f: f.name):
            if file.is_dir():
                work.append(file)
            elif file.name.endswith((".py", ".h", ".c")):
                digest.update(file.read_bytes())
    return digest.hexdigest()


# -- results ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TunedKernel:
    """The kernels of one form: the name and node of the first, their number, the measurements by option
    (seconds of a run and speed-up over the model's choice), and which option won. ``found`` is True if
    they come from the cache, so that nothing was measured now."""

    name: str
    node: Node
    count: int
    options: tuple[Option, ...]
    entry: Entry
    found: bool

    @property
    def winner(self) -> Option:
        """The option that is used."""
        return self.options[self.entry.winner]

    @property
    def speedup(self) -> float:
        """The speed-up over the model's choice."""
        return self.entry.candidates[self.entry.winner].speedup

    @property
    def reason(self) -> str:
        """The text for the ledger."""
        alike = f" ({self.count} kernels alike)" if self.count > 1 else ""
        if decision := self.winner.decision:
            return (
                f"{self.winner.name} measured {self.speedup:.2f}x faster than the model's choice, "
                f"{decision.chosen}{alike}"
            )
        listed = ", ".join(
            f"{option.name} {measured.speedup:.2f}x"
            for option, measured in zip(self.options[1:], self.entry.candidates[1:])
        )
        return f"the model's choice stays; the speed of others measured {listed}{alike}"


@dataclass(frozen=True)
class Tuning:
    """All measurements; prints as a table. ``choices``, by form, and the nodes that are ``apart`` from
    their epilogues are passed to `fxlite.codegen.c.emit.emit`."""

    kernels: tuple[TunedKernel, ...]
    choices: Choices
    apart: frozenset[Node]
    sizes: Mapping[str, int]
    threads: int

    @property
    def options(self) -> dict[str, Any]:
        """The options of `emit` that apply the measurements."""
        return {"choices": self.choices, "apart": self.apart}

    @property
    def measured(self) -> int:
        """How many kernels were measured now, and not found in the cache."""
        return sum(not kernel.found for kernel in self.kernels)

    @property
    def speedup(self) -> float:
        """The speed-up of all measured kernels together over the model's choices."""
        before = sum(k.count * k.entry.candidates[0].seconds for k in self.kernels)
        after = sum(k.count * k.entry.candidates[0].seconds / k.speedup for k in self.kernels)
        return before / after if after else 1.0

    def __rich__(self) -> Any:
        from rich.table import Table

        if not self.kernels:
            return "there is nothing to choose"
        at = sizes_text(self.sizes)
        table = Table(
            box=None,
            header_style="bold",
            pad_edge=False,
            title_justify="left",
            title=f"speed of each alternative, where the model's choice is 1 ({self.threads} threads{at})",
            caption=f"{self.measured} of {len(self.kernels)} kernels measured now, others found in "
            f"the cache; together {self.speedup:.2f}x faster than the model's choices",
        )
        for heading in ("kernel", "decision", "the model's choice"):
            table.add_column(heading, overflow="fold")
        table.add_column("time", justify="right")
        for heading in ("measured, best first (predicted)", "taken"):
            table.add_column(heading, overflow="fold")
        for kernel in self.kernels:
            for row in _rows(kernel):
                table.add_row(*row)
        return table

    def __str__(self) -> str:
        return plain_text(self, 140)

    __repr__ = __str__


def _rows(kernel: TunedKernel) -> list[tuple[str, ...]]:
    """A row for each decision about a kernel."""
    by_subject: dict[str, list[tuple[Option, Measured]]] = {}
    for option, measured in zip(kernel.options, kernel.entry.candidates):
        if option.decision is not None:
            by_subject.setdefault(option.decision.subject, []).append((option, measured))
    rows: list[tuple[str, ...]] = []
    name = kernel.name if kernel.count == 1 else f"{kernel.name} x {kernel.count}"
    for subject, found in by_subject.items():
        found.sort(key=lambda pair: -pair[1].speedup)
        listed = []
        for option, measured in found:
            predicted = f" ({option.predicted:.2f})" if option.predicted else ""
            listed.append(f"{option.choice[subject]} {measured.speedup:.2f}{predicted}")
        decision = found[0][0].decision
        taken = kernel.winner.choice.get(subject, "")
        seconds = kernel.entry.candidates[0].seconds
        time = f"{seconds * 1e6:,.0f} us"
        rows.append((name, subject, decision.chosen if decision else "", time, ", ".join(listed), taken))
        name = ""
    return rows


# -- what was measured, kept and shown -------------------------------------------------------------
#: Candidates that are measured at most, the model's choice among them.
MOST_CANDIDATES = 6
#: A candidate is not measured if the model predicts so many times the cycles of its own choice.
HOPELESS = 3.0
#: Runs a candidate of a kernel once and gives seconds.
Timer = Callable[[Harness, int], float]


def measured_seconds(harness: Harness, candidate: int) -> float:
    """Seconds of one run, the standard way to measure."""
    return harness.seconds(candidate)


def tune(
    module: GraphModule,
    threads: int,
    sizes: Mapping[str, int] | None = None,
    matmul_precision: str = "highest",
    timer: Timer = measured_seconds,
) -> Tuning:
    """Decide about every kernel of an optimized module by measuring, and record it in the module's ledger.

    ``sizes`` gives the sizes of named dims to measure at; the others get usual sizes. Raises
    ArgumentError for names that the module does not have, and CodegenError if candidates compute
    different values."""
    return _Tuner(module, threads, sizes or {}, matmul_precision, timer).run()


@dataclass(frozen=True)
class _Work:
    """The kernels of one form. ``parts`` are the first one's group without its epilogue, and the epilogue's."""

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
        """Set after all kernels were seen: the bytes of packed weights."""

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
        """The kernels about which there is something to decide, grouped by form."""
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
        """By root, the groups with an epilogue split in two: the template's group and the epilogue's.
        Groups whose epilogue would join another contraction instead are left out."""
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
        """The model's choice for kernels of one form, and the most promising alternatives."""
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
        """Check the candidates and let them race; stores the result."""
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
