"""A sample of the architectures of ``python -m tests.zoo_real``, which nobody here wrote: the graph that
is imported computes what torch does, and C what the graph does."""

from __future__ import annotations

import importlib

import pytest

pytest.importorskip("torch")

from tests.zoo_real.check import check
from tests.zoo_real.models import import_torchvision

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
    "transformers/wav2vec2",
    "transformers/vit",
)


@pytest.mark.parametrize("name", SAMPLE)
def test_architectures(name: str) -> None:
    try:
        import_torchvision()
        importlib.import_module(name.partition("/")[0])
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"extra models: {error}")
    row = check(name, times=False)
    assert row["stage"] == "right", row
