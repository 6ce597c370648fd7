"""What a pass is: a named function from GraphModule to GraphModule; and the manager of several.

In: a function that edits a graph in place. Out: a :class:`Pass`, which gives that function a copy,
drops it when the function raises, and says which pass, node and line of the user's program were
at fault. :class:`PassManager` runs passes in order, checks the graph after each and reports.
"""

from __future__ import annotations

import functools
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, overload

from fxlite.errors import FxliteError
from fxlite.graph import Graph, Node
from fxlite.graph_module import GraphModule

EXACTNESS = ("exact", "allclose", "sqnr")

#: All passes by name, for the command line and for PassManager(["cse", "dce"]).
PASSES: dict[str, Pass] = {}


class PassError(FxliteError, RuntimeError):
    """A pass failed. The message names the pass, the node it looked at and the user's line."""


@dataclass(frozen=True)
class Refusal:
    """One place where a pass did not fire, and why."""

    pass_name: str
    node: str
    reason: str
    origin: str = ""

    def __str__(self) -> str:
        where = f" ({self.origin})" if self.origin else ""
        return f"{self.pass_name}: {self.node}{where}: {self.reason}"


def ledger(module: GraphModule) -> list[Refusal]:
    """Everything the passes that made this module refused to do, in order."""
    return list(module.__dict__.get("_ledger", ()))


def refuse(module: GraphModule, pass_name: str, node: Node, reason: str) -> None:
    """Note in the module's ledger that the pass left ``node`` alone."""
    entry = Refusal(pass_name, node.name, reason, node.origin)
    module.__dict__.setdefault("_ledger", []).append(entry)


def unique_attribute(module: GraphModule, wish: str) -> str:
    """A free path for a new weight: ``wish``, ``wish_1``, ... A path inside a leaf module, which
    belongs to the user, becomes a name on the root."""
    from fxlite.graph_module import Container

    parent: Any = module
    for part in wish.split(".")[:-1]:
        parent = parent._modules.get(part)
        if parent is None:
            break
        if type(parent) is not Container:
            wish = wish.replace(".", "_")
            break
    counts: dict[str, int] = module.__dict__.setdefault("_name_counts", {})
    name = wish
    while _has_attribute(module, name):
        counts[wish] = counts.get(wish, 0) + 1
        name = f"{wish}_{counts[wish]}"
    return name


def _has_attribute(module: GraphModule, path: str) -> bool:
    try:
        module.get_attribute(path)
    except AttributeError:
        return False
    return True


class Pass:
    """A pass: calling it leaves its input as it was and returns a new module over the same weights.

    ``exactness`` says what may change in the results: ``exact`` nothing (NaN and signed zeros
    included), ``allclose`` the last bits, ``sqnr`` more, as in quantization."""

    def __init__(self, function: Callable[..., Any], name: str, exactness: str) -> None:
        assert exactness in EXACTNESS, exactness
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name
        self.exactness = exactness

    @property
    def summary(self) -> str:
        """First sentence of the documentation."""
        paragraph = " ".join((self.__doc__ or "").strip().partition("\n\n")[0].split())
        return re.split(r"(?<=[a-z)])[.:;](?: |$)", paragraph)[0]

    def __call__(self, program: Any, **options: Any) -> GraphModule:
        """Run on a GraphModule (a program is traced first). Raises PassError."""
        return run_on_copy(self.function, self.name, as_module(program), options)

    def __repr__(self) -> str:
        return f"<pass {self.name} ({self.exactness}): {self.summary}>"


@overload
def graph_pass(function: Callable[..., Any]) -> Pass: ...
@overload
def graph_pass(
    function: None = None, *, name: str | None = None, exactness: str = "exact"
) -> Callable[[Callable[..., Any]], Pass]: ...
def graph_pass(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    exactness: str = "exact",
) -> Any:
    """Make a pass of a function that edits ``gm`` in place (or returns another module) and register
    it::

        @graph_pass
        def drop_casts(gm):
            \"\"\"Remove casts to the dtype a value has.\"\"\"
            for node in gm.graph.find_nodes(op="call_function", target="cast"):
                ...

    The function gets a copy, so it may edit freely; when it raises, the copy is thrown away."""

    def wrap(function: Callable[..., Any]) -> Pass:
        made = Pass(function, name or function.__name__, exactness)
        PASSES[made.name] = made
        return made

    return wrap if function is None else wrap(function)


def as_module(program: Any) -> GraphModule:
    """A GraphModule itself; a module, a function or a saved file traced (without input types)."""
    if isinstance(program, GraphModule):
        return program
    from fxlite.tracer import symbolic_trace

    return symbolic_trace(program)


def run_on_copy(
    function: Callable[..., Any], name: str, module: GraphModule, options: dict[str, Any]
) -> GraphModule:
    """Run an in-place pass on a copy of ``module`` and recompile. Raises PassError."""
    copy = module.copy()
    copy.__dict__["_ledger"] = ledger(module)
    try:
        result = function(copy, **options)
        made = copy if result is None else result
        if not isinstance(made, GraphModule):
            raise TypeError(f"a pass returns a GraphModule or None, not {type(made).__name__}")
        made._prepare()  # the code is made again when somebody asks for it
    except PassError:
        raise
    except Exception as error:
        raise PassError(_failure(name, error)) from error
    if made is not copy:
        made.__dict__.setdefault("_ledger", copy.__dict__["_ledger"])
    return made


def _failure(name: str, error: Exception) -> str:
    text = f"pass {name} failed, its input is as it was: {type(error).__name__}: {error}"
    node = _node_in_traceback(error.__traceback__)
    if node is None:
        return text
    text += f"\n  at {node.describe()}"
    if node.loc is not None:
        text += f"\n  made at {node.loc}: {node.loc.expression}"
    return text


def _node_in_traceback(traceback: TracebackType | None) -> Node | None:
    """The node the pass was working on: the innermost frame outside the core that holds one."""
    found: Node | None = None
    while traceback is not None:
        frame = traceback.tb_frame
        if not frame.f_globals.get("__name__", "").startswith("fxlite.graph"):
            variables = frame.f_locals
            candidates = [variables.get("node"), *variables.values()]
            here = next((v for v in candidates if isinstance(v, Node) and v.op != "root"), None)
            found = here or found
        traceback = traceback.tb_next
    return found


@dataclass(frozen=True)
class Step:
    """What one pass did: the module after it, node counts, milliseconds."""

    name: str
    module: GraphModule
    before: int
    after: int
    changes: str
    milliseconds: float
    refusals: tuple[Refusal, ...] = ()


class Report:
    """What each pass of a run did; prints as a table. Item ``i`` is the i-th :class:`Step`."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: int) -> Step:
        return self.steps[index]

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table(box=None, header_style="bold", pad_edge=False)
        for heading in ("pass", "nodes", "what changed", "refused", "ms"):
            table.add_column(heading, justify="right" if heading in ("refused", "ms") else "left")
        for step in self.steps:
            count = (
                f"{step.before} → {step.after}" if step.before != step.after else str(step.after)
            )
            refused = str(len(step.refusals)) if step.refusals else ""
            table.add_row(step.name, count, step.changes, refused, f"{step.milliseconds:.1f}")
        return table

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=100, no_color=True)
        with console.capture() as captured:
            console.print(self)
        return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())

    __repr__ = __str__


class PassManager:
    """Runs passes in order: ``PassManager([passes.cse, "dce"])(gm)``.

    Passes are :class:`Pass` objects, their names, or plain functions (which get a copy to edit).
    With ``check`` the graph is linted after each one. ``report`` says what each pass of the last
    run did; ``report[i].module`` is the module after pass i."""

    def __init__(
        self, passes: Iterable[Pass | str | Callable[..., Any]] = (), check: bool = True
    ) -> None:
        self.passes: list[Pass] = [as_pass(p) for p in passes]
        self.check = check
        self.report = Report([])

    def add(self, item: Pass | str | Callable[..., Any]) -> None:
        """Append a pass."""
        self.passes.append(as_pass(item))

    def __call__(self, program: Any) -> GraphModule:
        """Run all passes; the input is left as it was. Raises PassError naming pass, node, line."""
        module = as_module(program)
        self.report = Report([])
        for item in self.passes:
            start = time.perf_counter()
            result = item(module)
            milliseconds = (time.perf_counter() - start) * 1e3
            if self.check:
                try:
                    result.graph.lint()
                except FxliteError as error:
                    raise PassError(f"pass {item.name} left an invalid graph: {error}") from error
            refusals = tuple(ledger(result)[len(ledger(module)) :])
            before, after = module.graph, result.graph
            changed = changes(before, after)
            step = Step(item.name, result, len(before), len(after), changed, milliseconds, refusals)
            self.report.steps.append(step)
            module = result
        return module

    def __repr__(self) -> str:
        return f"PassManager([{', '.join(p.name for p in self.passes)}])"


def as_pass(item: Pass | str | Callable[..., Any]) -> Pass:
    """A pass by name, or a plain function as an unregistered pass. Raises PassError."""
    if isinstance(item, Pass):
        return item
    if isinstance(item, str):
        found = PASSES.get(item)
        if found is None:
            import difflib

            near = difflib.get_close_matches(item, PASSES, 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise PassError(f"there is no pass {item!r}{hint}; known: {', '.join(sorted(PASSES))}")
        return found
    return Pass(item, getattr(item, "__name__", type(item).__name__), "allclose")


def changes(before: Graph, after: Graph) -> str:
    """``batch_norm -3, mul +1``: counts of ops that differ."""
    counts = _count(after)
    counts.subtract(_count(before))
    parts = [f"{op} {count:+d}" for op, count in sorted(counts.items()) if count]
    return ", ".join(parts) or "-"


def _count(graph: Graph) -> Counter[str]:
    return Counter(
        n.target.name if n.op == "call_function" else n.op
        for n in graph.nodes
        if n.op not in ("placeholder", "output")
    )
