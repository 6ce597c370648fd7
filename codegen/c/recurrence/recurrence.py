"""C text of one recurrence: the loop over time of an LSTM, a GRU or an Elman network.

In goes a `RecurrenceSpec`; out comes a `Rendered` as from `gemm.py`: one ``static`` C function for
that node. What the inputs give to the gates was computed before, by one matrix product for all
steps. Here each step multiplies the state by `weight_hh`, whose columns are packed so that a block
of them holds the same hidden units of all gates (`pack_recurrent_weight`), and computes the new
states of those units at once, while the sums are in the first-level cache. States are read where
the step before stored them: in the result.

Threads share the rows of the batch, which do not depend on each other, if there are enough of them;
else the hidden units, in a parallel loop for each step. Which rows form a tile depends on
the batch alone, so results do not depend on the number of threads.

With an `IntegerState` products are those of integers (`recurrence_int8`): rows of the state are
rounded once a step, into the workspace, and sums are scaled before they are added to the gates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.codegen.c.product.gemm import Rendered
from fxlite.codegen.c.product.gemm_int8 import FASTER
from fxlite.codegen.c.product.packed_operands import ITEM_BYTES, PANEL_BYTES, pack_b, panel_columns
from fxlite.codegen.c.recurrence.recurrence_int8 import (
    IntegerState,
    column_at,
    declare_integers,
    panel_at,
    product_of_quads,
    round_rows,
    scaled_sum,
    workspace_of_state,
)
from fxlite.codegen.c.text.template_text import (
    Lines,
    add,
    block_comment,
    expression,
    multiply,
    signature,
)
from fxlite.codegen.kernel.builder import text_of
from fxlite.ops.recurrent import GATES

PARALLEL_STEP = 40_000
"""Multiply-adds of one step from which a parallel loop over the hidden units pays."""


@dataclass(frozen=True)
class RecurrenceSpec:
    """One recurrence. The parameters of its function are those of :func:`parameters`.

    name        of the C function
    ctype       "float" or "double"
    mode        a key of `GATES`
    steps, batch, size   C expressions of T, B and H: literals where known, else the names of
                parameters; each may be 0
    has_bias    whether there is a `bias_hh`
    is_packed   whether `weight_hh` is what `pack_recurrent_weight` returned, or the matrix itself,
                which is packed into the workspace in each call
    reverse     from the last step to the first
    comment     what is computed, shapes, origin
    integers    how the state becomes integers; None: the product is one of floats. With it, `ctype`
                is float and `weight_hh` what `pack_recurrent_int8` returned
    """

    name: str
    ctype: str
    mode: str
    steps: str
    batch: str
    size: str
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
        """Names of the arrays it reads."""
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
        sizes = (self.steps, self.batch, self.size)
        return [size for size in sizes if not size.isdecimal()]


def pack_recurrent_weight(weight: np.ndarray[Any, Any], gates: int) -> np.ndarray[Any, Any]:
    """Pack a [G*H, H] matrix into panels of 32 hidden units (16 of float64): for each block of
    units one panel [H, 32] for each gate, padded with zeros."""
    rows, size = weight.shape
    by_gate = weight.reshape(gates, rows // gates, size)
    packed = [pack_b(np.ascontiguousarray(gate.T)) for gate in by_gate]
    width = PANEL_BYTES // weight.itemsize
    panels = [gate.reshape(-(-size // width), size, width) for gate in packed]
    return np.ascontiguousarray(np.stack(panels, axis=1)).ravel()


def render_recurrence(spec: RecurrenceSpec) -> Rendered:
    """Print the fast version."""
    out = Lines()
    t, width, count, rows = spec.ctype, spec.width, spec.gates, _tile_rows(spec)
    _declare(spec, out)
    out.put(f"const int64_t blocks = (size + {width - 1}) / {width};")
    out.put(f"int64_t row_tiles = (batch + {rows} - 1) / {rows};")
    out.put("if (row_tiles > 2) row_tiles = (row_tiles + 3) / 4 * 4;  /* threads share evenly */")
    _pack(spec, out)
    out.put(
        "/* Threads take tiles of rows for all steps; where there are not enough tiles for them,"
    )
    out.put(" * blocks of hidden units, step by step. */")
    out.put("const int by_rows = row_tiles >= n_threads;")
    out.put("int64_t parts = by_rows || n_threads <= blocks ? n_threads : blocks;")
    work = f"batch * {multiply(str(count), 'size', 'size')}"
    faster = f" / {FASTER};  /* by integers */" if spec.integers else ";"
    out.put(f"const int64_t step_work = {work}{faster}")
    worth = f"steps * step_work < PARALLEL_PRODUCTS : step_work < {PARALLEL_STEP}"
    out.put(f"if (by_rows ? {worth}) /* multiply-adds of a parallel loop */")
    out.put("    parts = 1;")
    with out.block("for (int64_t round = 0; round < (by_rows ? 1 : steps); round++)"):
        if spec.integers is not None:
            with out.block("if (!by_rows)"):
                out.put("const int64_t step = round;")
                _declare_state(spec, out)
                round_rows(spec.integers, "0", "batch", out)
        out.put("#pragma omp parallel for schedule(static) num_threads(parts) if (parts > 1)")
        with out.block("for (int64_t part = 0; part < parts; part++)"):
            _compute_part(spec, out)
    _finish(out)
    workspace = "0"
    if spec.integers is not None:
        workspace = workspace_of_state(spec.integers, spec.batch, spec.size)
    elif not spec.is_packed:
        units = f"({add(spec.size, str(width - 1))}) / {width} * {width}"
        workspace = multiply(f"({units})", str(count), spec.size, str(ITEM_BYTES[t]))
    extra = (("workspace",) if workspace != "0" else ()) + ("n_threads",)
    order = "from the last step to the first; " if spec.reverse else ""
    rounding = f"{spec.integers.note};\n" if spec.integers else ""
    note = f"{_EQUATIONS[spec.mode]};\n{rounding}{order}blocks of {width} hidden units."
    return _function(spec, out, note, workspace, extra)


def _tile_rows(spec: RecurrenceSpec) -> str:
    """Rows of a tile of the product, in C."""
    return "QUAD_ROWS" if spec.integers is not None else "TILE_ROWS"


def _compute_part(spec: RecurrenceSpec, out: Lines) -> None:
    """One thread's part of the rows, for all steps, or of the hidden units, for one step."""
    width, count = spec.width, spec.gates
    if spec.integers is not None:
        out.put("take_tiles();")
    for name, total, mine in (("tile", "row_tiles", "by_rows"), ("block", "blocks", "!by_rows")):
        out.put(f"const int64_t first_{name} = {mine} ? part * {total} / parts : 0;")
        out.put(f"const int64_t end_{name} = {mine} ? (part + 1) * {total} / parts : {total};")
    out.put("const int64_t end_step = by_rows ? steps : round + 1;")
    with out.block("for (int64_t step = round; step < end_step; step++)"):
        _declare_step(spec, out)
        if spec.integers is not None:
            with out.block("if (by_rows)"):
                for end in ("first", "end"):
                    out.put(f"const int64_t {end}_row = {end}_tile * batch / row_tiles;")
                round_rows(spec.integers, "first_row", "end_row", out)
        with (
            out.block("for (int64_t block = first_block; block < end_block; block++)"),
            out.block("for (int64_t tile = first_tile; tile < end_tile; tile++)"),
        ):
            out.put("const int64_t row_0 = tile * batch / row_tiles;")
            out.put("const int rows = (int)((tile + 1) * batch / row_tiles - row_0);")
            out.put(f"const int64_t unit_0 = block * {width};")
            rest = "size - unit_0"
            out.put(f"const int units = (int)({rest} < {width} ? {rest} : {width});")
            out.put(f"{_sum_type(spec)} sums[{count}][{_tile_rows(spec)} * {width}];")
            out.put(f"for (int64_t gate = 0; gate < {count}; gate++)")
            out.put(f"    {_multiply(spec)}")
            with out.block("for (int64_t i = 0; i < rows; i++)"):
                out.put("const int64_t row = row_0 + i;")
                if spec.integers is not None:
                    out.put(f"const float row_scale = {spec.integers.row_scale};")
                out.put("#pragma omp simd")
                with out.block("for (int64_t j = 0; j < units; j++)"):
                    out.put("const int64_t unit = unit_0 + j;")
                    _update(spec, out, [f"sums[{g}][i * {width} + j]" for g in range(count)])
    if spec.integers is not None:
        out.put("release_tiles();")


def _sum_type(spec: RecurrenceSpec) -> str:
    return "int32_t" if spec.integers is not None else spec.ctype


def _multiply(spec: RecurrenceSpec) -> str:
    """The product of a tile of the state and a panel of the weight, for one gate."""
    number = f"(block * {spec.gates} + gate)"
    if spec.integers is not None:
        return (
            f"multiply_tile_u8(rows, units, size, rounded + row_0 * size, size, "
            f"weight_hh + {panel_at(number)}, sums[gate]);"
        )
    panel = multiply(number, "size", str(spec.width))
    weights = f"{'weight_hh' if spec.is_packed else 'panels'} + {panel}"
    return (
        f"multiply_tile_{spec.ctype}(rows, units, size, state + row_0 * size, size, {weights}, "
        f"sums[gate]);"
    )


def render_recurrence_naive(spec: RecurrenceSpec) -> Rendered:
    """Print the plain loops: the same parameters, one thread; workspace for integers alone."""
    out = Lines()
    fast = render_recurrence(spec)
    extra, workspace = (
        fast.extra_parameters,
        "0" if spec.integers is None else text_of(fast.workspace),
    )
    count = spec.gates
    for name in extra:
        out.put(f"(void){name};")
    _declare(spec, out)
    with out.block("for (int64_t step = 0; step < steps; step++)"):
        _declare_step(spec, out)
        if spec.integers is not None:
            round_rows(spec.integers, "0", "batch", out)
        with out.loops([("row", "batch"), ("unit", "size")]):
            if spec.integers is not None:
                out.put(f"const float row_scale = {spec.integers.row_scale};")
            out.put(f"{_sum_type(spec)} sums[{count}];")
            with out.block(f"for (int64_t gate = 0; gate < {count}; gate++)"):
                start, product = _naive_sum(spec)
                out.put(f"sums[gate] = {start};")
                out.put("for (int64_t k = 0; k < size; k++)")
                out.put(f"    sums[gate] += {product};")
            _update(spec, out, [f"sums[{g}]" for g in range(count)])
    _finish(out)
    note = "The plain loops, to check the fast version against."
    return _function(spec, out, note, workspace, extra)


def _naive_sum(spec: RecurrenceSpec) -> tuple[str, str]:
    """What a sum of the plain loops starts from, and the product that is added for each k."""
    width, count = spec.width, spec.gates
    if spec.integers is not None:
        return f"weight_hh[{column_at(count)}]", product_of_quads(count)
    place = "(gate * size + unit) * size + k"
    if spec.is_packed:
        panel = f"(unit / {width} * {count} + gate) * size"
        place = f"({panel} + k) * {width} + unit % {width}"
    return "0", f"state[row * size + k] * weight_hh[{place}]"


# -- parts -----------------------------------------------------------------------------------------
_EQUATIONS = {
    "lstm": "c' = sigmoid(f) * c + sigmoid(i) * tanh(g), h' = sigmoid(o) * tanh(c')",
    "gru": "h' = (1 - sigmoid(z)) * tanh(n + sigmoid(r) * n_h) + sigmoid(z) * h",
    "rnn_tanh": "h' = tanh(x + W h)",
    "rnn_relu": "h' = max(x + W h, 0)",
}


def _declare(spec: RecurrenceSpec, out: Lines) -> None:
    """Sizes, and where the last states are."""
    for name in ("steps", "batch", "size"):
        if getattr(spec, name) != name:
            out.put(f"const int64_t {name} = {getattr(spec, name)};")
    t = spec.ctype
    out.put(f"{t} *const last_state = states + steps * batch * size;")
    if spec.mode == "lstm":
        out.put(f"{t} *const cells = last_state + batch * size;  /* of the current step */")
        out.put(f"fx_copy(cells, c0, batch * size * sizeof({t}));")
    out.put(f"const {t} *const final_state = steps == 0 ? h0")
    end = "states" if spec.reverse else "last_state - batch * size"
    out.put(f"                                 : {end};")
    if spec.integers is not None:
        declare_integers(spec.integers, out)


def _pack(spec: RecurrenceSpec, out: Lines) -> None:
    """Pack a weight that was not known when the model was compiled."""
    if spec.is_packed:
        return
    t, width, count = spec.ctype, spec.width, spec.gates
    out.put(f"{t} *const panels = workspace;")
    out.put("for (int64_t block = 0; block < blocks; block++)")
    with out.block(f"for (int64_t gate = 0; gate < {count}; gate++)"):
        rest = f"size - block * {width}"
        out.put(f"const int units = (int)({rest} < {width} ? {rest} : {width});")
        out.put(
            f"pack_panel_{t}(size, units, weight_hh + (gate * size + block * {width}) * size, "
            f"1, size, panels + (block * {count} + gate) * size * {width});"
        )


def _declare_step(spec: RecurrenceSpec, out: Lines) -> None:
    """The time, the state before it and the one after it."""
    t = spec.ctype
    _declare_state(spec, out)
    out.put(f"{t} *const next = states + time * batch * size;")
    out.put(f"const {t} *const inputs = gates + time * batch * size * {spec.gates};")


def _declare_state(spec: RecurrenceSpec, out: Lines) -> None:
    """The time and the state before it."""
    out.put(f"const int64_t time = {'steps - 1 - step' if spec.reverse else 'step'};")
    before = "time + 1" if spec.reverse else "time - 1"
    out.put(
        f"const {spec.ctype} *const state = step == 0 ? h0 : states + ({before}) * batch * size;"
    )


def _update(spec: RecurrenceSpec, out: Lines, sums: list[str]) -> None:
    """The new states of one row and hidden unit."""
    t = spec.ctype
    suffix = "f32" if t == "float" else "f64"
    sigmoid, tanh = f"fx_sigmoid_{suffix}", f"fx_tanh_{suffix}"
    count = spec.gates
    row = "row * size" if count == 1 else f"row * {count} * size"
    x, hidden = [], []
    for gate, total in enumerate(sums):
        offset = add(multiply(str(gate), "size"), "unit") if gate else "unit"
        x.append(f"inputs[{row} + {offset}]")
        if spec.integers is not None:
            total = scaled_sum(total, offset)
        hidden.append(f"({total} + bias_hh[{offset}])" if spec.has_bias else total)
    if spec.mode == "lstm":
        for gate, name in enumerate(("in", "forget", "fresh", "out")):
            function = tanh if name == "fresh" else sigmoid
            out.put(f"const {t} {name} = {function}({x[gate]} + {hidden[gate]});")
        out.put(f"const {t} cell = forget * cells[row * size + unit] + in * fresh;")
        out.put("cells[row * size + unit] = cell;")
        out.put(f"next[row * size + unit] = out * {tanh}(cell);")
    elif spec.mode == "gru":
        for gate, name in enumerate(("reset", "keep")):
            out.put(f"const {t} {name} = {sigmoid}({x[gate]} + {hidden[gate]});")
        out.put(f"const {t} fresh = {tanh}({x[2]} + reset * {hidden[2]});")
        out.put("next[row * size + unit] = (1 - keep) * fresh + keep * state[row * size + unit];")
    else:
        function = tanh if spec.mode == "rnn_tanh" else f"fx_maximum_{suffix}"
        zero = "" if spec.mode == "rnn_tanh" else ", 0"
        out.put(f"next[row * size + unit] = {function}({x[0]} + {hidden[0]}{zero});")


def _finish(out: Lines) -> None:
    out.put("fx_copy(last_state, final_state, batch * size * sizeof(*states));")


def _function(
    spec: RecurrenceSpec, out: Lines, note: str, workspace: str, extra: tuple[str, ...]
) -> Rendered:
    head = [*block_comment(spec.comment, note), *signature(spec.name, spec.parameters, extra)]
    return Rendered("\n".join([*head, "{", *out.lines, "}"]) + "\n", expression(workspace), extra)
