"""Splitting as torch.fx does it: the same program, callback, tags and supported ops in both."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops, passes

pytest.importorskip("torch", reason="compared with torch.fx (extra 'torch')")
from torch.fx.passes import operator_support as their_support
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner as TheirPartitioner
from torch.fx.passes.split_module import split_module as their_split_module
from torch.fx.passes.split_utils import split_by_tags as their_split_by_tags
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions as their_fuse_by_partitions

from tests.torch_fx import X, assert_alike, random_program, structure, traced

Y = X[:, ::-1].copy()


def calls(gm: Any) -> list[Any]:
    return [n for n in gm.graph.nodes if n.op.startswith("call_")]


def ids_in_order(seed: int, count: int) -> list[int]:
    """Partition ids that first occur as 0, 1, ... and never fall: each order of them is right."""
    generator = random.Random(seed)
    found = sorted(generator.randrange(4) for _ in range(count))
    first = {k: i for i, k in enumerate(dict.fromkeys(found))}
    return [first[k] for k in found]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("tuple_return", [False, True])
def test_split_module(seed: int, tuple_return: bool) -> None:
    theirs, mine = traced(random_program(seed, 14), 2)
    ids = ids_in_order(seed, 14)
    places = [dict(zip(calls(gm), ids)) for gm in (theirs, mine)]
    options: Any = {"keep_original_order": True, "tuple_return": tuple_return}
    if seed % 2:
        options |= {"partition_affix": "pp", "keep_original_input_name": False}
    a = their_split_module(theirs, theirs, places[0].__getitem__, None, **options)
    b = passes.split_module(mine, mine, places[1].__getitem__, None, **options)
    assert_alike(a, b, X, Y)
    assert a.meta["partition_names"] == b.meta["partition_names"]


def test_split_in_a_circle() -> None:
    def program(m: Any, x: Any) -> Any:
        return m.sin(m.cos(m.sin(x)))

    for gm, split in zip(traced(program), (their_split_module, passes.split_module)):
        ids = dict(zip(calls(gm), (0, 1, 0)))
        with pytest.raises(RuntimeError, match=r"cycle|circle"):
            split(gm, None, ids.__getitem__)


def test_qualname_map() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    gm = fx.symbolic_trace(model, x="f32[B,3]", leaf=[nn.ReLU])
    names: dict[str, str] = {}
    first, *_ = calls(gm)
    split = passes.split_module(gm, model, lambda n: int(n is not first), qualname_map=names)
    assert names["submod_0.0.weight"] == "0.weight" and names["submod_1.1"] == "1"
    for new, old in names.items():
        assert split.get_attribute(new) is gm.get_attribute(old)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("return_tuple", [False, True])
def test_split_by_tags(seed: int, return_tuple: bool) -> None:
    pair = traced(random_program(seed, 12), 2)
    tags = ["a", "b", "c", "d"]
    for gm in pair:
        for node, i in zip(calls(gm), ids_in_order(seed, 12)):
            node.tag = tags[i]
    used = [t for t in tags if any(n.tag == t for n in calls(pair[1]))]
    a = their_split_by_tags(pair[0], used, return_tuple=return_tuple)
    b = passes.split_by_tags(pair[1], used, return_tuple=return_tuple)
    assert_alike(a, b, X, Y)
    assert [n.tag for n in calls(b.get_submodule("a"))] == ["a"] * len(calls(b.get_submodule("a")))


def test_tags_that_cannot_be() -> None:
    for gm, split in zip(traced(lambda m, x: m.sin(m.cos(x))), (their_split_by_tags, passes.split_by_tags)):
        first, second = calls(gm)
        first.tag = "b"
        with pytest.raises((AssertionError, fx.errors.GraphError), match="tag"):
            split(gm, ["a", "b"])
        second.tag = "a"
        with pytest.raises((AssertionError, fx.errors.GraphError), match=r"order|later"):
            split(gm, ["a", "b"])


def test_mapping_of_names() -> None:
    gm = fx.symbolic_trace(nn.Linear(3, 4), x="f32[B,3]")
    for node in calls(gm):
        node.tag = "main"
    split, names = passes.split_by_tags(gm, ["main"], return_fqn_mapping=True)
    assert names == {"weight": "main.weight", "bias": "main.bias"}
    assert all(split.get_attribute(new) is gm.get_attribute(old) for old, new in names.items())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("always_return_tuple", [False, True])
def test_fuse_by_partitions(seed: int, always_return_tuple: bool) -> None:
    theirs, mine = traced(random_program(seed, 12), 2)
    groups = ids_in_order(seed, 12)
    made = []
    for gm in (theirs, mine):
        nodes = calls(gm)
        made.append([{n: None for n, i in zip(nodes, groups) if i == k} for k in (0, 2)])
        made[-1] = [group for group in made[-1] if group]
    before = structure(mine.graph)
    their_fuse_by_partitions(theirs, made[0], always_return_tuple=always_return_tuple)
    fused = passes.fuse_by_partitions(mine, made[1], always_return_tuple=always_return_tuple)
    assert fused is mine
    assert_alike(theirs, mine, X, Y)
    assert mine.undo() == "fuse_by_partitions" and structure(mine.graph) == before
    mine.graph.lint(full=True)


def test_fused_weights_go_along_and_names_are_free() -> None:
    gm = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)), x="f32[B,3]")
    first, relu, last = calls(gm)
    passes.fuse_by_partitions(gm, [[first]])
    passes.fuse_by_partitions(gm, [[last]])
    assert [n.target for n in calls(gm)] == ["fused_0", ops.relu, "fused_0_1"]
    assert not gm.graph.find_nodes(op="get_attr") and relu in gm.graph.nodes
    with pytest.raises(fx.errors.GraphError, match="linear is not in the graph"):
        passes.fuse_by_partitions(gm, [[first]])


# -- what a back end supports ----------------------------------------------------------------------
TABLES = {"add and mul": ("add", "mul"), "one": ("sin",), "most": ("sin", "cos", "add", "tanh")}


def partitioners(pair: Any, names: tuple[str, ...], **options: Any) -> Any:
    def name(node: Any) -> str:
        return getattr(node.target, "name", None) or getattr(node.target, "__name__", "")

    def supports(_: Any, node: Any) -> bool:
        return node.op == "call_function" and name(node) in names

    return (
        TheirPartitioner(pair[0], their_support.create_op_support(supports), **options),
        passes.CapabilityBasedPartitioner(pair[1], passes.create_op_support(supports), **options),
    )


def groups(partitions: Any, gm: Any) -> set[frozenset[int]]:
    place = {n: i for i, n in enumerate(gm.graph.nodes)}
    return {frozenset(place[n] for n in p.nodes) for p in partitions}


@pytest.mark.parametrize("names", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("seed", range(10))
def test_partitioner(seed: int, names: tuple[str, ...]) -> None:
    """Groups may be cut elsewhere, but there are not more of them, of the same nodes."""
    pair = traced(random_program(seed, 16), 2)
    a, b = partitioners(pair, names, allows_single_node_partition=True)
    theirs, mine = (p.propose_partitions() for p in (a, b))
    assert set().union(*groups(theirs, pair[0])) == set().union(*groups(mine, pair[1]))
    assert len(mine) <= len(theirs) + 1
    fused = b.fuse_partitions(mine)
    expected = fx.symbolic_trace(passes.inline_modules(fused))(X, Y)
    for got, want in zip(expected, pair[0](*map(_tensor, (X, Y)))):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-6)


def _tensor(x: Any) -> Any:
    import torch

    return torch.tensor(x)


def branches(m: Any, x: Any, y: Any) -> Any:
    a, b = m.sin(m.cos(x)), m.sin(m.cos(y))  # side by side
    return m.tanh(a) + m.sin(m.tanh(b))


@pytest.mark.parametrize("skip_horizontal_fusion", [False, True])
@pytest.mark.parametrize("single", [False, True])
def test_partitions_are_theirs(skip_horizontal_fusion: bool, single: bool) -> None:
    pair = traced(branches, 2)
    a, b = partitioners(
        pair, ("sin", "cos", "add"), allows_single_node_partition=single, skip_horizontal_fusion=skip_horizontal_fusion
    )
    theirs = sorted(a.propose_partitions(), key=lambda p: min(p.nodes))
    mine = b.propose_partitions()
    assert groups(mine, pair[1]) == groups(theirs, pair[0])
    assert len(mine) == (3 if skip_horizontal_fusion else 2)
    assert_alike(a.fuse_partitions(theirs, "part_"), b.partition_and_fuse("part_"), X, Y)


def test_non_compute_ops() -> None:
    def program(m: Any, x: Any) -> Any:
        return m.tanh(m.cos(m.sin(m.cos(m.relu(x)))))

    pair = traced(program)
    for gm, kind in zip(pair, ("torch.cos", "cos")):
        part = partitioners(pair, ("sin", "cos"), non_compute_ops=[kind])[gm is pair[1]]
        assert part.propose_partitions() == []  # one call that computes
        part.allows_single_node_partition = True
        (found,) = part.propose_partitions()
        assert [n.name for n in found.nodes] == ["cos", "sin", "cos_1"]
        part.remove_bookend_non_compute_ops([found])
        assert [n.name for n in found.nodes] == ["sin"] and found.size() == 1
    part = partitioners(pair, ("relu",), allowed_single_node_partition_ops=[ops.relu])[1]
    assert len(part.propose_partitions()) == 1


def test_operator_support() -> None:
    names = {ops.add: None, "tanh": None, nn.ReLU: None, ops.mul: (([np.float32],), {})}

    class Supported(passes.OperatorSupport):
        _support_dict = names

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x: Any, n: Any) -> Any:
            return np.tanh(self.act(x) + x * x) + np.exp(x) + n * n

    gm = fx.symbolic_trace(Net(), x="f32[3]", n="i64[3]", leaf=[nn.ReLU])
    modules = dict(gm.named_modules())

    def supported(support: passes.OperatorSupportBase) -> list[str]:
        return [n.name for n in calls(gm) if support.is_node_supported(modules, n)]

    table = Supported()
    assert supported(table) == ["act", "mul", "add", "tanh", "add_1", "add_2"]
    assert supported(passes.OperatorSupport({"exp": None})) == ["exp"]
    floats = passes.OpSupports.decline_if_input_dtype(fx.int64)
    named = passes.OpSupports.decline_if_node_in_names({"act", "add"})
    both = passes.chain(table, floats, named)
    assert supported(both) == ["mul", "tanh", "add_1"]
    either = passes.any_chain(passes.OperatorSupport({ops.exp: None}), both)
    assert supported(either) == ["mul", "tanh", "exp", "add_1"]
    with pytest.raises(fx.errors.ArgumentError, match="create_op_support"):
        passes.CapabilityBasedPartitioner(gm, lambda modules, node: True)  # type: ignore[arg-type]


# -- by source ---------------------------------------------------------------------------------
def test_source_partitions_of_a_graph() -> None:
    gm = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), x="f32[B,3]")
    found = passes.get_source_partitions(gm.graph, [nn.Linear, ops.tanh, nn.Conv2d])
    assert list(found) == [nn.Linear, ops.tanh]
    first, last = found[nn.Linear]
    (tanh,) = found[ops.tanh]
    assert [n.target for n in last.params] == ["2.weight", "2.bias"] and last.source is nn.Linear
    assert last.input_nodes == tanh.output_nodes == tanh.nodes
    assert passes.check_subgraphs_connected(first, tanh)
    assert not passes.check_subgraphs_connected(tanh, first)
    only = passes.get_source_partitions(gm.graph, [nn.Linear], lambda n: n.name != "linear")
    assert [p.nodes for p in only[nn.Linear]] == [last.nodes]
