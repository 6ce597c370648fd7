"""Shared by the tests of checked passes: an edit of a graph, checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fxlite as fx
from fxlite.passes.checking.verify import VerificationError, VerificationReport, verify_edits

Edit = Callable[[fx.GraphModule], Any]


def checked(gm: fx.GraphModule, edit: Edit, exactness: Any = "exact") -> VerificationReport:
    """The report on an edit of a copy of ``gm``."""
    copy = gm.copy()
    start = len(copy.graph.journal.records)
    edit(copy)
    copy.graph.lint()
    return verify_edits(copy, start, "edit", exactness)


def refused(gm: fx.GraphModule, edit: Edit, exactness: Any = "exact") -> VerificationError:
    """The error for a wrong edit; the file it names was run and shows the difference."""
    with pytest.raises(VerificationError) as caught:
        checked(gm, edit, exactness)
    return caught.value


def call(gm: fx.GraphModule, op: str, number: int = 0) -> fx.Node:
    return gm.graph.find_nodes(op="call_function", target=op)[number]


def replace(gm: fx.GraphModule, old: fx.Node, op: str, *args: Any, **kwargs: Any) -> None:
    """Put a call in place of a node."""
    with gm.graph.inserting_before(old):
        new = gm.graph.call_function(op, args, kwargs)
    old.replace_all_uses_with(new)
    gm.graph.erase_node(old)
