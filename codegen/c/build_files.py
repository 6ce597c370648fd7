"""What builds a C bundle: a Makefile, CMake's file, pkg-config's, and the C that only some builds
take: weights inside the program, and the choice of the processor at run time.

In: the name of a model, its header. Out: files by name.
"""

from __future__ import annotations

import re

from fxlite.codegen.c.text.template_text import parameter_names
from fxlite.codegen.c.tiles.library import needed


def build_files(name: str, header: str, architecture: str, version: str) -> dict[str, str]:
    """File name -> text. ``architecture`` is the compiler's flag for a processor, ``version``
    fxlite's."""
    functions = _functions(name, header)
    words = {
        "FUNCTIONS": " ".join(function for _, function, _ in functions),
        "ARCHITECTURE": architecture,
        "FX_VERSION": version,
        "MODEL": name,
    }
    texts = {
        "Makefile": _MAKEFILE,
        "CMakeLists.txt": _CMAKE,
        f"{name}.pc.in": _PKG_CONFIG,
        f"{name}_embedded.c": _WEIGHTS,
        f"{name}_portable.c": _portable(functions),
    }
    spelled = re.compile(r"\b(?:FUNCTIONS|ARCHITECTURE|FX_VERSION)\b|MODEL(?=_|\b)")
    return {file: spelled.sub(lambda found: words[found[0]], text) for file, text in texts.items()}


def _functions(name: str, header: str) -> list[tuple[str, str, str]]:
    """Result type, name and parameters of each function that a header declares."""
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    found = re.findall(rf"^(\w[\w ]*?[ *]+)({name}_\w+)\(([^)]*)\);", code, re.MULTILINE)
    return [(result.strip(), function, " ".join(p.split())) for result, function, p in found]


_MAKEFILE = """\
# MODEL: build and test it with GNU make and a C compiler (gcc or clang); nothing else is needed.
#
#   make test       build the self-test and run it
#   make MODEL.o     the model alone, to link into a program (add -fopenmp if shown, and -lm)
#   make shared     libMODEL.so
#   make sanitize   the self-test under the address and undefined-behaviour sanitizers
#                   (small models are done sooner with  make sanitize CHECKED=-O0)
#   make install    library, header, weights and MODEL.pc below PREFIX
#   make clean
#
#   make EMBED=1 ...      with MODEL_embedded.o, which has the weights in it
#   make PORTABLE=1 ...   for all processors of x86-64: it is found out at run time whether this
#                         one has AVX2 or AVX-512 (gcc 11 or clang 12, or later)

# The CPU to compile for. Code for "native" runs on this sort of machine only; for another one say
# e.g.  make ARCH=-march=x86-64-v3
ARCH ?= ARCHITECTURE
PREFIX ?= /usr/local

OBJECTS = MODEL.o
ifdef PORTABLE
ARCH = -march=x86-64
OBJECTS = MODEL_v1.o MODEL_v3.o MODEL_v4.o MODEL_portable.o
endif
ifdef EMBED
OBJECTS += MODEL_embedded.o
EMBEDDED = -DEMBEDDED
endif

# -ffast-math would give wrong answers for NaN, infinity and -0.0: leave it out.
#   -ffp-contract=fast   a * b + c may be one instruction, as in the compilers' own dialects
#   -fno-math-errno      sqrtf is one instruction; nobody reads errno
#   -fno-trapping-math   loops with branches become SIMD code; values stay exact
#   -fwrapv              signed integers wrap around, as in NumPy
CFLAGS ?= -O3 $(ARCH)
CHECKED ?= -O1 -g1
NEEDED = -std=c99 -ffp-contract=fast -fno-math-errno -fno-trapping-math -fwrapv

# -fopenmp where the compiler has it, else its SIMD loops alone: the model runs on one thread then.
# Off: make OPENMP=
OPENMP ?= $(shell echo 'int main(void) { return 0; }' > .probe.c; \\
    for flag in -fopenmp -fopenmp-simd; do \\
    $(CC) $$flag .probe.c -o .probe 2> /dev/null && echo $$flag && break; done; \\
    rm -f .probe .probe.c)
COMPILE = $(CC) $(NEEDED) $(CFLAGS) $(OPENMP)
HEADERS = MODEL.h MODEL_weights.h MODEL_tiles.h fx_math.h

all: MODEL_selftest

MODEL_selftest: $(OBJECTS) MODEL_selftest.c $(HEADERS)
\t$(COMPILE) $(EMBEDDED) MODEL_selftest.c $(OBJECTS) -o $@ -lm

MODEL.o: MODEL.c $(HEADERS)
\t$(COMPILE) -fPIC -c MODEL.c -o $@

# The same functions under other names, for processors without AVX, with AVX2, with AVX-512.
MODEL_v1.o: FOR = -march=x86-64
MODEL_v3.o: FOR = -march=x86-64-v3
MODEL_v4.o: FOR = -march=x86-64-v4
MODEL_v%.o: MODEL.c $(HEADERS)
\t$(COMPILE) $(FOR) $(foreach f,FUNCTIONS,-D$f=$f_v$*) -fPIC -c MODEL.c -o $@

MODEL_portable.o: MODEL_portable.c MODEL.h
\t$(COMPILE) -fPIC -c MODEL_portable.c -o $@

MODEL_embedded.o: MODEL_embedded.c MODEL_weights.bin
\t$(CC) -c MODEL_embedded.c -o $@

test: MODEL_selftest
\t./MODEL_selftest

shared: libMODEL.so
libMODEL.so: $(OBJECTS)
\t$(CC) $(CFLAGS) $(OPENMP) -shared $(OBJECTS) -o $@ -lm

sanitize: MODEL.c MODEL_selftest.c $(HEADERS)
\t$(CC) $(NEEDED) $(CHECKED) $(ARCH) $(OPENMP) -fsanitize=address,undefined \\
\t    -fno-sanitize-recover=all MODEL_selftest.c MODEL.c -o MODEL_sanitize -lm
\t./MODEL_sanitize

install: libMODEL.so
\tmkdir -p $(PREFIX)/include $(PREFIX)/lib/pkgconfig $(PREFIX)/share/MODEL
\tcp MODEL.h MODEL_weights.h $(PREFIX)/include
\tcp libMODEL.so $(PREFIX)/lib
\tcp MODEL_weights.bin $(PREFIX)/share/MODEL
\tsed 's|@PREFIX@|$(PREFIX)|' MODEL.pc.in > $(PREFIX)/lib/pkgconfig/MODEL.pc

clean:
\trm -f MODEL*.o MODEL_selftest MODEL_sanitize libMODEL.so

.PHONY: all test shared sanitize install clean
"""

_CMAKE = """\
# MODEL: a library, and its self-test (ctest). Options: -DCMAKE_C_FLAGS=-march=native for this sort
# of machine, -DEMBED=ON to have the weights in the library, -DPORTABLE=ON for all processors of
# x86-64: it is found out at run time whether this one has AVX2 or AVX-512.
cmake_minimum_required(VERSION 3.13)
project(MODEL LANGUAGES C)
option(EMBED "the weights are part of the library" OFF)
option(PORTABLE "the model is compiled for x86-64, -v3 and -v4" OFF)
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
endif()
find_package(OpenMP)

set(CMAKE_C_STANDARD 99)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT MSVC)  # NaN, infinity and -0.0 have to come out right: never -ffast-math
    add_compile_options(-ffp-contract=fast -fno-math-errno -fno-trapping-math -fwrapv)
    link_libraries(m)
endif()

if(PORTABLE)  # the same functions under other names
    add_library(MODEL MODEL_portable.c)
    foreach(level 1 3 4)
        set(processor x86-64-v${level})
        if(level EQUAL 1)
            set(processor x86-64)
        endif()
        add_library(MODEL_v${level} OBJECT MODEL.c)
        target_compile_options(MODEL_v${level} PRIVATE -march=${processor} ${OpenMP_C_FLAGS})
        foreach(name FUNCTIONS)
            target_compile_definitions(MODEL_v${level} PRIVATE ${name}=${name}_v${level})
        endforeach()
        target_sources(MODEL PRIVATE $<TARGET_OBJECTS:MODEL_v${level}>)
    endforeach()
else()
    add_library(MODEL MODEL.c)
endif()
target_include_directories(MODEL PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}>)
if(OpenMP_C_FOUND)
    target_link_libraries(MODEL PUBLIC OpenMP::OpenMP_C)
endif()
if(EMBED)
    target_sources(MODEL PRIVATE MODEL_embedded.c)
    set_source_files_properties(MODEL_embedded.c PROPERTIES
        COMPILE_OPTIONS -I${CMAKE_CURRENT_SOURCE_DIR}
        OBJECT_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/MODEL_weights.bin)
    target_compile_definitions(MODEL PUBLIC EMBEDDED)
endif()

add_executable(MODEL_selftest MODEL_selftest.c)
target_link_libraries(MODEL_selftest MODEL)
enable_testing()
add_test(NAME selftest COMMAND MODEL_selftest WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})

set(PREFIX ${CMAKE_INSTALL_PREFIX})
configure_file(MODEL.pc.in MODEL.pc @ONLY)
install(TARGETS MODEL DESTINATION lib)
install(FILES MODEL.h MODEL_weights.h DESTINATION include)
install(FILES MODEL_weights.bin DESTINATION share/MODEL)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/MODEL.pc DESTINATION lib/pkgconfig)
"""

_PKG_CONFIG = """\
prefix=@PREFIX@

Name: MODEL
Description: a model, made by fxlite
Version: FX_VERSION
Libs: -L${prefix}/lib -lMODEL -lm
Cflags: -I${prefix}/include
"""

_WEIGHTS = """\
/* The weights as a part of the program, which reads no file: link MODEL_embedded.o, and declare
 *
 *     extern const unsigned char MODEL_embedded_weights[];
 *
 * They are aligned as MODEL_run wants them. */
#if defined(__has_embed)
_Alignas(64) const unsigned char MODEL_embedded_weights[] = {
#embed "MODEL_weights.bin"
};
#elif defined(__ELF__) && defined(__GNUC__) && !defined(__TINYC__)
__asm__(
    ".section .rodata\\n"
    ".balign 64\\n"
    ".globl MODEL_embedded_weights\\n"
    "MODEL_embedded_weights:\\n"
    ".incbin \\"MODEL_weights.bin\\"\\n"
    ".previous\\n");
#else
#error "This compiler embeds no files (#embed of C23, .incbin): compile this one with another."
#endif
"""

_PORTABLE = """\
/* Chooses, where the model was compiled for several processors of x86-64 (make PORTABLE=1), the
 * functions for this one. */
#include <stdint.h>

#include "MODEL.h"

{helpers}/* 4 with AVX-512, 3 with AVX2, else 1: x86-64-v4, -v3 and any. */
static int level(void)
{{
    static int answer; /* 0: not known yet */
    int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
    if (known == 0) {{
        const uint32_t avx = 1u << 28 | 1u << 29 | 1u << 22 | 1u << 12; /* F16C, MOVBE, FMA */
        const uint32_t avx2 = 1u << 5 | 1u << 3 | 1u << 8;              /* BMI1, BMI2 */
        const uint32_t avx512 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
        known = processor_has(avx, avx2, 0, 0) ? 3 : 1;
        if (processor_has(avx, avx2 | avx512, 0, 0))
            known = 4;
        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    }}
    return known;
}}

#define CHOICE(type, name, parameters, arguments) \\
    type name##_v1 parameters; \\
    type name##_v3 parameters; \\
    type name##_v4 parameters; \\
    type name parameters \\
    {{ \\
        const int known = level(); \\
        return known == 4 ? name##_v4 arguments \\
            : known == 3 ? name##_v3 arguments : name##_v1 arguments; \\
    }}

{choices}
"""


def _portable(functions: list[tuple[str, str, str]]) -> str:
    choices = []
    for result, function, parameters in functions:
        names = "" if parameters == "void" else ", ".join(parameter_names(parameters))
        choices.append(f"CHOICE({result}, {function},\n    ({parameters}),\n    ({names}))")
    helpers = needed("processor_has")
    return _PORTABLE.format(helpers=helpers, choices="\n\n".join(choices))
