"""Kernels as small trees: loops, local variables and stores around scalar expressions.

In: built by :mod:`fxlite.codegen.kernel.schedule`. Out: run in NumPy
(:mod:`fxlite.codegen.program.run`) or printed as C and CUDA. Everything here is frozen; a transform
returns a new tree. ``Kernel.check()`` finds mistakes that would make a printer emit invalid code.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from fxlite.base.errors import CodegenError
from fxlite.base.facade import above
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, Load, Local, MultiIndex
from fxlite.scalar.index import Given, Index, Var
from fxlite.types.dtypes import DType

_SIMD_KINDS = ("simd", "parallel simd", "lanes")
LOOP_KINDS = ("serial", "rolled", "reduce", "independent", "parallel", *_SIMD_KINDS, "transpose", "row")


@dataclass(frozen=True)
class For:
    """``for var in range(0, var.extent, step)``. Kinds: ``parallel``: iterations are independent and may
    run on any thread; ``simd``: independent, and adjacent in memory; ``lanes``: a short loop of constant
    extent over the elements of a local array; ``transpose``: with the one loop in it, copies a square of a
    buffer into a local array, transposed; ``row``: applies a function to all
    elements of a local array; ``independent``: like parallel, but C runs it in order;
    ``reduce``: in any order, because the last statement adds to a total; ``serial``: in order; ``rolled``:
    in order, and not unrolled by a C compiler."""

    var: Var
    body: tuple[Stmt, ...]
    kind: str = "serial"
    step: int = 1


@dataclass(frozen=True)
class Let:
    """A scalar computed once: ``const float name = value``."""

    name: str
    value: Expr


@dataclass(frozen=True)
class Alloc:
    """A local variable (``size`` 0) or a local array of ``size`` elements, set to ``init``; with ``used``
    only so many elements are set, if fewer may be read."""

    name: str
    dtype: DType
    init: Expr
    size: int = 0
    used: Index | None = None


@dataclass(frozen=True)
class Assign:
    """``name[index] = value`` on a local variable or array."""

    target: Local
    value: Expr


@dataclass(frozen=True)
class If:
    """Statements that run if a condition holds."""

    condition: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class Store:
    """``buffer[index] = value``; ``accumulate``: ``+=``."""

    buffer: str
    index: MultiIndex
    value: Expr
    accumulate: bool = False


@dataclass(frozen=True)
class Comment:
    """A comment."""

    text: str


@dataclass(frozen=True)
class Range(For):
    """A loop of a template (:mod:`fxlite.codegen.kernel.builder`) that begins at ``start``, after a pragma
    of its own; ``ctype`` is the type of its variable."""

    start: Index = field(default_factory=lambda: Index.of(0))
    pragma: str = ""
    ctype: str = "int64_t"


@dataclass(frozen=True)
class Text:
    """Lines that a template prints itself: statements or, if there is a ``body``, the head of a block.
    ``declares`` is the name that they declare, if they do nothing else."""

    lines: tuple[str, ...]
    declares: str = ""
    body: tuple[Stmt, ...] | None = None


Stmt: TypeAlias = For | Let | Alloc | Assign | If | Store | Comment | Text


@dataclass(frozen=True)
class Buffer:
    """A tensor parameter of a kernel; the shape is in dims."""

    name: str
    dtype: DType
    shape: MultiIndex
    is_output: bool = False


@dataclass(frozen=True)
class Kernel:
    """A function over buffers. ``dims`` are the named dims that it takes as integers; ``doc`` says what it
    computes and where that comes from; ``work`` is the number of scalar operations (an Index)."""

    name: str
    buffers: tuple[Buffer, ...]
    dims: tuple[str, ...]
    body: tuple[Stmt, ...]
    doc: str = ""
    work: Index = field(default_factory=lambda: Index.of(0))

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        return tuple(b for b in self.buffers if not b.is_output)

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        return tuple(b for b in self.buffers if b.is_output)

    def buffer(self, name: str) -> Buffer:
        """The parameter of that name."""
        for found in self.buffers:
            if found.name == name:
                return found
        raise CodegenError(f"kernel {self.name} has no buffer {name!r}")

    def check(self) -> None:
        """Raise CodegenError for an unknown buffer, a wrong rank, an unbound variable or a local
        used before it is set."""
        _check(self, self.body, frozenset(), set())

    def __str__(self) -> str:
        return above("kernel_text")(self)  # type: ignore[no-any-return]


_locals = itertools.count()


def fresh_local(dtype: DType, prefix: str) -> Local:
    """A local with a new name."""
    return Local(dtype, f"{prefix}{next(_locals)}")


def statements(body: Sequence[Stmt]) -> Iterator[Stmt]:
    """All statements, outer ones first."""
    for statement in body:
        yield statement
        if isinstance(statement, (For, If)):
            yield from statements(statement.body)


def expressions(statement: Stmt) -> tuple[Expr, ...]:
    """The expressions of a statement itself (not those of statements inside it)."""
    if isinstance(statement, Assign):
        return (statement.value, statement.target)
    if isinstance(statement, (Let, Store)):
        return (statement.value,)
    if isinstance(statement, Alloc):
        return (statement.init,)
    if isinstance(statement, If):
        return (statement.condition,)
    return ()


def _check(kernel: Kernel, body: Sequence[Stmt], bound: frozenset[Var], known: set[str]) -> None:
    known = set(known)
    for statement in body:
        for value in expressions(statement):
            _check_expr(kernel, value, bound, known)
        if isinstance(statement, Store):
            _check_access(kernel, statement.buffer, statement.index, bound)
            if not kernel.buffer(statement.buffer).is_output:
                raise CodegenError(f"kernel {kernel.name} writes its input {statement.buffer}")
        elif isinstance(statement, For):
            if statement.kind not in LOOP_KINDS:
                raise CodegenError(f"kernel {kernel.name}: unknown loop kind {statement.kind!r}")
            _check(kernel, statement.body, bound | {statement.var}, known)
        elif isinstance(statement, If):
            _check(kernel, statement.body, bound, known)
        elif isinstance(statement, (Let, Alloc)):
            known.add(statement.name)


def _check_expr(kernel: Kernel, value: Expr, bound: frozenset[Var], known: set[str]) -> None:
    for node in expr.walk(value):
        if isinstance(node, Load):
            _check_access(kernel, node.buffer, node.index, bound)
        elif isinstance(node, Local) and node.name not in known:
            raise CodegenError(f"kernel {kernel.name} uses {node.name} before it exists")
        elif isinstance(node, expr.Reduction):
            raise CodegenError(f"kernel {kernel.name} still holds a reduction")
    unbound = _names(expr.free_variables(value)) - {v.name for v in bound}
    if unbound:
        raise CodegenError(f"kernel {kernel.name} uses {', '.join(sorted(unbound))} outside its loop")


def _names(variables: Iterable[Var]) -> set[str]:
    """The names of variables that a kernel must bind itself."""
    return {v.name for v in variables if not isinstance(v, Given)}


def _check_access(kernel: Kernel, name: str, index: MultiIndex, bound: frozenset[Var]) -> None:
    buffer = kernel.buffer(name)
    if len(index) != len(buffer.shape):
        raise CodegenError(f"kernel {kernel.name}: {name} has rank {len(buffer.shape)} but {len(index)} indices")
    unbound = _names(v for i in index for v in i.variables()) - {v.name for v in bound}
    if unbound:
        raise CodegenError(f"kernel {kernel.name}: index of {name} uses {unbound} outside its loop")
