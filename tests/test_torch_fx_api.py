"""The public API of the installed torch.fx, name by name, with what fxlite makes of each.

``codegen/porting/torch_fx_api.txt`` has a line for each name: a pattern of names, then a verdict;
:mod:`fxlite.codegen.porting.verdicts` says which there are. ``python -m
tests.test_torch_fx_api`` prints the counts, and with a verdict after it (``not``) the names that
have it."""

from __future__ import annotations

import fnmatch
import importlib
import inspect
import pkgutil
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import fxlite as fx
from fxlite import passes
from fxlite.codegen.porting.verdicts import verdict_of, verdicts

HERE = Path(__file__).parent
WANTED = 0.98
#: Modules beside those of torch.fx.passes whose names people use.
CORE = (
    "",
    "graph",
    "node",
    "graph_module",
    "interpreter",
    "proxy",
    "subgraph_rewriter",
    "operator_schemas",
    "immutable_collections",
    "experimental.const_fold",
    "experimental.optimization",
)
#: Classes that are the same one under two names in torch.fx.
_SPECIAL = ("__call__", "__lt__", "__fx_create_arg__", "__setitem__")


# -- torch's names -----------------------------------------------------------------------------
def public_names(module: Any) -> list[str]:
    """What a module defines for others."""
    listed = getattr(module, "__all__", None)
    own = [n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]
    return [n for n in listed or own if not n.startswith("_") and callable(getattr(module, n))]


def members(kind: type) -> list[str]:
    """Public members that a class defines or declares itself."""
    names = dict.fromkeys((*vars(kind), *vars(kind).get("__annotations__", {})))
    return [n for n in names if not n.startswith("_") or n in _SPECIAL]


@cache
def torch_names() -> dict[str, Any]:
    """Name -> what it stands for: ``Graph.lint``, ``passes.split_module.split_module``."""
    import torch.fx

    found: dict[str, Any] = {}
    walked = pkgutil.walk_packages(torch.fx.passes.__path__, "torch.fx.passes.")
    inner = [m.name.removeprefix("torch.fx.") for m in walked]
    inner = [n for n in inner if "._" not in n and ".tests" not in n and ".backends" not in n]
    for name in (*CORE, *inner):
        module = importlib.import_module(f"torch.fx.{name}" if name else "torch.fx")
        prefix = "" if name in ("", "graph", "node", "graph_module", "interpreter", "proxy") else name
        for public in public_names(module):
            value = getattr(module, public)
            title = f"{prefix}.{public}" if prefix else public
            if title in found:
                continue
            found[title] = value
            if inspect.isclass(value):
                found.update({f"{title}.{m}": getattr(value, m, None) for m in members(value)})
    from torch.fx import Interpreter, Tracer, symbolic_trace

    traced = symbolic_trace(torch.nn.Identity())
    made = {"GraphModule": traced, "Interpreter": Interpreter(traced), "Tracer": Tracer()}
    for title, instance in made.items():
        plain = set(dir(torch.nn.Module())) if title == "GraphModule" else set()
        names = (n for n in dir(instance) if not n.startswith("_") and n not in plain)
        found.update({f"{title}.{n}": None for n in names if f"{title}.{n}" not in found})
    return found


# -- verdicts ----------------------------------------------------------------------------------
def counts() -> Counter[str]:
    return Counter(verdict_of(name)[0] for name in torch_names())


# -- ours ----------------------------------------------------------------------------------------
@cache
def instances() -> dict[Any, Any]:
    """Objects of classes whose attributes are made by their constructors."""
    gm = fx.symbolic_trace(lambda x: x)
    made = (gm, gm.graph, fx.Tracer(), fx.Interpreter(gm), passes.PassManager(), passes.SourcePartition([], None))
    return {type(value): value for value in made}


def ours(path: str) -> Any:
    """What a dotted name means in ``fx`` or ``fx.passes``. Raises AttributeError."""
    first, *rest = path.split(".")
    value = getattr(fx, first) if hasattr(fx, first) else getattr(passes, first)
    for part in rest:
        if hasattr(value, part):
            value = inspect.getattr_static(value, part)
            value = getattr(value, "__func__", value)
        else:
            value = getattr(instances().get(value, value), part)
    return value


def our_name(name: str) -> str:
    """``passes.infra.pass_base.PassBase.call`` is ``PassBase.call`` here, or what the class is an
    alias of."""
    modules, parts = "torch.fx", name.split(".")
    while len(parts) > 1 and f"{modules}.{parts[0]}" in sys.modules:
        modules = f"{modules}.{parts.pop(0)}"
    verdict, rest = verdict_of(name.rpartition(".")[0]) if len(parts) == 2 else ("", "")
    return f"{rest.split()[0]}.{parts[1]}" if verdict == "alias" else ".".join(parts)


def parameters(function: Any) -> list[inspect.Parameter]:
    if isinstance(function, property) or not callable(function):
        return []
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    return found[1:] if found and found[0].name in ("self", "cls") else found


def misfit(theirs: Any, mine: Any) -> str:
    """Why a call that fits ``theirs`` may not fit ``mine``; empty if it does."""
    if not callable(theirs) or isinstance(theirs, property):
        return ""
    if isinstance(mine, property) or not callable(mine):
        return f"is no function but {mine!r}"
    wanted, found = parameters(theirs), {p.name: p for p in parameters(mine)}
    empty, by_name = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY
    kinds = {p.kind for p in found.values()}
    any_position = inspect.Parameter.VAR_POSITIONAL in kinds
    any_keyword = inspect.Parameter.VAR_KEYWORD in kinds
    order = [p.name for p in found.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    for place, parameter in enumerate(wanted):
        name = parameter.name
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name not in found:
            if not (any_position and any_keyword):
                return f"has no parameter {name!r}"
        elif parameter.kind is by_name or (any_position and found[name].kind is by_name):
            pass  # by position it is one of the *types
        elif order[place : place + 1] != [name]:
            return f"parameter {name!r} is not at place {place}"
        elif parameter.default is not empty and found[name].default is empty:
            return f"parameter {name!r} has no default"
    names = {p.name for p in wanted}
    if any(p.kind is p.VAR_POSITIONAL for p in wanted):
        return ""
    for parameter in found.values():
        is_open = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.default is empty and parameter.name not in names and not is_open:
            return f"parameter {parameter.name!r} has no default"
    return ""


# -- the test ------------------------------------------------------------------------------------
def problem(name: str, theirs: Any) -> str:
    """What is wrong with the verdict on a name; empty if nothing is."""
    verdict, rest = verdict_of(name)
    if verdict in ("yes", "alias"):
        path = rest.split()[0] if verdict == "alias" else our_name(name)
        try:
            mine = ours(path)
        except AttributeError:
            return f"there is no {path}"
        return misfit(theirs, mine) if verdict == "yes" else ""
    if verdict == "different":
        page = (HERE.parent / "docs" / "from_torch_fx.md").read_text()
        return "" if f"\n| {rest}" in page else f"docs/from_torch_fx.md has no row {rest!r}"
    if verdict == "not":
        return "" if rest else "no reason is given"
    return f"{verdict!r} is no verdict" if verdict else "has no verdict"


def test_every_name_of_torch_fx_has_a_true_verdict() -> None:
    pytest.importorskip("torch", reason="the table is of torch.fx (extra 'torch')")
    found = {name: problem(name, value) for name, value in torch_names().items()}
    assert not {name: text for name, text in found.items() if text}
    unused = [p for p, *_ in verdicts() if not fnmatch.filter(torch_names(), p)]
    assert not unused, "no name of torch.fx fits these"


def main() -> None:
    found = counts()
    total = sum(found.values())
    wanted = sys.argv[1:]
    for name, value in torch_names().items():
        verdict, rest = verdict_of(name)
        if verdict in wanted:
            print(f"{name:60} {rest}")
        if text := problem(name, value):
            print(f"{name}: {text}")
    print(f"{total} names:", ", ".join(f"{n} {v or 'without'}" for v, n in found.most_common()))


if __name__ == "__main__":
    main()
