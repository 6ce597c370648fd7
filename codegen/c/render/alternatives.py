"""Decisions about a kernel as data: what could be done instead of the model's choice, what each way would cost, what
is done, and why.

In: a group, or the spec of a convolution, a product or an attention. Out: :class:`Decision` records, which templates
return together with the text that they print; `fxlite.codegen.tuning` measures the alternatives and passes its choice
to the template in place of the model's. This module only lists and predicts: the decisions are made by
`conv_plan.plan_of`, `gemm_spec.copies_a` and `attention.keys_per_block`, and a spec's ``measured`` overrides them.
Costs are rough: they rank alternatives, and rule out those that cannot be the best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from fxlite.codegen.c.attention import AttentionSpec, has_few_rows, keys_per_block, may_read_once
from fxlite.codegen.c.conv.conv_plan import (
    LARGEST_KERNEL,
    MEASURED,
    WEIGHT_BYTES,
    ConvSpec,
    is_pointwise,
    known,
    number,
    outputs_per_tile,
    plan_of,
    reads_pairs,
    winograd_cycles,
    winograd_tile,
)
from fxlite.codegen.c.product.gemm_fused import cut_of, is_fused, long_reason
from fxlite.codegen.c.product.gemm_spec import ITEM_BYTES, GemmSpec
from fxlite.codegen.runtime.toolchain import cache_sizes
from fxlite.passes.group import Group
from fxlite.show.node_cost import node_cost

#: By the subject of a decision, the name of the alternative to take in place of the model's.
Choice = Mapping[str, str]
#: Everything as the model has it.
NO_CHOICE: Choice = MappingProxyType({})


@dataclass(frozen=True)
class Alternative:
    """One way to compute a kernel. ``cycles`` is the model's prediction for one core that does a vector of
    multiply-adds per cycle; None if sizes are not known, or no model predicts it."""

    name: str
    cycles: float | None = None

    def __str__(self) -> str:
        return self.name if self.cycles is None else f"{self.name} ({self.cycles:.3g} cycles)"


@dataclass(frozen=True)
class Decision:
    """A kernel's decision about ``subject``: the ``chosen`` alternative and the ``reason``. All alternatives
    give the same result up to rounding."""

    subject: str
    alternatives: tuple[Alternative, ...]
    chosen: str
    reason: str

    @property
    def others(self) -> list[Alternative]:
        """The alternatives that were not chosen, the cheapest first, unknown costs last."""
        left = [a for a in self.alternatives if a.name != self.chosen]
        return sorted(left, key=lambda a: (a.cycles is None, a.cycles or 0))

    def cycles(self, name: str) -> float | None:
        """The prediction for an alternative. Raises KeyError for an unknown name."""
        return {a.name: a.cycles for a in self.alternatives}[name]

    def __str__(self) -> str:
        chosen = next(a for a in self.alternatives if a.name == self.chosen)
        others = "".join(f", not {other}" for other in self.others)
        return f"{self.subject}: {chosen}{others}: {self.reason}"


# -- what each template could do -------------------------------------------------------------------
VECTOR_BYTES = 64
"""Properties of the processor for which predictions are made; others need more cycles, for all alternatives."""

LEAST_ROWS = 22
"""Rows of a product from which copying them first may be faster: two tiles."""


OUTSIDE = frozenset(("threads", "epilogue"))
"""Subjects of decisions that affect the calls of kernels and not their text."""

MOST_FLOPS = 16e6
"""The most FLOPs of a kernel for which one thread may be as fast as all of them: about 0.1 ms of work."""


# ---- any kernel -----------------------------------------------------------------------------


def thread_decision(group: Group, choice: Choice) -> tuple[Decision, ...]:
    """Whether threads share a kernel that has enough work for several. A large kernel is always shared, and
    one of unknown size decides when it is called."""
    if any(type(size) is not int for node in group.members for size in node.type.shape):
        return ()
    flops = sum(node_cost(node).flops or 0 for node in group.members)
    if type(flops) is not int or flops > MOST_FLOPS:  # not an int if a named size is summed over
        return ()
    chosen = choice.get("threads", "all")
    why = "there is enough work" if chosen == "all" else "it was measured"
    return (Decision("threads", (Alternative("all"), Alternative("one")), chosen, why),)


def epilogue_decision(group: Group) -> tuple[Decision, ...]:
    """Whether the operations after a contraction run over its tiles, or in a kernel of their own."""
    if group.anchor is None or group.anchor is group.root:
        return ()
    names = (Alternative("fused"), Alternative("separate"))
    return (Decision("epilogue", names, "fused", "a finished tile is in the cache"),)


# ---- convolutions ---------------------------------------------------------------------------


def conv_plans(spec: ConvSpec) -> list[str]:
    """The plans that can compute the convolution of an image whose channels are not last. Even where bf16 is
    permitted, some are in float, which is more accurate."""
    found = ["channels", "pixels"]
    if is_pointwise(spec):
        found.append("product")
    shape = (spec.ctype, spec.r, spec.s, *spec.stride, *spec.dilation, spec.groups)
    is_usual = (
        shape == ("float", 3, 3, 1, 1, 1, 1, 1) and not spec.computed and min(number(spec.c), number(spec.k)) >= 8
    )
    if is_usual and not spec.small:
        found += ["winograd 2x2", *([] if spec.bf16 else ["winograd 4x4"])]
    alone = spec.c == spec.k == spec.groups and spec.dilation == (1, 1)
    if alone and max(spec.r, spec.s) <= LARGEST_KERNEL and max(spec.stride) <= 2:
        found.append("depthwise")
    return found


def conv_decisions(spec: ConvSpec) -> tuple[Decision, ...]:
    """The decision about the convolution's plan; for channels-last images there is only one plan."""
    if spec.x_last or spec.y_last or spec.has_names:
        return ()
    found = tuple(Alternative(name, conv_cycles(spec, name)) for name in conv_plans(spec))
    return (Decision("plan", found, _plan_name(spec), _conv_reason(spec)),)


def _plan_name(spec: ConvSpec) -> str:
    decided = plan_of(spec), winograd_tile(spec)
    return next(name for name, plan in MEASURED.items() if plan == decided)


def _conv_reason(spec: ConvSpec) -> str:
    """The reason for the choice of `plan_of`."""
    if spec.measured:
        return "it was measured to be the fastest"
    return {
        "depthwise": "each channel has a small kernel of its own",
        "pixels": "a group has few output channels, or an output few products",
        "winograd": "it takes less than 0.9 of the time of the definition",
        "product": "the kernel is 1x1, and pixels fill the panels",
        "channels": "no plan for special shapes pays",
    }[plan_of(spec)]


def conv_cycles(spec: ConvSpec, name: str) -> float | None:
    """Cycles for vectors of multiply-adds, for other work on each tile, and for the bytes of the weights. None
    for images of unknown size; an unknown number of images counts as one."""
    oh, ow = (size.constant for size in spec.output_size())
    if oh is None or ow is None:
        return None
    plan, m = MEASURED[name]
    if m:
        return winograd_cycles(spec, m)
    images = known(spec.n, 1)
    lanes = VECTOR_BYTES // ITEM_BYTES[spec.ctype]
    inputs, outputs = number(spec.group_inputs), number(spec.group_outputs)
    depth = inputs * spec.r * spec.s
    rate = 2 if reads_pairs(replace(spec, measured=name)) else 1
    weights = outputs * spec.groups * depth * ITEM_BYTES[spec.ctype] / WEIGHT_BYTES / rate
    if plan == "product":
        vectors = outputs * math.ceil(oh * ow / lanes) * depth
        packing = inputs * oh * ow / lanes * 2
    elif plan == "channels":
        vectors = oh * ow * math.ceil(outputs / lanes) * depth
        packing = oh * ow * math.ceil(outputs / lanes) * 5  # turning a tile
    elif plan == "pixels":
        step = outputs_per_tile(spec)
        whole = math.ceil(outputs / step) * step
        rows = math.ceil(oh / 4) * 4 if oh > 1 else 1
        vectors = whole * rows * math.ceil(ow / lanes) * depth
        packing = inputs * oh * ow * max(spec.stride) / lanes * 2
    else:
        vectors = outputs * oh * math.ceil(ow / lanes) * depth
        packing = 0
    return images * spec.groups * (vectors / rate + packing) + weights


# ---- matrix products ------------------------------------------------------------------------


def gemm_decisions(spec: GemmSpec, copies_a: bool) -> tuple[Decision, ...]:
    """The decisions whether A's rows are copied, given by `copies_a`, how many of them form a block, and
    whether K is divided, or short enough for an epilogue in registers."""
    sizes = [size.constant for size in (spec.m, spec.n, spec.k)]
    known = None not in sizes
    m, n, k = (size or 0 if known else 0 for size in sizes)
    lanes = VECTOR_BYTES // ITEM_BYTES[spec.ctype]
    items = math.prod(1 if e.constant is None else e.constant for _, e in spec.batch)
    found: list[Decision] = []
    may_stay = not spec.bf16 and spec.row_start is None and spec.a.col_stride == 1
    few = spec.m.constant is not None and spec.m.constant < LEAST_ROWS
    if may_stay and not few:
        products = items * m * math.ceil(n / lanes) * k
        shares_set = copies_a and "left rows" not in spec.measured
        in_place = Alternative("in place", products * (1.25 if shares_set else 1) or None)
        copied = Alternative("copied", products + items * m * k * 2 / lanes or None)
        why = "4 KiB or a multiple apart they share a cache set" if copies_a else "that costs least"
        chosen = "copied" if copies_a else "in place"
        found.append(Decision("left rows", (in_place, copied), chosen, why))
    l2 = cache_sizes().get(2) or 1 << 20
    if known and m >= LEAST_ROWS and m * k * ITEM_BYTES[spec.ctype] > l2 // 4:
        parts = ("a quarter of L2", "half of L2", "all of L2")
        chosen = spec.measured.get("rows in a block", "half of L2")
        why = "the rest is for the panels that pass by"
        found.append(Decision("rows in a block", tuple(map(Alternative, parts)), chosen, why))
    if plan := cut_of(spec):
        cut = Alternative("cut"), Alternative("whole")
        found.append(Decision("K", cut, "cut", long_reason(plan).rstrip(".")))
    elif is_fused(spec):
        places = Alternative("in registers"), Alternative("stored")
        found.append(Decision("sums", places, "in registers", "K is short"))
    return tuple(found)


# ---- attention ------------------------------------------------------------------------------


def attention_decisions(spec: AttentionSpec) -> tuple[Decision, ...]:
    """The decisions about the plan for few queries, and about the number of keys in a block for more."""
    found: list[Decision] = []
    if may_read_once(spec):
        plans = (Alternative("rows"), Alternative("tiles"))
        chosen = "rows" if has_few_rows(spec) else "tiles"
        why = "each key and value is read once" if chosen == "rows" else "it was measured"
        found.append(Decision("plan", plans, chosen, why))
    if not has_few_rows(spec):
        block = keys_per_block(spec)
        sizes = [size for size in (64, 128, 256, 512) if size in (block // 2, block, block * 2)]
        if (keys := spec.keys.constant) is not None:  # all blocks that hold every key are the same
            sizes = [s for s in sizes if s == block or min(s, block) < keys]
        names = tuple(Alternative(str(size)) for size in sizes)
        if len(names) > 1:
            why = "its keys and values take 128 KiB each of the second-level cache"
            found.append(Decision("keys in a block", names, str(block), why))
    return tuple(found)
