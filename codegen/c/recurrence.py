"""C text of one recurrence: the loop over time of an LSTM, a GRU or an Elman network.

In goes a `RecurrenceSpec`; out comes a `Rendered` as from `gemm.py`: one ``static`` C function for
that node. The inputs' contribution to the gates was computed before, by one matrix product for all
steps. Here each step multiplies the state by `weight_hh`, whose columns are packed so that a block of
them holds the same hidden units of all gates (`pack_recurrent_weight`), and immediately computes the
new states of those units, while the sums are in the first-level cache. States are read where the
previous step stored them: in the result.

Threads divide the rows of the batch, which are independent, if there are enough of them, or else the
hidden units, in a parallel loop for each step. Which rows form a tile depends only on the batch, so
results do not depend on the number of threads.

With an `IntegerState` the products are products of integers: rows of the state are rounded once per
step, into the workspace, and sums are scaled before they are added to the gates.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.codegen.c.product.gemm_integers import FASTER
from fxlite.codegen.c.product.gemm_spec import (
    ITEM_BYTES,
    PANEL_BYTES,
    PANEL_COLUMNS,
    PARALLEL_PRODUCTS,
    QUAD,
    pack_b,
    pack_int8,
    packed_rows,
    panel_columns,
)
from fxlite.codegen.kernel.builder import Body, Pointer, Rendered, bare, divide_up, rendered, round_up, smaller, text_of
from fxlite.ops.integer.quantized_recurrence import LARGEST
from fxlite.ops.recurrent import GATES
from fxlite.scalar.index import Index

PARALLEL_STEP = 40_000
"""Multiply-adds of one step from which a parallel loop over the hidden units is worthwhile."""


@dataclass(frozen=True)
class RecurrenceSpec:
    """One recurrence. The parameters of its function are those of :func:`parameters`.

    name        of the C function
    ctype       "float" or "double"
    mode        a key of `GATES`
    steps, batch, size   T, B and H: numbers if known, otherwise symbols of these names, which are
                parameters; each may be 0
    has_bias    whether there is a `bias_hh`
    is_packed   whether `weight_hh` is the result of `pack_recurrent_weight`, or the matrix itself,
                which is packed into the workspace in each call
    reverse     from the last step to the first
    comment     what is computed, shapes, origin
    integers    how the state becomes integers; None for a product of floats. With it, `ctype` is float
                and `weight_hh` is the result of `pack_recurrent_int8`
    """

    name: str
    ctype: str
    mode: str
    steps: Index
    batch: Index
    size: Index
    has_bias: bool
    is_packed: bool
    reverse: bool = False
    comment: str = ""
    integers: IntegerState | None = None

    @property
    def gates(self) -> int:
        """Number of gates."""
        return GATES[self.mode]

    @property
    def width(self) -> int:
        """Hidden units in a block."""
        return panel_columns(self.ctype)

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of the arrays that the function reads."""
        cell = ("c0",) if self.mode == "lstm" else ()
        scale = ("weight_scale",) if self.integers is not None else ()
        bias = ("bias_hh",) if self.has_bias else ()
        return ("gates", "weight_hh", *scale, "h0", *cell, *bias)

    @property
    def parameters(self) -> str:
        """The C parameter list; `Rendered.extra_parameters` are appended."""
        types = {"weight_hh": "int32_t"} if self.integers is not None else {}
        parts = [f"const {types.get(name, self.ctype)} *restrict {name}" for name in self.arrays]
        parts.append(f"{self.ctype} *restrict states")
        return ", ".join([*parts, *(f"int64_t {name}" for name in self.named_sizes)])

    @property
    def named_sizes(self) -> list[str]:
        """The sizes that are parameters."""
        return [n for n in ("steps", "batch", "size") if getattr(self, n).constant is None]


def pack_recurrent_weight(weight: np.ndarray[Any, Any], gates: int) -> np.ndarray[Any, Any]:
    """Pack a [G*H, H] matrix into panels of 32 hidden units (16 of float64): for each block of
    units one panel [H, 32] for each gate, padded with zeros."""
    rows, size = weight.shape
    by_gate = weight.reshape(gates, rows // gates, size)
    packed = [pack_b(np.ascontiguousarray(gate.T)) for gate in by_gate]
    width = PANEL_BYTES // weight.itemsize
    panels = [gate.reshape(-(-size // width), size, width) for gate in packed]
    return np.ascontiguousarray(np.stack(panels, axis=1)).ravel()


def workspace_bytes(spec: RecurrenceSpec) -> Index:
    """Bytes of scratch. With integers: the state before a step and the scales of its rows (a few bytes
    even if there are none, because the function names them). For a computed weight: its panels."""
    if spec.integers is not None:
        row = spec.size if spec.integers.scale is not None else spec.size + 4
        return spec.batch * row + 4
    if spec.is_packed:
        return Index.of(0)
    return round_up(spec.size, spec.width) * spec.gates * spec.size * ITEM_BYTES[spec.ctype]


def render_recurrence(spec: RecurrenceSpec) -> Rendered:
    """Print the function of one recurrence."""
    printer = _Recurrence(spec)
    printer.all_steps()
    order = "from the last step to the first; " if spec.reverse else ""
    rounding = f"{spec.integers.note};\n" if spec.integers else ""
    note = f"{_EQUATIONS[spec.mode]};\n{rounding}{order}blocks of {spec.width} hidden units."
    lines, scratch = printer.body.lines(), workspace_bytes(spec)
    return rendered(spec.name, spec.parameters, (spec.comment, note), lines, scratch)


class _Recurrence:
    """The state of printing the function."""

    def __init__(self, spec: RecurrenceSpec) -> None:
        self.spec, self.body = spec, Body()
        self.state = spec.batch * spec.size  # number of elements
        self.blocks = divide_up(spec.size, spec.width)
        work = self.state * spec.size * spec.gates
        self.step_work = work if spec.integers is None else divide_up(work, FASTER)
        known = self.step_work.constant
        self.may_share_units = self.blocks != 1 and not (known is not None and known < PARALLEL_STEP)
        rows = spec.size if spec.integers is None else 1 + divide_up(spec.size, QUAD)
        self.panel = rows * spec.width  # number of elements
        self.tile_rows = "TILE_ROWS" if spec.integers is None else "QUAD_ROWS"

    def all_steps(self) -> None:
        """The body of the function."""
        spec, body, t = self.spec, self.body, self.spec.ctype
        state_bytes = f"{text_of(self.state)} * (int64_t)sizeof({t})"
        cells_too = ", and the cells of the current step" * (spec.mode == "lstm")
        body.comment(f"After the states of all steps comes the last one{cells_too}.")
        last = body.pointer(t, "last_state", Pointer("states") + spec.steps * self.state)
        if spec.mode == "lstm":
            cells = body.pointer(t, "cells", last + self.state)
            body.call("fx_copy", cells, "c0", state_bytes)
        self.blocks = body.let("blocks", self.blocks)
        self.panel = body.let("panel", self.panel)
        self.declare_workspace()
        row_tiles = Index.of(1)
        if spec.batch != 1:
            count = f"count_row_tiles({text_of(spec.batch)}, {self.tile_rows})"
            row_tiles = body.let("row_tiles", count)
        parts = self.decide_who_shares(row_tiles)
        rounds = Index.of(1)
        if self.may_share_units:
            rounds = body.let("rounds", f"by_rows ? 1 : {bare(spec.steps)}")
        line = "#pragma omp parallel for schedule(static) num_threads(parts) if (parts > 1)"
        with body.loop("round", rounds) as round_:
            if spec.integers is not None and self.may_share_units:
                with body.block("if (!by_rows)"):
                    self.declare_step(round_)
                    self.round_rows(Index.of(0), spec.batch)
            with body.loop("part", parts, pragma="" if parts == 1 else line) as part:
                self.compute_part(round_, part, parts, row_tiles)
        first = Pointer("states") if spec.reverse else last - self.state
        final = f"{bare(spec.steps)} == 0 ? h0 : {first}"
        if spec.steps.constant is not None:
            final = "h0" if spec.steps == 0 else str(first)
        body.call("fx_copy", last, final, state_bytes)

    def declare_workspace(self) -> None:
        """Declare the parts of the workspace; a weight that was not known at compile time is packed
        there."""
        spec, body, width = self.spec, self.body, self.spec.width
        if spec.integers is not None:
            start = "workspace"
            body.comment("The state before a step.")
            if spec.integers.scale is None:
                body.pointer("float", "row_scales", start)
                start = f"(uint8_t *)({Pointer('row_scales') + spec.batch})"
            body.pointer("uint8_t", "rounded", start)
        elif not spec.is_packed:
            panels = body.pointer(spec.ctype, "panels", "workspace")
            with body.loop("block", self.blocks) as block, body.loop("gate", spec.gates) as gate:
                unit_0 = body.let("unit_0", block * width)
                units = body.let("units", smaller(spec.size - unit_0, width), "int")
                columns = Pointer("weight_hh") + (gate * spec.size + unit_0) * spec.size
                target = panels + (block * spec.gates + gate) * self.panel
                body.call(f"pack_panel_{spec.ctype}", spec.size, units, columns, 1, spec.size, target)

    def decide_who_shares(self, row_tiles: Index) -> Index:
        """Compute how many threads there are, and what they divide."""
        spec, body = self.spec, self.body
        step_work = body.let("step_work", self.step_work)  # multiply-adds
        all_work = spec.steps * step_work
        threads = "1" if row_tiles == 1 else f"fx_min(n_threads, {bare(row_tiles)})"
        if all_work.constant is None and row_tiles != 1:
            threads = f"{bare(all_work)} < PARALLEL_PRODUCTS ? 1 : {threads}"
        elif all_work.constant is not None and all_work.constant < PARALLEL_PRODUCTS:
            threads = "1"
        if not self.may_share_units:
            return Index.of(1) if threads == "1" else body.let("parts", threads)
        body.comment(
            "Threads share the rows for all steps; where there are too few tiles of them, and a\n"
            " * step is enough work for several, the hidden units of each step."
        )
        few = "n_threads == 1" if row_tiles == 1 else f"{bare(row_tiles)} >= n_threads"
        if step_work.constant is None:
            few += f" || {bare(step_work)} < {PARALLEL_STEP}"
        body.assign("const bool by_rows", few)
        return body.let("parts", f"!by_rows ? fx_min(n_threads, {bare(self.blocks)}) : {threads}")

    def compute_part(self, round_: Index, part: Index, parts: Index, row_tiles: Index) -> None:
        """One thread's part: some rows, for all steps, or some hidden units, for one step."""
        spec, body = self.spec, self.body

        def share(name: str, total: Index, is_mine: str) -> tuple[Index, Index]:
            if not is_mine:
                return Index.of(0), total
            ends = ((f"first_{name}", part, Index.of(0)), (f"end_{name}", part + 1, total))
            if is_mine == "always":
                first, end = (body.let(n, number * total // parts) for n, number, _ in ends)
                return first, end
            first, end = (
                body.let(n, f"{is_mine} ? {bare(number * total // parts)} : {bare(whole)}") for n, number, whole in ends
            )
            return first, end

        both = self.may_share_units and row_tiles != 1
        if spec.integers is not None:
            body.call("take_tiles")
        end_step = spec.steps
        if self.may_share_units:
            end_step = body.let("end_step", f"by_rows ? {bare(spec.steps)} : round + 1")
        rows_by = "by_rows" if both else "" if self.may_share_units or parts == 1 else "always"
        units_by = "!by_rows" if both else "always" if self.may_share_units else ""
        first_tile, end_tile = share("tile", row_tiles, rows_by)
        first_block, end_block = share("block", self.blocks, units_by)
        with body.loop("step", end_step, start=round_) as step:
            self.declare_step(step)
            if spec.integers is not None:
                with (
                    body.block("if (by_rows)") if self.may_share_units else nullcontext(),
                    body.loop("tile", end_tile, start=first_tile) as tile,
                ):
                    first = body.let("first_row", tile * spec.batch // row_tiles)
                    end = body.let("end_row", (tile + 1) * spec.batch // row_tiles)
                    self.round_rows(first, end)
            with (
                body.loop("block", end_block, start=first_block) as block,
                body.loop("tile", end_tile, start=first_tile) as tile,
            ):
                row_0 = body.let("row_0", tile * spec.batch // row_tiles)
                end = (tile + 1) * spec.batch // row_tiles
                self.compute_tile(block, row_0, body.let("rows", end - row_0, "int"))
        if spec.integers is not None:
            body.call("release_tiles")

    def declare_step(self, step: Index) -> None:
        """Declare the state after a step, the one before it, and the inputs' contribution to the gates."""
        spec, body, t = self.spec, self.body, self.spec.ctype
        time = body.let("time", spec.steps - 1 - step if spec.reverse else step)
        following = body.pointer(t, "next", Pointer("states") + time * self.state)
        before = following + self.state if spec.reverse else following - self.state
        choice = "h0" if step == 0 else f"{bare(step)} == 0 ? h0 : {before}"
        body.pointer(f"const {t}", "state", choice)
        body.pointer(f"const {t}", "inputs", Pointer("gates") + time * self.state * spec.gates)

    def round_rows(self, first: Index, end: Index) -> None:
        """Round rows of the state to integers."""
        integers, body, size = self.spec.integers, self.body, self.spec.size
        assert integers is not None
        low, high, zero_point = -LARGEST, LARGEST, 0
        if integers.zero_point is not None:
            low, high, zero_point = 0, 255, integers.zero_point
        stored = integers.offset - zero_point
        with body.loop("row", end, start=first) as row:
            start, scale = Pointer("state") + row * size, integers.row_scale(row)
            if integers.scale is None:
                body.assign(scale, f"scale_of_state({bare(size)}, {start})")
            target = Pointer("rounded") + row * size
            body.call("round_state", size, start, scale, zero_point, low, high, stored, target)

    def compute_tile(self, block: Index, row_0: Index, rows: Index) -> None:
        """Compute the new states of some rows and a block of hidden units."""
        spec, body, width = self.spec, self.body, self.spec.width
        unit_0 = body.let("unit_0", block * width)
        units = body.let("units", smaller(spec.size - unit_0, width), "int")
        kind, function, read = spec.ctype, spec.ctype, "state"
        if spec.integers is not None:
            kind, function, read = "int32_t", "u8", "rounded"
        body.declare(f"{kind} sums[{spec.gates}][{self.tile_rows}*{width}]")
        panels = Pointer("weight_hh" if spec.is_packed else "panels")
        with body.loop("gate", spec.gates) as gate:
            panel = panels + (block * spec.gates + gate) * self.panel
            state = Pointer(read) + row_0 * spec.size, spec.size
            body.call(f"multiply_tile_{function}", rows, units, spec.size, *state, panel, f"sums[{bare(gate)}]")
        with body.loop("i", rows) as i:
            row = body.let("row", row_0 + i)
            if spec.integers is not None:
                body.assign("const float row_scale", spec.integers.row_scale(row))
            with body.loop("j", units, pragma="#pragma omp simd") as j:
                sums = [f"sums[{g}][{bare(i * width + j)}]" for g in range(spec.gates)]
                self.update(row, body.let("unit", unit_0 + j), sums)

    def update(self, row: Index, unit: Index, sums: list[str]) -> None:
        """Compute the new state of one row and hidden unit."""
        spec, assign, t = self.spec, self.body.assign, self.spec.ctype
        suffix = "f32" if t == "float" else "f64"
        sigmoid, tanh = f"fx_sigmoid_{suffix}", f"fx_tanh_{suffix}"
        here = row * spec.size + unit
        x, hidden = [], []
        for gate, total in enumerate(sums):
            number = bare(gate * spec.size + unit)
            x.append(Pointer("inputs")[(row * spec.gates + gate) * spec.size + unit])
            if spec.integers is not None:
                total = f"fx_product_f32((float){total}, row_scale * weight_scale[{number}])"
            hidden.append(f"({total} + bias_hh[{number}])" if spec.has_bias else total)
        state, following, cells = (Pointer(n)[here] for n in ("state", "next", "cells"))
        if spec.mode == "lstm":
            for gate, name in enumerate(("in", "forget", "fresh", "out")):
                function = tanh if name == "fresh" else sigmoid
                assign(f"const {t} {name}", f"{function}({x[gate]} + {hidden[gate]})")
            assign(f"const {t} cell", f"forget * {cells} + in * fresh")
            assign(cells, "cell")
            assign(following, f"out * {tanh}(cell)")
        elif spec.mode == "gru":
            for gate, name in enumerate(("reset", "keep")):
                assign(f"const {t} {name}", f"{sigmoid}({x[gate]} + {hidden[gate]})")
            assign(f"const {t} fresh", f"{tanh}({x[2]} + reset * {hidden[2]})")
            assign(following, f"(1 - keep) * fresh + keep * {state}")
        elif spec.mode == "rnn_tanh":
            assign(following, f"{tanh}({x[0]} + {hidden[0]})")
        else:
            assign(following, f"fx_maximum_{suffix}({x[0]} + {hidden[0]}, 0)")


_EQUATIONS = {
    "lstm": "c' = sigmoid(f) * c + sigmoid(i) * tanh(g), h' = sigmoid(o) * tanh(c')",
    "gru": "h' = (1 - sigmoid(z)) * tanh(n + sigmoid(r) * n_h) + sigmoid(z) * h",
    "rnn_tanh": "h' = tanh(x + W h)",
    "rnn_relu": "h' = max(x + W h, 0)",
}


# -- in integers -----------------------------------------------------------------------------------
# What a recurrence in integers needs besides the loop over time (`recurrence`): the packed weight,
# and the rounding of rows of the state (by `tiles/recurrence.h`).
#
# The tile multiplies unsigned activations (`tiles/int8.h`). Therefore a symmetric state, i8, is stored
# with 128 added, and one with a zero point, u8, as it is; the first row of each panel of the weight
# subtracts what that adds to the sums.


_SIGN = 128


@dataclass(frozen=True)
class IntegerState:
    """``scale`` is the scale of all states; if it is None, each row has its own scale in each step, its
    largest magnitude over 127. Integers are i8 in -127..127, or u8 if there is a ``zero_point``."""

    scale: float | None = None
    zero_point: int | None = None

    @property
    def offset(self) -> int:
        """The difference between a stored integer and the number it represents."""
        return _SIGN if self.zero_point is None else self.zero_point

    def row_scale(self, row: Index) -> str:
        """The scale of a row of the state before a step, as C."""
        return Pointer("row_scales")[row] if self.scale is None else f"{np.float32(self.scale)!s}f"

    @property
    def note(self) -> str:
        """How states are rounded, for the comment of the function."""
        if self.scale is None:
            return "each row of h is rounded to i8 by a scale of its own in each step"
        kind = "i8" if self.zero_point is None else "u8"
        offset = "" if self.zero_point is None else f", zero point {self.zero_point}"
        return f"h is rounded to {kind}, scale {np.float32(self.scale)!s}{offset}"


def pack_recurrent_int8(weight: np.ndarray[Any, Any], gates: int, offset: int) -> np.ndarray[Any, Any]:
    """Pack an i8 matrix [G*H, H] as int32: for each block of 32 hidden units one panel of
    `pack_int8` for each gate."""
    rows, size = weight.shape
    by_gate = weight.reshape(gates, rows // gates, size)
    packed = [pack_int8(gate, offset) for gate in by_gate]
    panel = packed_rows(size) * PANEL_COLUMNS
    panels = [gate.reshape(gate.size // panel, panel) for gate in packed]
    return np.ascontiguousarray(np.stack(panels, axis=1)).ravel()
