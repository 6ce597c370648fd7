"""Map a kernel's loops to the grid: a tree becomes the trees of one or more CUDA kernels, which are
printed as CUDA C.

In: a :class:`~fxlite.codegen.kernel.kernel_ir.Kernel` scheduled without lanes. Out:
:class:`DeviceKernel` trees, in which the loops that threads share are :class:`Spread`. There are three
forms:

- *elements*: nested independent loops become one, with an iteration per thread of the grid; each thread
  runs what is left inside (a short or strided reduction, a scan) alone;
- *rows*: the outer loops become one, with an iteration per block; the threads of a block share the loops
  inside, and add what each has reduced (:class:`Combine`);
- *single*: nothing is independent; there is one thread, or one block if there is something to reduce.

Threads only synchronize in Combine, which all threads of a block reach equally often. Expressions and
plain statements are printed as for C; only shared loops, block reductions and the head of a function
differ.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fxlite.base.outside_text import comment
from fxlite.codegen.kernel.builder import smaller
from fxlite.codegen.kernel.kernel_ir import Alloc, Assign, For, If, Kernel, Let, Stmt, Store, statements
from fxlite.codegen.kernel.kernel_ir import expressions as own_expressions
from fxlite.codegen.kernel.loops import divides
from fxlite.codegen.kernel.names import dim_name, spelled
from fxlite.codegen.kernel.printer import CPrinter
from fxlite.codegen.kernel.text import signature
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, Expr, Load, Local, MultiIndex
from fxlite.scalar.index import Index, Value, Var, flatten, product, unflatten
from fxlite.types.dtypes import DType

#: Threads of a block.
THREADS = 256
#: Most blocks of a launch; a block or thread takes several iterations beyond that.
MOST_BLOCKS = 65535
#: Iterations from which a loop is worth the threads of a block; a reduction, which has to be put
#: together again, needs more.
WORTH_BLOCK, WORTH_REDUCING = 32, 128

_INDEPENDENT = frozenset(("parallel", "simd", "parallel simd", "independent"))
_COMBINE = {"add": "sum", "mul": "product", "maximum": "max", "minimum": "min", "or": "max", "and": "min"}


@dataclass(frozen=True)
class Spread(For):
    """A loop whose iterations are divided: ``over`` the threads of the ``grid``, its ``blocks``, or the
    threads of one ``block``. ``parts`` are the nested loops that ``var`` counts as one."""

    over: str = "grid"
    parts: tuple[Var, ...] = ()


@dataclass(frozen=True)
class Combine(Assign):
    """Combines the values that the threads of a block hold in ``target``; every thread gets the total.
    ``kind``: sum, product, max, min."""

    kind: str = "sum"


@dataclass(frozen=True)
class OneThread(If):
    """Statements that one thread of the block runs."""


@dataclass(frozen=True)
class DeviceKernel:
    """One CUDA kernel: its tree, and the numbers of ``blocks`` and ``threads`` for its launch."""

    kernel: Kernel
    blocks: Index
    threads: int


def device_kernels(kernel: Kernel) -> list[DeviceKernel]:
    """The launches that compute a kernel, in order: one, except for a scatter (a copy, then an addition) and
    for an empty result (none)."""
    if not kernel.body:
        return []
    mapping = _Mapping(kernel)
    loops = [s for s in kernel.body if isinstance(s, For)]
    before = [s for s in kernel.body if isinstance(s, Let)]
    separable = len(before) + len(loops) == len(kernel.body)
    if not separable or not any(s.kind in _INDEPENDENT for s in loops):
        return [mapping.single(kernel.name, kernel.body)]
    names = [kernel.name] if len(loops) == 1 else [f"{kernel.name}_{i}" for i in range(len(loops))]
    return [
        mapping.nest(name, before, loop) if loop.kind in _INDEPENDENT else mapping.single(name, [*before, loop])
        for name, loop in zip(names, loops)
    ]


class _Mapping:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.shapes = {b.name: b.shape for b in kernel.buffers}
        self.taken = {spelled(b.name) for b in kernel.buffers} | {spelled(d) for d in kernel.dims}
        for s in statements(kernel.body):
            if isinstance(s, For):
                self.taken.add(s.var.name)
            elif isinstance(s, (Let, Alloc)):
                self.taken.add(s.name)

    # -- the three forms -----------------------------------------------------------------------
    def nest(self, name: str, before: Sequence[Stmt], loop: For) -> DeviceKernel:
        """The kernel of an independent loop, in the form of elements or rows."""
        parts, body = _chain(loop)
        body = [*before, *body]
        extent = product(v.extent for v in parts)
        if self._is_row(parts, body):
            rows = self.cooperative(body)
            spread = self.spread("blocks", "row", parts, rows)
            return self._made(name, spread, extent, _threads(rows))
        spread = self.spread("grid", "element", parts, body)
        blocks = (extent + (THREADS - 1)) // THREADS
        return self._made(name, spread, blocks, THREADS)

    def single(self, name: str, body: Sequence[Stmt]) -> DeviceKernel:
        """The kernel without an independent outer loop: one block for a reduction, otherwise one thread."""
        if any(_is_wide(s) for s in body):
            together = self.cooperative(body)
            return self._made(name, together, Index.of(1), _threads(together))
        return self._made(name, body, Index.of(1), 1)

    def _made(self, name: str, body: Sequence[Stmt], blocks: Index, threads: int) -> DeviceKernel:
        return DeviceKernel(replace(self.kernel, name=name, body=tuple(body)), blocks, threads)

    def _is_row(self, parts: Sequence[Var], body: Sequence[Stmt]) -> bool:
        """True if a block should cooperate on the loops inside the outer ones."""
        loops = [s for s in body if isinstance(s, For)]
        if any(s.kind in _INDEPENDENT for s in loops):
            return any(_is_wide(s) for s in loops)
        wide = [s for s in loops if _is_wide(s, WORTH_REDUCING)]
        outer = product(v.extent for v in parts).constant
        if outer is not None and outer < THREADS // 2 and wide:
            return True
        return any(self._is_adjacent(s, parts[-1]) for s in wide)

    def _is_adjacent(self, loop: For, outer: Var) -> bool:
        """True if the iterations of a reduction read adjacent elements, and those of the surrounding loop do not
        (nor elements a few steps apart, as in a strided convolution)."""
        variables, body = _reduced(loop)
        addresses = [
            flatten(node.index, self.shapes[node.buffer])
            for s in statements(body)
            for value in own_expressions(s)
            for node in expr.walk(value)
            if isinstance(node, Load)
        ]
        inside = any(a.coefficient(variables[-1]) == 1 for a in addresses)
        steps = [a.coefficient(outer) for a in addresses]
        return inside and not any(s is not None and s.constant in range(1, 5) for s in steps)

    # -- statements of a row -------------------------------------------------------------------
    def cooperative(self, body: Sequence[Stmt]) -> list[Stmt]:
        """Statements in the form in which the threads of one block run them together: loops are shared, single
        stores are done by one thread, and every thread does the rest itself."""
        result: list[Stmt] = []
        for s in body:
            if isinstance(s, For) and s.kind in _INDEPENDENT:
                parts, inner = _chain(s)
                result += self.spread("block", "column", parts, inner)
            elif isinstance(s, For) and s.kind == "reduce":
                parts, inner = _reduced(s)
                result += self.spread("block", "position", parts, inner)
                result += [Combine(total, total, kind) for total, kind in _totals(s)]
            elif _stores(s):
                result = _by_one_thread(result, s)
            else:
                result.append(s)
        return result

    def spread(self, over: str, name: str, parts: Sequence[Var], body: Sequence[Stmt]) -> list[Stmt]:
        """The loops ``parts`` as one. Addresses that need no division are rewritten in terms of it; for the
        others the printer computes the parts."""
        if len(parts) == 1:
            return [Spread(parts[0], tuple(body), "parallel", over=over)]
        flat = Var(self._fresh(name), product(v.extent for v in parts))
        inner = _Joined(flat, parts, self.shapes).statements(body)
        return [Spread(flat, inner, "parallel", over=over, parts=tuple(parts))]

    def _fresh(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        return name


def _chain(loop: For) -> tuple[list[Var], list[Stmt]]:
    """Nested independent loops, and the body of the innermost. Statements between them are computed again in
    each iteration, because a thread has no cheaper place for them."""
    parts, between, body = [loop.var], list[Stmt](), list(loop.body)
    while body and isinstance(body[-1], For) and body[-1].kind in _INDEPENDENT:
        inner = body[-1]
        if not all(isinstance(s, Let) for s in body[:-1]) or inner.var.extent.variables():
            break
        parts.append(inner.var)
        between += body[:-1]
        body = list(inner.body)
    return parts, [*between, *body]


def _reduced(loop: For) -> tuple[list[Var], list[Stmt]]:
    """The nested loops of one reduction, and the body of the innermost."""
    parts, between, body = [loop.var], list[Stmt](), list(loop.body)
    while isinstance(body[-1], For) and body[-1].kind == "reduce":
        inner = body[-1]
        if not all(isinstance(s, Let) for s in body[:-1]):
            break
        if inner.var.extent.variables() & set(parts):
            break
        parts.append(inner.var)
        between += body[:-1]
        body = list(inner.body)
    return parts, [*between, *body]


def _totals(loop: For) -> list[tuple[Local, str]]:
    """The accumulators of a reduction, and how the threads' totals are combined."""
    last: Stmt = loop
    inside: tuple[Stmt, ...] = ()
    while isinstance(last, For):
        inside, last = last.body, last.body[-1]
    found = []
    for s in inside:
        if isinstance(s, Assign):
            assert isinstance(s.value, Apply), s
            found.append((s.target, _COMBINE[s.value.function]))
    return found


def _is_wide(s: Stmt, least: int = WORTH_BLOCK) -> bool:
    """True if a loop that threads can share has enough iterations for the threads of a block."""
    if not isinstance(s, For) or s.kind not in {*_INDEPENDENT, "reduce"}:
        return False
    parts, _ = _reduced(s) if s.kind == "reduce" else _chain(s)
    extent = product(v.extent for v in parts).constant
    return extent is None or extent >= least


def _threads(body: Sequence[Stmt]) -> int:
    """Threads of a block: as many as its largest loop keeps busy, in whole warps."""
    extents = [s.var.extent.constant for s in body if isinstance(s, Spread)]
    largest = max((THREADS if e is None else e for e in extents), default=32)
    return min(THREADS, -(-largest // 32) * 32)


def _stores(s: Stmt) -> bool:
    return any(isinstance(inner, Store) for inner in statements([s]))


def _by_one_thread(body: list[Stmt], s: Stmt) -> list[Stmt]:
    if body and isinstance(body[-1], OneThread):
        return [*body[:-1], OneThread(expr.TRUE, (*body[-1].body, s))]
    return [*body, OneThread(expr.TRUE, (s,))]


class _Joined:
    """Rewrites statements in terms of one loop instead of several, if no address then needs a division."""

    def __init__(self, flat: Var, parts: Sequence[Var], shapes: Mapping[str, MultiIndex]) -> None:
        extents = [v.extent for v in parts]
        self.flat, self.parts, self.shapes = flat, parts, shapes
        self.whole = flatten(parts, extents)
        self.env = dict(zip(parts, unflatten(Index.of(flat), extents)))
        self.done: dict[int, Expr] = {}

    def statements(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        return tuple(self.statement(s) for s in body)

    def statement(self, s: Stmt) -> Stmt:
        if isinstance(s, (For, If)):
            changed = replace(s, body=self.statements(s.body))
            if isinstance(changed, If):
                return replace(changed, condition=self.value(changed.condition))
            return changed
        if isinstance(s, (Let, Assign)):
            return replace(s, value=self.value(s.value))
        if isinstance(s, Alloc):
            return replace(s, init=self.value(s.init))
        if isinstance(s, Store):
            return replace(s, index=self.index(s.buffer, s.index), value=self.value(s.value))
        return s

    def value(self, e: Expr) -> Expr:
        return expr.transform(e, self.node, self.done)

    def node(self, e: Expr) -> Expr:
        if isinstance(e, Load):
            guard = None if e.guard is None else self.value(e.guard)
            return Load(e.dtype, e.buffer, self.index(e.buffer, e.index), guard)
        return e

    def index(self, buffer: str, index: MultiIndex) -> MultiIndex:
        values = {a: Value(self.value(a.expr)) for i in index for a in i.atoms() if isinstance(a, Value)}
        index = tuple(i.substitute(values) for i in index) if values else index
        address = flatten(index, self.shapes[buffer])
        factor = address.coefficient(self.parts[-1])
        if factor is not None and factor.constant != 0:  # factor * flat + rest?
            rest = address - factor * self.whole
            if not rest.atoms().intersection(self.parts):
                return self._linear(index, factor * self.flat + rest)
        address = address.substitute(self.env)
        return index if divides(address, self.flat) else self._linear(index, address)

    def _linear(self, index: MultiIndex, address: Index) -> MultiIndex:
        """A multi-index that consists of an address."""
        return (*(Index.of(0) for _ in index[1:]), address) if index else index


# -- printed as CUDA C -----------------------------------------------------------------------------
NO_BYTES = Index.of(0)

#: Where a shared loop starts, and by how much it steps.
_SHARES = {
    "grid": ("fx_thread_index()", "fx_thread_count()"),
    "blocks": ("blockIdx.x", "gridDim.x"),
    "block": ("threadIdx.x", "blockDim.x"),
}


@dataclass(frozen=True)
class KernelText:
    """A printed kernel and its launch: the names of the buffers and dims that it takes, blocks along x, y and
    z, and threads of a block. Without blocks there is nothing to compute. ``sizes`` maps names in the grid to
    their values; ``scratch`` is the number of bytes of its argument ``workspace``."""

    name: str
    text: str
    arguments: tuple[str, ...]
    grid: tuple[Index, Index, Index]
    threads: int
    sizes: tuple[tuple[str, Index], ...] = ()
    scratch: Index = NO_BYTES


class CudaPrinter(CPrinter):
    """Prints one kernel as CUDA C."""

    restrict = "__restrict__"

    def register_type(self, dtype: DType) -> str:
        return dtype.cuda_name if dtype.is_complex else dtype.c_name

    def statement(self, s: Stmt, depth: int) -> list[str]:
        pad = "    " * depth
        if isinstance(s, Combine):
            return [f"{pad}{s.target.name} = fx_block_{s.kind}({s.target.name});"]
        if isinstance(s, OneThread):
            lines = self.block(s.body, depth + 1)
            if len(lines) == 1:
                return [f"{pad}if (threadIdx.x == 0) {lines[0].strip()}"]
            return [f"{pad}if (threadIdx.x == 0) {{", *lines, f"{pad}}}"]
        return super().statement(s, depth)

    def loop(self, s: For, depth: int) -> list[str]:
        if not isinstance(s, Spread):
            return super().loop(s, depth)
        pad, name = "    " * depth, s.var.name
        start, step = _SHARES[s.over]
        body = self.block(s.body, depth + 1)
        text = "\n".join(body)
        positions = unflatten(Index.of(s.var), [v.extent for v in s.parts])
        needed = [
            f"{pad}    const int64_t {v.name} = {self.bare(position)};"
            for v, position in zip(s.parts, positions)
            if re.search(rf"\b{v.name}\b", text)
        ]
        extent = self.index(s.var.extent)
        head = f"{pad}for (int64_t {name} = {start}; {name} < {extent}; {name} += {step}) {{"
        return [head, *needed, *body, f"{pad}}}"]

    def pragma(self, s: For) -> list[str]:
        return []

    def device_function(self, device: DeviceKernel) -> KernelText:
        """The kernel's text; unused parameters are left out."""
        kernel = device.kernel
        body = self.block(kernel.body, 1)
        words = set(re.findall(r"\w+", "\n".join(body)))
        parameters = [
            (f"{'' if b.is_output else 'const '}{b.dtype.cuda_name} *{self.restrict} {b.name}", b.name)
            for b in kernel.buffers
        ]
        parameters += [(f"int64_t {dim_name(d)}", dim_name(d)) for d in kernel.dims]
        parameters.append(("fx_error *error", "error"))
        used = [(text, name) for text, name in parameters if name in words]
        doc, texts = f"{kernel.doc}\n{self.launch_text(device)}", [text for text, _ in used]
        text = kernel_text(kernel.name, doc, texts, device.threads, body)
        grid = smaller(device.blocks, MOST_BLOCKS), Index.of(1), Index.of(1)
        arguments = tuple(name for _, name in used)
        return KernelText(kernel.name, text, arguments, grid, device.threads)

    def launch_text(self, device: DeviceKernel) -> str:
        """How the kernel is launched, for the reader."""
        threads = device.threads
        kind = next((s.over for s in device.kernel.body if isinstance(s, Spread)), "")
        if kind == "grid":
            return f"One thread per element, {threads} in a block."
        if kind == "blocks":
            return f"One block of {threads} threads for each of {self.bare(device.blocks)} rows."
        return f"{'One thread' if threads == 1 else f'One block of {threads} threads'}."


def kernel_text(name: str, doc: str, parameters: Sequence[str], threads: int, body: Sequence[str]) -> str:
    """A kernel preceded by a comment."""
    head = signature(name, parameters, f'extern "C" __global__ void __launch_bounds__({threads})')
    if len(head[0]) > 100:
        head[:1] = head[0].rsplit(" ", 1)
    return "\n".join([line_comment(doc), *head, *body, "}"])


def line_comment(text: str) -> str:
    """Text as comment lines."""
    lines = [p for line in text.splitlines() for p in textwrap.wrap(comment(line), 93)]
    return "\n".join(f"// {line}" for line in lines)
