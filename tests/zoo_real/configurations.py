"""Tiny models of any type that transformers has, by the names that configurations give to sizes, and inputs by the
names of what a model takes."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import torch

_MOST = 300_000_000  # parameters
#: Small sizes by what configurations call them: of what is counted, and of what is wide.
_COUNTS = {
    99: "vocab_size char_vocab_size t2u_vocab_size unit_hifi_gan_vocab_size vocab_size_per_layer_input src_vocab_size "
    "tgt_vocab_size audio_vocab_size text_vocab_size input_vocab_size output_vocab_size entity_vocab_size "
    "encoder_hash_byte_group_vocab prelude_vocab_size max_2d_position_embeddings",
    64: "codebook_size index_topk",
    2: "num_hidden_layers n_layer n_layers num_layers layers encoder_layers decoder_layers num_decoder_layers "
    "num_encoder_layers depth encoder_num_hidden_layers decoder_num_hidden_layers decoder_num_layers "
    "encoder_num_layers speech_encoder_layers t2u_encoder_layers t2u_decoder_layers text_encoder_layers "
    "memory_attention_num_layers resampler_depth num_self_attends_per_block l_layers x_layers r_layers "
    "aligner_num_add_layers decoder_depth encoder_depth num_residual_hidden_layers num_single_layers num_codebooks "
    "num_double_layers speech_decoder_postnet_layers duration_predictor_layers num_experts_per_tok moe_topk moe_k "
    "top_k_experts",
    4: "num_experts num_local_experts n_routed_experts moe_num_experts sliding_window chunk_size mamba_chunk_size "
    "attention_window",
    1: "n_group topk_group first_k_dense_replace num_dense_layers num_kv_shared_layers",
    16: "conv_pos rel_extent",
    8: "num_queries expert_capacity",
}
_WIDTHS = {
    128: "mamba_d_ssm",
    64: "hidden_size d_model n_embd dim emb_dim embedding_size embed_dim out_hidden_size q_lora_rank kv_lora_rank "
    "intermediate_size hidden_dim d_ff encoder_ffn_dim decoder_ffn_dim ffn_dim n_inner ffn_hidden_size lru_width "
    "attention_hidden_size projection_size projection_dim mlp_dim entity_emb_size decoder_hidden_size dim_ff "
    "encoder_hidden_size text_hidden_size speech_encoder_intermediate_size t2u_encoder_ffn_dim t2u_decoder_ffn_dim "
    "dim_model decoder_intermediate_size encoder_hidden_dim fpn_hidden_size output_dim hidden_size_global "
    "pooler_hidden_size proj_size output_channels cross_attention_hidden_size max_position_embeddings n_positions "
    "n_ctx max_source_positions max_target_positions",
    32: "moe_intermediate_size shared_expert_intermediate_size moe_shared_expert_intermediate_size num_mel_bins "
    "shared_intermediate_size hidden_size_per_layer_input qk_head_dim image_size",
    16: "head_dim d_kv qk_rope_head_dim qk_nope_head_dim v_head_dim dim_head index_head_dim linear_key_head_dim "
    "linear_value_head_dim swa_head_dim state_size mamba_d_state d_head kv_channels global_head_dim linear_head_dim "
    "mamba_d_head",
    8: "patch_size conv_pos_groups mamba_n_heads mamba_num_heads",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads attention_heads "
    "num_decoder_heads speech_encoder_attention_heads t2u_encoder_attention_heads t2u_decoder_attention_heads "
    "encoder_num_attention_heads decoder_num_attention_heads index_n_heads linear_num_key_heads "
    "linear_num_value_heads swa_num_attention_heads linear_num_heads num_linear_heads window_size",
    2: "num_key_value_heads multi_query_group_num num_kv_heads swa_num_key_value_heads",
}
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "depth")
_REPEATS = ("depths", "num_block_repeats", "stage_num_blocks")
_PLACES = (
    "global_attn_indexes deepstack_visual_indexes fullatt_block_indexes out_layers intermediate_layers_indices "
    "cross_attention_layers hybrid_layer_ids full_attn_idxs"
).split()
_IDS = ("token_id", "token_index", "pad_index", "eos_index", "bos_index", "unk_index", "mask_index")
#: Layers of types whose configurations name none, or one kind alone.
_KINDS = {"lfm2_moe": ["conv", "full_attention"], "granitemoehybrid": ["mamba", "attention"]}


def shrink(config: Any, widths: bool) -> None:
    """Make the sizes of a configuration and of those in it small: counts, and widths where asked. Of layers those of
    each kind are kept."""
    fields = vars(config)
    sizes = {n: size for t in (_COUNTS, _WIDTHS if widths else {}) for size, names in t.items() for n in names.split()}
    if fields.get("num_key_value_heads") == fields.get("num_attention_heads"):
        sizes |= {"num_key_value_heads": sizes.get("num_attention_heads", 1 << 30)}
    if "depths" in fields or "spatial_merge_size" in fields:
        sizes["window_size"] = 32 if "spatial_merge_size" in fields and widths else 1 << 30
    count = next((fields[k] for k in _LAYERS if type(fields.get(k)) is int), 0)
    by_layer = {
        k: v
        for k, v in fields.items()
        if isinstance(v, (list, tuple)) and count > 2 and len(v) == count and k[0] != "_"
    }
    kinds = [repr(kind) for kind in zip(*by_layer.values())]
    keep = sorted({kinds.index(kind) for kind in kinds})[:4] or [0]
    keep = keep if len(keep) > 1 else [keep[0], keep[0] + 1]
    for key, value in list(fields.items()):
        new = value
        if hasattr(value, "model_type") and hasattr(value, "to_dict"):
            shrink(value, widths)
        elif value is None and key in ("num_experts_per_tok", "head_dim"):
            new = 2 if key != "head_dim" else 16 if widths else None
        elif key in ("attn_layer_indices", "default_language"):
            new = value or ([1] if key == "attn_layer_indices" else "en_XX")
        elif type(value) is int and value > sizes.get(key, value):
            new = len(keep) if key in _LAYERS else sizes[key]
        elif key in by_layer:
            new = [by_layer[key][i] for i in keep if i < count]
        elif isinstance(value, (list, tuple)) and value:
            if key in _REPEATS:
                new = type(value)(min(2, v) for v in value)
            elif key in _PLACES:
                new = type(value)([0, 1][: len(value)])
            elif widths and key in ("image_size", "patch_size") and len(set(value)) == 1 and value[0] > sizes[key]:
                new = type(value)(sizes[key] for _ in value)
        elif key.endswith(_IDS) and type(value) is int and value >= 90:
            new = 60 + sum(map(ord, key)) % 30
        elif key in ("rope_parameters", "rope_scaling") and isinstance(value, dict) and widths:
            _shrink_rope(value)
        if new is not value:
            with contextlib.suppress(Exception):
                setattr(config, key, new)
    if config.model_type in _KINDS:
        config.layer_types = _KINDS[config.model_type]


def _shrink_rope(values: dict[str, Any]) -> None:
    for part in (values, *values.values()):
        if isinstance(part, dict) and ("mrope_section" in part or part is values):
            half = int(16 * part.get("partial_rotary_factor", 1.0)) // 2
            part["mrope_section"] = [half - 2 * (half // 3), half // 3, half // 3]
        if isinstance(part, dict) and "long_factor" in part:
            part["long_factor"], part["short_factor"] = [1.1] * 8, [1.2] * 8


def _classes(config: Any) -> list[Any]:
    """The classes of a model's type, the base model first, and those that the type's own file has."""
    import transformers
    from transformers.models.auto import modeling_auto as auto

    names: list[str] = []
    for key in ("MODEL_MAPPING_NAMES", *(k for k in vars(auto) if k.endswith("MAPPING_NAMES"))):
        found = getattr(auto, key).get(config.model_type)
        names += [found] if isinstance(found, str) else found or ()
    listed = [getattr(transformers, n) for n in names if hasattr(transformers, n)]
    folder = type(config).__module__.rpartition(".")[0]
    files = [m.name for m in pkgutil.iter_modules(importlib.import_module(folder).__path__)]
    for file in sorted(f for f in files if f.startswith("modeling_")):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(f"{folder}.{file}")
            own = (c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__)
            listed += [c for c in own if getattr(c, "config_class", None) is type(config)]
    models = [c for c in dict.fromkeys(listed) if issubclass(c, transformers.PreTrainedModel)]
    return [c for c in models if not c.__name__.endswith("PreTrainedModel")][:4]


def _built(class_: Any, config: Any) -> Any:
    """A model of a class. Raises ValueError for one that is too large."""
    try:
        config._attn_implementation = "sdpa"
        with torch.device("meta"):
            large = sum(p.numel() for p in class_(config).parameters()) > _MOST
    except (ValueError, NotImplementedError, RuntimeError):
        config._attn_implementation, large = "eager", False
    if large:
        raise ValueError(f"{class_.__name__} has too many parameters")
    model = class_(config).eval()
    with torch.no_grad():  # what a library begins with zeros and ones, too, so that a mistake there is seen
        for value in model.parameters():
            if value.ndim == 1 and value.is_floating_point():
                value.add_(torch.randn_like(value) * 0.05)
    return model


_PARTS = "vision_config audio_config text_config encoder_config encoder backbone_config thinker_config".split()


def _size(config: Any, names: str, default: Any) -> Any:
    """The first of a configuration's sizes, or those of its parts, that is there."""
    for part in (config, *(getattr(config, key, None) for key in _PARTS)):
        for name in names.split():
            value = getattr(part, name, None)
            if value is not None and not callable(value):
                return value
    return default


def _number(value: Any) -> int:
    return int(value[0]) if isinstance(value, (list, tuple)) else int(value)


def _made(name: str, takes: Any, config: Any, edge: tuple[int, int], form: int) -> Any:
    """An input by its name; of forms that it may have, one of five. None for a name that says nothing."""
    vision = getattr(config, "vision_config", None) or config
    patch = _number(_size(vision, "patch_size", 8))
    channels = _number(_size(vision, "num_channels in_channels in_chans channels", 3))
    deep = channels * patch * patch
    hidden = _number(_size(config, "hidden_size d_model embed_dim", 64))
    if name in ("pixel_values", "images", "image", "pixel_values_videos", "pixel_values_images") or (
        name == "hidden_states" and "grid_thw" in takes
    ):
        time = _size(vision, "temporal_patch_size patch_temporal", 1)
        frames = _size(config, "num_frames frames_per_clip", 4)
        shapes = [(1, channels, *edge), (1, frames, channels, *edge), (32, deep * time), (1, 16, deep)]
        shapes = [shapes[2]] * 5 if name == "hidden_states" else [*shapes, (16, channels, patch, patch)]
        return torch.randn(shapes[form])
    if name in ("input_features", "audio_features", "spectrogram"):
        bins = "num_mel_bins feature_size input_dim n_mels input_feat_per_channel mel_dim"
        mel = _number(_size(config, f"{bins} feature_projection_input_dim model_in_dim", 80))
        whole = 2 * _size(config, "max_source_positions", 50)
        return torch.randn([(1, mel, 64), (1, 64, mel), (1, 1, 64, mel), (1, mel, whole), (1, 1, mel, 64)][form])
    if name in ("input_values", "audio_values", "waveform"):
        return torch.randn([(1, 1920), (1, 1, 3840), (1, 24000), (1, 1, 24000), (1, 1024, 80)][form])
    if name in ("past_values", "inputs"):
        length = _size(config, "context_length", 16)
        wide = _size(config, "num_input_channels input_size", 1)
        shapes = [(1, length, wide), (1, length), (1, length + 7, 1), (1, 8, 64)]
        return torch.randn(shapes[form]) if form < 4 else torch.arange(8)[None]
    fixed = {
        "grid_thw": lambda: torch.tensor([[1, 4, 4], [1, 4, 4]]),
        "image_grid_thw": lambda: torch.tensor([[1, 4, 4], [1, 4, 4]]),
        "spatial_shapes": lambda: torch.tensor([[4, 4]]),
        "pixel_position_ids": lambda: torch.cartesian_prod(torch.arange(4), torch.arange(4))[None],
        "visual_feats": lambda: torch.randn(2, 8, config.visual_feat_dim),
        "visual_pos": lambda: torch.rand(2, 8, 4),
        "bbox": lambda: torch.arange(64).reshape(2, 8, 4) // 4,
        "audio_codes": lambda: torch.arange(16).reshape(1, 2, 8),
        "encoder_hidden_states": lambda: torch.randn(2, 8, _size(config, "encoder_hidden_size encoder_width", hidden)),
    }
    if name in fixed:
        return fixed[name]()
    if name in ("hidden_states", "inputs_embeds", "query_embeds", "image_features", "vision_features", "queries"):
        return torch.randn(2, 8, hidden)
    if name.endswith("mask") or name == "token_type_ids":
        return torch.ones((1, 16) if "spatial_shapes" in takes else (2, 8), dtype=torch.long)
    return torch.arange(1, 17).reshape(2, 8) if name.endswith("ids") else None


def _candidates(model: Any, config: Any) -> Iterator[dict[str, Any]]:
    """Named inputs that a model may take."""
    takes = inspect.signature(model.forward).parameters
    needed = [n for n, p in takes.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    main = model.main_input_name if model.main_input_name in takes else [*needed, *takes][0]
    wanted = [n for n in dict.fromkeys([main, *needed]) if n in takes]
    more: list[tuple[str, ...]] = [()]
    if "decoder_input_ids" in takes:
        decodes = getattr(config, "is_encoder_decoder", False) or main != "input_ids"
        more.insert(0 if decodes else 1, ("decoder_input_ids",))
    more += [("pixel_values",), ("input_ids",), ("visual_feats", "visual_pos"), ("encoder_hidden_states",)]
    more += [("grid_thw",), ("token_type_ids",)]
    more.insert(0, ("bbox",))
    sets = [[*wanted, *names] for names in more if all(n in takes and n not in wanted for n in names)]
    sets += [["input_ids"]] if "input_ids" in takes else []
    size = _size(getattr(config, "vision_config", None) or config, "image_size img_size input_size", 64)
    own = tuple(size) if isinstance(size, (list, tuple)) else (size, size)
    edges = [e for e in dict.fromkeys([own, *((n, n) for n in (64, 128, 224, 256, 384, 512))]) if max(e) <= 512]
    for form in range(5):
        for edge in edges:
            for names in sets:
                values = {n: _made(n, takes, config, edge, form) for n in names}
                if all(v is not None for v in values.values()):
                    batches = {len(v) for v in values.values()}
                    yield {n: v[:1] for n, v in values.items()} if batches == {1, 2} else values


def _prepared(model: Any, values: dict[str, Any]) -> dict[str, Any]:
    """With the inputs that transformers makes of others to export a model: positions and segments of patches."""
    more = dict(values)
    with contextlib.suppress(Exception), torch.no_grad():
        importlib.import_module("transformers.exporters.utils").precompute_export_inputs(model, more)
        more = {name: value for name, value in more.items() if value is not None}
        model(**more)
        return more
    return values


def tiny(name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A model of a type, and inputs that it takes. Raises RuntimeError where none of the tries runs."""
    from transformers import AutoConfig

    errors: list[str] = []
    for widths in (True, False, None):
        try:
            config = AutoConfig.for_model(name)
            if widths is not None:
                shrink(config, widths)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}"[:200])
            continue
        for class_ in _classes(config):
            try:
                model = _built(class_, config)
                candidates = list(_candidates(model, config))
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}"[:200])
                continue
            for values in candidates:
                try:
                    with torch.no_grad():
                        leaves = torch.utils._pytree.tree_leaves(model(**values))
                    if any(isinstance(v, torch.Tensor) and v.is_floating_point() for v in leaves):
                        return model, (), _prepared(model, values)
                except Exception as error:
                    errors.append(f"{class_.__name__}: {type(error).__name__}: {error}"[:200])
    raise RuntimeError("; ".join(errors[:4]))
