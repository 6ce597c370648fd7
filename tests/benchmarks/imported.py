"""Models of other libraries at their full sizes: fxlite's C beside ONNX Runtime and OpenVINO.

    pip install -e ".[models,peers]" (torchvision and timm with --no-deps beside the CPU build of torch)
    python -m tests.benchmarks.imported --output docs/benchmarks_models.md

In: architectures of torchvision, timm, transformers and diffusers with drawn weights. Each is
exported by torch to one ONNX file, which all engines read; a call gives the first result of the
model in NumPy arrays. Out: a table as in :mod:`tests.benchmarks.inference`, whose options it has.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import functools
import importlib
import statistics
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks import inference, page
from tests.benchmarks.engines import ENGINES, Build, Engine, Loaded
from tests.benchmarks.machine import foreign_load, machine, paragraphs, versions
from tests.benchmarks.results import Row, threads_text
from tests.benchmarks.workloads import Job

OURS = "fxlite"
#: Ratios: of the geometric mean over the models, and of nine tenths of them.
WANTED_MEAN, WANTED_MOST = 0.80, 1.00


def _open(job: Job, threads: int) -> Build:
    job.check_onnx()
    arrays = job.inputs()

    def build() -> Loaded:
        import fxlite as fx

        module = fx.from_onnx(job.onnx)
        function = fx.compile(module, threads=threads)
        inputs = [arrays[p.name] for p in module.graph.placeholders]
        return Loaded(lambda: function(*inputs), module=module)

    return build


#: The engines by name, in the order of the columns.
COMPARED = {OURS: Engine(OURS, _open, ("fxlite", "onnx"))} | {n: ENGINES[n] for n in ("ONNX Runtime", "OpenVINO f32")}


# -- models ----------------------------------------------------------------------------------------
Made = tuple[Any, dict[str, Any]]  # a module of torch, and its inputs by name


def _image(edge: int = 224) -> Any:
    import torch

    return torch.randn(1, 3, edge, edge)


def _torchvision(name: str, edge: int = 224, **named: Any) -> Callable[[], Made]:
    def make() -> Made:
        from tests.zoo_real.models import import_torchvision

        get = import_torchvision().models.get_model
        if name.startswith("segmentation"):
            named["weights_backbone"] = None
        return get(name.rpartition(".")[2], weights=None, **named), {"x": _image(edge)}

    return make


def _timm(name: str) -> Callable[[], Made]:
    def make() -> Made:
        from tests.zoo_real.models import import_torchvision

        import_torchvision()
        import timm
        import torch

        model = timm.create_model(name, pretrained=False, exportable=True)
        head = getattr(model.get_classifier(), "weight", None)
        if head is not None and not head.any():  # its results would be 0, whatever the rest computes
            torch.nn.init.normal_(head, std=0.02)
        return model, {"x": _image(model.pretrained_cfg["input_size"][-1])}

    return make


def _transformers(name: str, inputs: Callable[[Any], dict[str, Any]], kind: str = "AutoModel", **sizes: Any) -> Any:
    def make() -> Made:
        from tests.zoo_real.models import import_torchvision

        import_torchvision()
        import transformers

        config = transformers.AutoConfig.for_model(name, **sizes)
        config.use_cache = False
        return getattr(transformers, kind).from_config(config), inputs(config)

    return make


def _words(count: int, *names: str) -> Callable[[Any], dict[str, Any]]:
    def draw(config: Any) -> dict[str, Any]:
        import torch

        return {name: torch.randint(1, 1000, (1, count)) for name in names or ("input_ids",)}

    return draw


def _pixels(edge: int) -> Callable[[Any], dict[str, Any]]:
    return lambda config: {"pixel_values": _image(edge)}


def _speech(config: Any) -> dict[str, Any]:
    import torch

    return {
        "input_features": torch.randn(1, config.num_mel_bins, 2 * config.max_source_positions),
        "decoder_input_ids": torch.randint(1, 1000, (1, 8)),
    }


def _sound(config: Any) -> dict[str, Any]:
    import torch

    return {"input_values": torch.randn(1, 16000)}


def _diffusion() -> Made:
    import torch

    from tests.zoo_real.models import import_torchvision

    import_torchvision()
    unet = importlib.import_module("diffusers").UNet2DModel(
        sample_size=32,
        block_out_channels=(128, 256, 256, 256),
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    )
    return unet, {"sample": torch.randn(1, 3, 32, 32), "timestep": torch.tensor([7])}


MODELS: dict[str, Callable[[], Made]] = {
    **{
        f"torchvision/{name}": _torchvision(name)
        for name in (
            "alexnet resnet18 resnext50_32x4d wide_resnet50_2 densenet121 googlenet squeezenet1_1 mobilenet_v2 "
            "mobilenet_v3_large mnasnet1_0 shufflenet_v2_x1_0 efficientnet_b0 efficientnet_v2_s regnet_y_800mf "
            "convnext_tiny vit_b_16 swin_t swin_v2_t maxvit_t segmentation.lraspp_mobilenet_v3_large"
        ).split()
    },
    "torchvision/inception_v3": _torchvision("inception_v3", 299, init_weights=False),
    "torchvision/vgg11": _torchvision("vgg11"),
    **{
        f"timm/{name}": _timm(name)
        for name in (
            "convmixer_768_32 poolformer_s12 edgenext_small mobilevit_s mixer_b16_224 levit_256 rexnet_100 "
            "deit_small_patch16_224 ghostnet_100 repvgg_a0 hrnet_w18_small efficientformer_l1 resmlp_12_224 "
            "fastvit_t8 mobileone_s1 xcit_tiny_12_p16_224 nfnet_f0 skresnet18 res2net50_26w_4s coat_lite_mini "
            "pvt_v2_b1 vgg11_bn tinynet_a darknet53 volo_d1_224 gmlp_s16_224"
        ).split()
    },
    "transformers/distilbert": _transformers("distilbert", _words(128)),
    "transformers/t5": _transformers("t5", _words(64, "input_ids", "decoder_input_ids"), d_ff=2048),
    "transformers/gpt_neo": _transformers(
        "gpt_neo", _words(128), hidden_size=768, num_layers=12, num_heads=12, attention_types=[[["global", "local"], 6]]
    ),
    "transformers/llama": _transformers(
        "llama",
        _words(64),
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=4,
    ),
    "transformers/mamba": _transformers("mamba", _words(32), hidden_size=768, num_hidden_layers=6),
    "transformers/whisper": _transformers("whisper", _speech),
    "transformers/wav2vec2": _transformers("wav2vec2", _sound),
    "transformers/clip vision": _transformers("clip_vision_model", _pixels(224)),
    "transformers/segformer": _transformers("segformer", _pixels(224)),
    "transformers/albert": _transformers(
        "albert", _words(128), hidden_size=768, intermediate_size=3072, num_attention_heads=12
    ),
    "transformers/deberta-v2": _transformers(
        "deberta-v2", _words(128), hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536
    ),
    "diffusers/UNet2DModel": _diffusion,
}


# -- files -----------------------------------------------------------------------------------------
def prepare(name: str, folder: Path, with_onnx: bool = True) -> Job:
    """Write the model as ONNX, its inputs, and its first result in float64."""
    import torch

    job = Job(name, folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model = _first_result(model.eval(), tuple(inputs))
    for module in model.modules():
        if isinstance(getattr(module, "running_var", None), torch.Tensor):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    with torch.no_grad():
        for parameter in model.parameters():  # heads that begin with zeros give nothing to compare
            if parameter.ndim > 1 and not parameter.any():
                parameter.normal_(0, 0.02)
    np.savez(job.folder / "inputs.npz", **{n: v.numpy() for n, v in inputs.items()})
    np.savez(job.folder / "reference.npz", _exact(model, inputs))
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        export = functools.partial(torch.onnx.export, model, tuple(inputs.values()), str(job.onnx), verbose=False)
        try:
            export(input_names=list(inputs), dynamo=True)
        except Exception:  # of many kinds; what torch.export refuses the older exporter traces
            export(input_names=list(inputs), dynamo=False, opset_version=17)
    return job


def _first_result(model: Any, names: tuple[str, ...]) -> Any:
    """A module that takes its inputs in order and gives the first array of the model's result."""
    import torch

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *arrays: Any) -> Any:
            keyword = len(names) > 1 or names[0] not in ("x", "pixel_values")
            found = self.model(**dict(zip(names, arrays))) if keyword else self.model(*arrays)
            while not isinstance(found, torch.Tensor):
                found = next(iter(found.values())) if isinstance(found, dict) else found[0]
            return found

    return First()


def _exact(model: Any, inputs: dict[str, Any]) -> np.ndarray[Any, Any]:
    """The first result in float64, or in float32 where the model's own code has float32 in it."""
    import torch

    with torch.inference_mode():
        try:
            wide = [v.double() if v.is_floating_point() else v for v in inputs.values()]
            return copy.deepcopy(model).double()(*wide).numpy()  # type: ignore[no-any-return]
        except RuntimeError:
            return model(*inputs.values()).numpy()  # type: ignore[no-any-return]


# -- page ------------------------------------------------------------------------------------------
def _in_short(rows: Sequence[Row], count: int) -> str:
    ratios = sorted(q for row in rows if row.threads == count and (q := row.ratio(OURS)) is not None)
    if not ratios:
        return f"- {threads_text(count)}: nothing was compared."
    most = sum(ratio <= WANTED_MOST for ratio in ratios) / len(ratios)
    return (
        f"- {threads_text(count)}: geometric mean **{statistics.geometric_mean(ratios):.2f}** of the best peer's time "
        f"over {len(ratios)} models (wanted ≤ {WANTED_MEAN:.2f}), {most:.0%} of them at most {WANTED_MOST:.2f} "
        f"(wanted ≥ 90%), the largest {ratios[-1]:.2f}."
    )


def markdown(rows: Sequence[Row], options: argparse.Namespace, load: float) -> str:
    """The whole page."""
    engines, threads = list(COMPARED), sorted({row.threads for row in rows})
    cold = [row for row in rows if row.cold]
    lines = paragraphs(
        "# Benchmarks: models of other libraries",
        "Models of torchvision, timm, transformers and diffusers, at their full sizes and with drawn weights: one ONNX "
        "file by torch's exporter, read by `fx.from_onnx` and by the peers. A ratio is the time of fxlite's C by that "
        "of the **best** peer: below 1 fxlite is faster than both. All compute in float32.",
        f"{machine()}; {datetime.date.today().isoformat()}; {versions('torch', 'onnxruntime', 'openvino', 'numpy')}.",
        "## In short",
        [_in_short(rows, count) for count in threads],
    )
    for count in threads:
        chosen = [row for row in rows if row.threads == count]
        cells = [
            [row.workload, *(page.time_cell(row, e) for e in engines), page.ratio_cell(row, OURS), page.noise(row)]
            for row in chosen
        ]
        lines += paragraphs(
            f"## Milliseconds of a call, {threads_text(count)}",
            page.grid(("model", *engines, page.ratio_heading(OURS), ""), cells),
        )
    lines += paragraphs(
        "## First result",
        "Seconds from the file to the first result, with empty caches.",
        page.by_engine(cold, engines, page.first_cell),
        "## Memory",
        "Megabytes that were resident at most while the program was built and ran, less those after the imports.",
        page.by_engine(cold, engines, page.memory_cell),
        "## What failed",
        page.failures(rows) or ["Nothing."],
        "## How it was measured",
        page.how_long(options, load),
        "Made by `python -m tests.benchmarks.imported --output docs/benchmarks_models.md`.",
    )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> list[Row]:
    parser = inference.parser_of("imported", __doc__, COMPARED)
    options = inference.finished(parser.parse_args(arguments))
    load, engines = foreign_load(), list(COMPARED)
    write = lambda rows: markdown(rows, options, load)  # noqa: E731
    rows = inference.measure_all(list(MODELS), engines, options, prepare, write, OURS)
    inference.console().print(
        page.ratio_table("models of other libraries, ms", rows, engines, [OURS], lambda row, _: WANTED_MOST)
    )
    return rows


if __name__ == "__main__":
    main()
