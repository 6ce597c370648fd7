"""Match discrete Fourier transforms to their template (`tiles/numeric/fourier.h`).

In and out as in :mod:`fxlite.codegen.c.templates`.
"""

from __future__ import annotations

import functools
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


@functools.cache
def chirp_length(size: int) -> int | None:
    """Of how many points the transforms are by which one of ``size`` is computed as a convolution;
    None where its own passes take less."""
    least = 1 << (2 * size - 2).bit_length()
    found = min((n for n in (least, least // 4 * 3, least // 8 * 5) if n >= 2 * size - 1), key=_steps)
    return found if _steps(size) > 2 * _steps(found) + 8 * found else None


def _steps(size: int) -> int:
    """What the passes of a transform take: about ``radix`` steps for each point, 3 times as many for
    primes above 5, and 8 times in the first passes, whose loops are short (measured)."""
    found, count = 0, 1
    for radix in radices(size):
        found += size * radix * (1 if radix <= 5 else 3 if count >= 16 else 8)
        count *= radix
    return found


def chirp(size: int, length: int, dtype: np.dtype[Any]) -> Array:
    """``exp(-pi i k k / size)``, and the transform over ``length`` points of its conjugate, with
    itself turned round behind zeros: real parts, then imaginary ones, of each."""
    k = np.arange(size, dtype=np.int64)
    own = roots_of_unity(2 * size, "complex128")[k * k % (2 * size)]
    filtering = np.zeros(length, np.complex128)
    filtering[:size] = own.conj()
    filtering[length - size + 1 :] = own[:0:-1].conj()
    filtering = np.fft.fft(filtering) / length
    return np.concatenate([own.real, own.imag, filtering.real, filtering.imag]).astype(dtype)


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

    longer = chirp_length(size)
    length = size if longer is None else longer
    passes, place = radices(length), len(factors(length, kind.numpy))

    def fill(memory: Array) -> None:
        memory[:place] = factors(length, kind.numpy)
        if longer is not None:
            memory[place:] = chirp(size, longer, kind.numpy)

    parameters = [
        f"const {complex_type} *restrict x",
        f"const {ctype} *restrict factors",
        f"{complex_type} *restrict y",
        "int64_t rows",
        f"{ctype} *restrict workspace",
        "int n_threads",
    ]
    ends = f"radices, {inverse}, workspace, n_threads"
    if longer is None:
        call = f"fourier_rows_{ctype}((const {ctype} *)x, factors, ({ctype} *)y, rows, {size}, {ends})"
    else:
        table = f"factors, factors + {place}"
        call = f"fourier_chirp_rows_{ctype}((const {ctype} *)x, {table}, ({ctype} *)y, rows, {size}, {length}, {ends})"
    lines = [f"    const int radices[] = {{{', '.join(map(str, [*passes, 0]))}}};", *wrap(f"    {call};")]
    text = "\n".join([comment(document(group)), *signature(name, parameters), *lines, "}"])
    rows = product(Index.of(d) for d in node.type.shape[:-1])
    arguments = (buffer_name(x), own, buffer_name(node), bare(rows), "scratch", "n_threads")
    whole = place + (0 if longer is None else 2 * (size + longer))
    packed = {own: PackedWeight(("fourier", size, kind.name), kind.numpy, whole, fill)}
    share = (4 * size if longer is None else 8 * longer) * kind.itemsize
    return TemplateFunction(name, text, arguments, packed, f"{share} * n_threads")
