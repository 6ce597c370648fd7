"""Programs under hostile names: what users may call things, against what emitted text calls its
own.

In: the zoo, and words that are collected from all text that is emitted for it, from languages and
from libraries. Out: the same programs with their dims, inputs, values, weights and modules called
so, which must be emitted, compiled and computed as before.
"""

from __future__ import annotations

import builtins
import itertools
import keyword
import random
import re
from collections.abc import Iterable, Iterator, Sequence

import fxlite as fx
from fxlite.codegen.c.emit import emit as emit_c
from fxlite.codegen.c.templates import claims as claims_in_c
from fxlite.codegen.cuda.emit import claims as claims_in_cuda
from fxlite.codegen.cuda.emit import emit as emit_cuda
from fxlite.codegen.kernel.names import KEYWORDS, MACROS
from fxlite.codegen.program.program import optimize
from fxlite.types import shapes
from tests.oracle import compare
from tests.zoo import ZOO, Program

#: Names that no text has, but that somebody may give.
ODD = (
    "batch",
    "batch_0",
    "batch_1",
    "i",
    "k",
    "t0",
    "inf",
    "nan",
    "ops",
    "np",
    "fx",
    "self_",
    "_",
    "__x",
    "_9",
    "fx_exp_f32",
    "FX_INF",
    "größe",
    "中文",
    "ﬁ",
    "x_",
    "x__",
    "x_2",
    "k0_add",
    "out0",
    "a" * 300,
    "b" * 62 + "1",
    "b" * 62 + "2",
    "main",
    "weights",
    "arena",
    "offset",
    "error",
    "workspace",
    "n_threads",
    "NULL",
    "I",
    "linux",
    "unix",
    "errno",
    "stdin",
    "EOF",
    "assert",
    "threadIdx",
    "blockIdx",
    "warpSize",
    "float4",
    "half",
    "printf",
    "malloc",
    "memcpy",
    "exp",
)


def c_sources(module: fx.GraphModule) -> dict[str, str]:
    """The C of a module, by file name."""
    optimized, _ = optimize(module, keep=claims_in_c)
    sources = dict(emit_c(optimized).sources)
    del sources["fx_math.h"]
    return sources


def cuda_sources(module: fx.GraphModule) -> dict[str, str]:
    """The CUDA C of a module, by file name."""
    optimized, _ = optimize(module, keep=claims_in_cuda)
    return {n: t for n, t in emit_cuda(optimized).sources.items() if n.endswith(".cu")}


def words_of(texts: Iterable[str]) -> set[str]:
    """All identifiers of texts, in comments or not."""
    return {w for text in texts for w in re.findall(r"[^\W\d]\w*", text)}


def hostile_words(programs: Sequence[Program] = ZOO) -> list[str]:
    """Names to try: all identifiers of emitted text, keywords, builtins, macros, and odd ones."""
    texts: list[str] = []
    for program in programs:
        module, _, _ = program.trace()
        texts += [*c_sources(module).values(), *cuda_sources(module).values()]
        texts.append(module.graph.text(full=True))
    found = words_of(texts) | KEYWORDS | MACROS | {*dir(builtins), *keyword.softkwlist, *ODD}
    return sorted(w for w in found if w.isidentifier() and not keyword.iskeyword(w))


class Renamed:
    """A program of the zoo whose dims, inputs, values and weights have the names that ``words``
    yields. ``module`` is its trace and ``names`` what is called what."""

    def __init__(self, program: Program, words: Iterator[str]) -> None:
        made, types, self.inputs = program.make()
        dims = sorted({d for t in types for d in shapes.names(fx.parse_type(t).shape)})
        self.names: dict[str, str] = {}
        for dim in dims:
            self.names[dim] = next(w for w in words if w not in self.names.values())
        self.program = made
        self.module = fx.symbolic_trace(made, *(self._renamed(t) for t in types))
        for node in [*self.module.graph.nodes]:
            if node.op != "output":
                self._rename(node, words)

    def _renamed(self, text: str) -> str:
        head, bracket, rest = text.partition("[")
        return head + bracket + re.sub(r"[^\W\d]\w*", lambda found: self.names.get(found[0], found[0]), rest)

    def _rename(self, node: fx.Node, words: Iterator[str]) -> None:
        word = next(words)
        taken = self.module.graph._store.namer.taken
        while word in self.names.values() or word in taken or hasattr(self.module, word):
            word = next(words)
        self.names[node.name] = word
        if node.op == "get_attr":
            self.module.set_attribute(word, self.module.get_attribute(node.target))
            node.target = word
        else:
            node.name = word
            if node.op == "placeholder":
                node.target = word


def variants(words: Sequence[str], programs: Sequence[Program] = ZOO) -> Iterator[Renamed]:
    """Each program under names of its own, until every word was used."""
    left = iter(words)
    again = itertools.cycle(words)
    while True:
        for program in programs:
            before = next(left, None)
            if before is None:
                return
            yield Renamed(program, itertools.chain([before], left, again))


def check_names(count: int, seed: int) -> tuple[int, int]:
    """Compile ``count`` programs under names drawn from all hostile words for C and CUDA, and
    compare what they compute; returns how many words there are and how many were tried. Raises
    AssertionError with the names of a program that fails."""
    words = hostile_words()
    random.Random(seed).shuffle(words)
    tried: set[str] = set()
    for under in itertools.islice(variants(words), count):
        tried |= {*under.names.values()}
        expected = under.program(*under.inputs)
        for backend, options in (("c", {}), ("cuda", {"device": "shim"})):
            try:
                compiled = fx.compile(under.module, backend=backend, **options)
                compare(backend, compiled(*under.inputs), expected)
            except Exception as error:
                raise AssertionError(f"{backend} with {under.names}: {error}") from error
    return len(words), len(tried)
