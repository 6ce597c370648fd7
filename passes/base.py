"""What a pass is: a named function from GraphModule to GraphModule, part of fxlite or installed by
another distribution.

In: a function that edits a graph in place. Out: a :class:`Pass`, which gives that function a copy
and runs it as one transaction: when it raises, everything is taken back, and the error says which
pass, node and line of the user's program were at fault.

Other distributions offer passes under the entry points ``fxlite.passes``. Listing them imports
nothing; only a pass that is asked for by name is imported. It is a :class:`Pass`, or a function of
a GraphModule::

    [project.entry-points."fxlite.passes"]
    fold_scales = "acme_passes.folding:fold_scales"
"""

from __future__ import annotations

import abc
import contextlib
import copy
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

import numpy as np

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, FxliteError, did_you_mean, expect
from fxlite.base.location import described, is_own_file
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule, passes_of, set_passes
from fxlite.passes.derived import derivations, set_derivations, unique_attribute
from fxlite.passes.inside import edit_bodies, say_not_inside
from fxlite.passes.ledger import copy_with_ledger, note_origins, note_origins_in, refusals, refuse, set_ledger
from fxlite.types.agreement import Exactness, as_exactness

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "fxlite.passes"


class InstalledPassError(FxliteError, RuntimeError):
    """A pass of another distribution cannot be used. The message names the distribution."""


@dataclass(frozen=True)
class InstalledPass:
    """A pass that a distribution offers. ``where`` is its entry point: ``module:name``."""

    name: str
    distribution: str
    version: str
    where: str
    entry: EntryPoint

    @property
    def full_name(self) -> str:
        """The name that finds it whatever else is installed: ``acme-passes:fold_scales``."""
        return f"{self.distribution}:{self.name}"

    def load(self) -> Any:
        """Import and return the object at the entry point. Raises InstalledPassError."""
        try:
            found = self.entry.load()
        except (Exception, SystemExit) as error:
            raise InstalledPassError(f"{self} cannot be imported: {described(error)}") from error
        if isinstance(found, type) or not callable(found):
            raise InstalledPassError(
                f"{self} is not a pass: {self.where} is a {type(found).__name__}, not a function of a GraphModule"
            )
        return found

    def __str__(self) -> str:
        return f"the pass {self.name} of {self.distribution} {self.version} ({self.where})"


def installed_passes() -> list[InstalledPass]:
    """All installed passes, sorted by name and distribution; nothing is imported."""
    from importlib.metadata import entry_points  # imports email and sockets

    found = [
        InstalledPass(e.name, getattr(e.dist, "name", "?"), getattr(e.dist, "version", "?"), e.value, e)
        for e in entry_points(group=GROUP)
    ]
    return sorted(found, key=lambda p: (p.name, p.distribution))


def installed_pass(name: str) -> Any:
    """The object that one distribution offers under ``name`` or ``DISTRIBUTION:NAME``, or None if
    none does. Raises InstalledPassError if several offer it, or if it cannot be imported."""
    found = [p for p in installed_passes() if name in (p.name, p.full_name)]
    if len(found) > 1:
        listed = " and ".join(f"{p.full_name} ({p.version})" for p in found)
        raise InstalledPassError(f"several distributions have a pass {name}: {listed}; write one of these")
    return found[0].load() if found else None


# -- defining passes -------------------------------------------------------------------------------
__all__ = ["PASSES", "Example", "Pass", "PassBase", "PassError", "PassResult", "as_module", "as_pass", "graph_pass"]
__all__ += ["refuse", "run_in_place", "unique_attribute"]

#: All passes by name, for the command line and for PassManager(["cse", "dce"]).
PASSES: dict[str, Pass] = {}


class PassResult(NamedTuple):
    """What a :class:`PassBase` returns: the module, and whether it was changed."""

    graph_module: GraphModule
    modified: bool


class PassBase(abc.ABC):
    """A pass as a class, as in torch.fx: override ``call``, which edits the module it is given, and
    optionally ``requires`` and ``ensures``, which raise if a condition on the module does not hold
    before or after the pass. A :class:`PassManager` runs it like any other pass, on a copy and with
    checks."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        """Run ``requires``, ``call`` and ``ensures`` on the module itself, in place."""
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module if result is None else result.graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Edit the module in place; subclasses implement this."""

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027 - nothing by default
        """Raise if the module does not fulfil the precondition of the pass; does nothing by default."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027 - nothing by default
        """Raise if the module does not fulfil the postcondition of the pass; does nothing by default."""


class PassError(FxliteError, RuntimeError):
    """A pass failed. The message names the pass, the node it looked at and the user's line."""


@dataclass(frozen=True)
class Example:
    """A small program with its input types and options of the pass. The pass must change it (an
    example) or leave it as it is (a counterexample). ``about`` says in one line what it shows.

    The program is a function, a Module class, or a function without parameters that returns a
    GraphModule."""

    program: Callable[..., Any]
    inputs: dict[str, Any]
    options: dict[str, Any]
    about: str = ""

    def trace(self) -> GraphModule:
        """Trace the program in inference mode; a GraphModule that the program returns is used as it is."""
        from fxlite.nn.module import Module
        from fxlite.tracing.symbolic_trace import symbolic_trace

        program: Any = self.program
        if isinstance(program, type):
            program = program()
        elif not inspect.signature(program).parameters:
            return as_module(program())
        if isinstance(program, Module):
            program.eval()
        made = symbolic_trace(program, inputs=self.inputs)
        made.eval()
        return made


class Pass:
    """A pass: calling it leaves its input as it was and returns a new module over the same weights.

    ``exactness`` says how far results may change: ``exact`` not at all (NaN and signed zeros
    included), ``allclose`` in the last bits, ``sqnr`` by bounded noise, as in quantization, and
    ``changes`` without a bound, as in pruning; see :class:`~fxlite.types.agreement.Exactness`.
    ``examples`` and ``counterexamples`` show where the pass fires and where it must not; they run as
    tests and are drawn in the gallery of passes."""

    exactness: Exactness

    def __init__(self, function: Callable[..., Any], name: str, exactness: Exactness | str) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name
        self.exactness = as_exactness(exactness)
        #: Whether it does to the bodies of loops and conditions what it does to the graph; None: it goes there itself.
        self.inside: bool | None = True
        self.examples: list[Example] = []
        self.counterexamples: list[Example] = []

    @property
    def summary(self) -> str:
        """The first sentence of the documentation."""
        paragraph = " ".join((self.__doc__ or "").strip().partition("\n\n")[0].split())
        return re.split(r"(?<=[a-z)])[.:;](?: |$)", paragraph)[0]

    def example(self, program: Any, about: str = "", options: dict[str, Any] | None = None, **inputs: Any) -> None:
        """Add a program that the pass changes, with its input types: see :class:`Example`."""
        self.examples.append(Example(program, inputs, options or {}, about))

    def counterexample(
        self, program: Any, about: str = "", options: dict[str, Any] | None = None, **inputs: Any
    ) -> None:
        """Add a program that the pass must leave as it is; ``about`` says why."""
        self.counterexamples.append(Example(program, inputs, options or {}, about))

    def with_options(self, **options: Any) -> Self:
        """A copy of the pass with these options set, to put into a PassManager:
        ``decompose.with_options(keep={"softmax"})``. Raises ArgumentError for an option that the
        pass does not have."""
        _, *known = inspect.signature(self.function).parameters.values()
        for name in options:
            if name not in {p.name for p in known} and all(p.kind != p.VAR_KEYWORD for p in known):
                listed = ", ".join(p.name for p in known) or "none"
                raise ArgumentError(f"{self.name} has no option {name!r}; its options: {listed}")
        made = copy.copy(self)
        made.function = functools.partial(self.function, **options)
        return made

    def with_exactness(self, exactness: Exactness | str) -> Self:
        """A copy of the pass with another promise, to put into a PassManager:
        ``prune_channels.with_exactness(changes(accuracy, drop=0.01))``."""
        made = copy.copy(self)
        made.exactness = as_exactness(exactness)
        return made

    def __call__(self, program: Any, **options: Any) -> GraphModule:
        """Run on a copy of a GraphModule; any other program is traced first. Raises PassError."""
        module = as_module(program)
        edited = copy_with_ledger(module)
        set_derivations(edited, derivations(module))
        return run_in_place(self, edited, options)

    def __repr__(self) -> str:
        return f"<pass {self.name} ({self.exactness}): {self.summary}>"


@overload
def graph_pass(function: Callable[..., Any]) -> Pass: ...
@overload
def graph_pass(
    function: None = None, *, name: str | None = None, exactness: Exactness | str = "exact", inside: bool | None = True
) -> Callable[[Callable[..., Any]], Pass]: ...
@checked
def graph_pass(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    exactness: Exactness | str = "exact",
    inside: bool | None = True,
) -> Any:
    """Make a pass of a function that edits ``gm`` in place (or returns another module) and register
    it::

        @graph_pass
        def drop_casts(gm):
            \"\"\"Remove casts to the dtype a value has.\"\"\"
            for node in gm.graph.find_nodes(op="call_function", target="cast"):
                ...

    The function gets a copy, so it may edit freely; when it raises, the copy is thrown away. By
    default it is also called for the bodies of loops and conditions, each as a module of its own in
    which weights are inputs. With ``inside=False`` it is not, which the ledger notes; with
    ``inside=None`` the function visits the bodies itself."""

    def wrap(function: Callable[..., Any]) -> Pass:
        made = Pass(function, name or function.__name__, exactness)
        made.inside = inside
        enter(made)
        return made

    return wrap if function is None else wrap(function)


def enter(item: Pass) -> None:
    """Register a pass in :data:`PASSES`, replacing one of the same name. Raises PassError for the name
    of a pass that comes with fxlite."""
    expect(item.name, str, "the name of a pass")
    known = PASSES.get(item.name)
    if known is not None and is_own_file(_file_of(known)) and not is_own_file(_file_of(item)):
        raise PassError(f'{item.name} is the name of a pass of fxlite; give yours another one: name="..."')
    PASSES[item.name] = item


def _file_of(item: Pass) -> str:
    function = getattr(item, "program", item.function)
    code = getattr(function, "__code__", None)
    return code.co_filename if code is not None else ""


def as_module(program: Any) -> GraphModule:
    """A GraphModule as it is; a module, a function or a saved file as a GraphModule, without input types."""
    if isinstance(program, GraphModule):
        return program
    from fxlite.tracing.symbolic_trace import symbolic_trace

    return symbolic_trace(program)


def as_pass(item: Pass | str | Callable[..., Any]) -> Pass:
    """Look up a pass by name among those registered or installed (:mod:`fxlite.passes.base`), or
    wrap a plain function as an unregistered pass. Raises PassError if there is none of that name or
    it cannot be imported."""
    if isinstance(item, Pass):
        return item
    if isinstance(item, str):
        known = PASSES.get(item)
        if known is not None:
            return known
        try:
            found = installed_pass(item)
        except InstalledPassError as error:
            raise PassError(str(error)) from error
        if found is None:
            names = sorted({*PASSES, *(p.name for p in installed_passes())})
            hint = did_you_mean(item, names) or f"; known: {', '.join(names)}"
            raise PassError(f"there is no pass {item!r}{hint}")
        return found if isinstance(found, Pass) else Pass(found, item.split(":")[-1], "allclose")
    if not callable(item):
        raise PassError(f"a pass is a name or a function of a GraphModule, not {item!r}")
    return Pass(item, getattr(item, "__name__", type(item).__name__), "allclose")


def run_in_place(
    item: Pass, module: GraphModule, options: dict[str, Any], check: Callable[[GraphModule], None] | None = None
) -> GraphModule:
    """Run a pass on ``module`` itself as one transaction, so that ``module.undo()`` reverts it.
    Returns the module, or another one if the pass returned that. ``check`` is called with the
    result; when it or the pass raises, graph, weights and ledger are restored. Raises PassError."""
    graph, entries, derived = module.graph, refusals(module), derivations(module)
    try:
        with graph.transaction(item.name):
            position = len(graph.journal.records)
            with read_only_weights(module):
                if item.inside and graph._store.n_controls:
                    edit_bodies(module, lambda body: item.function(body, **options))
                elif graph._store.n_controls and item.inside is False:
                    say_not_inside(module, item.name)
                result = item.function(module, **options)
            if module.graph is graph and len(graph.journal.records) > position:
                note_origins(item.name, graph, position)
            if isinstance(result, PassResult):
                result = result.graph_module
            made = module if result is None else result
            if not isinstance(made, GraphModule):
                raise TypeError(f"a pass returns a GraphModule or None, not {type(made).__name__}")
            if made.graph is not graph:
                note_origins_in(item.name, made.graph, graph)
            if check is not None:
                check(made)
            set_passes(made, [*passes_of(module), item.name])
    except BaseException as error:
        set_ledger(module, entries)
        set_derivations(module, derived)
        if module.graph is not graph:
            module.graph = graph
        if isinstance(error, PassError) or not isinstance(error, Exception):
            raise
        raise PassError(_failure(item.name, error, graph)) from error
    if made is not module and "_ledger" not in made.__dict__:
        set_ledger(made, refusals(module))
    if made is not module and "_derivations" not in made.__dict__:
        set_derivations(made, derivations(module))
    return made


@contextlib.contextmanager
def read_only_weights(gm: GraphModule) -> Iterator[None]:
    """While this context is active, NumPy refuses (ValueError) to write into the parameters and
    buffers that ``gm`` has on entry: a pass works on a copy of the graph over the *same* arrays,
    which belong to the program it was given. Arrays that replace them are writable."""
    locked: list[np.ndarray[Any, Any]] = []
    for module in gm.modules():
        for group in (module._parameters, module._buffers):
            locked += [a for a in group.values() if isinstance(a, np.ndarray) and a.flags.writeable]
    for array in locked:
        array.flags.writeable = False
    try:
        yield
    finally:
        while locked:  # a view cannot be made writable again before the array it views
            left = []
            for array in locked:
                try:
                    array.flags.writeable = True
                except ValueError:
                    left.append(array)
            locked = left if len(left) < len(locked) else []


def _failure(name: str, error: Exception, graph: Graph) -> str:
    text = f"pass {name} failed, its input is as it was: {type(error).__name__}: {error}"
    for note in getattr(error, "__notes__", ()):
        text += f"\n  {note}"
    node = _node_in_traceback(error.__traceback__, graph)
    if node is None:
        return text
    text += f"\n  at {node.describe()}"
    if node.loc is not None:
        expression = f": {node.loc.expression}" if node.loc.expression else ""
        text += f"\n  made at {node.loc}{expression}"
    return text


def _node_in_traceback(traceback: TracebackType | None, graph: Graph) -> Node | None:
    """The node of ``graph`` that the pass was working on: the one held by the innermost frame
    outside the core that holds one."""
    found: Node | None = None
    while traceback is not None:
        frame = traceback.tb_frame
        if not frame.f_globals.get("__name__", "").startswith("fxlite.graph."):
            variables = frame.f_locals
            candidates = [variables.get("node"), *variables.values()]
            nodes = (v for v in candidates if isinstance(v, Node) and v.op != "root")
            here = next((v for v in nodes if v.graph is graph), None)
            found = here or found
        traceback = traceback.tb_next
    return found
