"""What the functions of an emitted program need before them: includes, and what they call.

In: the text of those functions. Out: the part of :data:`LIBRARY` that they reach, behind includes.
:data:`MACROS` is all text that may define a macro for them.
"""

from __future__ import annotations

from importlib.resources import files

from fxlite.codegen.c.attention.attention import ATTENTION_PREAMBLE
from fxlite.codegen.c.conv.conv import CONV_PREAMBLE
from fxlite.codegen.c.conv.tiles.conv_amx_tile import CONV_AMX_PREAMBLE
from fxlite.codegen.c.conv.tiles.conv_bf16_tile import CONV_BF16_PREAMBLE
from fxlite.codegen.c.conv.tiles.conv_int8_tile import CONV_INT8_PREAMBLE
from fxlite.codegen.c.conv.tiles.depthwise_tile import DEPTHWISE_PREAMBLE
from fxlite.codegen.c.conv.tiles.nhwc_tile import NHWC_PREAMBLE
from fxlite.codegen.c.conv.tiles.winograd_tile import WINOGRAD_BF16_PREAMBLE, WINOGRAD_PREAMBLE
from fxlite.codegen.c.dynamic_scale import DYNAMIC_SCALE_PREAMBLE
from fxlite.codegen.c.product.gemm import BF16_PREAMBLE, PREAMBLE
from fxlite.codegen.c.product.int8_tile import INT8_PREAMBLE
from fxlite.codegen.c.product.weight_only_tile import WEIGHT_ONLY_PREAMBLE
from fxlite.codegen.c.recurrence.recurrence_int8 import STATE_PREAMBLE
from fxlite.codegen.c.sizes import SIZES_PREAMBLE
from fxlite.codegen.c.text.needed import needed
from fxlite.codegen.c.text.processor import PROCESSOR_DEFINITION
from fxlite.codegen.kernel.printer import PARALLEL_DEFINITION
from fxlite.codegen.runtime.abi import C_HELPERS

_PREAMBLES = (
    PREAMBLE, BF16_PREAMBLE, INT8_PREAMBLE, DYNAMIC_SCALE_PREAMBLE, CONV_INT8_PREAMBLE,
    CONV_AMX_PREAMBLE, WEIGHT_ONLY_PREAMBLE, STATE_PREAMBLE, CONV_PREAMBLE, CONV_BF16_PREAMBLE,
    DEPTHWISE_PREAMBLE, NHWC_PREAMBLE, WINOGRAD_PREAMBLE, WINOGRAD_BF16_PREAMBLE,
    ATTENTION_PREAMBLE,
)  # fmt: skip
"""Tiles and transforms that the functions of templates call; each may call those before it."""

LIBRARY = "\n".join(
    [C_HELPERS, SIZES_PREAMBLE, PROCESSOR_DEFINITION, PARALLEL_DEFINITION, *_PREAMBLES]
)
"""All that a source may hold before its functions."""


def prelude(functions: str) -> str:
    """What the functions of a program need before them: includes, and what they call."""
    head = ["#include <math.h>", "#include <stdbool.h>", "#include <string.h>", "",
            '#include "fx_math.h"', ""]  # fmt: skip
    return "\n".join([*head, needed(LIBRARY, functions).rstrip("\n"), ""])


def math_header() -> dict[str, str]:
    """The header that every source includes, by its name."""
    return {
        "fx_math.h": files("fxlite.codegen.c").joinpath("fx_math.h").read_text(encoding="utf-8")
    }


#: What may define macros in a source.
MACROS = "\n".join([LIBRARY, *math_header().values()])
