"""A sample of the architectures of ``python -m tests.zoo_real``, which nobody here wrote: the graph that
is imported computes what torch does, and C what the graph does."""

from __future__ import annotations

import copy
import importlib

import pytest

import fxlite as fx

torch = pytest.importorskip("torch")

from fxlite.importing.torch.caches import register_caches  # noqa: E402
from fxlite.importing.torch.run import nested  # noqa: E402
from fxlite.importing.torch.table import array_of  # noqa: E402
from tests.zoo_real.check import NEAR, check, difference, leaves  # noqa: E402
from tests.zoo_real.models import import_torchvision, make  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

#: Small ones with something of their own: channel shuffle, windows, antialiased positions, relative
#: positions, caches, experts, state spaces, audio.
SAMPLE = (
    "torchvision/shufflenet_v2_x0_5",
    "timm/test_vit.r160_in1k",
    "timm/test_convnext.r160_in1k",
    "transformers/bert",
    "transformers/deberta",
    "transformers/gpt2",
    "transformers/llama",
    "transformers/mixtral",
    "transformers/mamba2",
    "transformers/deepseek_v3",
    "transformers/qwen2_vl_vision",  # two images
    "transformers/wav2vec2",
    "transformers/vit",
)


def needs(library: str) -> None:
    try:
        if library != "transformers":
            import_torchvision()
        importlib.import_module(library)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"extra models: {error}")


@pytest.mark.parametrize("name", SAMPLE)
def test_architectures(name: str) -> None:
    needs(name.partition("/")[0])
    row = check(name, times=False)
    assert row["stage"] == "right", row


def test_one_artifact_for_all_sizes() -> None:
    """Batch and sequence differ between calls of one compiled decoder with a cache."""
    needs("transformers")
    model, _, named = make("transformers/gpt2")
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("seq", max=64)}
    gm = fx.from_torch(model, dynamic_shapes={"input_ids": dims}, **named)
    assert str(gm.graph.placeholders[0].type) == "i64[batch,seq]"
    compiled = fx.compile(gm)
    for sizes in ((1, 7), (2, 8), (3, 5), (4, 16), (5, 13)):
        ids = torch.randint(1, 90, sizes)
        with torch.no_grad():
            expected = [array_of(v) for v in leaves(model(input_ids=ids))]
        assert difference(leaves(compiled(input_ids=ids.numpy())), expected) < NEAR


@pytest.mark.parametrize("name", ["llama", "mamba", "gemma2", "jamba", "bart"])
def test_caches_are_inputs(name: str) -> None:
    """A step of decoding: keys and values, states of convolutions and recurrent ones, and both of an encoder and a
    decoder go in as dicts of their fields."""
    needs("transformers")
    model, _, named = make(f"transformers/{name}")
    with torch.no_grad():
        first = model(**named)
        cached = next(key for key in ("past_key_values", "cache_params") if first.get(key) is not None)
        ids = next(key for key in ("decoder_input_ids", "input_ids") if key in named)
        step = named | {ids: named[ids][:, :1].clone(), cached: first[cached]}
        expected = [array_of(v).copy() for v in leaves(model(**copy.deepcopy(step)))]
    gm = fx.from_torch(model, **copy.deepcopy(step))
    values, spec = torch.utils._pytree.tree_flatten(step)
    given = nested(spec, iter([array_of(v) for v in values]))
    assert isinstance(given[cached], dict)
    assert difference(leaves(gm(**given)), expected) < NEAR


def test_caches_that_models_derive_are_trees() -> None:
    """One with states of its own beside the layers, of which some are missing."""
    needs("transformers")
    cache = importlib.import_module("transformers.models.minimax.modeling_minimax").MiniMaxCache()
    register_caches()
    keys, values, state = torch.ones(1, 2, 3, 4), torch.zeros(1, 2, 3, 4), torch.full((1, 2, 4, 4), 2.0)
    cache.update(keys, values, 0)
    cache.set_linear_cache(1, state)
    parts, spec = torch.utils._pytree.tree_flatten(cache)
    assert [part.shape for part in parts] == [keys.shape, values.shape, state.shape]
    again = torch.utils._pytree.tree_unflatten([part + 1 for part in parts], spec)
    assert type(again) is type(cache) and again.linear_cache[0] == []
    assert torch.equal(again.linear_cache[1], state + 1) and torch.equal(again.layers[0].values, values + 1)
    assert torch.equal(cache.linear_cache[1], state), "the cache is what it was"
