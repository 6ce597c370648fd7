"""The models: a name such as ``torchvision/resnet18``, and what makes it and its example inputs.

Sizes are the smallest that an architecture works with, so that a build in C takes seconds.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

#: A model in evaluation mode, its positional and its named inputs.
Example = tuple[Any, tuple[Any, ...], dict[str, Any]]
SHARED = os.environ.get("FXLITE_TORCHVISION", "")


def import_torchvision() -> Any:
    """torchvision. Where its compiled ops do not load beside the CPU build of torch, the folder that
    FXLITE_TORCHVISION names has a module ``torchvision_cpu``, which is imported first."""
    if SHARED and SHARED not in sys.path:
        sys.path.append(SHARED)
    with contextlib.suppress(ImportError):
        import torchvision_cpu  # noqa: F401
    import torchvision

    return torchvision


# -- torchvision -----------------------------------------------------------------------------------
#: Edges of images, where 64 is too small.
_EDGES = {"inception_v3": 96, "alexnet": 80}
_VITS = ("vit_b_16", "vit_l_16", "vit_h_14", "vit_b_32", "vit_l_32")


def torchvision_names() -> list[str]:
    """Classification, segmentation, video, the backbones of detection, optical flow."""
    vision = import_torchvision()
    models = vision.models
    names = [f"torchvision/{n}" for n in models.list_models(module=models)]
    names += [f"torchvision/segmentation.{n}" for n in models.list_models(module=models.segmentation)]
    names += [f"torchvision/video.{n}" for n in models.list_models(module=models.video)]
    names += [f"torchvision/detection.{n}.backbone" for n in models.list_models(module=models.detection)]
    return names


def torchvision_model(name: str) -> Example:
    vision = import_torchvision()
    if name.startswith("detection."):
        _, name, _ = name.split(".")
        whole = vision.models.get_model(name, weights=None, weights_backbone=None)
        return whole.backbone, (torch.randn(1, 3, 96, 96),), {}
    if name.startswith("segmentation."):
        model = vision.models.get_model(name.partition(".")[2], weights=None, weights_backbone=None)
        return model, (torch.randn(1, 3, 64, 64),), {}
    if name.startswith("video."):
        name = name.partition(".")[2]
        if name == "s3d":
            return vision.models.get_model(name, weights=None), (torch.randn(1, 3, 16, 224, 224),), {}
        if name.startswith("mvit"):
            return vision.models.get_model(name, weights=None), (torch.randn(1, 3, 16, 224, 224),), {}
        return vision.models.get_model(name, weights=None), (torch.randn(1, 3, 8, 64, 64),), {}
    edge, named = _EDGES.get(name, 64), {}
    if name in _VITS:
        edge = 56 if name == "vit_h_14" else 64
        named = {"image_size": edge}
    if name == "maxvit_t":
        edge, named = 64, {"input_size": (64, 64)}
        from torchvision.models.maxvit import MaxVit

        model = MaxVit(
            input_size=(64, 64),
            stem_channels=64,
            block_channels=[64, 128, 256, 512],
            block_layers=[2, 2, 5, 2],
            head_dim=32,
            stochastic_depth_prob=0.2,
            partition_size=2,
        )
        return model, (torch.randn(2, 3, edge, edge),), {}
    return vision.models.get_model(name, weights=None, **named), (torch.randn(2, 3, edge, edge),), {}


# -- timm ------------------------------------------------------------------------------------------
def timm_names() -> list[str]:
    """One name of each of timm's modules and prefixes: the smallest by its name's order."""
    import timm

    chosen: dict[str, str] = {}
    for name in timm.list_models():
        family = name.split("_")[0]
        word = ("atto", "femto", "pico", "nano", "tiny", "xxs", "mini", "_s", "small", "18", "xs", "micro", "lite")
        weight = next((i for i, w in enumerate(word) if w in name), len(word))
        known = chosen.get(family)
        if known is None or weight < next((i for i, w in enumerate(word) if w in known), len(word)):
            chosen[family] = name
    return [f"timm/{name}" for name in sorted(chosen.values())]


def timm_model(name: str) -> Example:
    import timm

    edge = 64
    for given in ({"img_size": 64}, {"img_size": 128}, {}, {"img_size": 224}):
        try:
            model = timm.create_model(name, pretrained=False, **given).eval()
            config = model.pretrained_cfg
            edge = given.get("img_size") or (96 if not config.get("fixed_input_size") else config["input_size"][-1])
            x = torch.randn(1, config["input_size"][0], edge, edge)
            with torch.no_grad():
                model(x)
            return model, (x,), {}
        except Exception:
            continue
    model = timm.create_model(name, pretrained=False)
    return model, (torch.randn(1, *model.pretrained_cfg["input_size"]),), {}


FAMILIES: dict[str, tuple[Callable[[], list[str]], Callable[[str], Example]]] = {
    "torchvision": (torchvision_names, torchvision_model),
    "timm": (timm_names, timm_model),
}


def make(name: str) -> Example:
    """The model of a name, in evaluation mode, with drawn weights and statistics, and its inputs."""
    family, _, own = name.partition("/")
    torch.manual_seed(0)
    model, args, named = FAMILIES[family][1](own)
    model.eval()
    for module in model.modules():
        if isinstance(getattr(module, "running_var", None), torch.Tensor):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return model, args, named
