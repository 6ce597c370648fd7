"""Counters of a profiled model: when each kernel of the last run began and ended.

In: a model's name and number of kernels. Out: C text for its header and its source. The run
function takes the time once before its first kernel and once after each, so that a kernel costs one
reading of the clock (tens of nanoseconds) and the kernels' times add up to the run's.
"""

from __future__ import annotations

from fxlite.codegen.kernel.text import comment


def ticks_prototype(name: str, kernels: int) -> str:
    """What the header says of the counters."""
    text = (
        "Nanoseconds of a monotonic clock during this thread's last run: before the first kernel,\n"
        f"then after each of the {kernels} kernels, in order of their numbers."
    )
    return f"/*{comment(text)[1:]}\nconst int64_t *{name}_ticks(void);"


def ticks_source(name: str, kernels: int) -> str:
    """The counters, their clock and the function that gives them out. Threads that run the model
    at the same time have counters of their own."""
    return f"""\
#if __STDC_VERSION__ >= 201112L
#define FX_THREAD _Thread_local
#else
#define FX_THREAD __thread
#endif
static FX_THREAD int64_t fx_ticks[{kernels + 1}];
static FX_THREAD int fx_tick_count;

const int64_t *{name}_ticks(void) {{ return fx_ticks; }}

static void fx_tick(void) {{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    fx_ticks[fx_tick_count++] = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}}"""
