"""Back ends: ways to run a program, each registered under a name.

Everything about a back end is in one :class:`Backend`. :func:`fxlite.compile`, the command line,
profiles and reports ask this object; none of them mentions a back end by name. docs/guides/backend.md
shows how to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.checked import public_names
from fxlite.base.errors import ArgumentError, expect
from fxlite.base.facade import above
from fxlite.base.progress import progress

if TYPE_CHECKING:
    from pathlib import Path

    from fxlite.graph.graph import Node
    from fxlite.graph.graph_module import GraphModule
    from fxlite.types.shapes import Dim

#: A function that is called with the name of a step of the work. The step runs inside the context that it
#: returns; texts to print about it are appended to the list that the context gives.
Stage = Callable[[str], AbstractContextManager[list[str]]]


@contextmanager
def silent(step: str) -> Iterator[list[str]]:
    """A stage that prints nothing. On a terminal, the step is shown while it runs (:mod:`fxlite.base.progress`)."""
    with progress(step):
        yield []


@dataclass(frozen=True)
class KernelInfo:
    """One kernel of a compiled function.

    In order: the nodes of the optimized graph that it computes, the one whose value it stores, the
    contraction that a template computes (if any), what the kernel reads, the operand whose memory the
    result overwrites (if any), and, where templates exist for such a computation, whether one is used
    and, if not, why. ``at_most`` gives upper bounds of the sizes that depend on values, in terms of
    the named dims of a call."""

    name: str
    nodes: tuple[Node, ...]
    root: Node
    anchor: Node | None
    reads: tuple[Node, ...]
    over: Node | None = None
    how: str = ""
    at_most: Mapping[str, Dim] = field(default_factory=dict)


@dataclass(frozen=True)
class Option:
    """An option of a back end. :func:`compile` takes it by name, and so does the command line if the
    option has a ``metavar``.

    ``type`` is bool, a tuple of the allowed words, or another class. ``check`` returns the value to
    use, or raises if it does not fit."""

    name: str
    type: Any
    default: Any
    help: str
    metavar: str | None = None
    check: Callable[[Any], Any] | None = None

    def checked(self, value: Any) -> Any:
        """Return the value after checking it. Raises ArgumentError if the option cannot have it."""
        if value is self.default:
            return value
        if self.check is not None:
            return self.check(value)
        if self.type is bool:
            expect(value, (bool, np.bool_), f"{self.name}=")
            return bool(value)
        if isinstance(self.type, tuple) and value not in self.type:
            *most, last = map(repr, self.type)
            raise ArgumentError(f"{self.name} must be {', '.join(most)} or {last}, not {value!r}")
        return value


@dataclass(frozen=True)
class Case:
    """Inputs by name, the sizes of the named dims, and a note on where the inputs come from.
    ``expected`` is the program's result if it is known."""

    dims: Mapping[str, int]
    inputs: Mapping[str, np.ndarray[Any, Any]]
    is_random: bool = True
    expected: Any = None

    @property
    def label(self) -> str:
        """``B=4, T=16``; ``as given`` for a model without named dims."""
        return ", ".join(f"{name}={size}" for name, size in self.dims.items()) or "fixed size"

    def __repr__(self) -> str:
        shown = ", ".join(f"{n}: {a.dtype}{list(a.shape)}" for n, a in self.inputs.items())
        return f"Case({self.label}; {shown})"


def described(function: Any) -> str:
    """The ``repr`` of a compiled function: ``<CFunction net(x: f32[B,3]) -> f32[B,2]>``."""
    graph = function.graph_module.graph
    inputs = ", ".join(f"{p.target}: {p.type}" for p in graph.placeholders)
    kind, name = type(function).__name__, function.graph_module.name
    return f"<{kind} {name}({inputs}) -> {graph.output_node().type}>"


class Backend:
    """A way to run a program. Derive from it, and give an instance to :func:`register_backend`.

    ``name`` is what users write, ``language`` what texts for people call it. ``part`` is the unit that
    runs in sequence: "kernel", or "node" if Python runs the graph as it is. Only :meth:`compile` has
    to be implemented."""

    name: str
    language: str
    options: Sequence[Option] = ()
    part: str = "kernel"

    def __repr__(self) -> str:
        return f"<back end {self.name!r}: {self.language}>"

    def compile(self, module: GraphModule, stage: Stage = silent, **options: Any) -> Any:
        """Return a callable that takes the module's arguments.

        It has the attributes ``graph_module``, ``optimized`` (the graph that it runs), ``sources``
        (file name -> text) and ``save(folder, force=False)``. ``options`` holds those options of
        :attr:`options` that differ from their defaults. Each step of the work runs inside
        ``stage(name)``.

        Kernels of a back end with an option ``profile`` can be timed. Its callables also have
        ``threads``, ``kernels`` (a sequence of :class:`KernelInfo`), ``run_flat``, ``workspace_bytes``
        and, if compiled with ``profile=True``, ``kernel_ticks``."""
        raise NotImplementedError(f"the back end {self.name!r} does not say how it compiles")

    def save(self, function: Any, folder: Path, cases: Sequence[Case]) -> Mapping[str, Any]:
        """Write the files of ``fxlite compile`` into an existing folder, with ``cases`` to test them;
        returns the entries of the back end for the manifest. The command itself adds Python source."""
        function.save(folder / self.name)
        return {}

    def require(self) -> None:
        """Raise the error that :meth:`compile` would raise if this machine lacks what it needs."""

    def describe(self) -> Mapping[str, str]:
        """What this machine offers to the back end (compiler, device), for ``fxlite info``."""
        return {}

    def emit(self, optimized: GraphModule) -> Any:
        """The program for an optimized graph, emitted but not built, for reports; None if the back end
        emits no source."""
        return None

    @property
    def runner(self) -> str:
        """What does the computing, in words: NumPy, or code in the back end's language."""
        return "NumPy" if self.part == "node" else self.language

    @property
    def is_measured(self) -> bool:
        """Whether each kernel or node can be timed."""
        return self.part == "node" or any(option.name == "profile" for option in self.options)

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options in ``given`` that differ from their defaults. Raises ArgumentError for a value
        that does not fit and for an option that this back end does not have."""
        own = {option.name: option for option in self.options}
        chosen = {}
        for name, value in given.items():
            option = own.get(name) or declared_options()[name][0][1]
            found = option.checked(value)
            if type(found) is type(option.default) and found == option.default:
                continue
            if name not in own:
                raise ArgumentError(self._lacks(option))
            chosen[name] = found
        return chosen

    def _lacks(self, option: Option) -> str:
        """The message names the option as neither Python nor a command line writes it, since both have it."""
        names = [backend.name for backend, _ in declared_options()[option.name]]
        ends = f"{_listed(names, 'and')} back end{'s have' if len(names) > 1 else ' has'} it"
        return f"the back end {self.name!r} has no option {option.name}; the {ends}"


#: The back end that is used if none is named.
DEFAULT = "c"
_REGISTERED: dict[str, Backend] = {}


def register_backend(backend: Backend) -> Backend:
    """Make a back end available by its name to :func:`compile`, the command line, profiles and
    reports. ``compile(model, name="f32[B]")`` then takes the names of its options as options, not as
    inputs."""
    expect(backend, Backend, "a registered back end", "give an instance of a class of your own")
    _REGISTERED[backend.name] = backend
    return backend


def backends() -> tuple[Backend, ...]:
    """All back ends: the built-in ones and the registered ones. A registered back end replaces one of
    the same name."""
    built_in = {backend.name: backend for backend in above("built_in_backends")()}
    return tuple((built_in | _REGISTERED).values())


def find_backend(name: str) -> Backend:
    """The back end with this name. Raises ArgumentError, which lists the known names."""
    known = {backend.name: backend for backend in backends()}
    if not isinstance(name, str) or name not in known:
        there = ", ".join(sorted(known))
        raise ArgumentError(f"there is no back end {name!r}; choose one of {there}")
    return known[name]


def find_measured(name: str) -> Backend:
    """The back end with this name, whose kernels or nodes can be timed. Raises ArgumentError if they cannot, and
    what :func:`find_backend` raises."""
    found = find_backend(name)
    if not found.is_measured:
        able = _listed([repr(backend.name) for backend in backends() if backend.is_measured], "or")
        raise ArgumentError(f"the {found.part}s of {name!r} cannot be timed; choose the back end {able}")
    return found


def _listed(names: Sequence[str], word: str) -> str:
    return f" {word} ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def declared_options() -> dict[str, list[tuple[Backend, Option]]]:
    """The options of all back ends by name, with the back ends that have them."""
    found: dict[str, list[tuple[Backend, Option]]] = {}
    for backend in backends():
        for option in backend.options:
            found.setdefault(option.name, []).append((backend, option))
    return found


def take_options(values: dict[str, Any]) -> dict[str, Any]:
    """Remove the entries that are options of any back end from ``values``, and return them."""
    return {name: values.pop(name) for name in declared_options() if name in values}


def __dir__() -> list[str]:
    return public_names(globals())
