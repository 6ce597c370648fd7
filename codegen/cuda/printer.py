"""Print the kernels of :mod:`fxlite.codegen.cuda.schedule` as CUDA C.

In: a :class:`~fxlite.codegen.cuda.schedule.DeviceKernel`. Out: the text of an ``extern "C"
__global__`` function. Expressions and plain statements are printed as for C; only shared loops,
block reductions and the head of a function differ.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from fxlite.base.outside_text import comment
from fxlite.codegen.cuda.schedule import MOST_BLOCKS, Combine, DeviceKernel, OneThread, Spread
from fxlite.codegen.kernel.builder import smaller
from fxlite.codegen.kernel.kernel_ir import For, Stmt
from fxlite.codegen.kernel.names import dim_name
from fxlite.codegen.kernel.printer import CPrinter
from fxlite.codegen.kernel.text import signature
from fxlite.scalar.index import Index, unflatten
from fxlite.types.dtypes import DType

NO_BYTES = Index.of(0)

#: Where a shared loop starts, and by how much it steps.
_SHARES = {
    "grid": ("fx_thread_index()", "fx_thread_count()"),
    "blocks": ("blockIdx.x", "gridDim.x"),
    "block": ("threadIdx.x", "blockDim.x"),
}


@dataclass(frozen=True)
class KernelText:
    """A printed kernel and its launch: the names of the buffers and dims that it takes, blocks
    along x, y and z, and threads of a block. Without blocks there is nothing to compute. ``sizes``
    are names in the grid and what they stand for; ``scratch`` are the bytes of its argument
    ``workspace``."""

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
        """The kernel's text; parameters that it does not use are left out."""
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
    """A kernel behind a comment."""
    head = signature(name, parameters, f'extern "C" __global__ void __launch_bounds__({threads})')
    if len(head[0]) > 100:
        head[:1] = head[0].rsplit(" ", 1)
    return "\n".join([line_comment(doc), *head, *body, "}"])


def line_comment(text: str) -> str:
    """Text as comment lines."""
    lines = [p for line in text.splitlines() for p in textwrap.wrap(comment(line), 93)]
    return "\n".join(f"// {line}" for line in lines)
