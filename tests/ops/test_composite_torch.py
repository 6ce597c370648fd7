"""Composite ops: their expansions against their references on every sample, and both against torch.

The expansion runs twice: on arrays, op by op, and as a traced graph with named dims."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.base.errors import FxliteError
from fxlite.ops.op import REGISTRY
from fxlite.tracing.tracer import Tracer
from fxlite.types import dtypes
from tests.graphs import of_arrays
from tests.oracle import compare

FAMILIES = ("activation", "attention", "composite", "loss", "normalization")
MINE = sorted(
    name for name, op in REGISTRY.items() if op.has_expansion and op.reference.__module__.rpartition(".")[2] in FAMILIES
)
CASES = [(name, number) for name in MINE for number in range(len(REGISTRY[name].samples))]


def _run_expansion(name: str, arrays: Any, number: int, types: Any = None) -> Any:
    op = REGISTRY[name]
    sample = op.samples[number]

    def program(*values: Any) -> Any:
        return sample.call(lambda *a, **k: op.expand(op.bind(a, k)), values)

    if types is None:
        return program(*arrays)
    tracer = Tracer()
    graph = tracer.trace(of_arrays(program, len(arrays)), inputs={f"x{i}": type_ for i, type_ in enumerate(types)})
    assert not any(n.target is op for n in graph.nodes), f"{name} expands into itself"
    module = tracer.module(name)
    module.graph.lint()
    reference = sample.call(op, arrays)
    assert graph.output_node().args[0].type.dtype.numpy == reference.dtype
    return module(*arrays)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("name", "number"), CASES)
def test_expansion_is_reference(name: str, number: int) -> None:
    op = REGISTRY[name]
    sample = op.samples[number]
    arrays = sample.arrays(seed=number)
    expected = sample.call(op, arrays)
    traced = _run_expansion(name, arrays, number, sample.types())
    compare(f"expansion of {name} as a graph", traced, expected)
    eager = _run_expansion(name, arrays, number)
    compare(f"expansion of {name} on arrays", eager, expected)


# -- against torch ---------------------------------------------------------------------------------
SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, -np.inf], np.float32)
POINTS = np.concatenate([SPECIAL, np.linspace(-30, 30, 241, dtype=np.float32)])
ACTIVATIONS: list[tuple[str, dict[str, Any]]] = [
    ("silu", {}),
    ("gelu", {}),
    ("gelu", {"approximate": "tanh"}),
    ("hardswish", {}),
    ("hardsigmoid", {}),
    ("hardtanh", {"min_val": -2.0, "max_val": 3.0}),
    ("relu6", {}),
    ("elu", {"alpha": 0.7}),
    ("selu", {}),
    ("celu", {"alpha": 1.3}),
    ("leaky_relu", {"negative_slope": 0.2}),
    ("softplus", {"beta": 2.0}),
    ("softplus", {"threshold": 3.0}),
    ("softsign", {}),
    ("mish", {}),
    ("tanhshrink", {}),
    ("hardshrink", {"lambd": 1.5}),
    ("softshrink", {"lambd": 1.5}),
    ("logsigmoid", {}),
    ("threshold", {"threshold": 0.5, "value": 7.0}),
]


def _torch(array: Any) -> Any:
    """An array as a torch tensor, bfloat16 included."""
    torch = pytest.importorskip("torch")
    if dtypes.dtype(array.dtype) is dtypes.bfloat16:
        return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def _numpy(tensor: Any, dtype: Any) -> Any:
    return tensor.double().numpy().astype(dtype)


def _same(ours: Any, theirs: Any) -> None:
    compare("torch", ours, _numpy(theirs, np.asarray(ours).dtype))


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize(("name", "attributes"), ACTIVATIONS)
def test_activation_is_torch(name: str, attributes: dict[str, Any], dtype: str) -> None:
    functional = pytest.importorskip("torch.nn.functional")
    points = POINTS.astype(dtypes.dtype(dtype).numpy)
    ours = getattr(fx.ops, name)(points, **attributes)
    assert ours.dtype == points.dtype
    theirs = getattr(functional, name)(_torch(points), **attributes)
    if name == "gelu":  # torch gives NaN or inf at +inf, depending on the vector unit
        finite = points != np.inf
        ours, theirs = ours[finite], theirs[_torch(finite)]
    _same(ours, theirs)
    relative = np.isfinite(ours.astype(np.float64)) & (dtype in ("f32", "f64"))
    relative &= np.abs(ours.astype(np.float64)) > 1e-30
    if name not in ("gelu", "mish", "tanhshrink"):  # these cancel, in torch and here
        limit = {"f32": 2e-5, "f64": 1e-9}.get(dtype, 1)
        np.testing.assert_allclose(ours[relative], _numpy(theirs, ours.dtype)[relative], rtol=limit, atol=0)


def _normal(*shape: int, dtype: str = "f32", seed: int = 0) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape)
    return values.astype(dtypes.dtype(dtype).numpy)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_softmax_family_is_torch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    x = _normal(3, 5, 4, dtype=dtype)
    for axis in (0, 1, -1):
        _same(fx.ops.softmax(x, axis=axis), torch.softmax(_torch(x), axis))
        _same(fx.ops.log_softmax(x, axis=axis), torch.log_softmax(_torch(x), axis))
        for keepdims in (False, True):
            ours = fx.ops.logsumexp(x, axis=axis, keepdims=keepdims)
            _same(ours, torch.logsumexp(_torch(x), axis, keepdim=keepdims))
            ours = fx.ops.var(x, axis=axis, correction=1, keepdims=keepdims)
            _same(ours, torch.var(_torch(x), axis, correction=1, keepdim=keepdims))


def test_softmax_of_infinities_is_torch() -> None:
    torch = pytest.importorskip("torch")
    x = np.array([[-np.inf, -np.inf], [np.inf, 1], [1e30, -1e30], [np.nan, 0]], np.float32)
    _same(fx.ops.softmax(x, axis=1), torch.softmax(_torch(x), 1))
    _same(fx.ops.log_softmax(x, axis=1), torch.log_softmax(_torch(x), 1))
    _same(fx.ops.logsumexp(x, axis=1), torch.logsumexp(_torch(x), 1))


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_normalizations_are_torch(dtype: str) -> None:
    functional = pytest.importorskip("torch.nn.functional")
    x, w, b = (_normal(3, 4, 6, dtype=dtype), _normal(4, dtype=dtype, seed=1), _normal(4, dtype=dtype, seed=2))
    v = np.abs(_normal(4, dtype=dtype, seed=3)) + np.ones(1, w.dtype)
    t = [_torch(a) for a in (x, w, b, v)]
    _same(fx.ops.batch_norm(x, w, v, w, b), functional.batch_norm(t[0], t[1], t[3], t[1], t[2]))
    ours = fx.ops.batch_norm(x, weight=w, bias=b, training=True)
    _same(ours, functional.batch_norm(t[0], None, None, t[1], t[2], True))
    ours = fx.ops.group_norm(x, w, b, num_groups=2)
    _same(ours, functional.group_norm(t[0], 2, t[1], t[2]))
    _same(fx.ops.instance_norm(x, None, None, w, b), functional.instance_norm(t[0], None, None, t[1], t[2]))
    w, b = _normal(4, 6, dtype=dtype, seed=4), _normal(4, 6, dtype=dtype, seed=5)
    t[1:] = [_torch(w), _torch(b)]
    ours = fx.ops.layer_norm(x, w, b, normalized_shape=(4, 6))
    _same(ours, functional.layer_norm(t[0], (4, 6), t[1], t[2]))
    for scale in (1.0, 1e-4):  # small values show which eps is used
        small = (x.astype(np.float32) * scale).astype(x.dtype)
        ours = fx.ops.rms_norm(small, w, normalized_shape=(4, 6))
        _same(ours, functional.rms_norm(_torch(small), (4, 6), t[1]))


@pytest.mark.parametrize(
    ("mask", "causal"), [("none", False), ("none", True), ("bool", False), ("float", False), ("nothing", False)]
)
def test_attention_is_torch(mask: str, causal: bool) -> None:
    functional = pytest.importorskip("torch.nn.functional")
    q, k, v = _normal(2, 3, 4, 8), _normal(2, 3, 5, 8, seed=1), _normal(2, 3, 5, 6, seed=2)
    masks: dict[str, Any] = {
        "none": None,
        "bool": _normal(2, 1, 4, 5) > 0,
        "float": _normal(4, 5, seed=3),
        "nothing": np.array([[True] * 5, [False] * 5, [True] * 5, [False, True] * 2 + [False]]),
    }
    given = masks[mask]
    theirs = functional.scaled_dot_product_attention(
        _torch(q), _torch(k), _torch(v), None if given is None else _torch(given), is_causal=causal
    )
    _same(fx.ops.scaled_dot_product_attention(q, k, v, given, is_causal=causal), theirs)
    ours = nn.functional.scaled_dot_product_attention(q, k, v, given, 0.0, causal, 0.2)
    _same(
        ours,
        functional.scaled_dot_product_attention(
            _torch(q), _torch(k), _torch(v), None if given is None else _torch(given), 0.0, causal, scale=0.2
        ),
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_is_torch(weighted: bool, reduction: str, smoothing: float) -> None:
    functional = pytest.importorskip("torch.nn.functional")
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 2, 5).astype(np.float32) if weighted else None
    for shape in ((6, 5), (2, 5, 3, 2), (5,)):
        x = _normal(*shape)
        target = rng.integers(0, 5, (shape[0], *shape[2:]) if len(shape) > 1 else ())
        probabilities = rng.uniform(0, 1, shape).astype(np.float32)
        for chosen, ignore in ((target, -100), (target, 2), (probabilities, -100)):
            if np.all(chosen == ignore) and reduction == "mean":
                continue
            options: dict[str, Any] = {"reduction": reduction, "label_smoothing": smoothing, "ignore_index": ignore}
            theirs = functional.cross_entropy(
                _torch(x), _torch(np.asarray(chosen)), None if weight is None else _torch(weight), **options
            )
            _same(fx.ops.cross_entropy(x, chosen, weight, **options), theirs)
            if not smoothing and chosen is target:
                logs = fx.ops.log_softmax(x, axis=1 if x.ndim > 1 else 0)
                del options["label_smoothing"]
                _same(fx.ops.nll_loss(logs, chosen, weight, **options), theirs)


def test_other_losses_and_norms_are_torch() -> None:
    functional = pytest.importorskip("torch.nn.functional")
    x, y = _normal(3, 4), np.random.default_rng(1).uniform(0, 1, (3, 4)).astype(np.float32)
    w = np.array([1, 2, 3, 4], np.float32)
    for reduction in ("mean", "sum", "none"):
        for name in ("mse_loss", "l1_loss"):
            ours = getattr(fx.ops, name)(x, y, reduction=reduction)
            _same(ours, getattr(functional, name)(_torch(x), _torch(y), reduction=reduction))
        ours = fx.ops.binary_cross_entropy_with_logits(x * 40, y, w, w, reduction=reduction)
        _same(
            ours,
            functional.binary_cross_entropy_with_logits(
                _torch(x * 40), _torch(y), _torch(w), reduction=reduction, pos_weight=_torch(w)
            ),
        )
    for p in (1.0, 2.0, 3.0, float("inf")):
        _same(fx.ops.normalize(x, p=p, axis=0), functional.normalize(_torch(x), p, 0))
    _same(fx.ops.cosine_similarity(x, y), functional.cosine_similarity(_torch(x), _torch(y)))
    _same(fx.ops.glu(x), functional.glu(_torch(x)))
    slopes = np.array([0.1, 0.2, 0.3, -1], np.float32)
    _same(fx.ops.prelu(x, slopes), functional.prelu(_torch(x), _torch(slopes)))


# -- manners ---------------------------------------------------------------------------------------
def test_eager_calls_are_refused_like_traced_ones() -> None:
    x = np.ones((2, 8), np.float32)
    with pytest.raises(FxliteError, match="normalized_shape"):
        fx.ops.layer_norm(x, normalized_shape=(4,))  # NumPy alone would normalize all 8
    with pytest.raises(FxliteError, match="must be a float"):
        fx.ops.gelu(np.ones(3, np.int64))


def test_one_spelling() -> None:
    module = fx.symbolic_trace(
        lambda x: fx.ops.layer_norm(x, normalized_shape=8) + nn.LayerNorm(8, elementwise_affine=False)(x), x="f32[B,8]"
    )
    first, second = module.graph.find_nodes(op="call_function", target="layer_norm")
    assert (first.args, first.kwargs) == (second.args, second.kwargs)
    softmaxes = fx.symbolic_trace(lambda x: fx.ops.softmax(x, 1) + fx.ops.softmax(x, dim=1), x="f32[B,8]")
    first, second = softmaxes.graph.find_nodes(op="call_function", target="softmax")
    assert (first.args, first.kwargs) == (second.args, second.kwargs)


def test_dropout_keeps_the_mean_and_repeats_with_the_seed() -> None:
    x = np.ones((100, 200), np.float32)
    nn.init.manual_seed(7)
    first = fx.ops.dropout(x, p=0.25)
    assert set(np.unique(first)) == {np.float32(0), np.float32(4 / 3)}
    assert abs(first.mean() - 1) < 0.02
    nn.init.manual_seed(7)
    np.testing.assert_array_equal(first, fx.ops.dropout(x, p=0.25))
    assert not np.array_equal(first, fx.ops.dropout(x, p=0.25))
    assert not fx.ops.dropout(x, p=1.0).any()
    half = fx.ops.dropout(x.astype(dtypes.bfloat16.numpy), p=0.5)
    assert half.dtype == dtypes.bfloat16.numpy


def test_dropout_in_a_graph() -> None:
    module = fx.symbolic_trace(lambda x: nn.functional.dropout(x, 0.5), x="f32[B]")
    (node,) = module.graph.find_nodes(op="call_function", target="dropout")
    assert node.is_impure()
    assert not fx.symbolic_trace(
        lambda x: nn.functional.dropout(x, 0.5, training=False) + 1, x="f32[B]"
    ).graph.find_nodes(op="call_function", target="dropout")
