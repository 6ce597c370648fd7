"""Programs of PyTorch as people write them: what changes between calls, loops and conditions, sizes that are asked
about, sequences that are packed, graphs that were quantized; each is what torch computes, call after call."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import fxlite as fx
from fxlite.base.errors import ModelImportError
from tests.graphs import ops_of

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from fxlite.importing.torch.table import array_of  # noqa: E402
from tests.importing.test_from_torch import close  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Module(nn.Module):
    """A module that computes a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def arrays_of(tensors: Any) -> Any:
    return [array_of(t).copy() for t in tensors]


def as_torch(model: Any, *calls: Any, near: float = 2e-5, **options: Any) -> Any:
    """The graph of a model, which gives what the model gives in these calls, one after the other; the first are the
    examples. So does C."""
    model = (model if isinstance(model, nn.Module) else Module(model)).eval()
    gm = fx.from_torch(copy.deepcopy(model), *calls[0], **options)
    for fn in (gm.copy(), fx.compile(gm.copy())):
        own = copy.deepcopy(model)
        for given in calls:
            with torch.no_grad():
                close(fn(*arrays_of(given)), own(*copy.deepcopy(given)), near)
    return gm


# -- what changes between calls --------------------------------------------------------------------
class Cache(nn.Module):
    """Writes where a buffer says, and moves it on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, 5, 4))
        self.register_buffer("position", torch.tensor(0))

    def forward(self, x: Any) -> Any:
        self.cache[:, self.position] = x
        self.cache[1, ..., self.position] = 7
        self.position.add_(1)
        return self.cache.clone(), self.position * 2


class Parameters(nn.Module):
    """Writes into a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x: Any) -> Any:
        self.weight.add_(1)
        return x * self.weight


@pytest.mark.parametrize("model", [Cache(), Parameters()], ids=lambda m: type(m).__name__)
def test_what_a_model_writes_is_there_in_the_next_call(model: Any) -> None:
    as_torch(model, *[(torch.randn(2, 4),) for _ in range(3)])


def _writes(x: Any, y: Any) -> Any:
    """What torch copies and NumPy views: what an input becomes, and other results, are of the values before."""
    was, turned = y.flip(0), y.rot90(2, (0, 1))
    x.copy_(y.flip(1))
    y.copy_(x.flip(0))
    x[:, 0] = 7
    return x, was, turned, y.copy_(y.flip(0))


class Writes(nn.Module):
    """What a call leaves in its inputs is among the results."""

    def forward(self, x: Any, y: Any) -> Any:
        return *_writes(x, y), x, y


def test_what_is_written_into_inputs_is_not_what_was_read_of_them() -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    gm = as_torch(Writes(), (x, y))
    given, own = arrays_of((x, y)), (x.clone(), y.clone())
    gm(*given)
    _writes(*own)
    close(given, own)


class Windows(nn.Module):
    """Torch's graph without writes has zeros between windows that are written."""

    def forward(self, x: Any) -> Any:
        x.unfold(-1, 2, 4).mul_(3)
        return x * 2


def test_a_graph_without_writes_that_computes_otherwise_is_not_taken() -> None:
    with pytest.raises(ModelImportError, match=r"(?s)graph without writes of Windows gives other results.*by indices"):
        fx.from_torch(Windows(), torch.ones(2, 8))
    with pytest.raises(ModelImportError, match=r"(?s)graph without writes of .* gives other results"):
        fx.from_torch(torch.export.export(Windows(), (torch.ones(2, 8),)))


def test_encoders_compute_what_a_mask_leaves_out() -> None:
    """As they do where gradients are asked for; else torch has 0 there."""
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    x, mask = torch.randn(2, 5, 8), torch.tensor([[False] * 3 + [True] * 2, [False] * 5])
    gm = fx.from_torch(encoder, x, src_key_padding_mask=mask)
    close(gm(x.numpy(), mask.numpy()), encoder(x, src_key_padding_mask=mask).detach())


# -- numbers that are none, and others at the edge -------------------------------------------------
def _of_edges(x: Any) -> tuple[Any, ...]:
    return (
        *(x.heaviside(torch.tensor(2.0)), x.sign(), x.sgn(), x.relu(), x.clamp(0, 1), x.clamp(min=0), x.nan_to_num()),
        *(x.amax(), x.argmax(), *x.min(0), x.sort()[0], x.topk(2)[0], x.median(), x.nanmedian(), x.nansum()),
        *(
            torch.maximum(x, -x),
            torch.fmax(x, -x),
            x.cummax(0)[0],
            x.pow(0.0),
            x.logsumexp(0),
            torch.where(x > 0, x, 0),
        ),
        *(nn.functional.threshold(x, 0, 1), nn.functional.hardshrink(x), nn.functional.softshrink(x), x.angle()),
    )


def test_numbers_that_are_none() -> None:
    inf, nan = float("inf"), float("nan")
    as_torch(_of_edges, (torch.tensor([1.0, nan, inf, -inf, -0.0]),), (torch.tensor([nan, -1.0, 2.0, inf, 0.0]),))


# -- graphs that were quantized --------------------------------------------------------------------
def _of_integers(x: Any, w: Any) -> tuple[Any, ...]:
    """What pt2e's graphs are made of, whose ops a module of torch's defines."""
    own = torch.ops.quantized_decomposed
    scales, points = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 3, -4])
    byte = own.quantize_per_tensor(x, 0.1, 3, -128, 127, torch.int8)
    rows = own.quantize_per_channel(x, scales, points, 0, -127, 127, torch.int8)
    scale, point = own.choose_qparams(x, 0, 255, 1e-5, torch.uint8)
    least, middle = own.choose_qparams_symmetric(x, -127, 127, 1e-5, torch.int8)
    each, zero = own.choose_qparams_per_token_asymmetric(x, torch.int8)
    return (
        *(byte, rows, own.quantize_per_tensor(x, 0.01, 5, 0, 4095, torch.int16), scale, point, least, middle),
        own.dequantize_per_tensor(byte, 0.1, 3, -128, 127, torch.int8),
        own.dequantize_per_channel(rows, scales, points, 0, -127, 127, torch.int8),
        own.dequantize_per_channel(rows, scales, None, 0, -127, 127, torch.int8),
        own.quantize_per_tensor.tensor(x, scale, point, 0, 255, torch.uint8),
        own.quantize_per_token(x, each, zero, -128, 127, torch.int8),
        torch._int_mm(w, w.t()),
    )


def test_quantized_graphs() -> None:
    import torch.ao.quantization.fx._decomposed

    def given() -> tuple[Any, Any]:
        return torch.randn(3, 4) * 5, torch.randint(-128, 127, (32, 32), dtype=torch.int8)

    torch.manual_seed(0)
    gm = as_torch(_of_integers, given(), given())
    assert {"quantize", "dequantize", "int_matmul"} <= set(ops_of(gm))


# -- sizes that are asked about --------------------------------------------------------------------
def _of_sizes(x: Any, y: Any) -> tuple[Any, ...]:
    from torch._higher_order_ops.map import map as map_rows

    chosen = torch.cond(x.shape[0] > 4, lambda x: x + 1, lambda x: x.cos(), (x,))
    return chosen, map_rows(lambda x, y: x.sin() + y, x, y), *x.cummax(0), *x.chunk(2, 1)


def test_sizes_that_ops_keep_or_pick_from() -> None:
    def program(x: Any) -> Any:
        pooled = torch.nn.functional.adaptive_avg_pool2d(x, (None, 2))
        return pooled, *x.kthvalue(2, 1), *x.kthvalue(3, 1, keepdim=True), *x.median(1)

    torch.manual_seed(0)
    calls = [(torch.randn(2, n, 6),) for n in (5, 8, 3)]
    as_torch(program, *calls, dynamic_shapes=(({1: torch.export.Dim("height", min=3)},),))


def test_positions_of_a_batch_of_any_size() -> None:
    """An index whose size may be 0, too."""
    torch.manual_seed(0)
    calls = [(torch.randn(4, n), torch.arange(2 * n).reshape(2, n) % 4) for n in (3, 6, 1)]
    batch = torch.export.Dim("batch")
    as_torch(lambda x, i: x.gather(0, i), *calls, dynamic_shapes=(({1: batch}, {1: batch}),))


def test_sizes_that_are_asked_about() -> None:
    batch, half = torch.export.Dim("batch", min=2), torch.export.Dim("half", min=2)
    shapes = (({0: batch, 1: 2 * half}, {0: 2 * half}),)
    torch.manual_seed(0)
    calls = [(torch.randn(n, m), torch.randn(m)) for n, m in ((3, 6), (5, 8), (4, 4))]
    as_torch(_of_sizes, *calls, dynamic_shapes=shapes)


def test_many_rows_are_a_loop() -> None:
    gm = as_torch(lambda x, y: _of_sizes(x, y)[1], (torch.randn(200, 3), torch.randn(3)))
    assert len(gm.graph.nodes) < 20


class Bounded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(6, 4, max_norm=1.0)

    def forward(self, x: Any) -> Any:
        return self.table(x), self.table.weight.sum(1)


def test_rows_of_a_table_that_are_bounded() -> None:
    as_torch(Bounded(), (torch.tensor([1, 3, 3]),), (torch.tensor([0, 3, 5]),))


def test_linear_algebra_of_named_sizes() -> None:
    """Diagonals beside the main one, matrices of ones, parts whose sizes torch says; forward takes ``*args``."""

    def program(x: Any, y: Any) -> Any:
        eye = torch.eye(x.shape[0])
        return (
            (x.diagonal(), x.diagonal(1), x.diagonal(-1), y.diagonal(), torch.diag_embed(y)),
            torch.matrix_exp(x * 0.1),
            torch.linalg.solve_triangular(x + 5 * eye, x, upper=False, unitriangular=True),
            torch.cholesky_inverse(x.tril() + 5 * eye),
        )

    model = Module(program)
    gm = fx.from_torch(model, "f32[N,N]", "f32[N,M]")
    for fn in (gm, fx.compile(gm)):
        for n, m in ((5, 3), (4, 6)):
            given = torch.randn(n, n), torch.randn(n, m)
            close(fn(*arrays_of(given)), model(*given), 1e-4)


# -- packed sequences ------------------------------------------------------------------------------
def test_packed_sequences_of_other_lengths() -> None:
    """Each layer, in both directions, from a state that is given; states are those of each sequence's last step."""

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.long = nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True)
            self.gated, self.plain = nn.GRU(12, 3), nn.RNN(12, 3, nonlinearity="relu", bias=False)

        def forward(self, x: Any, lengths: Any, state: Any) -> Any:
            whole = {"total_length": 9, "padding_value": -1.0}
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            found, states = self.long(packed, (state, state * 2))
            halved = packed._replace(data=found.data * 0.5)
            outputs = [found, *(layer(halved)[0] for layer in (self.gated, self.plain))]
            ends = [layer(halved)[1] for layer in (self.gated, self.plain)]
            return [nn.utils.rnn.pad_packed_sequence(o, **whole) for o in outputs], states, ends

    torch.manual_seed(0)
    lengths = ([3, 7, 5], [7, 7, 1], [1, 2, 2])
    as_torch(Layers(), *((torch.randn(3, 7, 4), torch.tensor(n), torch.randn(4, 3, 6)) for n in lengths))


def test_packed_sequences_whose_lengths_are_numbers() -> None:
    layer = nn.LSTM(4, 6, proj_size=2)

    def program(x: Any, y: Any) -> Any:
        padded, lengths = nn.utils.rnn.pad_packed_sequence(
            layer(nn.utils.rnn.pack_padded_sequence(x, [5, 4, 2]))[0], batch_first=True
        )
        return padded, lengths, layer(nn.utils.rnn.pack_sequence([x[:, 0], y], enforce_sorted=False))[1]

    torch.manual_seed(0)
    with torch.no_grad():
        as_torch(program, *((torch.randn(5, 3, 4), torch.randn(3, 4)) for _ in range(2)))


def test_packed_sequences_of_a_batch_of_any_size() -> None:
    class Last(nn.LSTM):
        def forward(self, x: Any, lengths: Any) -> Any:  # type: ignore[override]
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return super().forward(packed)[1]

    torch.manual_seed(0)
    calls = [(torch.randn(n, 5, 4), torch.arange(n) % 5 + 1) for n in (3, 6, 2)]
    batch = torch.export.Dim("batch")
    as_torch(Last(4, 6, batch_first=True), *calls, dynamic_shapes=(({0: batch}, {0: batch})))
