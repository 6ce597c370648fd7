"""Routines on the device: the tiles that C calls for a matrix, one thread for each.

In: a group that is one op of :data:`ROUTINES`. Out: its kernel, and how much scratch its threads
need. There are as many threads as matrices, up to :data:`MOST_THREADS`.
"""

from __future__ import annotations

from fxlite.codegen.c.render import routine_template as routines
from fxlite.codegen.c.tiles.library import definitions
from fxlite.codegen.cuda.printer import KernelText, kernel_text
from fxlite.codegen.kernel.builder import Body, Pointer, bare, divide_up, round_up, smaller, symbol
from fxlite.codegen.kernel.lower import buffer_name
from fxlite.codegen.kernel.names import dim_name
from fxlite.codegen.kernel.schedule import document
from fxlite.graph.graph import Node
from fxlite.ops.numeric import orthogonal
from fxlite.passes.group import Group
from fxlite.scalar.index import Index
from fxlite.types import shapes

ROUTINES = {orthogonal.qr_rows: routines.QR, orthogonal.eigh_rows: routines.EIGH, orthogonal.svd_rows: routines.SVD}
TILES = definitions("numeric/orthogonal")
"""What their kernels call."""

THREADS, MOST_THREADS = 32, 4096


def is_routine(node: Node) -> bool:
    """True for what these kernels compute."""
    return node.target in ROUTINES and routines.claims_matrices(node)


def render_routine(group: Group, name: str) -> KernelText:
    """The kernel around the tile."""
    node = group.root
    routine = ROUTINES[node.target]
    known = routine.sizes(node)
    sizes = {n: Index.of(d) for n, d in known.items()}
    count = sizes.pop("items")
    assert routine.scratch is not None
    share = round_up(routine.scratch(sizes, node.type.dtype.itemsize), 64)
    kind, x, y = node.type.dtype.cuda_name, buffer_name(node.args[0]), buffer_name(node)
    body = Body()
    with body.block(f"for (int64_t item = fx_thread_index(); item < {bare(count)}; item += fx_thread_count())"):
        at = Pointer("workspace") + symbol("thread") * share
        body.put("const int64_t thread = fx_thread_index();")
        body.put(f"{kind} *const memory = ({kind} *)({at});")
        body.put(f"{routine.call(node, sizes, symbol('item'), '1', 'memory')};")
    dims = sorted({d for size in known.values() for d in shapes.names(size)})
    parameters = [f"const {kind} *__restrict__ x", f"{kind} *__restrict__ y"]
    parameters += [*(f"int64_t {dim_name(d)}" for d in dims), "char *workspace"]
    blocks = smaller(divide_up(count, THREADS), MOST_THREADS // THREADS)
    text = kernel_text(
        name, f"{document(group)}\nOne thread for each matrix.", parameters, THREADS, str(body).splitlines()
    )
    arguments = (x, y, *map(dim_name, dims), "workspace")
    return KernelText(
        name, text, arguments, (blocks, Index.of(1), Index.of(1)), THREADS, scratch=blocks * THREADS * share
    )
