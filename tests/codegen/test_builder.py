"""Functions of templates as loop trees: what is known when they are built is not in their text."""

from __future__ import annotations

from fxlite.codegen.kernel.builder import Body, Pointer, divide_up, smaller, symbol, text_of
from fxlite.scalar.index import DimVar, Index


def panels(n: Index | int) -> str:
    """The skeleton of a product: panels of 16 columns, which threads share out."""
    body, a = Body(), Pointer("a")
    with body.shared([("panel", divide_up(n, 16))], "omp parallel for") as (panel,):
        column = body.let("column_0", panel * 16)
        columns = body.let("columns", smaller(Index.of(n) - column, 16))
        start = body.pointer("const float", "start", a + column)
        body.call("multiply", columns, start)
    return str(body)


def test_a_loop_of_one_trip_is_its_body():
    assert panels(10) == "const float *const start = a;\nmultiply(10, start);"


def test_whole_panels_have_a_known_width():
    assert panels(32).splitlines() == [
        "#pragma omp parallel for schedule(static)",
        "for (int64_t panel = 0; panel < 2; ++panel) {",
        "    const int64_t column_0 = panel*16;",
        "    const float *const start = a + column_0;",
        "    multiply(16, start);",
        "}",
    ]


def test_the_last_panel_of_an_unknown_size_may_be_narrower():
    text = panels(symbol("n"))
    assert "panel < (n + 15) / 16;" in text
    assert "const int64_t columns = fx_min(n - column_0, 16);" in text
    assert "multiply(columns, start);" in text


def test_what_nothing_reads_is_not_declared():
    body = Body()
    n = symbol("n")
    first = body.let("first", n * 2)
    body.let("second", first + 1)
    third = body.let("third", first * first)
    body.call("use", third)
    assert str(body).splitlines() == ["const int64_t first = n*2;", "const int64_t third = first*first;", "use(third);"]


def test_a_name_belongs_to_its_block():
    """That another block reads another one of that name does not count; loops of one trip that are
    followed by one of the same names keep blocks."""
    n = symbol("n")
    body = Body()
    for reads in (False, True):
        with body.loop("i", 1) as i:
            row = body.let("row", n + i + 1)
            body.call("f", row * 2)
        with body.block("if (ready)"):
            row = body.let("unread", n * 3)
            if reads:
                body.call("g", row)
    assert str(body).splitlines() == [
        "const int64_t row = n + 1;",
        "f(row*2);",
        "if (ready) {",
        "}",
        "{",
        "    const int64_t row = n + 1;",
        "    f(row*2);",
        "}",
        "if (ready) {",
        "    const int64_t unread = n*3;",
        "    g(unread);",
        "}",
    ]


def test_integers_read_well():
    n, m, parts = symbol("n"), symbol("m"), symbol("parts")
    body = Body()
    with body.loop("part", parts) as part:
        first = body.let("first", part * n // parts)
        body.let("end", (part + 1) * n // parts)
        body.call("f", (part + 1) * n // parts - first, Pointer("a") + part * m - m)
        body.call("f", symbol("end"), Pointer("a") - m, body.let("rest", "g(n)", "int") % (m * 4))
        body.call("f", part % divide_up(n, 4))
    assert str(body).splitlines()[1:-1] == [
        "    const int64_t first = n*part / parts;",
        "    const int64_t end = (part + 1)*n / parts;",
        "    f((part + 1)*n / parts - first, a + (part - 1)*m);",
        "    const int rest = (int)g(n);",
        "    f(end, a - m, rest % (m*4));",
        "    f(part % ((n + 3) / 4));",
    ]


def test_threads_share_out_the_loops_that_are_left():
    def pragma(*extents: int | Index) -> str:
        body = Body()
        loops = [(f"i{axis}", extent) for axis, extent in enumerate(extents)]
        with body.shared(loops, "omp for") as variables:
            body.call("f", *variables)
        return str(body)

    assert pragma(1, 3, 1, 4).startswith("#pragma omp for collapse(2) schedule(static)\nfor")
    assert "f(0, i1, 0, i3);" in pragma(1, 3, 1, 4)
    assert pragma(1, 3).startswith("#pragma omp for schedule(static)\nfor")
    assert pragma(1, 1).splitlines() == ["if (this_thread() == 0) {", "    f(0, 0);", "}"]


def test_a_loop_may_begin_anywhere():
    body = Body()
    n = Index.of(DimVar("n"))
    with body.loop("k", n, start=n // 2, step=8) as k:
        body.call("f", k, Pointer("a") + k, Pointer("a", k)[1])
    assert str(body).splitlines()[1].strip() == "f(k, a + k, a[k + 1]);"
    assert "k += 8" in str(body)
    body = Body()
    with body.loop("k", n + 1, start=n) as k:
        body.put(f"f({text_of(k)});")
    assert "for" not in str(body)


def test_short_loops_count_in_int_and_are_unrolled():
    body = Body()
    for end in (1, 4):
        with body.loop("i", end, pragma="#pragma unroll", ctype="int") as i:
            body.call("f", i)
    assert str(body).splitlines() == ["f(0);", "#pragma unroll", "for (int i = 0; i < 4; ++i) {", "    f(i);", "}"]


def test_a_block_stands_behind_its_head():
    body = Body()
    with body.block("#pragma omp parallel"), body.block("if (ready)"):
        body.call("f")
    assert str(body).splitlines() == ["#pragma omp parallel", "{", "    if (ready) {", "        f();", "    }", "}"]
