"""C text that finds out whether the processor has the instructions a file was compiled for.

A folder that was built with ``-march=native`` may be copied to a lesser machine, where its first
wide instruction would end the process. ``NAME_run`` asks first, and returns an error instead.
"""

#: Macro that the compiler defines for an instruction set -> its name at run time (GCC, Clang).
_INSTRUCTION_SETS = {
    "AVX": "avx", "AVX2": "avx2", "FMA": "fma", "AVX512F": "avx512f", "AVX512BW": "avx512bw",
    "AVX512DQ": "avx512dq", "AVX512VL": "avx512vl", "AVX512BF16": "avx512bf16",
    "AVX512VNNI": "avx512vnni",
}  # fmt: skip

_HEAD = """\
/* Whether this processor has the instructions that this file was compiled for. */
static inline int processor_fits(void)
{
    int fits = 1;
#if defined(__x86_64__) && defined(__GNUC__)
"""

_TAIL = """\
#endif
    return fits;
}
"""

PROCESSOR_DEFINITION = (
    _HEAD
    + "".join(
        f'#ifdef __{macro}__\n    fits &= __builtin_cpu_supports("{name}") != 0;\n#endif\n'
        for macro, name in _INSTRUCTION_SETS.items()
    )
    + _TAIL
)
