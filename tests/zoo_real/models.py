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

from fxlite.importing.torch.caches import register_caches
from tests.zoo_real.configurations import tiny

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
    """Classification, segmentation, video, optical flow, those in integers, the backbones of detection."""
    vision = import_torchvision()
    models = vision.models
    names = [f"torchvision/{n}" for n in models.list_models(module=models)]
    for family in ("segmentation", "video", "optical_flow", "quantization"):
        names += [f"torchvision/{family}.{n}" for n in models.list_models(module=getattr(models, family))]
    names += [f"torchvision/detection.{n}.backbone" for n in models.list_models(module=models.detection)]
    return names


def torchvision_model(name: str) -> Example:
    vision = import_torchvision()
    if name.startswith("detection."):
        _, name, _ = name.split(".")
        whole = vision.models.get_model(name, weights=None, weights_backbone=None)
        edge = 300 if name.startswith("ssd300") else 96
        return whole.backbone, (torch.randn(1, 3, edge, edge),), {}
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
    if name.startswith("optical_flow."):
        raft = vision.models.get_model(name.partition(".")[2], weights=None)
        return raft, (torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128)), {"num_flow_updates": 2}
    if name.startswith("quantization."):
        name = name.partition(".")[2]
        whole = {"transform_input": False} if "inception" in name or "googlenet" in name else {}
        edge = _EDGES.get(name.partition("_")[2], 64)
        return vision.models.get_model(name, weights=None, quantize=True, **whole), (torch.randn(2, 3, edge, edge),), {}
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
    """One name of each prefix, and of each of timm's modules that has none of these: the smallest by its name's
    order."""
    import_torchvision()
    import timm

    word = ("atto", "femto", "pico", "nano", "tiny", "xxs", "mini", "_s", "small", "18", "xs", "micro", "lite")

    def weight(name: str) -> int:
        return next((i for i, w in enumerate(word) if w in name), len(word))

    families: dict[str, list[str]] = {}
    for name in timm.list_models():
        families.setdefault(name.split("_")[0], []).append(name)
    chosen = {min(names, key=weight) for names in families.values()}
    for module in timm.list_modules():
        names = timm.list_models(module=module)
        if names and not chosen.intersection(names):
            chosen.add(min(names, key=weight))
    return [f"timm/{name}" for name in sorted(chosen)]


def timm_model(name: str) -> Example:
    import_torchvision()
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


# -- transformers ----------------------------------------------------------------------------------
#: Kinds of configurations, by what they take.
_TEXT = (
    "bert roberta distilbert albert electra deberta deberta-v2 mpnet camembert xlm-roberta squeezebert roformer "
    "rembert esm ibert megatron-bert ernie nystromformer funnel fnet layoutlm mobilebert convbert data2vec-text "
    "gpt2 gpt_neo gpt_neox gptj opt bloom llama mistral mixtral qwen2 qwen2_moe qwen3 gemma gemma2 phi phi3 "
    "falcon stablelm starcoder2 olmo olmo2 cohere mamba mamba2 codegen persimmon granite gpt_bigcode mpt xglm "
    "biogpt ctrl openai-gpt xlnet xlm smollm3 deepseek_v3 granitemoe jamba recurrent_gemma rwkv bitnet glm "
    "nemotron exaone4 "
).split()
_ENCODER_DECODER = (
    "t5 mt5 bart mbart pegasus marian blenderbot m2m_100 blenderbot-small plbart switch_transformers umt5".split()
)
_IMAGES = (
    "vit deit beit swin swinv2 convnext convnextv2 resnet regnet mobilenet_v1 mobilenet_v2 mobilevit dinov2 segformer "
    "poolformer levit cvt pvt efficientnet vit_mae yolos dpt focalnet bit vit_msn hiera glpn"
).split()
_AUDIO = "wav2vec2 hubert wavlm unispeech sew whisper data2vec-audio audio-spectrogram-transformer".split()
_BOTH = "clip siglip chinese_clip".split()
#: Small sizes of whatever a configuration calls so.
_SMALL = {
    "vocab_size": 99,
    "hidden_size": 32,
    "d_model": 32,
    "n_embd": 32,
    "dim": 32,
    "emb_dim": 32,
    "embedding_size": 32,
    "num_hidden_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "num_layers": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_attention_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "num_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "hidden_dim": 48,
    "d_ff": 48,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "ffn_dim": 48,
    "max_position_embeddings": 64,
    "n_positions": 64,
    "n_ctx": 64,
    "n_inner": 48,
    "num_decoder_layers": 2,
    "image_size": 32,
    "patch_size": 8,
    "num_experts": 4,
    "num_local_experts": 4,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "head_dim": 8,
    "d_kv": 8,
    "pad_token_id": 0,
    "num_decoder_heads": 4,
    "conv_dim": (32, 32, 32, 32, 32, 32, 32),
    "rotary_dim": 4,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "state_size": 8,
    "num_mel_bins": 16,
    "max_source_positions": 20,
    "max_target_positions": 20,
    "mamba_d_state": 8,
    "attention_hidden_size": 32,
    "lru_width": 32,
    "projection_size": 32,
}


_OWN = (*_TEXT, *_ENCODER_DECODER, *_IMAGES, *_AUDIO, *_BOTH)


def transformers_names() -> list[str]:
    """Those above, and all other types that the library has."""
    import_torchvision()
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return [f"transformers/{name}" for name in dict.fromkeys([*_OWN, *CONFIG_MAPPING_NAMES])]


def transformers_model(name: str) -> Example:
    with contextlib.suppress(ImportError, RuntimeError):  # parts of transformers import it where it is installed
        import_torchvision()
    import transformers.cache_utils  # noqa: F401 (register_caches looks for it)
    from transformers import AutoConfig, AutoModel

    register_caches()
    if name not in _OWN:
        return tiny(name)
    config = AutoConfig.for_model(name)
    _reduce(config, {} if name in _IMAGES and name not in _VIT else _SMALL)
    for part in ("text_config", "vision_config"):
        if hasattr(config, part):
            _reduce(getattr(config, part), _SMALL)
    for key, value in _SPECIAL.get(name, {}).items():
        setattr(config, key, value)
    config._attn_implementation = "sdpa" if name != "deberta" else "eager"
    try:
        model = AutoModel.from_config(config)
    except ValueError:
        config._attn_implementation = "eager"
        model = AutoModel.from_config(config)
    ids = torch.arange(1, 17).reshape(2, 8)
    edge = getattr(config, "image_size", 64)
    edge = edge[0] if isinstance(edge, (list, tuple)) else edge
    edge = edge if isinstance(edge, int) and (edge <= 64 or name in _SQUARE) else 64
    if name in _TEXT:
        return model, (), {"input_ids": ids}
    if name in _ENCODER_DECODER:
        return model, (), {"input_ids": ids, "decoder_input_ids": ids[:, :5].clone()}
    if name in _IMAGES:
        named = {"pixel_values": torch.randn(1, 3, edge, edge)}
        if name == "vit_mae":  # which patches it hides
            named["noise"] = torch.rand(1, (edge // config.patch_size) ** 2)
        return model, (), named
    if name == "whisper":
        return model, (), {"input_features": torch.randn(1, 16, 40), "decoder_input_ids": ids[:1, :5].clone()}
    if name == "audio-spectrogram-transformer":
        return model, (), {"input_values": torch.randn(1, config.max_length, config.num_mel_bins)}
    if name in _AUDIO:
        return model, (), {"input_values": torch.randn(1, 2000)}
    return model, (), {"input_ids": ids, "pixel_values": torch.randn(2, 3, 32, 32)}


#: Sizes that others of the same configuration depend on.
_SPECIAL: dict[str, dict[str, Any]] = {
    "esm": {"vocab_size": 33, "mask_token_id": 32, "pad_token_id": 1},
    "funnel": {"architectures": ["FunnelModel"]},
    "mamba2": {"num_heads": 8, "n_groups": 2},
    "deepseek_v3": {"head_dim": 8, "num_key_value_heads": 4, "num_experts_per_tok": 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "sew": {"conv_dim": (32,) * 13},
    "nemotron": {"num_key_value_heads": 4},
}
#: Models of images that are made as those of texts are.
_VIT = ("vit", "deit", "beit", "dinov2", "vit_mae", "yolos", "vit_msn")
#: Images whose size is part of the weights.
_SQUARE = ("dpt", "levit", "swin", "swinv2", "hiera", "pvt")


def _reduce(config: Any, sizes: dict[str, Any]) -> None:
    for key, value in sizes.items():
        if isinstance(getattr(config, key, None), (int, tuple, list)) and not isinstance(getattr(config, key), bool):
            with contextlib.suppress(Exception):
                setattr(config, key, value)
    for key in ("layer_types", "layers_block_type"):
        if isinstance(getattr(config, key, None), list) and hasattr(config, "num_hidden_layers"):
            with contextlib.suppress(AttributeError):
                setattr(config, key, getattr(config, key)[: config.num_hidden_layers])


FAMILIES: dict[str, tuple[Callable[[], list[str]], Callable[[str], Example]]] = {
    "torchvision": (torchvision_names, torchvision_model),
    "timm": (timm_names, timm_model),
    "transformers": (transformers_names, transformers_model),
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
