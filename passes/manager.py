"""The pass manager: runs passes in order, checks each one and reports what it did.

In: passes and a program. Out: a module, and a :class:`Report` with one :class:`Step` for each pass.
The passes run one after another on one copy of the program. Each is a transaction, so the state after
any of them can be restored, at the cost of the edits in between.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal, Self, TypeVar

from fxlite.base.checked import checked_methods
from fxlite.base.console import Printed
from fxlite.base.errors import FxliteError, GraphError, expect
from fxlite.base.progress import progress
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule, passes_of, set_passes
from fxlite.passes.base import PASSES, Pass, PassError, as_module, as_pass, run_in_place
from fxlite.passes.checking.verify import VerificationReport, module_at, verify, verify_edits
from fxlite.passes.derived import derivations, set_derivations
from fxlite.passes.ledger import Refusal, copy_with_ledger, refusals

#: Whether a pass may stand anywhere before another one.
Constraint = Callable[[Any, Any], bool]


@dataclass
class Snapshot:
    """A module as it was at a position of its journal; rebuilt on demand."""

    live: GraphModule
    position: int
    undone: int  # how often the journal had been undone then
    passes: tuple[str, ...]
    _made: GraphModule | None = field(default=None, repr=False)

    @classmethod
    def of(cls, module: GraphModule) -> Snapshot:
        journal = module.graph.journal
        return cls(module, len(journal.records), len(journal.undone), passes_of(module))

    def get(self) -> GraphModule:
        """A copy of the module at that position. Raises GraphError if that state was undone since."""
        if self._made is None:
            journal = self.live.graph.journal
            if any(start < self.position for start in journal.undone[self.undone :]):
                raise GraphError("the module after this pass is gone: it was undone since")
            self._made = module_at(self.live, self.position)
            set_passes(self._made, self.passes)
        return self._made

    def records_since(self, start: int) -> list[Any]:
        """The journal's records from ``start`` to here. Raises GraphError as :meth:`get` does."""
        journal = self.live.graph.journal
        if any(begin < self.position for begin in journal.undone[self.undone :]):
            raise GraphError("the edits of this pass are gone: they were undone since")
        return journal.records[start : self.position]


@dataclass(frozen=True)
class Step:
    """What one pass did: node counts, the ops whose counts changed, milliseconds, refusals, and the
    report of its check (None if it was not checked)."""

    name: str
    before: int
    after: int
    changes: str
    milliseconds: float
    refusals: tuple[Refusal, ...]
    verification: VerificationReport | None
    _snapshot: Snapshot
    _start: int  # position in the journal before the pass

    @property
    def module(self) -> GraphModule:
        """The module after the pass."""
        return self._snapshot.get()

    @property
    def records(self) -> list[Any]:
        """The records that the pass added to the graph's :class:`~fxlite.graph.node_store.Journal`;
        empty if it built a new graph."""
        return self._snapshot.records_since(self._start)

    @property
    def resized(self) -> dict[str, tuple[Any, Any]]:
        """The weights whose type has changed: by path, the type before and after."""
        return resized_weights(self.records)


class Report(Printed):
    """What each pass of a run did; prints as a table. ``report[i]`` is the i-th :class:`Step`."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps

    @property
    def about(self) -> str:
        return ", ".join(step.name for step in self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: int) -> Step:
        return self.steps[index]

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table(box=None, header_style="bold", pad_edge=False)
        for heading in ("pass", "nodes", "what changed", "refused", "checked", "ms"):
            right = heading in ("refused", "ms")
            table.add_column(heading, justify="right" if right else "left")
        for step in self.steps:
            count = f"{step.before} → {step.after}" if step.before != step.after else str(step.after)
            refused = str(len(step.refusals)) if step.refusals else ""
            checked = "" if step.verification is None else step.verification.summary
            took = f"{step.milliseconds:.1f}"
            table.add_row(step.name, count, step.changes, refused, checked, took)
        return table


@checked_methods
class PassManager:
    """Runs passes in order: ``PassManager([passes.cse, "dce"])(gm)``.

    Passes are :class:`Pass` objects, their names, or plain functions. With ``check`` the graph is
    linted after each pass, and the part that the pass changed is run before and after on random
    inputs and compared as closely as the pass promises (see
    :mod:`fxlite.passes.checking.verify`); ``check="lint"`` only lints. ``report`` says what each
    pass of the last run did; ``report[i].module`` is the module after pass i."""

    def __init__(
        self,
        passes: Iterable[Pass | str | Callable[..., Any]] | None = None,
        constraints: Iterable[Constraint] | None = None,
        steps: int | None = None,
        *,
        check: bool | Literal["lint"] = True,
    ) -> None:
        """``constraints`` (:func:`this_before_that_pass_constraint`) are conditions on the order of
        the passes; ``steps`` is the number of times that the whole sequence runs."""
        passes = () if passes is None else passes
        expect(passes, Iterable, "the passes of a PassManager", "give names or functions")
        self.passes: list[Pass] = [as_pass(p) for p in passes]
        self.constraints: list[Constraint] = list(constraints or ())
        self.steps = 1 if steps is None else steps
        self.checks: list[Callable[[GraphModule], Any]] = []
        self.check = check
        self.report = Report([])

    def add_pass(self, _pass: Pass | str | Callable[..., Any]) -> None:
        """Append a pass."""
        self.passes.append(as_pass(_pass))

    add = add_pass

    def add_constraint(self, constraint: Constraint) -> None:
        """Require ``constraint(first, later)`` of every two passes, given as they were passed in."""
        self.constraints.append(constraint)

    def add_checks(self, check: Callable[[GraphModule], Any]) -> None:
        """Call ``check(module)`` after each pass; an exception that it raises counts as the pass's error."""
        self.checks.append(check)

    def validate_constraints(self) -> None:
        """Raise PassError naming two passes whose order violates a constraint."""
        for i, later in enumerate(self.passes):
            for first in self.passes[:i]:
                if not all(allows(_given(first), _given(later)) for allows in self.constraints):
                    raise PassError(
                        f"{first.name} stands before {later.name}, which a constraint excludes; "
                        "change the order, or let solve_constraints() find one"
                    )

    def solve_constraints(self) -> None:
        """Put the passes into the nearest order that fulfils all constraints. Raises PassError if
        there is none."""
        left, order = list(self.passes), []
        while left:
            free = (
                p
                for p in left
                if all(allows(_given(p), _given(q)) for q in left if q is not p for allows in self.constraints)
            )
            chosen = next(free, None)
            if chosen is None:
                names = ", ".join(p.name for p in left)
                raise PassError(f"no order of {names} fulfils the constraints")
            left.remove(chosen)
            order.append(chosen)
        self.passes = order

    def __call__(self, program: Any) -> GraphModule:
        """Run all passes on a copy of the program. Raises PassError naming pass, node and line;
        ``report`` then holds the passes before the one that failed."""
        given = as_module(program)
        module = copy_with_ledger(given)
        set_derivations(module, derivations(given))
        # lint looks at the edits alone: parts that no pass touches are as valid as they were
        module.graph._linted = module.graph.journal.version
        self.report = Report([])
        self.validate_constraints()
        with progress("passes", len(self.passes) * self.steps) as work:
            for item in self.passes * self.steps:
                work.what = item.name
                module = self.run_pass(item, module)
                work.done += 1
        return module

    def run_pass(self, item: Pass, module: GraphModule) -> GraphModule:
        """Run one pass on a module itself, with checks, and add it to the report; returns the
        resulting module. Raises PassError and leaves the module as it was."""
        begin = time.perf_counter()
        graph, known = module.graph, len(refusals(module))
        before, start = len(graph), len(graph.journal.records)
        verification: list[VerificationReport] = []

        def check(made: GraphModule) -> None:
            try:
                is_linted = made.graph._linted == made.graph.journal.version  # most passes change nothing
                if self.check and not (is_linted and self.report.steps):  # after the first one, also what was given
                    made.graph.lint()
            except FxliteError as error:
                raise PassError(f"pass {item.name} left an invalid graph: {error}") from error
            for further in self.checks:
                further(made)
            if self.check is True and made.graph is graph:
                verification.append(verify_edits(made, start, item.name, item.exactness))
            elif self.check is True:
                was = _as_it_was(module, graph, start)
                verification.append(verify(was, made, item.exactness, item.name))

        made = run_in_place(item, module, {}, check if self.check or self.checks else None)
        changed = edited_ops(graph, start)
        if made.graph is not graph:  # the pass built a new graph
            new = count_ops(made.graph)
            new.subtract(count_ops(graph))
            new.update(changed)
            changed = new
        self.report.steps.append(
            Step(
                item.name,
                before,
                len(made.graph),
                changes_text(changed, resized_weights(graph.journal.records[start:])),
                (time.perf_counter() - begin) * 1e3,
                tuple(refusals(made)[known:]),
                verification[0] if verification else None,
                Snapshot.of(made),
                start if made.graph is graph else len(made.graph.journal.records),
            )
        )
        return made

    def __repr__(self) -> str:
        return f"PassManager([{', '.join(p.name for p in self.passes)}])"


def _given(item: Pass) -> Any:
    """A pass as it was given to a manager: the plain function if it wraps one."""
    return item if item is PASSES.get(item.name) else item.function


def this_before_that_pass_constraint(this: Any, that: Any) -> Constraint:
    """A constraint for :class:`PassManager`: ``this`` must not come after ``that``."""

    def allows(first: Any, later: Any) -> bool:
        return first is not that or later is not this

    return allows


def _as_it_was(module: GraphModule, graph: Graph, start: int) -> GraphModule:
    """A copy of ``module`` before a pass that replaced its graph, or returned another module."""
    made = module.graph
    module.__dict__["_graph"] = graph
    try:
        return Snapshot(module, start, len(graph.journal.undone), passes_of(module)).get()
    finally:
        module.__dict__["_graph"] = made


def op_name(node: Node) -> str:
    """The name of the op that a node calls; for other nodes the opcode."""
    return node.target.name if node.op == "call_function" else node.op


def count_ops(graph: Graph) -> Counter[str]:
    """How many nodes there are of each op."""
    return Counter(map(op_name, graph.nodes))


def edited_ops(graph: Graph, start: int) -> Counter[str]:
    """How the counts of ops changed by the edits since a position of the journal."""
    existed: dict[Node, str | None] = {}  # op before the edits; None for nodes that the edits created
    for record in graph.journal.records[start:]:
        if not isinstance(record, tuple):
            existed.setdefault(record, None)
        elif isinstance(record[1], Node):
            node = record[1]
            if node not in existed:
                was_target = len(record) == 4 and record[2] == "target"
                existed[node] = record[3].name if was_target else op_name(node)
    changed = Counter[str]()
    for node, name in existed.items():
        if name is not None:
            changed[name] -= 1
        if not node._erased:
            changed[op_name(node)] += 1
    return changed


def resized_weights(records: Iterable[Any]) -> dict[str, tuple[Any, Any]]:
    """The weights whose type changed according to records of a journal: by path, before and after."""
    before: dict[Node, Any] = {}
    for record in records:
        is_type = isinstance(record, tuple) and len(record) == 4 and record[2] == "type"
        if is_type and isinstance(record[1], Node) and record[1].op == "get_attr":
            before.setdefault(record[1], record[3])
    return {
        node.target: (type, node.type)
        for node, type in before.items()
        if not node._erased and type is not None and type != node.type
    }


def changes_text(changed: Counter[str], weights: Mapping[str, tuple[Any, Any]]) -> str:
    """``batch_norm -3, mul +1``: the ops whose counts differ, then the first of the weights that
    changed shape."""
    shown = sorted((op, n) for op, n in changed.items() if n and op not in _NOT_COMPUTED)
    parts = [f"{op} {count:+d}" for op, count in shown]
    for path, (old, new) in list(weights.items())[:1]:
        more = f" and {len(weights) - 1} more" if len(weights) > 1 else ""
        parts.append(f"{path} {old} → {new}{more}")
    return ", ".join(parts) or "-"


_NOT_COMPUTED = ("placeholder", "output")


# -- observed from outside -------------------------------------------------------------------------
T = TypeVar("T")


@checked_methods
class GraphTransformObserver:
    """Observes edits of a module: ``with GraphTransformObserver(gm, "my pass") as observer: edit(gm)``.

    ``created_nodes`` and ``erased_nodes`` then hold the names of the nodes that were created and
    erased. If the folder ``log_url`` is given, two pictures that mark the changes are written to it:
    ``pass_1_NAME_input_graph.dot`` and ``pass_1_NAME_output_graph.dot``."""

    _numbers: ClassVar[itertools.count[int]] = itertools.count(1)
    _count: ClassVar[int] = 0

    def __init__(
        self, gm: GraphModule, passname: str, subsystem: str | None = None, log_url: str | Path | None = None
    ) -> None:
        self.gm, self.passname, self.subsystem, self.log_url = gm, passname, subsystem, log_url
        self.created_nodes: set[str] = set()
        self.erased_nodes: set[str] = set()
        self._before: GraphModule | None = None

    @classmethod
    def get_current_pass_count(cls) -> int:
        """How many passes have been observed with a ``log_url`` so far."""
        return GraphTransformObserver._count

    def apply_gm_pass(self, pass_fn: Callable[[GraphModule], T]) -> T:
        """Call ``pass_fn`` on the module and observe its edits."""
        with self:
            return pass_fn(self.gm)

    def apply_graph_pass(self, pass_fn: Callable[[Graph], T]) -> T:
        """Call ``pass_fn`` on the graph and observe its edits."""
        with self:
            return pass_fn(self.gm.graph)

    def __enter__(self) -> Self:
        self.created_nodes.clear()
        self.erased_nodes.clear()
        self._before = None if self.log_url is None else self.gm.copy()
        self.gm.register_create_node_hook(self._created)
        self.gm.register_erase_node_hook(self._erased)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.gm.unregister_create_node_hook(self._created)
        self.gm.unregister_erase_node_hook(self._erased)
        if self.log_url is None or self._before is None:
            return
        GraphTransformObserver._count = next(self._numbers)
        if self.created_nodes or self.erased_nodes:
            stem = f"pass_{self._count}_{self.passname.replace(' ', '_')}"
            folder = Path(self.log_url)
            before, after = self._before.graph, self.gm.graph
            before.draw(folder / f"{stem}_input_graph.dot", color="change", changed_from=after)
            after.draw(folder / f"{stem}_output_graph.dot", color="change", changed_from=before)

    def _created(self, node: Node) -> None:
        self.created_nodes.add(node.name)

    def _erased(self, node: Node) -> None:
        self.erased_nodes.add(node.name)
