/* The threads of a compiled model: what GCC's code for `#pragma omp parallel` and `omp for` calls.
 *
 * A model's C is plain OpenMP and runs with any OpenMP library. Linked into the shared objects that
 * fxlite loads, this file takes the place of libgomp, for one reason: libgomp ends a parallel
 * region when every thread of the team has come, also those that have nothing to do any more. Where
 * another program holds a core, the thread on that core comes when the scheduler lets it, after
 * milliseconds, and regions take microseconds. Here a thread's share that nobody has begun is taken
 * by the caller, so that a region waits only for shares that were begun; and after such a wait was
 * long, the caller works alone for a while.
 *
 * The caller of a region runs share 0 and helper i share i, always the same, so that each finds
 * in its cache what it worked on before. Results are those of libgomp: which share computes what is
 * fixed by the compiler ("GNU Offloading and Multi Processing Runtime Library", "The libgomp ABI").
 * A second caller at the same time, or a region within a region, has a team of one thread.
 *
 * Here is what `parallel`, `for` with schedule(static), `barrier` and `critical` need; build.py
 * links libgomp where a source says something else.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define INTERNAL __attribute__((visibility("hidden")))

enum { MOST_THREADS = 256 };

/* How long a thread polls what it waits for before it sleeps, in turns of about 10 to 30 ns.
 * For a helper: across what runs on one thread between two regions, and between two calls. For a
 * caller: less than it takes to wake up; asleep, it leaves its core to a helper that has none. Two
 * threads that the scheduler has put on one core do not poll at all. */
enum { HELPER_TURNS = 4000, CALLER_TURNS = 1000 };

/* A caller that sleeps for more than so many nanoseconds, for a fourth of its time, and longer than
 * the shares of its helpers would have taken it, has lost a core to another program. It then works
 * alone for REST times as long as it slept, which bounds what is lost: it sleeps mostly for a time
 * slice of the scheduler, 3 ms. */
enum { LONG_NANOSECONDS = 300000, REST = 16 };

/* After so many regions in a row without help, because no helper came or none had a core of its own,
 * the caller works alone for so many nanoseconds: waking a helper costs it several microseconds. */
enum { VAIN_REGIONS = 4, VAIN_NANOSECONDS = 2000000 };

/* The states of a helper's share. ASLEEP: there is none, and the helper sleeps. OPEN: nobody has begun
 * it. AWAITED: the helper works on it, and the caller sleeps until it is done. */
enum { NONE, ASLEEP, OPEN, BEGUN, AWAITED };

typedef struct {
    _Alignas(64) atomic_int share;
    atomic_int core; /* where its share was begun */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
} helper;

/* The region that runs. It is written while no share is open. */
static struct {
    void (*body)(void *);
    void *data;
    int size;
} region;

static helper helpers[MOST_THREADS]; /* helpers[0] is unused: the caller's number */
static int n_helpers;                /* that were started */
static atomic_int caller_core;       /* where the last region was begun */
static atomic_flag in_use = ATOMIC_FLAG_INIT;
static int64_t alone_until;          /* nanoseconds; 0 where helpers are asked for */
static int64_t last_wait;            /* when the last long one ended */
static int vain_regions;             /* in a row */

static _Thread_local int share_number, team_size = 1;

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static inline void look_again(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

static void run_share(int number)
{
    share_number = number;
    team_size = region.size;
    region.body(region.data);
    share_number = 0;
    team_size = 1;
}

/* Sleep until the state is no longer this one. */
static void sleep_while(helper *one, int state)
{
    pthread_mutex_lock(&one->mutex);
    while (atomic_load(&one->share) == state)
        pthread_cond_wait(&one->changed, &one->mutex);
    pthread_mutex_unlock(&one->mutex);
}

/* Set the state; wake who sleeps while it is `sleeping`. */
static void set_state(helper *one, int state, int sleeping)
{
    if (atomic_exchange(&one->share, state) != sleeping)
        return;
    pthread_mutex_lock(&one->mutex); /* who is about to sleep has looked, and holds it, or will */
    pthread_cond_signal(&one->changed);
    pthread_mutex_unlock(&one->mutex);
}

static void *help(void *argument)
{
    helper *const own = argument;
    const int number = (int)(own - helpers);
    for (int turns = 0;;) {
        int state = OPEN;
        if (atomic_load_explicit(&own->share, memory_order_relaxed) == OPEN
            && atomic_compare_exchange_strong(&own->share, &state, BEGUN)) {
            atomic_store(&own->core, sched_getcpu());
            run_share(number);
            set_state(own, NONE, AWAITED);
            turns = 0;
        } else if (++turns < HELPER_TURNS && sched_getcpu() != atomic_load(&caller_core)) {
            look_again();
        } else {
            state = NONE;
            if (atomic_compare_exchange_strong(&own->share, &state, ASLEEP))
                sleep_while(own, ASLEEP);
            turns = 0;
        }
    }
    return NULL;
}

/* After a fork the child has the caller's thread alone. */
static void forget_helpers(void)
{
    for (int number = 1; number <= n_helpers; number++)
        atomic_store(&helpers[number].share, NONE);
    n_helpers = vain_regions = 0;
    alone_until = 0;
    atomic_flag_clear(&in_use);
}

/* Make sure that there are so many helpers; returns how many there are. */
static int start_helpers(int wanted)
{
    static bool prepared;
    if (!prepared)
        pthread_atfork(NULL, NULL, forget_helpers);
    prepared = true;
    while (n_helpers < wanted) {
        helper *const next = &helpers[n_helpers + 1];
        pthread_t thread;
        pthread_mutex_init(&next->mutex, NULL);
        pthread_cond_init(&next->changed, NULL);
        if (pthread_create(&thread, NULL, help, next) != 0)
            break;
        pthread_detach(thread);
        n_helpers++;
    }
    return n_helpers < wanted ? n_helpers : wanted;
}

/* Return when a helper's share is done, if nobody has begun it by doing it here. The result is the
 * nanoseconds that the caller slept; `helped` is set if another core did the work. */
static int64_t finish_share(int number, bool *helped)
{
    helper *const one = &helpers[number];
    int state = OPEN;
    if (atomic_compare_exchange_strong(&one->share, &state, NONE)) {
        run_share(number);
        return 0;
    }
    const bool apart = atomic_load(&one->core) != atomic_load(&caller_core);
    *helped |= apart;
    for (int turns = 0; apart && turns < CALLER_TURNS; turns++) {
        if (atomic_load(&one->share) == NONE)
            return 0;
        look_again();
    }
    const int64_t start = nanoseconds();
    state = BEGUN;
    if (atomic_compare_exchange_strong(&one->share, &state, AWAITED))
        sleep_while(one, AWAITED);
    return nanoseconds() - start;
}

INTERNAL int omp_get_thread_num(void) { return share_number; }
INTERNAL int omp_get_num_threads(void) { return team_size; }

static void run_alone(void (*body)(void *), void *data)
{
    const int number = share_number, size = team_size;
    share_number = 0;
    team_size = 1;
    body(data);
    share_number = number;
    team_size = size;
}

/* Shares 1 to `count` are for helpers, if any come. */
static void run_shares(int count)
{
    const int core = sched_getcpu();
    const int64_t start = nanoseconds();
    if (atomic_load(&caller_core) != core) /* helpers look there: write only what is new */
        atomic_store(&caller_core, core);
    for (int number = 1; number <= count; number++)
        set_state(&helpers[number], OPEN, ASLEEP);
    run_share(0);
    int64_t slept = 0;
    bool helped = false;
    for (int number = count; number > 0; number--)
        slept += finish_share(number, &helped);
    vain_regions = helped ? 0 : vain_regions + 1;
    if (vain_regions == VAIN_REGIONS) {
        alone_until = nanoseconds() + VAIN_NANOSECONDS;
        vain_regions = 0;
    } else if (slept > LONG_NANOSECONDS) {
        const int64_t now = nanoseconds();
        const int64_t worked = now - start - slept;
        if (now - last_wait < 4 * slept && slept > count * worked)
            alone_until = now + REST * slept;
        last_wait = now > alone_until ? now : alone_until;
    }
}

/* `#pragma omp parallel num_threads(threads)`; `flags` concerns places, which are the system's. */
INTERNAL void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags)
{
    (void)flags;
    if (threads < 2 || team_size > 1 || atomic_flag_test_and_set(&in_use)) {
        run_alone(body, data);
        return;
    }
    if (alone_until != 0 && nanoseconds() < alone_until) {
        run_alone(body, data);
    } else {
        const int count = start_helpers((threads < MOST_THREADS ? (int)threads : MOST_THREADS) - 1);
        alone_until = 0;
        region.body = body;
        region.data = data;
        region.size = count + 1;
        run_shares(count);
    }
    atomic_flag_clear(&in_use);
}

/* All threads of a team have to arrive before one goes on. The caller is here in share 0, so no
 * share is left to it, and each helper arrives in its own. */
INTERNAL void GOMP_barrier(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t next_round = PTHREAD_COND_INITIALIZER;
    static atomic_int arrived, rounds;
    if (team_size == 1)
        return;
    const int round = atomic_load(&rounds);
    if (atomic_fetch_add(&arrived, 1) + 1 == team_size) {
        atomic_store(&arrived, 0);
        pthread_mutex_lock(&mutex);
        atomic_store(&rounds, round + 1);
        pthread_cond_broadcast(&next_round);
        pthread_mutex_unlock(&mutex);
        return;
    }
    for (int turns = 0; turns < CALLER_TURNS; turns++) {
        if (atomic_load(&rounds) != round)
            return;
        look_again();
    }
    pthread_mutex_lock(&mutex);
    while (atomic_load(&rounds) == round)
        pthread_cond_wait(&next_round, &mutex);
    pthread_mutex_unlock(&mutex);
}

/* `#pragma omp critical(name)`: whoever changes the word from NULL may enter. */
INTERNAL void GOMP_critical_name_start(void **word)
{
    void *free_word = NULL;
    while (!__atomic_compare_exchange_n(word, &free_word, (void *)word, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
        free_word = NULL;
        sched_yield();
    }
}

INTERNAL void GOMP_critical_name_end(void **word)
{
    __atomic_store_n(word, NULL, __ATOMIC_RELEASE);
}
