"""``fx.from_torch``: what is imported computes what torch computes, with its names, places and
weights; and what cannot be imported is said."""

from __future__ import annotations

import inspect
import io
import json
import math
import os
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import ArgumentError, ModelImportError
from tests.graphs import ops_of

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fxlite.importing.torch import table  # noqa: E402
from fxlite.importing.torch.table import array_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def close(found: Any, expected: Any, near: float = 2e-5) -> None:
    """Results are those of torch: the same containers, dtypes, shapes and numbers."""
    if isinstance(expected, torch.Tensor):
        wanted = array_of(expected)
        assert np.asarray(found).dtype == wanted.dtype and np.shape(found) == wanted.shape
        np.testing.assert_allclose(np.asarray(found, np.float64), wanted.astype(np.float64), near, near)
    elif isinstance(expected, dict):
        assert list(found) == [key for key, value in expected.items() if value is not None]
        for key in found:
            close(found[key], expected[key], near)
    else:
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            close(one, other, near)


class Net(nn.Module):
    """Layers, a write in place, a buffer that changes, nested inputs and results."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(12)
        self.attention = nn.MultiheadAttention(12, 2, batch_first=True)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(12, 12), nn.GELU()) for _ in range(2)])
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Any, extra: Any) -> Any:
        self.count += 1
        y = self.norm(self.lstm(x)[0])
        y[:, 0] = 0
        y = self.attention(y, y, y, need_weights=False)[0]
        for block in self.blocks:
            y = y + block(y)
        more = extra["k"][0] + x.shape[1] * self.count
        return {"y": F.dropout(y, 0.5, self.training), "more": (torch.einsum("bij,kj->bik", x, x[0]), more), "n": None}


def test_a_model_is_what_it_was() -> None:
    torch.manual_seed(0)
    model, x, extra = Net().eval(), torch.randn(3, 6, 4), {"k": [torch.ones(2), torch.ones(3)]}
    batch = torch.export.Dim("batch")
    dynamic = {"x": {0: batch}, "extra": {"k": [None, None]}}
    gm = fx.from_torch(model, x, extra, dynamic_shapes=dynamic)
    arrays = {"k": [np.ones(2, np.float32), np.ones(3, np.float32)]}
    assert str(next(iter(gm.graph.placeholders)).type) == "f32[batch,6,4]"
    compiled = fx.compile(gm)
    for size in (3, 5, 1):
        x = torch.randn(size, 6, 4)
        before = model.count.clone()
        with torch.no_grad():
            expected = model(x, extra)
        for fn in (gm, compiled):
            array = x.numpy().copy()
            close(fn(array, arrays)["y"], expected["y"])
            close(fn(array, arrays)["more"][0], expected["more"][0])
        assert model.count == before + 1
    assert gm.count == 6  # a state of the graph

    targets = ops_of(gm)
    for whole, count in {"lstm": 4, "layer_norm": 1, "scaled_dot_product_attention": 1, "gelu": 2, "linear": 4}.items():
        assert targets.count(whole) == count
    (norm,) = gm.graph.find_nodes(op="call_function", target="layer_norm")
    assert (norm.scope.path, norm.scope.class_name) == ("norm", "LayerNorm")
    _, start = inspect.getsourcelines(Net.forward)
    assert norm.loc.short == f"test_from_torch.py:{start + 2}" and "self.norm(" in norm.loc.expression
    assert {node.scope.path for node in gm.graph.find_nodes(op="call_function", target="gelu")} == {
        "blocks.0.1",
        "blocks.1.1",
    }
    assert {name for name in gm.state_dict() if not name.startswith("constant_")} <= {*model.state_dict()}


def test_sizes_are_named_by_texts() -> None:
    """The same name is the same size; torch.export takes its own objects alone."""

    class Joined(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return torch.cat([x, y], 1)

    x, y = torch.randn(2, 3), torch.randn(2, 5)
    spec = {"x": {0: "batch"}, "y": ("batch", "T")}
    gm = fx.from_torch(Joined(), x, y, dynamic_shapes=spec)
    assert [str(p.type) for p in gm.graph.placeholders] == ["f32[batch,3]", "f32[batch,T]"]
    gm = fx.from_torch(Joined(), x, y, dynamic_shapes=({0: "batch"}, {0: "batch"}))
    assert [str(p.type) for p in gm.graph.placeholders] == ["f32[batch,3]", "f32[batch,5]"]
    with pytest.raises(ArgumentError, match=r"dynamic_shapes='a b': a size is named by an identifier"):
        fx.from_torch(Joined(), x, y, dynamic_shapes={"x": {0: "a b"}, "y": {}})


def test_what_is_taken_for_a_model(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="must be a GraphModule, not Linear"):
        fx.to_torch(nn.Linear(3, 3))
    with pytest.raises(ArgumentError, match="must be a GraphModule, not Linear"):
        fx.to_torch_fx(nn.Linear(3, 3))
    path = tmp_path / "model.onnx"
    path.write_bytes(b"model")
    with pytest.raises(ArgumentError, match=r"model.onnx is not a .pt2 file; ONNX models are imported by fx.from_onnx"):
        fx.from_torch(str(path))
    with pytest.raises(ModelImportError, match="same reduction dim"):
        fx.from_torch(nn.Linear(3, 3), "f32[B,4]")
    assert not [r for r in caplog.records if r.levelname == "ERROR"], (
        "torch logs its stack for the error that is raised"
    )


def test_weights_are_the_tensors_memory() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4))
    gm = fx.from_torch(model, torch.randn(2, 3))
    assert np.shares_memory(gm.get_parameter("0.weight"), model[0].weight.detach().numpy())
    with torch.no_grad():
        model[0].weight.fill_(2)
    assert (gm.get_parameter("0.weight") == 2).all()


def _of_complex_matrices(z: Any) -> tuple[Any, ...]:
    """Results of decompositions that do not depend on the phases of vectors."""
    left, values, right = torch.linalg.svd(z, full_matrices=False)
    squares = z @ z.mH
    own, vectors = torch.linalg.eigh(squares)
    return (
        (left * values) @ right,
        (vectors * own) @ vectors.mH,
        torch.linalg.eigvalsh(squares, UPLO="U"),
        torch.linalg.svdvals(z.mT),
        torch.linalg.matrix_norm(z, "nuc"),
        torch.linalg.pinv(z),
        torch.linalg.lstsq(z.mT, z.mT[:, :2]).solution,
        torch.linalg.lu_solve(*torch.linalg.lu_factor(z[:, :3]), z, adjoint=True),
    )


def _of_complex_numbers(z: Any) -> tuple[Any, ...]:
    return (
        torch.view_as_real(z @ z.mH),
        torch.view_as_real(z.sigmoid()),
        torch.view_as_real(z.adjoint() + z.H),
        z.norm(),
        torch.linalg.vector_norm(z, dim=1),
        torch.linalg.norm(z),
        z.std(),
        z.var(1),
        torch.view_as_real(torch.vdot(z[0], z[1])),
        torch.view_as_real(torch.linalg.vecdot(z[0], z[1])),
    )


def _of_matrices(a: Any, b: Any) -> tuple[Any, ...]:
    """Of a positive definite matrix, and one with as many rows."""
    lower = torch.linalg.cholesky(a)
    return (
        torch.linalg.solve(a, b),
        torch.linalg.solve(a, b[:, 0]),
        torch.linalg.solve(a, b.t(), left=False),
        lower,
        torch.linalg.cholesky(a, upper=True),
        torch.cholesky_solve(b, lower),
        torch.cholesky_inverse(lower),
        torch.linalg.solve_triangular(a, b, upper=True),
        torch.linalg.solve_triangular(a, b.t(), upper=False, left=False, unitriangular=True),
        torch.triangular_solve(b, a, upper=False, transpose=True)[0],
        torch.linalg.inv_ex(a)[0],
        torch.det(a),
        torch.logdet(a),
        *torch.linalg.slogdet(a),
        torch.linalg.qr(b.t())[1].abs(),
        torch.linalg.eigvalsh(a),
        torch.linalg.eigh(a)[0],
        torch.linalg.svdvals(b),
        torch.linalg.svd(b, full_matrices=False)[1],
        torch.linalg.pinv(b),
    )


def _orders(x: Any) -> tuple[Any, ...]:
    """Sorts both ways, of NaN, equal elements and the smallest and largest integers."""
    return (
        *torch.sort(x, stable=True),
        *torch.sort(x, dim=0, descending=True, stable=True),
        torch.argsort(x, descending=True, stable=True),
        x.topk(3)[0],
        x.topk(3, largest=False)[0],
    )


OPS = {
    "promotions": lambda x, i, m: (i / 2, i + 0.5, i * x, i // 2, x > i, torch.where(m, i, 1.5), i.sum(), m.sum()),
    "scalars": lambda x, i, m: (2 - x, 1 / (x + 9), x**2, 2**x, torch.add(x, i, alpha=2), x % 2, torch.fmod(x, 2)),
    "0-dim": lambda x, i, m: (x * torch.tensor(2.0, dtype=torch.float64), x + i[0, 0]),
    "unary": lambda x, i, m: (x.abs().log1p(), x.erf(), x.sigmoid(), x.rsqrt().nan_to_num(), i.exp(), i.float().sqrt()),
    "division": lambda x, i, m: (
        torch.div(x, 2, rounding_mode="floor"),
        torch.div(i - 3, 2, rounding_mode="trunc"),
        torch.div(x, 0.7, rounding_mode="trunc"),
    ),
    "clamp": lambda x, i, m: (x.clamp(-1, 1), x.clamp(min=0.5), i.clamp(max=2), x.clamp(x - 1, x.abs())),
    "masks": lambda x, i, m: (x.masked_fill(m, -1e9), x.masked_fill(~m, float("-inf")).softmax(-1).nan_to_num(), m & m),
    "activations": lambda x, i, m: (
        F.elu(x),
        F.gelu(x),
        F.gelu(x, approximate="tanh"),
        F.hardswish(x),
        F.silu(x),
        F.mish(x),
        F.relu6(x),
        F.glu(x),
        F.leaky_relu(x, 0.2),
        F.softplus(x),
        F.hardtanh(x),
        F.selu(x),
        F.logsigmoid(x),
        F.softsign(x),
        F.threshold(x, 1, 2),
        F.prelu(x, torch.tensor([0.1])),
        F.celu(x),
        F.hardsigmoid(x),
        F.softshrink(x),
        F.tanhshrink(x),
    ),
    "reductions": lambda x, i, m: (
        x.sum(0),
        x.mean((0, 1), keepdim=True),
        x.var(1),
        x.std(),
        x.var(0, unbiased=False),
        x.amax(1),
        x.max(1),
        x.min(0, keepdim=True),
        x.argmax(1),
        x.argmin(),
        x.prod(1),
        x.logsumexp(1),
        x.norm(),
        x.norm(p=1, dim=1),
        m.any(1),
        m.all(),
        x.cumsum(1),
        i.cumsum(0),
        torch.var_mean(x, 1),
        x.softmax(0),
        x.log_softmax(1),
        x.count_nonzero(1),
    ),
    "shapes": lambda x, i, m: (
        x.view(-1),
        x.reshape(4, 3),
        x.t(),
        x.transpose(0, 1),
        x.unsqueeze(-1),
        x[None].squeeze(0),
        x.expand(2, 3, 4),
        x.repeat(2, 1),
        x.flip(1),
        x.roll(1, 0),
        x.tile(2),
        x.repeat_interleave(2, 1),
        x.flatten(),
        x.unflatten(1, (2, 2)),
        x.unfold(1, 2, 1),
        x.tril(),
        x.triu(1),
        x.diagonal(),
        torch.linalg.diagonal(x.expand(2, 3, 4)),
        torch.cross(x, x + 1),
        torch.linalg.cross(x.t(), x.t() + 1),
        x.movedim(0, 1),
        x.permute(1, 0),
        x.broadcast_to(2, 3, 4),
    ),
    "parts": lambda x, i, m: (
        x[1],
        x[:, 1:3],
        x[::2],
        x[..., -1],
        x.split(2, 1),
        x.chunk(3, 1),
        x.unbind(0),
        x.narrow(1, 1, 2),
        x[:, [0, 2]],
        x[i % 3],
        x.gather(1, i),
        x.index_select(0, torch.tensor([2, 0])),
        x.take_along_dim(i, 1),
        x.select(1, -1),
        x.topk(2),
        x.sort(1, descending=True),
        x.argsort(0),
        x[:, -3:-1],
        torch.split(x, [1, 3], 1),
    ),
    "joined": lambda x, i, m: (
        torch.cat([x, i], 1),
        torch.stack([x, x], -1),
        F.pad(x, (1, 2)),
        F.pad(x, (1, 1), value=3.0),
        F.pad(x, (-1, 2)),
        F.pad(x[None], (1, 1), mode="reflect"),
        F.pad(x[None], (1, 1), mode="replicate"),
        torch.hstack([x, x]),
        F.pad(x[None], (1, 1), mode="circular"),
    ),
    "written": lambda x, i, m: (
        x.scatter(1, i, 5.0),
        x.scatter_add(1, i, x),
        x.index_add(0, torch.tensor([0, 2]), x[:2]),
        x.clone().index_put_((torch.tensor([0, 2]),), x[:2]),
        x.index_fill(0, torch.tensor([1]), 0.0),
        x.masked_scatter(m, x.flip(0)),
        x.clone().relu_().add_(1),
        x.clone().mul_(2)[0],
        x.index_copy(0, torch.tensor([1]), x[:1]),
    ),
    "made": lambda x, i, m: (
        torch.arange(5) + i.sum(),
        torch.zeros_like(x) + 1,
        torch.full((2,), 3.0) * x[0, 0],
        torch.eye(3) @ x,
        x.new_ones(2),
        torch.linspace(0, 1, 5) + x[0, 0],
        *torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij"),
        torch.ones_like(i),
        torch.arange(0, 1, 0.25) * x[0],
        F.one_hot(i, 4),
    ),
    "products": lambda x, i, m: (
        x @ x.t(),
        torch.mv(x, x[0]),
        torch.addmm(x[:, :3], x, x.t(), beta=2, alpha=0.5),
        torch.outer(x[0], x[1]),
        x[0] @ x[1],
        torch.inner(x, x),
        torch.inner(x[0], x[1]),
        torch.linalg.norm(x),
        torch.linalg.norm(x, "fro"),
        torch.linalg.norm(x, 1, 0),
        torch.nansum(torch.where(x > 0, x, math.nan), 1),
        torch.histc(x, 5, -1.0, 1.0),
        torch.bmm(x[None], x.t()[None]),
        torch.baddbmm(x[None, :, :3], x[None], x.t()[None]),
        torch.cdist(x, x + 1),
        torch.einsum("ij,kj->ik", x, x),
        F.cosine_similarity(x, x + 1),
        F.normalize(x, dim=1),
        torch.tensordot(x, x, ([1], [1])),
    ),
    "images": lambda x, i, m: (
        F.max_pool2d(x[None, None], 2, 1),
        F.avg_pool2d(x[None, None], 2, 1, 1, count_include_pad=False),
        F.adaptive_avg_pool2d(x[None], 2),
        F.adaptive_max_pool2d(x[None], 2),
        F.interpolate(x[None, None], size=(6, 8)),
        F.unfold(x[None, None], 2),
        F.unfold(x[None], 2, 1, (1, 0), (2, 1)),
        F.fold(x.reshape(1, 4, 3), (2, 4), 2, 1, 0, (1, 1)),
        F.fold(x.reshape(1, 4, 3), (2, 6), 2, (2, 1), (1, 0), (2, 2)),
        F.fold(x.reshape(4, 3), (2, 6), (1, 2), 1, 0, (2, 2)),
        F.avg_pool2d(x[None, None], 5, ceil_mode=True),
        F.max_pool2d(x[None, None], 999, padding=400, ceil_mode=True),
        F.max_pool2d(x[None, None], (3, 7), 2, 1, ceil_mode=True, return_indices=True),
        F.interpolate(x[None, None], scale_factor=2, mode="bilinear", align_corners=True),
        F.pixel_shuffle(x.reshape(1, 4, 3, 1), 2),
        F.interpolate(x[None, None], size=(5, 5), mode="bilinear"),
        F.pixel_unshuffle(x[None, None, :2], 2),
        F.interpolate(x[None, None], size=(2, 5), mode="bilinear", antialias=True),
        F.interpolate(x[None, None], size=(5, 6), mode="bicubic"),
        F.interpolate(x[None, None], size=(5, 6), mode="bicubic", align_corners=True),
        F.interpolate(x[None, None], scale_factor=(1.5, 0.6), mode="bicubic"),
        F.interpolate(x[None, None], size=(2, 5), mode="nearest-exact"),
        F.interpolate(x[None, None, None], size=(2, 5, 3), mode="trilinear"),
        F.interpolate(x[None, None, None], size=(2, 5, 3)),
        F.interpolate(x[None, None], scale_factor=(0.7, 1.5), mode="bicubic", antialias=True),
        F.max_pool1d(x[None], 2),
        F.conv2d(x[None, None], torch.ones(2, 1, 2, 2), padding="same"),
        F.conv_transpose2d(x[None, None], torch.ones(1, 2, 2, 2), stride=2),
        F.conv1d(x[None], torch.ones(2, 3, 2)),
        F.channel_shuffle(x.reshape(1, 4, 3, 1), 2),
        F.adaptive_max_pool2d(x[None], (2, 3), return_indices=True),
        F.max_unpool2d(*F.max_pool2d(x[None, None], (1, 2), return_indices=True), (1, 2)),
        F.max_unpool2d(*F.max_pool2d(x[None], 2, return_indices=True), 2),
        F.max_unpool1d(*F.max_pool1d(x[None], 2, return_indices=True), 2),
        F.max_unpool3d(*F.max_pool3d(x[None, None, None], (1, 1, 2), return_indices=True), (1, 1, 2)),
        F.adaptive_avg_pool1d(x[None], 2),
    ),
    "norms": lambda x, i, m: (
        F.layer_norm(x, (4,)),
        F.group_norm(x.reshape(1, 4, 3), 2),
        F.rms_norm(x, (4,)),
        F.instance_norm(x[None]),
        F.batch_norm(x, torch.zeros(4), torch.ones(4)),
        F.batch_norm(x, None, None, training=True),
        F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], is_causal=True),
        F.scaled_dot_product_attention(
            x.reshape(1, 4, 3, 1), x.reshape(1, 2, 6, 1), x.reshape(1, 2, 6, 1), enable_gqa=True
        ),
    ),
    "complex": lambda x, i, m: (
        torch.view_as_real(torch.view_as_complex(x.reshape(3, 2, 2)) * torch.polar(x[:, :2], x[:, 2:])),
        torch.fft.rfft(x).abs(),
        torch.fft.irfft2(torch.fft.rfft2(x)),
        *_of_complex_numbers(torch.complex(x, x.flip(0))),
    ),
    "in place": lambda x, i, m: (
        torch.zeros(3, 4).scatter_add_(1, torch.zeros_like(i), x),
        x.clone().scatter_reduce_(1, torch.zeros_like(i), x, "amax"),
        x.clone().index_fill_(0, torch.tensor([1]), 2.0),
        x.clone().index_copy_(0, torch.tensor([1]), x[:1]),
        torch.zeros(3, 4).index_add_(0, torch.tensor([0, 0, 2]), x),
        x.clone().add_(x, alpha=2).sub_(1, alpha=3),
        x.clone().tril_().triu_(-1),
        x.clone().cumsum_(1),
        x.clone().addmm_(x[:, :3], x[:3], beta=0.5),
    ),
    "searching": lambda x, i, m: (
        torch.searchsorted(x.flatten().sort()[0], x, side="right"),
        torch.searchsorted(x.flatten().sort()[0], x.flatten().sort()[0], right=True),
        torch.searchsorted(x.flatten(), x + 0.1, sorter=x.flatten().argsort()),
        torch.cdist(x, x + 1, p=float("inf")),
        torch.cdist(x, x.round(), p=0.0),
        torch.nan_to_num(x / 0.0, posinf=3.0),
        torch.bucketize(x.round(), torch.tensor([-1.0, 0, 1]), right=True),
    ),
    "orders": lambda x, i, m: (
        *_orders(torch.where(m, x.round(), float("nan"))),
        *_orders((i * 127).to(torch.uint8)),
        *_orders((i * 100 - 128).to(torch.int8)),
        torch.sign(torch.where(m, x, float("nan"))),
        torch.sgn(i - 1),
    ),
    "norms of matrices": lambda x, i, m: (
        torch.linalg.matrix_norm(x),
        torch.linalg.matrix_norm(x, 1),
        torch.linalg.matrix_norm(x, float("inf"), keepdim=True),
        torch.linalg.norm(x, -1),
        torch.linalg.norm(x, "nuc"),
        torch.kron(x, x[:2, :2]),
    ),
    "ranks": lambda x, i, m: (
        *x.kthvalue(2, 1),
        *x.median(1),
        x.median(),
        torch.where(m, x, math.nan).median(0)[0],
        torch.where(m, x, math.nan).nanmedian(0, keepdim=True)[0],
        i.median(0)[0],
        x.msort(),
        x.quantile(0.3, dim=1),
        *x.cummax(1),
        *torch.where(m, x.round(), math.nan).cummin(0),
        x.logcumsumexp(1) - (x - 900).logcumsumexp(1),
        torch.searchsorted(x.sort()[0], x[:, :3].contiguous()),
        torch.searchsorted(x.sort()[0], x.sort()[0], right=True),
        torch.pdist(x),
        torch.dist(x, x + 1, 3),
    ),
    "linear algebra": lambda x, i, m: _of_matrices(x[:, :3] @ x[:, :3].t() + torch.eye(3), x),
    "constants read": lambda x, i, m: (
        torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor([0.95, 0.3])) + x[:, :2],  # erfinv is no op here
        torch.eye(5)[i],
        torch.linspace(0, 1, 9)[i.clamp(0, 2)],
        torch.hamming_window(4) * x,
        torch.fft.rfftfreq(7) * x,
        x.index_select(1, torch.tensor(1)),
        x.repeat_interleave(torch.tensor([1, 0, 2]), 0),
        x.repeat_interleave((i == 1).sum(1) * 0 + 1, 0, output_size=3),
        x.as_strided((3, 3), (4, 1), 1),
        (x + 1).t().as_strided((3, 3), (2, 1), 1),
        torch.as_strided_scatter((x + 1).t(), x[:2, :3], (2, 3), (5, 1), 1),
        x.hsplit(2),
        torch.diagonal_scatter(x, x[0, :3], 1),
        x[i[0, 0]],
        x[:, i[0, 0]] * i[0, 0].item(),
        torch.cdist(x, x).fill_diagonal_(7.0),
    ),
    "put together": lambda x, i, m: (
        x.scatter_reduce(1, i, x, "mean"),
        x.scatter_reduce(1, i, x, "mean", include_self=False),
        x.scatter_reduce(1, i, x, "amax", include_self=False),
        i.scatter_reduce(1, i, i - 7, "amin", include_self=False),
        i.scatter_reduce(1, i, i, "prod", include_self=False),
        (9 * i).scatter_reduce(1, i, i - 7, "mean"),
        x.index_reduce(1, i[0, :3], x[:, :3], "amax"),
        x.index_reduce(0, i[0, :3], x, "mean", include_self=False),
        F.embedding_bag(i, x, mode="max", padding_idx=1),
        F.embedding_bag(i.flatten(), x, torch.tensor([0, 5, 5, 6]), mode="mean"),
        F.embedding_bag(
            i[0], x, torch.tensor([0, 3, 4]), mode="sum", include_last_offset=True, per_sample_weights=x[0].contiguous()
        ),
    ),
    "grids": lambda x, i, m: (
        *(
            F.grid_sample(x[None, None], x.reshape(1, 2, 3, 2), mode, padding, align_corners=align)
            for mode in ("bilinear", "nearest", "bicubic")
            for padding in ("zeros", "border", "reflection")
            for align in (False, True)
        ),
        F.grid_sample(x[None, None, None], x.reshape(1, 2, 2, 1, 3), align_corners=False),
    ),
    "fake integers": lambda x, i, m: (
        torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7),
        torch.fake_quantize_per_channel_affine(x, x[:, 0].abs() + 0.1, i[:, 0].int(), 0, -128, 127),
        torch.angle(x),
        torch.angle(torch.complex(x, -x)),
    ),
    "taken apart": lambda x, i, m: (  # the table has none of them
        F.pairwise_distance(x, x + 1),
        F.triplet_margin_loss(x, x + 1, x.flip(0), swap=True),
        F.multi_margin_loss(x, i[:, 0]),
        F.affine_grid(x[:2, :3][None], (1, 1, 3, 2), align_corners=False),
        torch.block_diag(x, x[:2]),
        torch.gru_cell(x[:, :2], x, *(torch.arange(24.0).reshape(12, 2) / 9, torch.arange(48.0).reshape(12, 4) / 9)),
        torch.diag_embed(x, 1),  # the entry refuses the offset
        torch.vmap(lambda row: row.softmax(0) * row.sum())(x),
        torch.stft(x.flatten(), 4, 2, window=torch.ones(4), return_complex=True).abs(),
    ),
    "special functions": lambda x, i, m: (
        torch.lgamma(x * 3),
        torch.digamma(x * 3),
        *(torch.polygamma(n, x * 3) for n in (1, 2, 3, 6)),
        torch.special.gammainc(x.abs() * 9, x.abs() * 7 + m),
        torch.special.gammaincc(x.abs() * 300, x.flip(0).abs() * 300),
        torch.erfinv(x.tanh()),
        torch.special.ndtri(x.sigmoid()),
        torch.i0(x * 9),
        torch.special.i1e(x * 99),
        torch.special.bessel_j0(x * 9),
        torch.special.bessel_j1(x * 99),
        torch.matrix_exp(x[:, :3] * 3),
        torch.ldexp(x, i),
        *torch.frexp(x),
    ),
    "values without axes": lambda x, i, m: (
        x[0, 0].softmax(0),
        x[0, 0].cumsum(-1),
        *x[0, 0].max(0),
        *x[0, 0].sort(0, descending=True),
        x[0, 0].logsumexp(0),
        x[0, 0].index_select(0, i[0, :1] * 0),
        x[0, 0].scatter_add(0, i[0, 0] * 0, x[0, 1]),
        x[0, 0].unfold(0, 1, 1),
    ),
    "integers where floats are given": lambda x, i, m: (
        torch.baddbmm(i[None], i[None, :, :3], i[None], beta=0.6, alpha=1.9),
        F.hardtanh(i, 1, 2),
        i.logsumexp(1),
        i.mode(1)[0],
        torch.histc(x, 4),
        torch.searchsorted(x[0].sort().values, 0.25),
        x[0].masked_scatter(m, x + 9),
        x.put(i, x, accumulate=True),
        torch.cartesian_prod(x[0], x[1]),
    ),
    "negative numbers for positions and exponents": lambda x, i, m: (
        F.embedding_bag(i[0], x, i[1, :1] * 0, mode="sum", padding_idx=-1),
        F.embedding_bag(i[0], x, i[1, :1] * 0, mode="mean", padding_idx=-3),
        torch.pow(i - 1, i[:1] - 2),
        3 ** (i - 1),
        (-1) ** (i - 1),
    ),
    "rows that change places": lambda x, i, m: (
        *torch.linalg.lu(x),
        *torch.linalg.lu(torch.stack([x.mT, x.mT * 2 - 1])),
        *torch.linalg.lu_factor(torch.stack([x[:, :3], x[:, 1:] + 2])),
        torch.linalg.lu_solve(*torch.linalg.lu_factor(x[:, :3]), x),
        torch.linalg.lu_solve(*torch.linalg.lu_factor(x[:, :3]), x.mT, left=False, adjoint=True),
        *torch.linalg.lu_factor_ex(x[:, :3] * torch.tensor([1.0, 0.0, 1.0]))[:2],
    ),
    "windows that reach beyond the end": lambda x, i, m: (
        F.avg_pool2d(x[None], 2, ceil_mode=True, divisor_override=3),
        F.avg_pool2d(x[None, None], 3, 2, 1, ceil_mode=True, divisor_override=-2),
        F.avg_pool3d(x[None, None], (1, 2, 3), (1, 2, 2), ceil_mode=True, divisor_override=5),
    ),
    "half of a matrix": lambda x, i, m: (
        torch.linalg.pinv(x[:, :3], hermitian=True),
        torch.linalg.eigvalsh(x[:, :3], UPLO="U"),
        torch.cholesky_solve(x[:, 3:], x[:, :3] + torch.eye(3) * 2),
        torch.cholesky_inverse(x[:, :3] + torch.eye(3) * 2, upper=True),
    ),
    "products of reflections": lambda x, i, m: (
        torch.linalg.householder_product(x[:, :3], x[0, :3] / 4),
        torch.linalg.householder_product(x.mT, x[0, :2]),
        torch.linalg.householder_product(torch.complex(x, x + 1)[None].mT, torch.complex(x, x)[:1, :3] / 9).abs(),
    ),
    "QR decompositions in compact form": lambda x, i, m: (
        *torch.geqrf(x),
        *torch.geqrf(torch.complex(x, x.flip(0)).mT),
        torch.ormqr(*torch.geqrf(x.mT), torch.eye(4)),
        torch.ormqr(*torch.geqrf(x.mT[None]), x[None], left=False, transpose=True),
        torch.ormqr(*torch.geqrf(torch.complex(x, x.flip(1)).mT), torch.ones(4, 2) * 1j, transpose=True),
    ),
    "decompositions of complex numbers": lambda x, i, m: (
        *torch.linalg.qr(torch.complex(x, x.flip(0))),
        *torch.linalg.lu(torch.complex(x, x.flip(0))),
        *_of_complex_matrices(torch.complex(x, x.flip(0))),
    ),
    "whether it succeeded": lambda x, i, m: (
        *torch.linalg.inv_ex(x[:, :3]),
        *torch.linalg.cholesky_ex(torch.stack([x @ x.mT, x @ x.mT * 2])),
        *torch.linalg.solve_ex(x[:, :3], x),
        *torch.lu(x[:, :3] * torch.tensor([1.0, 0.0, 1.0]), get_infos=True),
    ),
    "what an export cannot follow": lambda x, i, m: (
        torch.linalg.lstsq(x.mT, x.mT * 2 + 1).solution,
        *torch.linalg.lstsq(x.mT, x[0].square(), driver="gelsd"),
        *torch.linalg.lstsq(x, x[:, 0], driver="gels"),
        torch.linalg.lstsq(torch.stack([x, x + 1]), torch.stack([x, x])).solution,
        torch.cov(x),
        x[0].cov(correction=0),
        torch.cov(x, fweights=torch.tensor([1, 2, 1, 3]), aweights=x[0].abs()),
        torch.corrcoef(x),
        torch.corrcoef(torch.complex(x, x.flip(0))),
        torch.combinations(x[0], 3, with_replacement=True),
        x.narrow(1, i[0, 0] - 2, 1),
        F.gaussian_nll_loss(x, x + 1, x[:, :1].abs(), full=True),
    ),
    "statistics of norms": lambda x, i, m: (
        *torch.native_layer_norm(x, (4,), None, None, 1e-3),
        *torch.ops.aten._fused_rms_norm(x, [4], None, None),
        *torch.native_group_norm(x.reshape(3, 4, 1), None, None, 3, 4, 1, 2, 1e-3),
        *torch.ops.aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-3),
        *torch.ops.aten._native_batch_norm_legit_no_training(x, None, None, x[0], x[1].abs(), 0.1, 1e-3),
    ),
    "windows at random places that are given": lambda x, i, m: (
        *F.fractional_max_pool2d(
            x.reshape(1, 1, 3, 4), 2, (2, 3), _random_samples=m[:1, None, :2] / 2.0, return_indices=True
        ),
        F.fractional_max_pool2d(x[None], (1, 2), (2, 1), _random_samples=x[None, :1, :2].abs() / 9),
        F.fractional_max_pool3d(x.reshape(1, 2, 2, 3), 1, (1, 1, 2), _random_samples=m[:1, None, :3] / 3.0),
    ),
    "places and bins": lambda x, i, m: (
        torch.nonzero_static(m, size=4),
        torch.nonzero_static(x > 9, size=2, fill_value=7),
        torch.nonzero_static(m[0, 0], size=2),
        torch.gather(x, 0, torch.zeros(0, 2, 2, dtype=torch.int64)),
        *torch.histogram(x, 4),
        *torch.histogram(x, torch.tensor([-1.0, 0, 2]), weight=x.abs(), density=True),
    ),
    "values sought among those of another dtype": lambda x, i, m: (
        torch.searchsorted(torch.tensor([0, 1, 2]), x),
        torch.searchsorted(i.sort(-1)[0], x[:, :2], right=True),
        torch.bucketize(i, torch.tensor([0.5, 1.5])),
        torch.bucketize(0.3, x[0].sort()[0]),
    ),
    "numbers that a dtype cannot hold": lambda x, i, m: (
        i.to(torch.uint8) > -1,
        i.to(torch.uint8) * 300,
        i.to(torch.int8) - 200,
        torch.fmod(i.to(torch.uint8), -3),
        torch.where(m, i.to(torch.uint8), -1),
    ),
    "between": lambda x, i, m: (
        torch.lerp(x * 1e9, x, 1.0),
        torch.lerp(x * 1e9, x, m.float()),
        torch.lerp(x, x + 2, 0.3),
    ),
    "an index smaller than what it places": lambda x, i, m: (
        torch.zeros(5, 4).scatter(0, i[:1, :2], x),
        torch.zeros(3, 4).scatter_add(1, i[:2, :1], x),
        torch.ones(3, 4).scatter_reduce(0, i[:1, :3], x, "amax"),
    ),
    "complex matrices": lambda x, i, m: (torch.logdet(torch.complex(x[:, 1:], x[:, :3])),),
    "complex numbers": lambda x, i, m: (torch.dist(torch.complex(x, i * 1.0), torch.complex(x + 1, x)), torch.sign(m)),
    "core ATen": lambda x, i, m: (  # as programs have it that were taken apart
        torch.ops.aten._fft_r2c(x, [0, 1], 1, True).abs(),
        torch.ops.aten._fft_c2r(torch.complex(x, x), [0, 1], 2, 6),
        torch.ops.aten._fft_c2c(torch.complex(x, x), [1], 2, False).abs(),
        torch.ops.aten._upsample_bilinear2d_aa(x[None, None], [2, 2], False, 0.7, 0.6),
        F.avg_pool2d(x[None, None], 2, 1, 1, count_include_pad=False, divisor_override=3),
    ),
    "margins of several targets": lambda x, i, m: (
        *(F.multilabel_margin_loss(x, i - 1, reduction=reduction) for reduction in ("none", "mean", "sum")),
        F.multilabel_margin_loss(x, torch.tensor([[1, 3, -1, 0], [-1, 2, 2, 1], [0, 1, 2, 3]])),
        F.multilabel_margin_loss(x[0], i[0]),
        F.multilabel_margin_loss(x[0, 0], i[0, 0] * 0),
    ),
    "losses": lambda x, i, m: (F.cross_entropy(x, i[:, 0]), F.mse_loss(x, x + 1), F.l1_loss(x, x * 2, reduction="sum")),
}


@pytest.mark.parametrize("name", OPS)
def test_ops(name: str) -> None:
    class Ops(nn.Module):
        def forward(self, x: Any, i: Any, m: Any) -> Any:
            return OPS[name](x, i, m)

    torch.manual_seed(1)
    inputs = torch.randn(3, 4), torch.randint(0, 3, (3, 4)), torch.rand(3, 4) > 0.4
    gm = fx.from_torch(Ops(), *inputs)
    expected = Ops()(*inputs)
    close(gm(*map(array_of, inputs)), [*expected])


@pytest.mark.parametrize("how", [{"align_corners": True}, {"antialias": True}])
def test_sizes_that_would_be_rounded_say_so(how: dict[str, bool]) -> None:
    class Larger(nn.Module):
        def forward(self, x: Any) -> Any:
            return F.interpolate(x, scale_factor=1.7, mode="bilinear", **how)

    with pytest.raises(ModelImportError, match=r"a size that may differ, H, times 1.7, would have to be rounded"):
        fx.from_torch(Larger(), "f32[1,2,H,8]")


def test_special_functions_where_little_is_left() -> None:
    """Relative to their values: a difference of numbers that are nearly alike has none of its digits."""

    class Functions(nn.Module):
        def forward(self, x: Any) -> Any:
            tails = torch.erfc(x), torch.special.erfcx(x), torch.special.log_ndtr(x), torch.special.ndtri(x.abs() / 30)
            bessel = torch.special.i0e(x), torch.special.i1e(x), torch.special.i1(x / 10)
            return *tails, *bessel, torch.special.bessel_j1(x / 10)

    x = torch.tensor([-25, -6, -0.5, 0, 1e-30, 1e-9, 1e-5, 0.3, 1, 3.7, 5, 9, 24.5, math.inf, math.nan]).double()
    gm = fx.from_torch(Functions(), x)
    for found, expected in zip(gm(x.numpy()), Functions()(x)):
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12)


def test_bessel_functions_of_the_second_kind_and_zeta() -> None:
    """Those of torch have eight digits between 2 and 10, and are compared with mpmath's, too."""

    class Functions(nn.Module):
        def forward(self, x: Any, q: Any) -> Any:
            return torch.special.bessel_y0(x), torch.special.bessel_y1(x), torch.special.zeta(x[:, None], q)

    x = torch.tensor([0, 1e-300, 1e-9, 1e-3, 0.5, 0.9, 1.0, 1.5, 2, 3.7, 5, 9, 24.5, 25.5, 60, 1e3, -1, math.nan])
    q = torch.tensor([-3.5, -2.0, -0.25, 0.0, 1e-3, 0.5, 1, 2.5, 9, 30, 1e4])
    x, q = x.double(), q.double()
    gm = fx.from_torch(Functions(), x, q)
    with np.errstate(all="ignore"):
        found = gm(x.numpy(), q.numpy())
    for values, expected, near in zip(found, Functions()(x, q), (1e-6, 1e-6, 1e-10)):
        np.testing.assert_allclose(values, expected.numpy(), rtol=near)
    for order in (0, 1):
        exact = [float(mpmath.bessely(order, float(v))) for v in x[1:-2]]
        np.testing.assert_allclose(found[order][1:-2], exact, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(fx.compile(gm)(x.numpy(), q.numpy())[2], found[2], rtol=1e-10)


@pytest.mark.parametrize("order", [-1, 0, 1, 2, 7])
def test_orthogonal_polynomials(order: int) -> None:
    kinds = [f"{k}chebyshev_polynomial_{n}" for k in ("", "shifted_") for n in "tuvw"]
    kinds += ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]

    class Functions(nn.Module):
        def forward(self, x: Any) -> Any:
            return tuple(getattr(torch.special, kind)(x, order) for kind in kinds)

    x = torch.linspace(0.05, 0.95, 7).double()
    for found, expected, kind in zip(fx.from_torch(Functions(), x)(x.numpy()), Functions()(x), kinds):
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-9, atol=1e-12, err_msg=kind)


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "max", "min"])
@pytest.mark.parametrize("initial", [None, 2.0])
def test_reductions_of_segments(reduce: str, initial: float | None) -> None:
    class Segments(nn.Module):
        def forward(self, x: Any, lengths: Any) -> Any:
            return (
                torch.segment_reduce(x, reduce, lengths=lengths, initial=initial),
                torch.segment_reduce(x[:, 0], reduce, offsets=torch.tensor([0, 1, 5, 6]), initial=initial),
            )

    x, lengths = torch.randn(6, 2), torch.tensor([2, 0, 3, 1])
    gm = fx.from_torch(Segments(), x, lengths)
    for run in (gm, fx.compile(gm)):
        close(run(x.numpy(), lengths.numpy()), Segments()(x, lengths))


def test_incomplete_gamma_functions() -> None:
    """Also for large arguments, at the ends of their ranges, and outside."""

    class Functions(nn.Module):
        def forward(self, a: Any, x: Any) -> Any:
            return torch.special.gammainc(a, x), torch.special.gammaincc(a, x)

    one = [0, 1e-3, 0.5, 1, 2.5, 50, 99, 100, 500, 1e4, 1e7, math.inf, -1, math.nan]
    other = [0, 1e-3, 0.5, 1, 1.5, 9, 45, 60, 101, 130, 480, 9900, 1.01e4, 1e7, 1.001e7, math.inf, -1]
    a, x = torch.meshgrid(torch.tensor(one).double(), torch.tensor(other).double(), indexing="ij")
    gm = fx.from_torch(Functions(), a, x)
    with np.errstate(all="ignore"):
        found = gm(a.numpy(), x.numpy())
    for values, expected in zip(found, Functions()(a, x)):
        np.testing.assert_allclose(values, expected.numpy(), rtol=2e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: Any) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.LayerNorm(16), nn.Linear(16, 4)).eval().to(dtype)
    x = torch.randn(3, 8).to(dtype)
    gm = fx.from_torch(model, x)
    with torch.no_grad():
        expected = model(x)
    close(gm(array_of(x)), expected, 0.05)
    assert np.shares_memory(gm.get_parameter("0.weight"), array_of(model[0].weight))


def test_control_flow() -> None:
    class Flow(nn.Module):
        def forward(self, x: Any) -> Any:
            y = torch.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, (x,))
            count, z = torch.while_loop(lambda n, v: n < 3, lambda n, v: (n + 1, v * 1.5), (torch.tensor(0), y))
            return y, z, count

    gm = fx.from_torch(Flow(), torch.randn(4))
    targets = ops_of(gm)
    assert "cond" in targets and "while_loop" in targets
    for x in (torch.ones(4), -torch.ones(4)):
        close(gm(x.numpy()), Flow()(x))


def test_types_in_place_of_examples() -> None:
    class Two(nn.Module):
        def forward(self, x: Any, *, ids: Any) -> Any:
            return x.reshape(x.shape[0], -1)[:, :1] + ids[:, : x.shape[0]].sum()

    gm = fx.from_torch(Two(), "f32[B,3,4]", ids="i64[1,T]")
    assert [str(node.type) for node in gm.graph.placeholders] == ["f32[B,3,4]", "i64[1,T]"]
    x, ids = torch.randn(2, 3, 4), torch.arange(9)[None]
    close(gm(x.numpy(), ids=ids.numpy()), Two()(x, ids=ids))


def test_sizes_that_may_differ() -> None:
    class Sized(nn.Module):
        def forward(self, x: Any, ids: Any) -> Any:
            bags = F.embedding_bag(ids, torch.arange(12.0).reshape(4, 3), mode="mean")
            mean = torch.zeros(x.shape[0], 4).scatter_reduce(1, ids, x, "mean", include_self=False)
            large = F.interpolate(x[None, None], scale_factor=2, mode="bicubic")
            return bags, mean, large, torch.eye(x.shape[0]) + x.sum()

    gm = fx.from_torch(Sized(), "f32[B,3]", ids="i64[B,3]")
    compiled = fx.compile(gm)
    for size in (2, 5):
        x, ids = torch.randn(size, 3), torch.randint(0, 4, (size, 3))
        close(compiled(x.numpy(), ids=ids.numpy()), Sized()(x, ids=ids))


def test_what_may_be_given(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model, x = nn.Sequential(nn.Linear(3, 2), nn.Tanh()), torch.randn(2, 3)
    with torch.no_grad():
        expected = model(x)
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    torch.export.save(exported, tmp_path / "m.pt2")
    for gm in (
        fx.from_torch(exported),
        fx.from_torch(tmp_path / "m.pt2"),
        fx.from_torch(torch.fx.symbolic_trace(model), x),
        fx.from_torch(exported.run_decompositions()),
    ):
        close(gm(x.numpy()), expected)
    (tmp_path / "bad.pt2").write_bytes(b"PK")
    with pytest.raises(ModelImportError, match=r"bad\.pt2 is not a program that torch\.export\.save wrote"):
        fx.from_torch(tmp_path / "bad.pt2")
    with zipfile.ZipFile(tmp_path / "m.pt2") as good, zipfile.ZipFile(tmp_path / "bad.pt2", "w") as bad:
        for name in good.namelist():
            if "weights/weight_0" not in name:
                bad.writestr(name, good.read(name))
    content = bytearray((tmp_path / "m.pt2").read_bytes())
    place = content.rindex(b"PK\x06\x06") + 40  # the size of the archive's directory
    content[place : place + 8] = (1 << 40).to_bytes(8, "little")
    (tmp_path / "sizes.pt2").write_bytes(content)
    with pytest.raises(ModelImportError, match="or it is damaged: "):
        fx.from_torch(tmp_path / "sizes.pt2")
    with pytest.raises(FileNotFoundError, match=r"none\.pt2"):
        fx.from_torch(tmp_path / "none.pt2")
    capfd.readouterr()
    with pytest.raises(ModelImportError, match=r"or it is damaged: .*failed locating file data/weights/weight_0"):
        fx.from_torch(tmp_path / "bad.pt2")
    assert not capfd.readouterr().err  # torch logs the traceback
    with pytest.raises(ArgumentError, match="has its inputs already"):
        fx.from_torch(exported, x)
    with pytest.raises(ArgumentError, match="give example inputs, or their types"):
        fx.from_torch(model)
    with pytest.raises(ArgumentError, match="not a function"):
        fx.from_torch(lambda v: v, x)


def test_a_recurrence_with_projections() -> None:
    torch.manual_seed(0)
    model, x = nn.LSTM(4, 5, proj_size=3), torch.randn(3, 2, 4)
    with torch.no_grad():
        close(fx.from_torch(model, x)(x.numpy()), model(x))


def test_an_encoder_with_a_mask() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    model, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), torch.randn(2, 5, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    with torch.no_grad():
        close(fx.from_torch(model, x, mask)(x.numpy(), mask.numpy()), model(x, mask))


class Reads(nn.Module):
    """What it reads of tensors is known without its input, and not where ``written`` says."""

    def __init__(self, written: str) -> None:
        super().__init__()
        self.register_buffer("stride", torch.tensor(2))
        self.pad = self.stride * 3 // 2  # no buffer
        self.written = written

    def forward(self, x: Any) -> Any:
        mask = torch.ones_like(x[:, :1]).expand(-1, 4) > 0
        counts = mask.sum(1)
        if self.written == "mask":
            mask[0] = x[0] > 0
        elif self.written == "a view":
            mask[1:].flatten()[0:2].logical_and_(x[0, :2] > 0)
        elif self.written == "from it":
            mask = mask & (x > 0)
        if mask.all():
            x = F.pad(x, (self.pad, self.stride + counts.max() - 4))
        return x[:, : self.stride * 4]


def test_values_that_no_input_has_a_part_in_are_read() -> None:
    x = torch.randn(3, 4)
    close(fx.from_torch(Reads(""), x)(x.numpy()), Reads("")(x))


@pytest.mark.parametrize("written", ["mask", "a view", "from it"])
def test_values_that_an_input_has_a_part_in_are_not(written: str) -> None:
    with pytest.raises(ModelImportError, match=r"torch.export cannot export Reads: .*data-dependent"):
        fx.from_torch(Reads(written), torch.ones(3, 4))


def test_an_export_that_computes_otherwise_is_not_taken() -> None:
    class Differs(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * (2 if torch.ones(2).any() and torch.compiler.is_exporting() else 1)

    with pytest.raises(ModelImportError, match=r"torch.export cannot export Differs: .*data-dependent"):
        fx.from_torch(Differs(), torch.ones(3, 4))


def test_a_bound_of_the_model_bounds_a_named_size() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(12.0)[None])

        def forward(self, x: Any) -> Any:
            return x + self.table[:, : x.shape[1]] if x.shape[1] != 7 else x

    names = {0: torch.export.Dim("B"), 1: torch.export.Dim("T")}
    gm = fx.from_torch(Positions(), torch.ones(2, 5), dynamic_shapes=(names,))
    assert str(gm.graph.placeholders[0].type) == "f32[B,T]"
    for length in (3, 12):
        np.testing.assert_array_equal(gm(np.ones((2, length), np.float32))[0], np.arange(1.0, length + 1))
    for length, rule in ((13, "T must be at most 12"), (7, "T != 7 is required by")):
        with pytest.raises(ValueError, match=rule):
            gm(np.ones((2, length), np.float32))


def test_numbers_made_of_sizes() -> None:
    class Positions(nn.Module):
        def forward(self, x: Any) -> Any:
            length = x.shape[1]
            return torch.arange(length, -length, -1.0), x[:, -torch.sym_min(length, 5) :] * torch.sym_max(length, 3)

    gm = fx.from_torch(Positions(), torch.ones(2, 8), dynamic_shapes=({1: torch.export.Dim("T", min=2)},))
    for length in (6, 9):
        close(gm(np.ones((2, length), np.float32)), [*Positions()(torch.ones(2, length))])


def test_results_that_no_op_computes_are_refused() -> None:
    class Factors(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.ops.aten._linalg_det.default(x)

    with pytest.raises(ModelImportError, match="no fxlite op computes the result"):
        fx.from_torch(Factors(), torch.eye(3))


def test_what_cannot_be_imported_is_said() -> None:
    class Draws(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + torch.rand(3) + torch.randn_like(x) + torch.rand(3)

    message = r"drawn by aten\.rand\.default \(2\), aten\.randn_like.*give them as an input\n  at .*randn_like"
    with pytest.raises(ModelImportError, match=message):
        fx.from_torch(Draws(), torch.ones(3))

    class Airy(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.special.airy_ai(x) * torch.rand_like(x)

    message = r"(?s)no decomposition for aten\.special_airy_ai.*airy_ai\(x.*numbers are drawn by aten\.rand"
    with pytest.raises(ModelImportError, match=message):
        fx.from_torch(Airy(), torch.ones(3, 3))

    class Drops(nn.Module):  # not the same elements in the module and in its export
        def forward(self, x: Any) -> Any:
            return F.dropout2d(x, 0.5, training=True)

    with pytest.raises(ModelImportError, match=r"dropout while training draws random numbers; call model\.eval\(\)"):
        fx.from_torch(Drops(), torch.randn(5, 5, 5, 5))

    class Behind(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.as_strided((2, 2), (1, 2), 0)

    with pytest.raises(ModelImportError, match=r"places in memory outside of the value; give the whole value"):
        fx.from_torch(Behind(), torch.arange(20.0)[5:15])

    class Values(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.linalg.eigvals(x).real + torch.linalg.ldl_factor(x).LD

    with pytest.raises(ModelImportError, match=r"eigenvalues of a general matrix; .*torch\.linalg\.eigh"):
        fx.from_torch(Values(), torch.eye(3))

    class Splits(nn.Module):
        def forward(self, x: Any, places: Any) -> Any:
            return torch.tensor_split(x, places)

    with pytest.raises(ModelImportError, match=r"the size u\d+ depends on values"):
        fx.from_torch(Splits(), torch.ones(5), torch.tensor([1, 2]))

    class Fixed(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + torch.ones(3)

    with pytest.raises(
        ModelImportError, match=r"(?s)Constraints violated.*your code specialized it to be a constant \(3\)"
    ):
        fx.from_torch(Fixed(), "f32[B]")

    with pytest.raises(ModelImportError, match=r"(?s)aten\.dropout\.default.*model\.eval\(\).*F\.dropout\("):
        fx.from_torch(nn.Sequential(nn.Dropout(0.5), UsesDropout()), torch.ones(3))

    class Branches(nn.Module):
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    with pytest.raises(ModelImportError, match=r"(?s)torch\.export cannot export Branches.*torch\.cond"):
        fx.from_torch(Branches(), torch.ones(3))


class _Runs:
    """An object whose pickle makes a folder when it is read."""

    def __init__(self, path: Any) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("how", ["inputs", "weights", "objects", "sizes"])
def test_reading_an_exported_program_runs_nothing(tmp_path: Any, how: str) -> None:
    """Torch itself unpickles what it cannot read as tensors, and evaluates the texts of sizes."""
    program = torch.export.export(nn.Linear(4, 3), (torch.ones(2, 4),), dynamic_shapes=({0: torch.export.Dim("B")},))
    torch.export.save(program, tmp_path / "good.pt2")
    pickled = io.BytesIO()
    torch.save(({"x": _Runs(tmp_path / "made")},), pickled)

    def changed(name: str, data: bytes) -> bytes:
        if how == "inputs" and "sample_inputs" in name:
            return pickled.getvalue()
        if how == "weights":
            if name.endswith("weights_config.json"):
                return data.replace(b'"use_pickle": false', b'"use_pickle": true')
            return pickled.getvalue() if "weights/weight_" in name else data
        if how == "objects" and name.endswith("constants_config.json"):
            entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
            return json.dumps({"config": {"x": entry}}).encode()
        if how == "sizes" and name.endswith("model.json"):
            run = f"exec(compile('import os; os.mkdir({str(tmp_path / 'made')!r})', 0, 'exec'))"
            return data.replace(b'"expr_str": "Symbol', f'"expr_str": "{run} + Symbol'.encode())
        return data

    with zipfile.ZipFile(tmp_path / "good.pt2") as good, zipfile.ZipFile(tmp_path / "bad.pt2", "w") as bad:
        for name in good.namelist():
            bad.writestr(name, changed(name, good.read(name)))
        bad.writestr("good/data/constants/opaque_obj_0", pickle.dumps(_Runs(tmp_path / "made")))
    with pytest.raises(ModelImportError, match=r"bad\.pt2 (holds a.* object that reading|has a size that is no)"):
        fx.from_torch(tmp_path / "bad.pt2")
    assert not (tmp_path / "made").exists()
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ
    fx.from_torch(tmp_path / "good.pt2")


class Step(nn.Module):
    """A step of decoding, which puts longer tensors into the dict that it is given."""

    def forward(self, x: Any, cache: dict[str, Any]) -> Any:
        cache["keys"] = torch.cat([cache["keys"], x])
        return cache["keys"].sum(0) * x, cache


def test_a_cache_holds_other_tensors_after_the_call() -> None:
    x, cache = torch.randn(1, 4), {"keys": torch.randn(3, 4)}
    gm = fx.from_torch(Step(), x, cache)
    expected, after = Step()(x, dict(cache))
    found, grown = gm(x.numpy(), {"keys": cache["keys"].numpy()})
    close(found, expected)
    close(grown["keys"], after["keys"])


class Scaled(nn.Module):
    """A module with a buffer that is only read."""

    def __init__(self, scale: Any) -> None:
        super().__init__()
        self.register_buffer("scale", scale)

    def forward(self, x: Any) -> Any:
        return x * self.scale


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (lambda x: x.to_sparse(), r"is not dense \(torch\.sparse_coo\): give x\.to_dense\(\)"),
        (lambda x: x.to_sparse_csr(), r"is not dense \(torch\.sparse_csr\): give x\.to_dense\(\)"),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), r"is quantized \(torch\.qint8\): .*pt2e"),
        (lambda x: torch.nested.nested_tensor([x, x]), "is nested: give torch.nested.to_padded_tensor"),
        (lambda x: x.view(torch.float4_e2m1fn_x2), r"no dtype for torch\.float4_e2m1fn_x2; .*\.to\(torch\.bfloat16\)"),
        (lambda x: torch.complex(x, x).to(torch.complex32), r"no dtype for torch\.complex32; .*complex64"),
    ],
)
def test_tensors_that_are_no_arrays_say_what_to_do(kind: Any, message: str) -> None:
    x = torch.ones(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor = kind(x)
    with pytest.raises(ModelImportError, match=f"the example 0 .*{message}"):
        fx.from_torch(Scaled(x), tensor)
    with pytest.raises(ModelImportError, match=f"the weight scale .*{message}"):
        fx.from_torch(Scaled(tensor), x)


FLOAT8 = [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz]


class Float8Linear(nn.Module):
    """Weights of float8 with scales of blocks, as models are published; what goes in is rounded, too, if ``both``."""

    def __init__(self, dtype: Any, both: bool) -> None:
        super().__init__()
        weight = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
        self.register_buffer("scale", weight.abs().amax(1, keepdim=True) / 8)
        self.weight = nn.Parameter((weight / self.scale).to(dtype), requires_grad=False)
        self.dtype, self.both = dtype, both

    def forward(self, x: Any) -> Any:
        if self.both:
            x = x.to(self.dtype).reshape(-1, 8).to(torch.float32)
        return F.linear(x, self.weight.to(torch.float32) * self.scale), self.weight.t()[1:3].to(torch.bfloat16)


def right(model: Any, x: Any) -> None:
    """Check the graph and C, which get and give arrays, against torch."""
    gm = fx.from_torch(model, x)
    for run in (gm, fx.compile(gm)):
        close(run(x.numpy()), model(x))


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8_is_held_in_float32(dtype: Any, both: bool) -> None:
    right(Float8Linear(dtype, both), torch.randn(3, 8) * 20)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8_is_rounded_as_torch_does(dtype: Any) -> None:
    """Each element, what lies between two of them, and what is too large or too small."""
    elements = torch.arange(256, dtype=torch.uint8).view(dtype).to(torch.float32)
    finite = elements[elements.isfinite()].sort().values
    between = [finite[1:] * part + finite[:-1] * (1 - part) for part in (0.25, 0.5, 0.75)]
    far = torch.tensor([1e9, -1e9, float("inf"), float("-inf"), float("nan"), 449.0, 464.5, 241.0, 6.2e4, 1e-9, -1e-9])
    x = torch.cat([elements, *between, far])

    class Rounds(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.to(dtype).to(torch.float32), torch.full_like(x[:2], 0.3, dtype=dtype).to(torch.float32)

    gm = fx.from_torch(Rounds(), x)
    want = [v.numpy() for v in Rounds()(x)]
    for run in (gm, fx.compile(gm)):
        for value, wanted in zip(run(x.numpy()), want, strict=True):
            np.testing.assert_array_equal(value, wanted)
            same = ~np.isnan(wanted)
            np.testing.assert_array_equal(np.signbit(value)[same], np.signbit(wanted)[same])


def test_products_of_float8() -> None:
    class Scaled8(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(16, 32).to(torch.float8_e4m3fn), requires_grad=False)
            self.register_buffer("scale", torch.tensor(0.5))

        def forward(self, x: Any) -> Any:
            step = x.abs().max() / 448
            q = (x / step).to(torch.float8_e4m3fn)
            return torch._scaled_mm(q, self.weight.t(), step, self.scale, out_dtype=torch.float32)

    right(Scaled8(), torch.randn(16, 32))


def test_what_float8_does_not_have() -> None:
    class Bits(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.to(torch.float8_e5m2).view(torch.uint8)

    with pytest.raises(ModelImportError, match=r"the bits of torch\.float8_e5m2 are not at hand"):
        fx.from_torch(Bits(), torch.ones(3))

    class Powers(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.to(torch.float8_e8m0fnu).to(torch.float32)

    with pytest.raises(ModelImportError, match=r"does not round to torch\.float8_e8m0fnu"):
        fx.from_torch(Powers(), torch.ones(3))


def test_modules_that_cannot_be_exported_say_what_to_do() -> None:
    x = torch.ones(3, 4)
    with pytest.raises(ModelImportError, match=r"(?s)the weight scale has no values.*to_empty"):
        fx.from_torch(Scaled(torch.empty(3, 4, device="meta")), torch.empty(3, 4, device="meta"))
    program = torch.export.export(nn.Linear(4, 3, device="meta"), (torch.empty(3, 4, device="meta"),))
    with pytest.raises(ModelImportError, match=r"the weight weight: a tensor on the device meta has no values"):
        fx.from_torch(program)
    program = torch.export.export(Scaled(x), (torch.complex(x, x).to(torch.complex32),))
    with pytest.raises(ModelImportError, match=r"the input x: fxlite has no dtype for torch\.complex32"):
        fx.from_torch(program)
    with pytest.raises(ModelImportError, match="the weight weight has no shape yet; call the model once"):
        fx.from_torch(nn.LazyLinear(3), x)
    with pytest.raises(ArgumentError, match="the example 0 is a NumPy array; give a tensor"):
        fx.from_torch(Scaled(x), x.numpy())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.trace(nn.Linear(4, 3), x)
        packed = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.LSTM(4, 3)), {nn.LSTM})
    with pytest.raises(ArgumentError, match=r"a module of TorchScript, which torch\.export does not take"):
        fx.from_torch(script, x)
    with pytest.raises(
        ModelImportError, match=r"the module 0 \(LSTM\) of torch's eager quantization has no counterpart; .*pt2e"
    ):
        fx.from_torch(packed, x)

    class Inside(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize() + x.to_sparse().to_dense()

    with pytest.raises(ModelImportError, match=r"tensors of torch's eager quantization; .*pt2e|a sparse tensor"):
        fx.from_torch(Inside(), x)


def test_a_tensor_and_its_conjugate_are_two_weights() -> None:
    """They are the same memory."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("z", torch.complex(torch.randn(3), torch.randn(3)))
            self.register_buffer("conjugate", self.z.conj())

        def forward(self, x: Any) -> Any:
            return x * self.z, x * self.conjugate

    model = Both()
    close(fx.from_torch(model, torch.ones(3))(np.ones(3, np.float32)), [*model(torch.ones(3))])


class UsesDropout(nn.Module):
    def forward(self, x: Any) -> Any:
        return F.dropout(x, 0.1)


def test_nothing_needs_torch_but_the_importer() -> None:
    import subprocess
    import sys

    text = "import sys, fxlite as fx, fxlite.cli; fx.from_torch; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", text], check=True)


#: Defaults that stand for another one of torch's: an empty list of strides is that of the window, and so on.
MEANS_THE_SAME = {"padding", "stride", "unbiased", "p", "dim"}


def defaults_of(entry: Any) -> dict[str, Any]:
    """The parameters of an entry of the importer's table that have a default."""
    names = entry.__code__.co_freevars
    wrapped = "function" in names  # by table.same
    own = entry.__closure__[names.index("function")].cell_contents if wrapped else entry
    try:
        parameters = [*inspect.signature(own).parameters.values()][0 if wrapped else 1 :]
    except (TypeError, ValueError):  # a ufunc
        return {}
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def test_defaults_are_torch_s() -> None:
    """What a call leaves out is what torch's schema says, of each op of the table and its overloads."""
    compared, wrong = 0, []
    for name, entry in table.ENTRIES.items():
        packet, own = getattr(torch.ops.aten, name, None), defaults_of(entry)
        for overload in packet.overloads() if packet is not None else ():
            for argument in getattr(packet, overload)._schema.arguments:
                if not argument.has_default_value() or argument.name not in own:
                    continue
                compared += 1
                found, wanted = own[argument.name], argument.default_value
                if isinstance(wanted, list):
                    found = [*found] if isinstance(found, tuple) else [found] * len(wanted)
                same = found == wanted
                if (
                    not same
                    and not (own[argument.name] is None and argument.name in MEANS_THE_SAME)
                    and wanted != "valid"
                ):
                    wrong.append((name, overload, argument.name, found, wanted))
    assert compared > 500 and wrong == []


#: Arguments that no number of a result depends on, or that its type already says.
NO_MATTER = set(
    "dtype layout device pin_memory memory_format non_blocking copy implicit names cudnn_enable cudnn_enabled "
    "generator benchmark deterministic allow_tf32 unsafe requires_grad out other compute_mode scale_grad_by_freq "
    "sparse".split()
)
#: The same, of some ops: views have no strides here, a table of embeddings is what it is, sizes say all of unpooling.
NO_MATTER_OF = {"_reshape_alias": {"stride"}, "embedding": {"padding_idx"}, "max_unpool3d": {"stride", "padding"}}


def test_no_argument_is_dropped() -> None:
    """Entries that take any further arguments and do nothing with them, by torch's schemas."""
    looked_at, dropped = 0, []
    for name, entry in table.ENTRIES.items():
        packet, parameters = getattr(torch.ops.aten, name, None), [*inspect.signature(entry).parameters.values()][1:]
        rest = {p.kind for p in parameters if p.name.startswith("_")}
        if packet is None or not rest & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            continue
        named = {p.name for p in parameters}
        takes_all = any(p.kind is p.VAR_POSITIONAL and not p.name.startswith("_") for p in parameters)
        places = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
        for overload in packet.overloads():
            if "out" in overload or overload.endswith(("_int", "_float", "_complex", "_Scalar")):  # of numbers alone
                continue
            for place, argument in enumerate(getattr(packet, overload)._schema.arguments):
                is_read = argument.name in named if argument.kwarg_only else place < places or takes_all
                looked_at += 1
                if not (is_read or argument.name in NO_MATTER | NO_MATTER_OF.get(name, set())):
                    dropped.append((name, overload, argument.name))
    assert looked_at > 100 and dropped == []
