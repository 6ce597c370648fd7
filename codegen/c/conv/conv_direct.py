"""What the printers of convolutions share that read the image itself, or a padded copy of it in the
workspace, and make no matrix of it: the whole function, loops of the epilogue, sizes and threads.
"""

from __future__ import annotations

from fxlite.codegen.c.conv.conv_plan import SEGMENT, ConvSpec
from fxlite.codegen.c.product.gemm import Rendered
from fxlite.codegen.c.product.packed_operands import PARALLEL_PRODUCTS
from fxlite.codegen.c.text.template_text import (
    Lines,
    add,
    atom,
    block_comment,
    expression,
    mentions,
    multiply,
    signature,
)


def conv_function(
    spec: ConvSpec, note: str, body: list[str], workspace: str, extra: tuple[str, ...]
) -> Rendered:
    """The comment, the head and the body of a function."""
    head = [*block_comment(spec.comment, note), *signature(spec.name, spec.parameters, extra)]
    if spec.beside is not None:
        body = [f"    {spec.beside.before}", *body, f"    {spec.beside.after}"]
    return Rendered("\n".join([*head, "{", *body, "}"]) + "\n", expression(workspace), extra)


def put_first(out: Lines, spec: ConvSpec, pixel: str) -> None:
    """Declare where pixel number `pixel` of joined rows is, for `put_rows`."""
    if not spec.joinable:
        w = atom(spec.w)
        out.put(f"const int64_t first_oh = {pixel} / {w}, first_ow = {pixel} % {w};")


def put_rows(out: Lines, spec: ConvSpec, element: str, index: str, first: str, count: str) -> None:
    """The epilogue over `count` pixels of joined rows from pixel `first` on; row by row, unless the
    epilogue does not mind. `element` uses the variable `index`, which starts at 0."""
    if spec.joinable:
        out.put("#pragma omp simd")
        with out.block(f"for (int64_t {index} = 0; {index} < {count}; {index}++)"):
            out.put(f"const int64_t ow = {add(first, index)};")
            out.put(spec.epilogue(element, "n", "k", "0", "ow"))
        return
    statements = spec.epilogue(element, "n", "k", "oh", "ow")
    start, w = f"{index}_0", atom(spec.w)
    out.put("int64_t oh = first_oh, ow_0 = first_ow;")
    with out.block(f"for (int64_t {start} = 0, run; {start} < {count}; {start} += run)"):
        out.put(f"run = {w} - ow_0 < {count} - {start} ? {w} - ow_0 : {count} - {start};")
        out.put("#pragma omp simd")
        with out.block(f"for (int64_t {index} = {start}; {index} < {start} + run; {index}++)"):
            if mentions(statements, "ow"):
                out.put(f"const int64_t ow = ow_0 + {index} - {start};")
            out.put(statements)
        out.put("oh++, ow_0 = 0;")


def put_tile(
    out: Lines, spec: ConvSpec, element: str, pixels: str, channels: str, first: str
) -> None:
    """The epilogue over a tile: `element` with index i, of pixels from ow_0 on, and j, of channels
    from `first` on. It runs along the axis whose results are neighbours."""
    if spec.split_epilogue and spec.y_last:
        _put_integer_vectors(out, spec, element, pixels, channels, first)
    else:
        _put_elements(out, spec, element, pixels, channels, first)
    if spec.beside is not None:
        out.put(spec.beside.tile(pixels, channels, ("n", "oh", "ow_0", first)))


def _put_elements(
    out: Lines, spec: ConvSpec, element: str, pixels: str, channels: str, first: str
) -> None:
    """`put_tile` element by element, or vector by vector where channels are neighbours."""
    statements = spec.epilogue(element, "n", "k", "oh", "ow")
    step, pragma = "j++", "#pragma omp simd"
    if spec.vector_epilogue:
        total, count = f"(*(const {spec.ctype}_vec *)&{element})", f"(int)({channels} - j)"
        statements = spec.vector_epilogue(total, "n", "k", "oh", "ow", count)
        step, pragma = f"j += {spec.ctype}_lanes", ""
    pixel = ("i", pixels, "ow", "ow_0", "i++")
    channel = ("j", channels, "k", first, step if spec.y_last else "j++")
    outer, inner = (pixel, channel) if spec.y_last else (channel, pixel)
    for depth, (index, count, name, start, next_one) in enumerate((outer, inner)):
        if depth and pragma:
            out.put(pragma)
        out.put(f"for (int64_t {index} = 0; {index} < {count}; {next_one}) {{")
        out.depth += 1
        if mentions(statements, name):
            out.put(f"const int64_t {name} = {add(start, index)};")
    out.put(statements)
    for _ in (outer, inner):
        out.depth -= 1
        out.put("}")


def _put_integer_vectors(
    out: Lines, spec: ConvSpec, element: str, pixels: str, channels: str, first: str
) -> None:
    """`put_tile` by vectors of sums of integers: what belongs to channels is loaded once for all
    pixels."""
    assert spec.split_epilogue is not None
    loads, statements = spec.split_epilogue("sum", "n", "k", "oh", "ow", "count")
    with out.block(f"for (int j = 0; j < {channels}; j += int_lanes)"):
        out.put(f"const int count = {channels} - j;")
        out.put(f"const int64_t k = {add(first, 'j')};")
        out.put(loads)
        with out.block(f"for (int64_t i = 0; i < {pixels}; i++)"):
            if mentions(statements, "ow"):
                out.put("const int64_t ow = ow_0 + i;")
            out.put(f"const int_vec sum = *(const int_vec *)&{element};")
            out.put(statements)


def put_fetch(
    out: Lines, spec: ConvSpec, channel: str, row: str, column: str, channels: str, count: str
) -> None:
    """Fetch what the epilogue needs for `count` pixels of some channels from this element on."""
    height, width = spec.output_size()
    for array in spec.fetched:
        plane = add(multiply("n", str(spec.k)), channel)
        start = add(array, multiply(plane, height, width), multiply(row, width), column)
        out.put(f"fetch_rows({channels}, {count}, {start}, {multiply(height, width)});")


class Direct:
    """Sizes, names of the function's variables, and the *taps*: a table of where the pixel of each
    weight is (see `tiles/conv.h`). Products take a ``faster``th part of the time of those of
    floats."""

    def __init__(self, spec: ConvSpec, faster: int = 1) -> None:
        self.spec = spec
        self.out = Lines()
        self.ctype = spec.ctype
        self.taps = spec.r * spec.s
        self.grouped = spec.groups > 1
        self.out_h, self.out_w = spec.output_size()
        products = -(-spec.k * spec.group_inputs * self.taps // faster)
        work = multiply(spec.n, str(products), self.out_h, self.out_w)
        self.threads = not (work.isdecimal() and int(work) < PARALLEL_PRODUCTS)
        large = "" if work.isdecimal() else f" && {work} > PARALLEL_PRODUCTS"
        self.team = f"num_threads(n_threads) if (n_threads > 1{large})"

    def declare(self, name: str, expression: str) -> str:
        """Declare a size, unless it is a literal; returns how to refer to it."""
        if expression.isdecimal() or expression.isidentifier():
            return expression
        self.out.put(f"const int64_t {name} = {expression};")
        return name

    def declare_taps(self, rows: str, pitch: str, step: int) -> None:
        """Distances of the taps from the first pixel; columns are sorted by remainder mod step."""
        spec, texts = self.spec, []
        for r in range(spec.r):
            for s in range(spec.s):
                column = s * spec.dilation[1]
                plane = multiply(str(column % step), rows, pitch)
                row = multiply(str(r * spec.dilation[0]), pitch)
                texts.append(add(plane, row, str(column // step)))
        if self.taps > 1:
            self.out.put("/* Where each weight's pixel is, from that of the kernel's first. */")
        self.out.put(f"const int64_t tap[{self.taps}] = {{{', '.join(texts)}}};")

    def first_channel(self) -> str:
        """The first input channel of the group, counted over all images."""
        group = multiply("group", str(self.spec.group_inputs)) if self.grouped else "0"
        return add(multiply("n", str(self.spec.c)), group)

    def parallel(self, loops: int) -> str:
        """The pragma of so many nested loops that all threads share out."""
        return self.pragma("omp parallel for", loops, f" {self.team}")

    def pragma(self, directive: str, loops: int, clauses: str = "") -> str:
        """The pragma of so many nested loops; nothing where there is too little to share out."""
        collapse = f" collapse({loops})" if loops > 1 else ""
        return f"#pragma {directive}{collapse} schedule(static){clauses}" if self.threads else ""

    def pad_images(self, rows: str, pitch: str) -> None:
        """All images, with their zeros, into the workspace."""
        spec, out = self.spec, self.out
        out.put("/* The images with zeros around them. */")
        planes = multiply(spec.n, str(spec.c))
        with out.loops([("plane", planes)], self.parallel(1)):
            image = add(spec.x, multiply("plane", spec.h, spec.w))
            target = add("padded", multiply("plane", rows, pitch))
            out.put(
                f"pad_plane_{self.ctype}({spec.h}, {spec.w}, {image}, {spec.padding[0]}, "
                f"{spec.padding[1]}, {rows}, {pitch}, {target});"
            )
        out.put("/* The convolution. */")

    def declare_pixels(self, start: str) -> None:
        """The number of pixels of this segment of a row."""
        rest = f"{self.out_w} - {start}"
        pixels = f"{rest} < {SEGMENT} ? {rest} : {SEGMENT}"
        if self.out_w.isdecimal() and int(self.out_w) <= SEGMENT:
            pixels = self.out_w
        self.out.put(f"const int pixels = {pixels};")

    def put_row(self, element: str, first: str, count: str) -> None:
        """The epilogue along `count` pixels of one output row, from ow = `first` on."""
        out = self.out
        statements = self.spec.epilogue(element, "n", "k", "oh", "ow")
        out.put("#pragma omp simd")
        with out.block(f"for (int64_t i = 0; i < {count}; i++)"):
            if mentions(statements, "ow"):
                out.put(f"const int64_t ow = {add(first, 'i')};")
            out.put(statements)
