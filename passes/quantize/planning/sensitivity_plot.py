"""The quality that each scheme leaves in each layer, as self-contained SVG.

In: a :class:`~fxlite.passes.quantize.planning.sensitivity.Sensitivity`. Out: a plot with a row for each layer in the
order in which they run, and in it a mark for each scheme at its signal-to-noise ratio in decibels: the farther right,
the smaller the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from fxlite.base.outside_text import markup
from fxlite.passes.costing.pictures import note, plot_picture
from fxlite.show.drawing.colours import KINDS, Colour, css_class
from fxlite.show.drawing.svg import legend_row

if TYPE_CHECKING:
    from fxlite.passes.quantize.planning.sensitivity import Layer, Sensitivity

_WIDTH, _ROW, _TOP, _BELOW = 560.0, 20.0, 58, 70
_MOST_ROWS = 80  # layers; if there are more, those that lose most are drawn
_LETTER = 6.8  # width of a character in pixels
_LONGEST = 40  # characters of a layer's path
#: Colours and shapes of schemes, so that they are told apart without colours, too.
_SHAPES = ("M-5,-5 h10 v10 h-10 z", "M0,-6 l6,6 l-6,6 l-6,-6 z", "M0,-6 l6,11 h-12 z", "M-6,0 h12 M0,-6 v12")
_COLOURS: tuple[Colour, ...] = tuple(
    KINDS[kind] for kind in ("contraction", "reduction", "gather", "pointwise", "window")
)


def sensitivity_svg(found: Sensitivity) -> str:
    """The plot as text."""
    layers = _shown(found)
    schemes = dict(zip(found.schemes, (_COLOURS[place % len(_COLOURS)] for place in range(len(found.schemes)))))
    ratios = [c.sqnr for x in layers for name, c in x.choices.items() if name in schemes and math.isfinite(c.sqnr)]
    low = math.floor(min([0.0, *ratios]) / 10) * 10
    high = math.ceil(max([10.0, *ratios]) / 10 + 0.2) * 10
    height = _ROW * max(len(layers), 1)
    left = 24 + max([len(_name(x)) for x in layers], default=0) * _LETTER
    legend, _ = legend_row(tuple(schemes.items()), _TOP + height + 42, _SHAPES)
    told = "signal-to-noise ratio of each layer" if found.of == "layer" else "signal-to-noise ratio of the results"
    heading = f"{found.program}: {told}, in dB"
    rest = f"the {len(layers)} of {len(found.layers)} layers that lose most" if len(layers) < len(found.layers) else ""
    around = [
        f'<text class="heading" x="12" y="20">{markup(heading)}</text>',
        f'<text class="small" x="12" y="37">{markup(rest)}</text>',
    ]

    def at(ratio: float) -> float:
        return (min(ratio, high) - low) / (high - low) * _WIDTH

    body = [*_grid(low, high, height, at(0.0) - at(low)), *_rows(layers, schemes, at)]
    size = int(left + _WIDTH + 24), int(_TOP + height + _BELOW)
    return plot_picture(*size, heading, schemes.values(), around, _TOP, body, legend, left=left)


def _shown(found: Sensitivity) -> list[Layer]:
    if len(found.layers) <= _MOST_ROWS:
        return list(found.layers)
    worst = sorted(
        found.layers, key=lambda x: min((c.sqnr for n, c in x.choices.items() if n in found.schemes), default=math.inf)
    )
    chosen = {id(x) for x in worst[:_MOST_ROWS]}
    return [x for x in found.layers if id(x) in chosen]


def _name(layer: Layer) -> str:
    path = layer.path or "(the model)"
    return path if len(path) <= _LONGEST else f"…{path[1 - _LONGEST :]}"


def _grid(low: int, high: int, height: float, zero: float) -> Iterator[str]:
    for value in range(low, high + 1, 10):
        x = (value - low) / (high - low) * _WIDTH
        yield f'<path class="grid" d="M{x:.1f},0 v{height}"/>'
        yield note(x, height + 16, f"{value}", "middle")
    yield f'<path class="axis" d="M{zero:.1f},0 v{height}"/>'


def _rows(layers: list[Layer], schemes: Mapping[str, Colour], at: Callable[[float], float]) -> Iterator[str]:
    for place, layer in enumerate(layers):
        y = (place + 0.5) * _ROW
        yield note(-8, y + 4, markup(_name(layer)), "end")
        yield f'<path class="grid" d="M0,{y:.1f} h{_WIDTH}"/>'
        for number, (scheme, colour) in enumerate(schemes.items()):
            choice = layer.choices.get(scheme)
            if choice is None:
                continue
            value = "exact" if math.isinf(choice.sqnr) else f"{choice.sqnr:.1f} dB"
            told = f"{_name(layer)} by {scheme}: {value}, {choice.bytes:,} bytes"
            x = at(choice.sqnr)
            yield (
                f'<path class="{css_class(colour)}" transform="translate({x:.1f} {y:.1f})" stroke-width="1.6" '
                f'd="{_SHAPES[number % len(_SHAPES)]}"><title>{markup(told)}</title></path>'
            )
