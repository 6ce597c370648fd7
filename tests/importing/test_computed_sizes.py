"""Sizes that depend on values, in models of PyTorch and ONNX: what a mask selects, positions of what is not 0,
different values, numbers of repetitions. They have a bound in the graph, and are what the other library says in C."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import ModelImportError

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx.reference")
import torch.nn.functional as F  # noqa: E402
from onnx import TensorProto as T  # noqa: E402
from onnx import helper as h  # noqa: E402

from fxlite.importing.torch.table import array_of  # noqa: E402
from tests.importing.test_from_torch import close  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def rows(n: int, kind: str) -> tuple[Any, Any, Any]:
    """x, mask and counts of ``n`` rows: of any, all or none of them the mask is set."""
    draw = torch.Generator().manual_seed(n)
    x, k = torch.randn(n, 4, generator=draw) * 4, torch.randint(0, 4, (n,), generator=draw)
    return x, torch.rand(n, generator=draw) > 0.5 if kind == "some" else torch.full((n,), kind == "all"), k


def experts(x: Any, m: Any, k: Any) -> Any:
    out = torch.zeros_like(x)
    for expert in range(2):
        (chosen,) = torch.where(k == expert)
        out = out.index_add(0, chosen, torch.relu(x[chosen] @ torch.full((4, 4), 0.5)) * (expert + 1))
    return out


def put_back(x: Any, m: Any, k: Any) -> Any:
    y, z, w = x.clone(), x.clone(), torch.zeros_like(x)
    y[m] = y[m] * 2
    z[x > 0] = (x * 3)[x > 0]
    return y, z, w.index_put((torch.nonzero(m)[:, 0],), torch.ones(4))


def checked(x: Any, m: Any, k: Any) -> Any:
    repeated = torch.repeat_interleave(x, k, dim=0)
    torch._check(repeated.shape[0] <= 40)
    n = k[0].item()
    torch._check(n >= 0)
    torch._check(n <= 5)
    return repeated, torch.ones(n), torch.arange(n) * 2


def sorted_experts(x: Any, m: Any, k: Any) -> Any:
    """Rows in the order of their experts, split where the next expert's begin."""
    order = k.argsort(stable=True)
    counts = torch.bincount(k, minlength=4).tolist()
    done = torch.cat([part @ torch.full((4, 4), n + 0.5) for n, part in enumerate(x[order].split(counts))])
    return torch.zeros_like(x).index_add(0, order, done)


def filled_in(x: Any, m: Any, k: Any) -> Any:
    """Rows where a mask is set in place of others, of which there may be none."""
    return x.masked_scatter(m[:, None], x[m] * 2).masked_scatter(~m[:, None], x[~m] + 1)


MODELS = {
    "masks": lambda x, m, k: (x[m], x[x > 0], x[m, 1], torch.masked_select(x, x > 2), x[m].sum(0), x[x > 0].mean()),
    "positions": lambda x, m, k: (torch.nonzero(x > 0), *torch.where(m), torch.argwhere(m), x[torch.nonzero(m)[:, 0]]),
    "of a single value": lambda x, m, k: (
        x[0, 0].masked_select(m[0]),
        torch.nonzero(x[0, 0] > 0),
        torch.unique_consecutive(k[0], return_counts=True),
    ),
    "values": lambda x, m, k: (
        *torch.unique(k, return_inverse=True, return_counts=True),
        *torch.unique_consecutive(k, return_inverse=True, return_counts=True),
        torch.unique(x, dim=0),
    ),
    "repeated": lambda x, m, k: torch.repeat_interleave(x, k.clamp(0, 3), dim=0),
    "layers": lambda x, m, k: (
        F.linear(F.gelu(x[m]), torch.ones(3, 4)),
        F.layer_norm(x[m], (4,)).view(-1, 2, 2),
        F.softmax(x[m], -1).t(),
        F.conv1d(x[m].unsqueeze(1), torch.ones(2, 1, 3)),
        F.embedding(k[m], torch.arange(12.0).reshape(4, 3)),
        torch.topk(x[m], 2, dim=1),
    ),
    "across": lambda x, m, k: (torch.sort(x[x > 0])[0], x[x > 0].cumsum(0), torch.cat([x[m], x]).max(0)),
    "sizes": lambda x, m, k: (
        torch.nonzero(m).shape[0] + x,
        torch.zeros(torch.nonzero(m).shape[0], 3),
        torch.arange(x[m].shape[0]),
        x[:1].expand(x[m].shape[0], 4) + x[m],
    ),
    "counts": lambda x, m, k: (torch.bincount(k, minlength=4), torch.bincount(k, x[:, 0], 5)),
    "experts": experts,
    "sorted experts": sorted_experts,
    "filled in": filled_in,
    "put back": put_back,
    "checked": checked,
}


class Model(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, m: Any, k: Any) -> Any:
        return self.function(x, m, k)


@pytest.mark.parametrize("name", MODELS)
def test_models_of_torch(name: str) -> None:
    model = Model(MODELS[name])
    gm = fx.from_torch(model, "f32[N,4]", "bool[N]", "i64[N]")
    for fn in (gm, fx.compile(gm)):
        for n, kind in ((6, "some"), (9, "all"), (4, "none")):
            given = rows(n, kind)
            close(fn(*map(array_of, given)), model(*given), 2e-5)


class Chosen(torch.nn.Module):
    """A mixture of experts, in which a loop runs over the experts that some row has chosen."""

    def __init__(self, as_numbers: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate, self.as_numbers = torch.nn.Linear(4, 6), as_numbers
        self.experts = torch.nn.ModuleDict({f"expert_{n}": torch.nn.Linear(4, 4) for n in range(6)})

    def forward(self, x: Any) -> Any:
        weight, chosen = torch.topk(self.gate(x).softmax(-1), 2)
        out, by_expert = torch.zeros_like(x), F.one_hot(chosen, 6).permute(2, 1, 0)
        hit = torch.greater(by_expert.sum(dim=(-1, -2)), 0).nonzero()
        for expert in hit.flatten().tolist() if self.as_numbers else hit:
            number = expert if self.as_numbers else expert[0]
            if number == 6:
                continue
            place, row = torch.where(by_expert[number])
            done = self.experts[f"expert_{number}"](x[row]) * weight[row, place, None]
            out.index_add_(0, row, done)
        return out


@pytest.mark.parametrize("as_numbers", [False, True])
def test_loops_over_the_experts_that_were_chosen(as_numbers: bool) -> None:
    model = Chosen(as_numbers).eval()
    x = rows(20, "some")[0]
    gm = fx.from_torch(model, x)
    for fn in (gm, fx.compile(gm)):
        for given in (x, -x, x[:1].expand(20, 4).contiguous(), x * 0.1):
            close(fn(given.numpy()), model(given), 2e-5)


class Counted(torch.nn.Module):
    """A loop over places of which each round changes the result."""

    def forward(self, x: Any) -> Any:
        total = torch.zeros(1)
        for place in (x.sum(1) > 0).nonzero():
            total = total + place
        return total


class CountedThenSolved(torch.nn.Module):
    """The same over columns, and then what fails for rows that are alike."""

    def forward(self, x: Any) -> Any:
        total = torch.zeros(1)
        for place in (x.sum(0) > 0).nonzero():
            total = total + place
        return total + torch.linalg.solve(x.T @ x, x.T).sum()


def test_loops_whose_other_rounds_may_not_run_are_refused() -> None:
    with pytest.raises(ModelImportError, match="cannot export CountedThenSolved"):
        fx.from_torch(CountedThenSolved(), torch.tensor([[1.0, -1.0], [2.0, 3.0]]))
    with pytest.raises(ModelImportError, match="cannot export Counted"):
        fx.from_torch(Counted(), torch.tensor([[1.0], [-1.0], [2.0]]))
    with pytest.raises(ModelImportError, match=r"loops over the places where a mask is set \(mask.nonzero"):
        fx.from_torch(Counted(), torch.ones(3, 1))


def test_sizes_without_a_bound_are_refused() -> None:
    model = Model(lambda x, m, k: torch.repeat_interleave(x, k, dim=0))
    with pytest.raises(ModelImportError, match=r"clamp\(max=4\).*torch\._check"):
        fx.from_torch(model, *rows(4, "some"))


def test_sizes_above_their_bound_are_an_error_when_it_runs() -> None:
    gm = fx.from_torch(Model(checked), "f32[N,4]", "bool[N]", "i64[N]")
    x, m, k = rows(6, "some")
    for fn in (gm, fx.compile(gm)):
        with pytest.raises((IndexError, ValueError)):
            fn(x.numpy(), m.numpy(), torch.full_like(k, 9).numpy())


# -- ONNX ------------------------------------------------------------------------------------------
def graph(*nodes: Any, **constants: Any) -> Any:
    """A model whose result is ``y``."""
    kinds = {"x": (T.FLOAT, ["N", 4]), "m": (T.BOOL, ["N"]), "k": (T.INT64, ["N"])}
    used = {name for node in nodes for name in node.input}
    inputs = [h.make_tensor_value_info(n, *kind) for n, kind in kinds.items() if n in used]
    held = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    results = [h.make_tensor_value_info(n, T.UNDEFINED, None) for node in nodes[-1:] for n in node.output if n]
    made = h.make_graph(nodes, "g", inputs, results, held)
    return h.make_model(made, opset_imports=[h.make_opsetid("", 17)], ir_version=9)


node = h.make_node
COMPRESS = node("Compress", ["x", "m"], ["a"], axis=0)
NONZERO = [node("NonZero", ["m"], ["p"]), node("Transpose", ["p"], ["q"], perm=[1, 0])]
ONNX_MODELS = {
    "nonzero": graph(node("NonZero", ["x"], ["y"])),
    "gather": graph(*NONZERO, node("Squeeze", ["q", "ax"], ["r"]), node("Gather", ["x", "r"], ["y"]), ax=np.array([1])),
    "gather nd": graph(*NONZERO, node("GatherND", ["x", "q"], ["y"])),
    "flat": graph(
        node("Greater", ["x", "zero"], ["a"]),
        node("Reshape", ["a", "s"], ["b"]),
        node("Compress", ["x", "b"], ["y"]),
        zero=np.float32(0),
        s=np.array([-1]),
    ),
    "unique": graph(node("Unique", ["k"], ["y", "i", "j", "c"])),
    "unique rows": graph(node("Unique", ["x"], ["y", "", "j"], axis=0)),
    "layers": graph(
        COMPRESS,
        node("Gemm", ["a", "w", "b"], ["c"]),
        node("LayerNormalization", ["c", "b"], ["d"]),
        node("Softmax", ["d"], ["y"], axis=1),
        w=np.ones((4, 3), np.float32),
        b=np.arange(3, dtype=np.float32),
    ),
    "shape": graph(
        COMPRESS,
        node("Shape", ["a"], ["s"], end=1),
        node("Concat", ["s", "t"], ["u"], axis=0),
        node("Reshape", ["a", "u"], ["r"]),
        node("ConstantOfShape", ["u"], ["o"]),
        node("Expand", ["v", "u"], ["e"]),
        node("Sum", ["r", "o", "e"], ["y"]),
        t=np.array([2, 2]),
        v=np.arange(2, dtype=np.float32),
    ),
    "parts": graph(
        COMPRESS,
        node("Slice", ["a", "one", "three", "one"], ["b"]),
        node("Slice", ["b", "one", "three", "zero"], ["c"]),
        node("Split", ["c", "sizes"], ["d", "e"], axis=1),
        node("TopK", ["a", "one"], ["f", "g"], axis=1),
        node("Cast", ["d"], ["y"], to=T.DOUBLE),
        one=np.array([1]),
        three=np.array([3]),
        zero=np.array([0]),
        sizes=np.array([1, 1]),
    ),
    "reductions": graph(COMPRESS, node("ReduceMean", ["a"], ["b"], axes=[1]), node("ReduceSum", ["b"], ["y"])),
    "scatter nd": graph(*NONZERO, COMPRESS, node("Add", ["a", "a"], ["w"]), node("ScatterND", ["x", "q", "w"], ["y"])),
    "computed parts": graph(
        node("Cast", ["m"], ["i"], to=T.INT64),
        node("ReduceSum", ["i", "zero"], ["n"], keepdims=1),
        node("Shape", ["x"], ["s"], end=1),
        node("Sub", ["s", "n"], ["r"]),
        node("Concat", ["n", "r"], ["c"], axis=0),
        node("Split", ["x", "c"], ["a", "b"]),
        node("Slice", ["x", "r", "s", "zero"], ["d"]),
        node("Concat", ["b", "a", "d"], ["y"], axis=0),
        zero=np.array([0]),
    ),
    "a number at places": graph(
        *NONZERO,
        node("Cast", ["m"], ["i"], to=T.INT64),
        node("ReduceSum", ["i", "zero"], ["n"], keepdims=1),
        node("Concat", ["n", "four"], ["c"], axis=0),
        node("Expand", ["v", "c"], ["w"]),
        node("ScatterND", ["x", "q", "w"], ["y"]),
        zero=np.array([0]),
        four=np.array([4]),
        v=np.float32(7),
    ),
    "selected numbers in their shape": graph(
        node("Compress", ["k", "m"], ["a"], axis=0),
        node("Shape", ["a"], ["s"]),
        node("Cast", ["m"], ["i"], to=T.INT64),
        node("ReduceSum", ["i", "zero"], ["n"], keepdims=1),
        node("Expand", ["a", "n"], ["y"]),
        zero=np.array([0]),
    ),
    "range": graph(
        node("NonZero", ["m"], ["a"]),
        node("Size", ["a"], ["n"]),
        node("Range", ["zero", "n", "one"], ["y"]),
        zero=np.int64(0),
        one=np.int64(1),
    ),
}


@pytest.mark.parametrize("name", ONNX_MODELS)
def test_models_of_onnx(name: str) -> None:
    model = ONNX_MODELS[name]
    gm = fx.from_onnx(model)
    expected = onnx.reference.ReferenceEvaluator(model)
    for fn in (gm, fx.compile(gm)):
        for n, kind in ((6, "some"), (9, "all"), (4, "none")):
            given = dict(zip("xmk", map(array_of, rows(n, kind))))
            given = {i.name: given[i.name] for i in model.graph.input}
            found = fn(*given.values())
            found = found if isinstance(found, tuple) else (found,)
            for one, other in zip(found, expected.run(None, given), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, strict=True)
