"""Every op: what goes with what, tried out on all of its samples, or said to be refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.base.errors import ArgumentError
from fxlite.nn.module import Parameter
from fxlite.ops.op import REGISTRY
from fxlite.ops.samples import S
from fxlite.passes.surgery.axes import AxisGraph, Slot, parts_of
from fxlite.passes.surgery.axis_rules import axis_graph
from fxlite.passes.surgery.resize import remove_groups

#: Ops that count what goes: with zeros in its place they give other numbers.
COUNT = frozenset(
    "mean var max min prod layer_norm rms_norm group_norm dynamic_scale cosine_similarity mse_loss "
    "instance_norm l1_loss nll_loss cross_entropy binary_cross_entropy_with_logits all".split()
)
#: Ops of which no axis can go; a call says so, with its name.
REFUSED = frozenset(
    "getitem pack_int4 unpack_int4 dequantize_weight linear_weight_only int_recurrence philox flatnonzero".split()
)
#: Ops of matrices that raise for zeros. What goes has no part in the rest: the result is the cut
#: one of the whole.
REGULAR = frozenset("cholesky solve".split())


def program_of(op: Any, sample: Any) -> fx.GraphModule:
    """A call of which all operands are weights and whose results are summed up."""
    arrays = [np.asarray(a) for a in sample.arrays(1)]
    count = len(arrays)
    fixed = {at: a for at, a in enumerate(sample.args) if isinstance(a, np.ndarray)}
    arrays += fixed.values()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for i, a in enumerate(arrays):
                setattr(self, f"w{i}", Parameter(a) if a.dtype.kind == "f" else None)
                if a.dtype.kind != "f":
                    self.register_buffer(f"w{i}", a)

        def forward(self) -> Any:
            weights = [getattr(self, f"w{i}") for i in range(len(arrays))]
            args = list(sample.args)
            for at, weight in zip(fixed, weights[count:]):
                args[at] = weight
            made: Any = dataclasses.replace(sample, args=tuple(args)).call(op, weights[:count])
            if not isinstance(made, (list, tuple)):
                kinds = made.node.type
                made = [made[i] for i in range(len(kinds))] if isinstance(kinds, tuple) else [made]
            return sum(fx.ops.sum(fx.ops.cast(m, "f64")) for m in made)

    return fx.symbolic_trace(Net().eval())


def values(gm: fx.GraphModule, name: str) -> Any:
    runner = fx.Interpreter(gm, garbage_collect_values=False)
    runner.run()
    return next(v for n, v in runner.env.items() if n.name == name)


def zeroed(gm: fx.GraphModule, found: AxisGraph, group: int) -> fx.GraphModule:
    made = fx.GraphModule.__deepcopy__(gm, {})
    for node in gm.graph.find_nodes(op="get_attr"):
        array = np.asarray(made.get_attribute(node.target))
        for axis in range(array.ndim):
            np.moveaxis(array, axis, 0)[found.groups(Slot(node, axis)) == group] = 0
    return made


def try_groups(op: Any, sample: Any) -> tuple[int, list[str]]:
    """How many groups could go, one by one, and what was said about others."""
    gm = program_of(op, sample)
    calls = [n for n in gm.graph.nodes if n.op == "call_function"]
    call = next((n for n in calls if n.target.name == op.name), None)
    if call is None:
        return 0, []
    found = axis_graph(gm)
    groups = np.unique(
        [g for n in call.all_input_nodes for a in range(parts_of(n)[0].rank) for g in found.groups(Slot(n, a))]
    )
    done, said = 0, []
    for group in groups.tolist():
        try:
            remove_groups(gm, found, np.array([group]), "resize")
        except ArgumentError as error:
            said.append(str(error))
            continue
        done += 1
        cut = values(gm, call.name)
        gm.undo()
        with np.errstate(all="ignore"):
            whole = values(gm if op.name in REGULAR else zeroed(gm, found, group), call.name)
        kept = found.kept(np.array([group]))
        parts = whole if isinstance(whole, (tuple, list)) else (whole,)
        others = cut if isinstance(cut, (tuple, list)) else (cut,)
        for part, (full, small) in enumerate(zip(parts, others, strict=True)):
            for axis in range(full.ndim):
                slot = Slot(call, axis, part)
                if slot in kept:
                    full = np.take(full, kept[slot], axis=axis)
            assert full.shape == small.shape, (op.name, sample, group)
            given = sample.kwargs
            counts = op.name in COUNT or given.get("training") or given.get("x_zero_point")
            if not counts:
                np.testing.assert_allclose(
                    np.asarray(small, np.float64),
                    np.asarray(full, np.float64),
                    rtol=2e-2 if full.dtype.itemsize < 4 else 1e-4,
                    atol=1e-4,
                    err_msg=f"{op.name} {sample}: group {group}",
                )
    return done, said


#: Those with operands; of the others, which make something of numbers, nothing can go.
WITH_OPERANDS = sorted(name for name, op in REGISTRY.items() if op.tensor_kinds and op.samples)


@pytest.mark.parametrize("name", WITH_OPERANDS)
def test_cut_operands_give_the_cut_result(name: str) -> None:
    """A group of elements goes from the operands: the call gives what it did with zeros there,
    without the elements that went from its result; or it is refused, naming op, node and axis."""
    op = REGISTRY[name]
    done, said = 0, []
    for sample in op.samples:
        if sum(int(np.prod(t.substitute(sample.dims).shape)) for t in sample.types()) > 800:
            continue
        more, text = try_groups(op, sample)
        done, said = done + more, [*said, *text]
    for text in said:
        assert name in text or "nothing would be left" in text or "different sizes" in text, text
        assert "axis " in text, text
    assert (done == 0) == (name in REFUSED), (name, done, said[:2])


@pytest.mark.parametrize("name", ["sort", "cummax"])
def test_what_chooses_by_value_is_no_move(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions in rising order stay where they are in both: not so other numbers. An op that says
    no more than that it moves elements is refused, or cut as its expansion is."""
    op = REGISTRY[name]
    monkeypatch.setattr(op, "needs_whole", {})
    gm = program_of(op, S("f32[3,4]", axis=1))
    (call,) = gm.graph.find_nodes(op="call_function", target=name)
    found = axis_graph(gm)
    assert not found.is_free(Slot(call.args[0], 1)) and not found.is_free(Slot(call, 1))


class _Written(nn.Module):
    """A weight of several matrices, which are factored, sorted, written into and scanned."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.a = Parameter(rng.standard_normal((4, 3, 3)).astype(np.float32))

    def forward(self, x: Any) -> Any:
        spread = self.a @ np.swapaxes(self.a, -1, -2) + np.eye(3, dtype=np.float32)
        factor = np.sort(np.linalg.cholesky(spread), axis=-1)
        factor[:, 0] = np.maximum.accumulate(factor[:, 1], axis=-1)
        return x * np.sum(factor)


def test_a_batch_goes_through_routines_and_writes_and_their_axes_do_not() -> None:
    net = _Written().eval()
    gm = fx.symbolic_trace(net, x="f32[3,3]")
    (sort,) = gm.graph.find_nodes(op="call_function", target="sort")
    smaller = fx.passes.resize(gm, sort.name, 0, [0, 2, 3])
    net.a = Parameter(np.asarray(net.a)[[0, 2, 3]])
    x = np.ones((3, 3), np.float32)
    np.testing.assert_allclose(smaller(x), net(x), rtol=1e-5)
    with pytest.raises(ArgumentError, match=r"sort.* cannot change: .* needs all of it \(axis"):
        fx.passes.resize(gm, sort.name, 2, [0, 1])
    assert gm(x).shape == (3, 3)
