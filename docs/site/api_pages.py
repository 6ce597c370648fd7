"""The API reference: which public names stand on which page.

In: the public modules of fxlite. Out: Markdown by path, in which ``::: module.name`` stands for the signature and the
docstring of a function or class; mkdocstrings reads these from the sources. Ops are linked to their catalogue.
"""

from __future__ import annotations

import importlib
import inspect
from functools import cache
from types import ModuleType

from docs.site.op_pages import family_of
from fxlite.ops.op import Op
from fxlite.passes.gallery import markdown

#: Page -> its title, its module, and what it leaves to others: their names.
PAGES = {
    "fxlite": ("fxlite", "fxlite"),
    "graph": ("Graphs, nodes and modules", "fxlite"),
    "errors": ("Errors", "fxlite.base.errors"),
    "shapes": ("Shapes and named dims", "fxlite.types.shapes"),
    "nn": ("fxlite.nn: layers", "fxlite.nn"),
    "functional": ("fxlite.nn.functional", "fxlite.nn.functional"),
    "init": ("fxlite.nn.init", "fxlite.nn.init"),
    "random": ("fxlite.random", "fxlite.ops.numeric.random"),
    "passes": ("fxlite.passes", "fxlite.passes"),
    "predicates": ("fxlite.passes.predicates", "fxlite.passes.rewrite.predicates"),
    "quantize": ("fxlite.passes.quantize", "fxlite.passes.quantize"),
}
#: Names of ``fxlite`` that have a page of their own.
GRAPHS = (
    "Graph Node GraphModule Interpreter Transformer Tracer LayerTracer GraphAppendingTracer Proxy SubGraph TensorType"
).split()


def public_names(module: ModuleType) -> list[str]:
    """The names that a module gives its users."""
    stated = getattr(module, "__all__", None)
    if stated is not None:
        return sorted(stated, key=str.lower)
    own = (n for n in dir(module) if not n.startswith("_"))
    return [n for n in own if getattr(getattr(module, n), "__module__", "") == module.__name__]


@cache
def pages() -> dict[str, str]:
    """Markdown by path."""
    found = {f"api/{page}.md": _page(page) for page in PAGES}
    rows = [
        f"| [{title}]({page}.md) | {', '.join(GRAPHS) if page == 'graph' else _about(module)} |"
        for page, (title, module) in PAGES.items()
    ]
    table = "\n".join(["| page | what it holds |", "|---|---|", *rows])
    found["api/index.md"] = (
        f"# API reference\n\nPublic names, from their docstrings. `import fxlite as fx`.\n\n{table}\n"
    )
    return found


def _about(module: str) -> str:
    text = inspect.cleandoc(importlib.import_module(module).__doc__ or "").split("\n\n")[0]
    return markdown(" ".join(text.split())).replace("|", "\\|")


def _page(page: str) -> str:
    title, name = PAGES[page]
    module = importlib.import_module(name)
    names = [n for n in public_names(module) if page not in ("fxlite", "graph") or (n in GRAPHS) == (page == "graph")]
    values = {n: getattr(module, n) for n in names}
    ops = {n: v for n, v in values.items() if isinstance(v, Op)}
    documented = {
        f"{v.__module__}.{v.__qualname__}": n
        for n, v in values.items()
        if (inspect.isclass(v) or inspect.isfunction(v)) and v.__module__.startswith("fxlite")
    }
    about = f"Classes that `import {name}` gives." if page == "graph" else _about(name)
    parts = [f"# {title}\n\n{about}\n"]
    if ops:
        links = ", ".join(f"[`{n}`](../ops/{family_of(op)}.md#{op.name})" for n, op in ops.items())
        parts.append(f"These names are ops, which [the catalogue](../ops/index.md) describes: {links}.\n")
    parts += [f"::: {path}\n" for path in documented]
    return "\n".join(parts)
