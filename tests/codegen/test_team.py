"""team.c, which takes libgomp's place in what fxlite loads: regions, barriers and locks under the
thread sanitizer; shares that nobody comes for; a caller that was kept waiting; forked children."""

from __future__ import annotations

import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite.codegen.runtime.build import team_source
from fxlite.codegen.runtime.toolchain import TEAM_LIBRARIES, compile_flags, find_compiler
from tests.codegen.compiling import emitted

pytestmark = pytest.mark.skipif(not find_compiler().is_gcc, reason="needs GCC on Linux")

TEAM = files("fxlite.codegen.runtime").joinpath("team.c").read_text()

HEAD = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define CHECK(condition) \\
    if (!(condition)) { fprintf(stderr, "line %d: %s\\n", __LINE__, #condition); exit(1); }
int omp_get_thread_num(void);
int omp_get_num_threads(void);

/* Sums of rows and of columns, with a barrier between them; an element of `seen` for each share. */
static void work(int n, int threads, double *rows, double *columns, int *seen)
{
    #pragma omp parallel num_threads(threads)
    {
        __atomic_add_fetch(&seen[omp_get_thread_num()], 1, __ATOMIC_RELAXED);
        #pragma omp for schedule(static)
        for (int i = 0; i < n; i++) {
            rows[i] = 0;
            for (int j = 0; j < n; j++)
                rows[i] += i * 3 + j;
        }
        #pragma omp for schedule(static)
        for (int j = 0; j < n; j++)
            columns[j] = rows[n - 1 - j] + j;
    }
}

static void check_work(int n, int threads)
{
    double rows[64], columns[64];
    int seen[300] = {0};
    work(n, threads, rows, columns, seen);
    for (int i = 0; i < n; i++) {
        CHECK(rows[i] == 3.0 * i * n + n * (n - 1) / 2);
        CHECK(columns[i] == rows[n - 1 - i] + i);
    }
    CHECK(seen[0] == 1);
}
"""

MANY = """
static void *call_often(void *threads)
{
    for (int n = 0; n < 200; n++)
        check_work(n % 50, (int)(long)threads);
    return NULL;
}

int main(void)
{
    call_often((void *)3L);
    pthread_t others[2]; /* of which one at a time has helpers */
    for (long t = 0; t < 2; t++)
        CHECK(pthread_create(&others[t], NULL, call_often, (void *)(t + 2)) == 0);
    call_often((void *)4L);
    for (int t = 0; t < 2; t++)
        pthread_join(others[t], NULL);
    int total = 0, inner = 0;
    #pragma omp parallel for num_threads(4)
    for (int i = 0; i < 100; i++) {
        #pragma omp critical(fx_error)
        total += i;
        #pragma omp parallel num_threads(4)
        {
            CHECK(omp_get_num_threads() == 1 && omp_get_thread_num() == 0);
            __atomic_add_fetch(&inner, 1, __ATOMIC_RELAXED);
        }
    }
    CHECK(total == 4950 && inner == 100);
    CHECK(omp_get_num_threads() == 1 && omp_get_thread_num() == 0);
    return 0;
}
"""

FORK = """
int main(void)
{
    check_work(20, 3);
    const pid_t child = fork();
    check_work(30, 3); /* the child starts helpers of its own */
    CHECK(n_helpers == 2);
    int status = 0;
    CHECK(child == 0 || (waitpid(child, &status, 0) == child && status == 0));
    return 0;
}
"""

ABSENT = """
/* Threads that never come, or cannot be started. */
static int start_result;
static int no_create(pthread_t *thread, const void *attributes, void *(*run)(void *), void *data)
{
    (void)attributes, (void)run, (void)data;
    *thread = pthread_self();
    return start_result;
}

static int no_detach(pthread_t thread) { return (void)thread, 0; }
"""

ABSENT_MAIN = """
int main(void)
{
    int order[4] = {0}, next = 0;
    #pragma omp parallel for schedule(static) num_threads(4)
    for (int i = 0; i < 4; i++) {
        CHECK(omp_get_num_threads() == 4 && omp_get_thread_num() == i);
        order[next++] = i;
    }
    CHECK(next == 4 && order[0] == 0 && order[1] + order[2] + order[3] == 6);
    start_result = EAGAIN;
    n_helpers = 0;
    check_work(20, 3);
    CHECK(n_helpers == 0);
    return 0;
}
"""

WAITING = """
static int wait_for_helper(void)
{
    int begun = 0, size;
    #pragma omp parallel num_threads(2)
    {
        if (omp_get_thread_num() == 1) {
            __atomic_store_n(&begun, 1, __ATOMIC_RELEASE);
            usleep(200000);
        } else {
            size = omp_get_num_threads();
            while (size == 2 && !__atomic_load_n(&begun, __ATOMIC_ACQUIRE))
                sched_yield();
        }
    }
    return size;
}

int main(void)
{
    CHECK(wait_for_helper() == 2);
    CHECK(alone_until == 0); /* once: the shares may have been uneven */
    CHECK(wait_for_helper() == 2);
    CHECK(alone_until > nanoseconds());
    CHECK(wait_for_helper() == 1);
    alone_until = 1; /* the time is over */
    CHECK(wait_for_helper() == 2);
    CHECK(alone_until > nanoseconds()); /* at once: as before */
    return 0;
}
"""


UNEVEN = """
int main(void)
{
    for (int n = 0; n < 3; n++) {
        int size;
        #pragma omp parallel num_threads(2)
        {
            usleep(omp_get_thread_num() == 1 ? 160000 : 100000);
            size = omp_get_num_threads();
        }
        CHECK(size == 2);
        CHECK(alone_until == 0); /* alone it would have taken longer */
    }
    return 0;
}
"""


def run(folder: Path, text: str, *flags: str) -> None:
    """Compile and run a program that holds team.c; it must end well and say nothing."""
    (folder / "main.c").write_text(text)
    start = [*find_compiler().command, *compile_flags(), "-O1", "-g1", "-fopenmp", *flags]
    compiled = ["-Wall", "-Werror", "-Wno-unused-function", "-c", "main.c"]
    for step in (compiled, ["main.o", *TEAM_LIBRARIES, "-o", "main"]):
        done = subprocess.run([*start, *step], cwd=folder, capture_output=True, text=True)
        if "cannot find" in done.stderr:
            pytest.skip(f"no library for {' '.join(flags)}")
        assert done.returncode == 0, done.stderr
    done = subprocess.run([str(folder / "main")], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_regions_barriers_and_locks(tmp_path: Path, sanitizer: str) -> None:
    """Several callers at once, teams of changing sizes, regions within regions."""
    run(tmp_path, TEAM + HEAD + MANY, f"-fsanitize={sanitizer}")


def test_a_forked_child_starts_its_own_helpers(tmp_path: Path) -> None:
    run(tmp_path, TEAM + HEAD + FORK)


def test_shares_that_nobody_comes_for_are_the_callers(tmp_path: Path) -> None:
    team = TEAM.replace("pthread_create(", "no_create(").replace("pthread_detach(", "no_detach(")
    text = "#define _GNU_SOURCE\n#include <errno.h>\n#include <pthread.h>\n" + ABSENT + team + HEAD + ABSENT_MAIN
    run(tmp_path, text)


def test_a_caller_that_was_kept_waiting_works_alone_for_a_while(tmp_path: Path) -> None:
    run(tmp_path, TEAM + HEAD + WAITING)


def test_uneven_shares_of_long_regions_stay_shared(tmp_path: Path) -> None:
    run(tmp_path, TEAM + HEAD + UNEVEN)


@pytest.mark.parametrize(
    ("text", "suffices"),
    [
        ("#pragma omp parallel for collapse(2) schedule(static) num_threads(n) if ((n) > 1)", True),
        ("#pragma omp parallel for simd num_threads(n_threads) \\\n    if (n > 1)", True),
        ("#pragma omp simd reduction(+: sum)", True),
        ("#pragma omp critical(fx_error)\nomp_get_thread_num();", True),
        ("#pragma omp parallel for num_threads(n) reduction(+: sum)", False),
        ("#pragma omp for schedule(static, 1)", True),
        ("#pragma omp for schedule(dynamic)", False),
        ("#pragma omp single", False),
        ("#pragma omp critical", False),
        ("omp_get_wtime();", False),
    ],
)
def test_what_it_does_not_know_is_left_to_libgomp(text: str, suffices: bool) -> None:
    team = team_source(find_compiler(), ["int x;\n", f"    {text}\n"])
    assert team == (TEAM if suffices else None)


def few_columns(x: Any, y: Any) -> Any:
    return np.exp(x @ y)


def of_itself(x: Any) -> Any:
    return x @ x.T


def long_sum(x: Any, y: Any) -> Any:
    return x.T @ y


def one_channel(x: Any) -> Any:
    return F.conv2d(x, np.ones((1, 1, 3, 3), np.float32), padding=1)


@pytest.mark.parametrize(
    ("program", "types"),
    [
        (few_columns, ("f32[1536,48]", "f32[48,32]")),
        (few_columns, ("f32[M,48]", "f32[48,N]")),
        (of_itself, ("f32[200,300]",)),
        (long_sum, ("f32[5000,40]", "f32[5000,30]")),
        (one_channel, ("f32[1,1,300,300]",)),
    ],
)
def test_products_need_nothing_else(program: Any, types: tuple[str, ...]) -> None:
    """Phases of a product are regions of their own, of which one may have a single share."""
    texts = list(emitted(program, *types).sources.values())
    assert "#pragma omp parallel" in "".join(texts)
    assert team_source(find_compiler(), texts) == TEAM


def test_a_model_runs_on_it_and_without_libgomp() -> None:
    """Results of one, two and five threads are the same bits."""
    weight = np.random.default_rng(0).standard_normal((300, 400), np.float32)
    x = np.random.default_rng(1).standard_normal((70, 300), np.float32)
    results = []
    for threads in (1, 2, 5):
        function = fx.compile(lambda x: np.tanh(x @ weight), "f32[B,300]", threads=threads)
        results.append(function(x).tobytes())
        loaded = function.function.library.path.read_bytes()
        assert b"libgomp" not in loaded
    assert len(set(results)) == 1
