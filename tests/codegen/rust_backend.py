"""A back end in one file: pointwise functions and reductions as Rust.

docs/guides/backend.md explains it. What has no text here (half types, indices that are values,
functions that are not in the table) is refused.
"""

import shutil

from fxlite.backend import Backend, Option, silent
from fxlite.base.errors import CodegenError
from fxlite.codegen.kernel import kernel_ir as ir
from fxlite.codegen.kernel.names import dim_name, resolved
from fxlite.codegen.program.loop_function import LoopFunction
from fxlite.scalar import expr
from fxlite.scalar.functions import FUNCTIONS
from fxlite.scalar.index import flatten, to_text

HELPERS = """\
const inff32: f32 = f32::INFINITY; const inff64: f64 = f64::INFINITY;
fn fx_max<T: PartialOrd>(a: T, b: T) -> T { if a > b || a.ne(&a) { a } else { b } }
fn fx_min<T: PartialOrd>(a: T, b: T) -> T { if a < b || a.ne(&a) { a } else { b } }
fn fx_floor_div(a: i64, b: i64) -> i64 { a.div_euclid(b) }
fn fx_floor_mod(a: i64, b: i64) -> i64 { a.rem_euclid(b) }
"""
KEYWORDS = "as dyn fn impl in let loop match mod move mut pub ref self type use where".split()
CALLS = {f.name: "{}" * (f.arity - 1) + f.operator + "{}" for f in FUNCTIONS.values() if f.operator}
CALLS |= {"maximum": "fx_max({}, {})", "minimum": "fx_min({}, {})", "log": "{}.ln()"}
CALLS |= {"where": "if {} {{ {} }} else {{ {} }}", "rsqrt": "{}.sqrt().recip()", "invert": "!{}"}
CALLS["exp_weight"] = "(if {0} < -87.0 {{ 0.0 }} else {{ {0}.exp() }})"
CALLS |= {name: f"{{}}.{name}()" for name in ("exp", "sqrt", "sin", "cos", "tanh", "abs", "floor")}

#: The text of each sort of statement and expression; ``p`` prints what is inside.
TEXTS = {
    ir.For: lambda p, s: f"for {s.var.name} in (0..{p.index(s.var.extent)}).step_by({s.step}) {{",
    ir.If: lambda p, s: f"if {p.text(s.condition)} {{",
    ir.Let: lambda p, s: f"let {s.name}: {s.value.dtype} = {p.text(s.value)};",
    ir.Alloc: lambda p, s: f"let mut {s.name} = {p.repeated(p.text(s.init), s.size)};",
    ir.Assign: lambda p, s: f"{p.text(s.target)} = {p.text(s.value)};",
    ir.Store: lambda p, s: f"{p.at(s)} {'+' * s.accumulate}= {p.text(s.value)};",
    ir.Comment: lambda p, s: f"// {s.text}",
    expr.Const: lambda p, e: str(e.value).lower() + ("" if e.dtype.is_bool else e.dtype.name),
    expr.IndexValue: lambda p, e: p.index(e.index),
    expr.Local: lambda p, e: e.name + "".join(f"[({p.index(i)}) as usize]" for i in e.index),
    expr.Load: lambda p, e: p.at(e) if e.guard is None else p.guarded(e),
    expr.Cast: lambda p, e: f"{p.text(e.operand)}{' as u8' * e.operand.dtype.is_bool} as {e.dtype}",
    expr.Apply: lambda p, e: CALLS.get(e.function, "").format(*map(p.text, e.args)),
}


class Printer(ir.Kernel):
    """A kernel that is printed."""

    def function(self):
        args = [f"{b.name}: *{'mut' * b.is_output or 'const'} {b.dtype}" for b in self.buffers]
        args += [f"{dim_name(d)}: i64" for d in self.dims]
        head = f'#[no_mangle]\npub unsafe extern "C" fn {self.name}({", ".join(args)}) {{'
        return resolved("\n".join([head, *self.block(self.body, "    "), "}\n"]), keywords=KEYWORDS)

    def block(self, body, pad):
        for s in body:
            yield pad + TEXTS[type(s)](self, s)
            if isinstance(s, ir.For | ir.If):
                yield from [*self.block(s.body, pad + "    "), pad + "}"]

    def text(self, e):
        found = "" if e.dtype.is_half else TEXTS.get(type(e), lambda p, e: "")(self, e)
        if not found:
            raise CodegenError(f"Rust has no {getattr(e, 'function', type(e).__name__)} here")
        return found if isinstance(e, expr.Local) else f"({found})"

    def index(self, index):
        return to_text(index, self.text, "/", "i64::{}".format, dim_name)

    def at(self, e):
        address = self.index(flatten(e.index, self.buffer(e.buffer).shape))
        return f"*{e.buffer}.offset(({address}) as isize)"

    def repeated(self, text, size):
        return f"[{text}; {size}]" if size else text

    def guarded(self, e):
        return f"if {self.text(e.guard)} {{ {self.at(e)} }} else {{ Default::default() }}"


class Rust(Backend):
    """Rust, for programs of pointwise functions and reductions."""

    name, language = "rust", "Rust"
    options = (Option("opt_level", ("0", "2", "3"), "3", "how much rustc optimizes", "LEVEL"),)

    def compile(self, module, stage=silent, opt_level="3"):
        command = f"rustc -A warnings --crate-type=cdylib -C opt-level={opt_level} -o".split()
        return LoopFunction(module, stage, ".rs", HELPERS, lambda k: Printer(**vars(k)).function(), command)

    def describe(self):
        return {"Rust": shutil.which("rustc") or "no rustc"}
