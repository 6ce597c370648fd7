"""Match discrete Fourier transforms to their template (`tiles/numeric/fourier.h`).

In and out as in :mod:`fxlite.codegen.c.templates`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.codegen.c.render.template_parts import TemplateFunction
from fxlite.codegen.c.weights import Array, PackedWeight
from fxlite.codegen.kernel.builder import bare
from fxlite.codegen.kernel.lower import buffer_name
from fxlite.codegen.kernel.names import derived
from fxlite.codegen.kernel.schedule import document
from fxlite.codegen.kernel.text import comment, signature, wrap
from fxlite.graph.graph import Node
from fxlite.ops.numeric.fourier import roots_of_unity
from fxlite.passes.group import Group
from fxlite.scalar.index import Index, product


def claims_fourier(node: Node) -> bool:
    """True for a transform of two points or more."""
    return 1 < int(node.type.shape[-1]) <= 2**26


def radices(size: int) -> list[int]:
    """The radices of the passes: fours first, whose loops are written for few transforms, then a
    two, threes, fives and other primes."""
    found: list[int] = []
    for radix in (4, 2, 3, 5):
        while size % radix == 0:
            found.append(radix)
            size //= radix
    prime = 7
    while size > 1:
        while size % prime == 0:
            found.append(prime)
            size //= prime
        prime = prime + 2 if prime * prime <= size else max(size, prime + 2)
    return found


def factors(size: int, dtype: np.dtype[Any]) -> Array:
    """What the passes multiply by, one after another: for each ``exp(-2 pi i p k / length)``, real
    parts, then imaginary ones; behind those of a prime above 5 its roots of unity."""
    parts: list[Array] = []
    length = size
    for radix in radices(size):
        roots, m = roots_of_unity(length, "complex128"), length // radix
        powers = roots[np.outer(np.arange(1, radix), np.arange(m)).ravel() % length]
        parts += [powers.real, powers.imag]
        if radix > 5:
            own = roots_of_unity(radix, "complex128")
            parts += [own.real, own.imag]
        length = m
    return np.concatenate(parts).astype(dtype)


def render_fourier_node(group: Group, name: str, weights: dict[Node, Any], locations: list[str]) -> TemplateFunction:
    """The function of a transform."""
    node = group.root
    x, inverse = node.args[0], int(node.arguments.get("inverse", False))
    size, kind = node.type.shape[-1], node.type.dtype.real
    ctype, complex_type = kind.c_name, node.type.dtype.c_name
    own = derived(buffer_name(node), "factors")

    def fill(memory: Array) -> None:
        memory[:] = factors(size, kind.numpy)

    parameters = [
        f"const {complex_type} *restrict x",
        f"const {ctype} *restrict factors",
        f"{complex_type} *restrict y",
        "int64_t rows",
        f"{ctype} *restrict workspace",
        "int n_threads",
    ]
    passes = ", ".join(map(str, [*radices(size), 0]))
    call = (
        f"fourier_rows_{ctype}((const {ctype} *)x, factors, ({ctype} *)y, rows, {size}, radices, "
        f"{inverse}, workspace, n_threads)"
    )
    lines = [f"    const int radices[] = {{{passes}}};", *wrap(f"    {call};")]
    text = "\n".join([comment(document(group)), *signature(name, parameters), *lines, "}"])
    rows = product(Index.of(d) for d in node.type.shape[:-1])
    arguments = (buffer_name(x), own, buffer_name(node), bare(rows), "scratch", "n_threads")
    length = len(factors(size, kind.numpy))
    packed = {own: PackedWeight(("fourier", size, kind.name), kind.numpy, length, fill)}
    return TemplateFunction(name, text, arguments, packed, f"{4 * size * kind.itemsize} * n_threads")
