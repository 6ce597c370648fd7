"""Where `team.c` takes the place of libgomp in a shared object: with GCC on Linux, if it has all
that the sources need of OpenMP. In come C texts, out comes the text of one more, or None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files

from fxlite.codegen.runtime.toolchain import Compiler

# What team.c knows of OpenMP, besides all of `omp simd`.
_WORDS = frozenset(
    "parallel for simd barrier named_lock num_threads if collapse static_schedule nowait".split()
)
_FUNCTIONS = frozenset(("omp_get_thread_num", "omp_get_num_threads"))


def team_source(compiler: Compiler, texts: Iterable[str]) -> str | None:
    """The text of `team.c`, if a shared object of these sources can do without libgomp."""
    if not (compiler.is_gcc and all(map(_is_known, texts))):
        return None
    return files("fxlite.codegen.runtime").joinpath("team.c").read_text(encoding="utf-8")


def _is_known(text: str) -> bool:
    """Whether `team.c` has all that a source needs of OpenMP."""
    joined = text.replace("\\\n", " ")
    for directive in re.findall(r"#\s*pragma\s+omp\b([^\n]*)", joined):
        words = directive.replace("schedule(static)", "static_schedule")
        words = re.sub(r"critical\s*\(\w+\)", "named_lock", words)
        while words != (words := re.sub(r"\([^()]*\)", " ", words)):  # innermost ones first
            pass
        if words.split()[0] != "simd" and not _WORDS.issuperset(words.split()):
            return False
    return _FUNCTIONS.issuperset(re.findall(r"\bomp_\w+(?=\()", joined))
