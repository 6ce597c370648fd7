// shim.h: runs emitted CUDA C on a CPU, so that kernels are tested on machines without a GPU.
//
// What comes in: a .cu file, unchanged, compiled by g++ with this header included first
// (g++ -x c++ -std=gnu++17 -include shim.h).  What goes out: the same kernels as C++ functions,
// and fx_shim::launch(), which runs one over a grid and reports misuse that a GPU would let pass.
// The Python side (runtime/cuda_shim.py) appends one fx_launch_NAME() per kernel and calls it.
//
// How it works
//   block    Blocks are handed out to operating-system threads ("workers"); a block stays with one.
//            There are as many as processors, or $FX_SHIM_THREADS.
//   thread   A CUDA thread runs as a plain function call until it has to wait. Only then does it
//            keep its stack (a "fiber"), and its neighbours go on with another one. A kernel
//            without barriers is therefore an ordinary loop.
//   waiting  __syncthreads() parks the thread until the whole block has come; a warp collective
//            (shuffle, ballot, __syncwarp) until the lanes of its mask have come. Warp by warp,
//            each thread runs until it waits, in ascending (forward) or descending (backward)
//            order: a result that depends on the order betrays a missing barrier.
//   memory   __shared__ variables are thread_local: one copy per worker, so per block in flight.
//            All shared memory, static and dynamic, starts a block as bytes 0xff (NaN, or -1).
//
// Reported as errors, with file and line: threads of a block that wait at different barriers or
// return while others wait; lanes that wait for lanes which never come; collectives by or from
// lanes outside the mask; writes past the dynamic shared memory; stack overflow; __trap();
// launches beyond the limits of a GPU.
// Not modelled: weak memory ordering, bank conflicts, spin waits between blocks, inline PTX,
// the rounding of the fast-math intrinsics.
//
// FX_SHIM_PART  What lies behind launch() and the barriers may be compiled once for many sources: 2 is
//               for the object that has it, 1 for the sources to link with that object.
#pragma once
#define FX_CUDA_SHIM 1
#ifdef FX_SHIM_PART
#define FX_SHIM_STATE __attribute__((visibility("hidden")))
#define FX_SHIM_API FX_SHIM_STATE
#else
#define FX_SHIM_PART 0
#define FX_SHIM_STATE static
#define FX_SHIM_API static inline
#endif

#include <link.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if !defined(__x86_64__) || defined(FX_SHIM_UCONTEXT)
#include <ucontext.h>
#endif

// ---- Types of the CUDA language -----------------------------------------------------------------

struct uint3 { unsigned x, y, z; };
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct float3 { float x, y, z; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) double2 { double x, y; };
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
    return {x, y, z, w};
}
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline double2 make_double2(double x, double y) { return {x, y}; }

namespace fx_shim {

// ---- What kernels call --------------------------------------------------------------------------

constexpr int warp_size = 32;
enum class Collective : uint8_t { sync, shuffle, ballot };
struct Worker;

struct Now {                                 // what the running CUDA thread sees
    uint3 thread_index, block_index;
    uint3 block_size, grid_size;
    unsigned char *dynamic_shared;
    Worker *worker;
};
#if FX_SHIM_PART == 1
extern FX_SHIM_API __thread Now now;
#else
FX_SHIM_STATE __thread Now now;
#endif

FX_SHIM_API void block_barrier(const char *site);
FX_SHIM_API uint64_t collective(Collective kind, const char *site, unsigned mask, uint64_t value,
                                int source);
FX_SHIM_API int lane_index();
[[noreturn]] FX_SHIM_API void trap(const char *site);
// Run `kernel` over the grid. Returns NULL, or the text of the first error found; the text stays
// valid until the next launch of the same module. order: 0 forward, 1 backward.
FX_SHIM_API const char *launch(void (*kernel)(void **args), const unsigned grid[3],
                               const unsigned block[3], size_t shared, void **args, int order);

template <typename T> T shuffle_from(const char *site, unsigned mask, T value, int source) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = collective(Collective::shuffle, site, mask, bits, source);
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <typename T>
T shuffle_index(const char *site, unsigned mask, T value, int source, int width = 32) {
    int base = lane_index() & ~(width - 1);
    return shuffle_from(site, mask, value, base + (source & (width - 1)));
}

template <typename T>
T shuffle_up(const char *site, unsigned mask, T value, unsigned delta, int width = 32) {
    int lane = lane_index();
    bool inside = (unsigned)(lane & (width - 1)) >= delta;
    return shuffle_from(site, mask, value, inside ? lane - (int)delta : lane);
}

template <typename T>
T shuffle_down(const char *site, unsigned mask, T value, unsigned delta, int width = 32) {
    int lane = lane_index();
    bool inside = (lane & (width - 1)) + delta < (unsigned)width;
    return shuffle_from(site, mask, value, inside ? lane + (int)delta : lane);
}

template <typename T>
T shuffle_xor(const char *site, unsigned mask, T value, int lane_mask, int width = 32) {
    int lane = lane_index(), source = (lane ^ lane_mask) & (warp_size - 1);
    bool inside = source < (lane & ~(width - 1)) + width;
    return shuffle_from(site, mask, value, inside ? source : lane);
}

static inline unsigned ballot(const char *site, unsigned mask, int predicate) {
    return (unsigned)collective(Collective::ballot, site, mask, predicate != 0, 0);
}

static inline int all(const char *site, unsigned mask, int predicate) {
    return ballot(site, mask, !predicate) == 0;
}

static inline int any(const char *site, unsigned mask, int predicate) {
    return ballot(site, mask, predicate) != 0;
}

static inline void sync_warp(const char *site, unsigned mask = 0xffffffffu) {
    collective(Collective::sync, site, mask, 0, 0);
}

// A launch from host code: the body is a call of the kernel. Misuse ends the program.
template <typename Body> void launch_body(Body body, dim3 grid, unsigned threads) {
    void *args[] = {&body};
    const unsigned blocks[3] = {grid.x, grid.y, grid.z}, block[3] = {threads, 1, 1};
    auto call = [](void **given) { (*(Body *)given[0])(); };
    if (const char *error = launch(call, blocks, block, 0, args, 0)) {
        fprintf(stderr, "%s\n", error);
        abort();
    }
}

template <typename To, typename From> To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

#if FX_SHIM_PART != 1
// ---- Fibers: switching between stacks -----------------------------------------------------------

constexpr int max_threads = 1024;            // per block, as on every GPU since 2010
constexpr size_t max_shared = 227 * 1024;    // dynamic shared memory of a block, as on sm_90
constexpr size_t stack_size = 64 * 1024;
constexpr size_t stack_pitch = stack_size + 320;  // not a power of two: spreads the cache sets
constexpr uint64_t canary = 0x5afe57acc0de5afeull;

static void fiber_main();

#if defined(__x86_64__) && !defined(FX_SHIM_UCONTEXT)
typedef void *Context;                       // the saved stack pointer; registers lie on the stack

extern "C" __attribute__((visibility("hidden"))) void fx_shim_switch(Context *save, Context load);
__asm__(R"(
    .text
    .type fx_shim_switch, @function
fx_shim_switch:                 # the callee-saved registers of the System V ABI
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq  %rsp, (%rdi)
    movq  %rsi, %rsp
    popq  %r15
    popq  %r14
    popq  %r13
    popq  %r12
    popq  %rbx
    popq  %rbp
    ret
    .size fx_shim_switch, .-fx_shim_switch
)");

static inline void switch_context(Context &save, Context &load) { fx_shim_switch(&save, load); }

static void prepare_context(Context &context, char *stack) {
    // Six registers, the address that `ret` takes, and a slot that keeps the stack 16-aligned.
    void **top = (void **)(((uintptr_t)stack + stack_size) & ~(uintptr_t)15);
    memset(top - 8, 0, 8 * sizeof(void *));
    top[-2] = (void *)fiber_main;
    context = top - 8;
}
#else
typedef ucontext_t Context;                  // portable, and about 8 times slower

static inline void switch_context(Context &save, Context &load) { swapcontext(&save, &load); }

static void prepare_context(Context &context, char *stack) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = stack_size;
    context.uc_link = nullptr;
    makecontext(&context, fiber_main, 0);
}
#endif

struct Fiber {
    Context context;
    char *stack;
    bool prepared;                           // in this launch
};

// ---- State of a block in flight -----------------------------------------------------------------

enum class State : uint8_t { unstarted, ready, at_block, at_warp, finished };

struct Thread {                              // one CUDA thread
    uint3 index;
    State state;
    Fiber *fiber;
    const char *site;                        // where it waits: "__syncthreads at kernels.cu:12"
    Collective kind;
    unsigned mask;                           // of the collective it waits in
    int source;                              // the lane a shuffle reads
    uint64_t value, result;                  // what it brings to the collective, what it gets
};

struct Worker {                              // one operating-system thread's block in flight
    Thread threads[max_threads];
    Fiber fibers[max_threads];
    Fiber *free_fibers[max_threads];
    int free_count;
    int count;                               // threads in the block
    int finished;
    int warp_next, warp_stop, step;          // unstarted lanes of the warp that is running
    Thread *current;
    Context scheduler;
    void (*kernel)(void **args);
    void **args;
    char *stacks;
    unsigned char *dynamic_shared;
    size_t dynamic_size;
    unsigned char *static_shared;            // this module's thread_local memory
    size_t static_size;
    bool failed;
    char error[640];
    Worker *next;                            // in the pool of idle workers
};

// Record the error and leave the block for good; in a fiber, this does not return.
__attribute__((format(printf, 2, 3))) static void describe(Worker &worker, const char *format, ...) {
    if (worker.failed) return;
    uint3 block = now.block_index;
    int used = snprintf(worker.error, sizeof worker.error, "block (%u,%u,%u): ", block.x, block.y,
                        block.z);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(worker.error + used, sizeof worker.error - used, format, arguments);
    va_end(arguments);
    worker.failed = true;
}

static inline void resume(Worker &worker, Thread &thread) {
    worker.current = &thread;
    now.thread_index = thread.index;
    switch_context(worker.scheduler, thread.fiber->context);
}

static inline void park(Worker &worker) {
    switch_context(worker.current->fiber->context, worker.scheduler);
}

[[noreturn]] static void leave(Worker &worker) {
    park(worker);
    abort();                                 // a failed block is never resumed
}

// ---- Barriers and warp collectives --------------------------------------------------------------

FX_SHIM_API void block_barrier(const char *site) {
    Worker &worker = *now.worker;
    worker.current->state = State::at_block;
    worker.current->site = site;
    park(worker);
}

// Where thread `lane` of the warp is, for messages.
static const char *whereabouts(const Worker &worker, int index) {
    if (index >= worker.count) return "not in the block";
    const Thread &thread = worker.threads[index];
    return thread.state == State::finished ? "has returned" : thread.site;
}

// If every live lane of the mask has come to where `waiting` is, exchange their values and make
// them ready.
static bool complete_collective(Worker &worker, const Thread &waiting) {
    int warp = (int)(&waiting - worker.threads) / warp_size;
    Thread *lanes = worker.threads + warp * warp_size;
    int lane_count = worker.count - warp * warp_size;
    const char *site = waiting.site;
    unsigned mask = waiting.mask, present = 0, votes = 0;
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        if (lane >= lane_count || lanes[lane].state == State::finished) continue;
        const Thread &thread = lanes[lane];
        if (thread.state != State::at_warp || thread.mask != mask) return false;
        if (thread.site != site && strcmp(thread.site, site) != 0) return false;
        present |= 1u << lane;
        votes |= (unsigned)(thread.value != 0) << lane;
    }
    for (unsigned rest = present; rest; rest &= rest - 1) {
        Thread &thread = lanes[__builtin_ctz(rest)];
        if (thread.kind == Collective::ballot) thread.result = votes;
        if (thread.kind == Collective::shuffle) {
            if (!(present >> thread.source & 1)) {
                describe(worker, "%s: lane %d of warp %d reads lane %d, which %s", site,
                         __builtin_ctz(rest), warp, thread.source,
                         mask >> thread.source & 1 ? "has returned or is not in the block"
                                                   : "is not in the mask");
                return true;
            }
            thread.result = lanes[thread.source].value;
        }
        thread.state = State::ready;
    }
    return true;
}

FX_SHIM_API uint64_t collective(Collective kind, const char *site, unsigned mask, uint64_t value,
                                int source) {
    Worker &worker = *now.worker;
    Thread &thread = *worker.current;
    int index = (int)(&thread - worker.threads);
    if (!(mask >> index % warp_size & 1)) {
        describe(worker, "%s: lane %d of warp %d calls it with mask 0x%08x, which leaves it out",
                 site, index % warp_size, index / warp_size, mask);
        leave(worker);
    }
    thread.state = State::at_warp;
    thread.site = site;
    thread.kind = kind;
    thread.mask = mask;
    thread.value = value;
    thread.source = source;
    // The lane that comes last goes on at once; the others have been made ready. What a lane that
    // returns later would complete is looked after by the scheduler.
    if (!complete_collective(worker, thread)) park(worker);
    if (worker.failed) leave(worker);
    return thread.result;
}

FX_SHIM_API int lane_index() {
    return (int)(now.worker->current - now.worker->threads) % warp_size;
}

[[noreturn]] FX_SHIM_API void trap(const char *site) {
    describe(*now.worker, "thread (%u,%u,%u): %s", now.thread_index.x, now.thread_index.y,
             now.thread_index.z, site);
    leave(*now.worker);
}

// ---- Scheduling one block -----------------------------------------------------------------------

// The body of every fiber: run unstarted threads of the current warp for as long as none waits,
// give the stack back, and sleep until the scheduler needs a fiber again.
static void fiber_main() {
    Worker &worker = *now.worker;
    for (;;) {
        Fiber *self = worker.current->fiber;
        for (;;) {
            worker.kernel(worker.args);
            worker.current->state = State::finished;
            ++worker.finished;
            if (*(uint64_t *)self->stack != canary) {
                describe(worker, "thread (%u,%u,%u) overflowed its stack of %zu bytes",
                         now.thread_index.x, now.thread_index.y, now.thread_index.z, stack_size);
            }
            if (worker.failed || worker.warp_next == worker.warp_stop) break;
            worker.current = &worker.threads[worker.warp_next];
            worker.warp_next += worker.step;
            worker.current->state = State::ready;
            worker.current->fiber = self;
            now.thread_index = worker.current->index;
        }
        worker.free_fibers[worker.free_count++] = self;
        switch_context(self->context, worker.scheduler);
    }
}

static Fiber *take_fiber(Worker &worker) {
    Fiber *fiber = worker.free_fibers[--worker.free_count];
    if (!fiber->prepared) {
        prepare_context(fiber->context, fiber->stack);
        *(uint64_t *)fiber->stack = canary;
        fiber->prepared = true;
    }
    return fiber;
}

// Run the lanes of one warp until each of them waits or has returned.
static void run_warp(Worker &worker, int first, int last, bool start) {
    worker.warp_next = first;
    worker.warp_stop = start ? last + worker.step : first;
    while (worker.warp_next != worker.warp_stop) {
        Thread &thread = worker.threads[worker.warp_next];
        worker.warp_next += worker.step;
        thread.state = State::ready;
        thread.fiber = take_fiber(worker);
        resume(worker, thread);
        if (worker.failed) return;
    }
    for (bool progress = true; progress;) {
        progress = false;
        for (int i = first; i != last + worker.step; i += worker.step) {
            Thread &thread = worker.threads[i];
            if (thread.state == State::ready) {
                resume(worker, thread);
                if (worker.failed) return;
                progress = true;
            } else if (thread.state == State::at_warp) {
                // Lanes of the mask that have returned since are no longer waited for.
                if (complete_collective(worker, thread)) progress = true;
                if (worker.failed) return;
            }
        }
    }
}

// Nobody can go on: open the block barrier if everybody is at it, else say what is wrong.
static void open_barrier(Worker &worker) {
    const Thread *waiting = nullptr;
    for (int i = 0; i < worker.count; ++i) {
        Thread &thread = worker.threads[i];
        if (thread.state == State::at_warp) {
            int warp = i / warp_size * warp_size, missing = 0;
            for (int lane = 0; lane < warp_size; ++lane) {
                if (!(thread.mask >> lane & 1) || warp + lane >= worker.count) continue;
                const Thread &other = worker.threads[warp + lane];
                if (other.state == State::finished) continue;
                if (other.state == State::at_warp && other.mask == thread.mask &&
                    strcmp(other.site, thread.site) == 0) continue;
                missing = lane;
                break;
            }
            describe(worker, "warp collective never completes: lane %d of warp %d waits at %s with "
                     "mask 0x%08x, but lane %d is at %s", i - warp, warp / warp_size, thread.site,
                     thread.mask, missing, whereabouts(worker, warp + missing));
            return;
        }
        if (thread.state == State::at_block && !waiting) waiting = &thread;
    }
    for (int i = 0; i < worker.count; ++i) {
        Thread &thread = worker.threads[i];
        bool elsewhere = thread.state == State::at_block && thread.site != waiting->site &&
                         strcmp(thread.site, waiting->site) != 0;
        if (thread.state == State::finished || elsewhere) {
            describe(worker, "divergent barrier: thread (%u,%u,%u) waits at %s, but thread "
                     "(%u,%u,%u) %s%s", waiting->index.x, waiting->index.y, waiting->index.z,
                     waiting->site, thread.index.x, thread.index.y, thread.index.z,
                     elsewhere ? "waits at " : "", whereabouts(worker, i));
            return;
        }
        thread.state = State::ready;
    }
}

static void run_block(Worker &worker) {
    if (worker.static_size > sizeof(Now)) {  // poison static shared memory; `now` lies among it
        Now saved = now;
        memset(worker.static_shared, 0xff, worker.static_size);
        now = saved;
    }
    memset(worker.dynamic_shared, 0xff, worker.dynamic_size + 64);
    for (int i = 0; i < worker.count; ++i) worker.threads[i].state = State::unstarted;
    worker.finished = 0;
    int warps = (worker.count + warp_size - 1) / warp_size;
    for (bool start = true; worker.finished < worker.count; start = false) {
        if (!start) open_barrier(worker);
        for (int w = 0; w < warps && !worker.failed; ++w) {
            int warp = worker.step > 0 ? w : warps - 1 - w;
            int low = warp * warp_size, high = low + warp_size - 1;
            if (high >= worker.count) high = worker.count - 1;
            if (worker.step > 0) run_warp(worker, low, high, start);
            else run_warp(worker, high, low, start);
        }
        if (worker.failed) return;
    }
    for (int i = 0; i < 64; ++i) {
        if (worker.dynamic_shared[worker.dynamic_size + i] != 0xff) {
            describe(worker, "the kernel wrote past its %zu bytes of dynamic shared memory",
                     worker.dynamic_size);
            return;
        }
    }
}

// ---- Launching a grid ---------------------------------------------------------------------------

struct Launch {
    void (*kernel)(void **args);
    void **args;
    uint3 grid, block;
    size_t shared;
    bool backward;
    long long blocks, next_block;            // next_block is shared by the workers
    Worker *failed;
};

static Worker *idle_workers;                 // kept, since their stacks are costly to map
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;

static Worker *take_worker() {
    pthread_mutex_lock(&pool_lock);
    Worker *worker = idle_workers;
    if (worker) idle_workers = worker->next;
    pthread_mutex_unlock(&pool_lock);
    if (worker) return worker;
    worker = (Worker *)calloc(1, sizeof(Worker));
    size_t size = stack_pitch * (max_threads + 1);  // the first stack has room to overflow into
    void *stacks = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!worker || stacks == MAP_FAILED) {
        fprintf(stderr, "fx_shim: no memory for the stacks of a block\n");
        abort();
    }
    worker->stacks = (char *)stacks + stack_pitch;
    worker->dynamic_shared = (unsigned char *)aligned_alloc(64, max_shared + 64);
    return worker;
}

static void give_back(Worker *worker) {
    pthread_mutex_lock(&pool_lock);
    worker->next = idle_workers;
    idle_workers = worker;
    pthread_mutex_unlock(&pool_lock);
}

// The thread_local segment of this shared object in the calling thread: the __shared__ variables.
static int find_shared(struct dl_phdr_info *info, size_t, void *data) {
    Worker *worker = (Worker *)data;
    unsigned char *begin = (unsigned char *)info->dlpi_tls_data, *mine = (unsigned char *)&now;
    for (int i = 0; begin && i < info->dlpi_phnum; ++i) {
        if (info->dlpi_phdr[i].p_type != PT_TLS) continue;
        if (mine < begin || mine >= begin + info->dlpi_phdr[i].p_memsz) continue;
        worker->static_shared = begin;
        worker->static_size = info->dlpi_phdr[i].p_memsz;
        return 1;
    }
    return 0;
}

static void *run_blocks(void *data) {
    Launch &launch = *(Launch *)data;
    Worker *worker = take_worker();
    now.worker = worker;
    now.dynamic_shared = worker->dynamic_shared;
    now.block_size = launch.block;
    now.grid_size = launch.grid;
    worker->failed = false;
    worker->error[0] = 0;
    worker->kernel = launch.kernel;
    worker->args = launch.args;
    worker->dynamic_size = launch.shared;
    worker->count = (int)(launch.block.x * launch.block.y * launch.block.z);
    worker->step = launch.backward ? -1 : 1;
    worker->free_count = worker->count;
    worker->static_size = 0;
    dl_iterate_phdr(find_shared, worker);
    for (int i = 0; i < worker->count; ++i) {
        Thread &thread = worker->threads[i];
        thread.index = {i % launch.block.x, i / launch.block.x % launch.block.y,
                        i / (launch.block.x * launch.block.y)};
        Fiber &fiber = worker->fibers[i];
        fiber.stack = worker->stacks + i * stack_pitch;
        fiber.prepared = false;
        worker->free_fibers[worker->count - 1 - i] = &fiber;
    }
    for (;;) {
        long long block = __atomic_fetch_add(&launch.next_block, 1, __ATOMIC_RELAXED);
        if (block >= launch.blocks || __atomic_load_n(&launch.failed, __ATOMIC_ACQUIRE)) break;
        if (launch.backward) block = launch.blocks - 1 - block;
        now.block_index = {(unsigned)(block % launch.grid.x),
                           (unsigned)(block / launch.grid.x % launch.grid.y),
                           (unsigned)(block / launch.grid.x / launch.grid.y)};
        run_block(*worker);
        if (worker->failed) {
            Worker *nobody = nullptr;
            __atomic_compare_exchange_n(&launch.failed, &nobody, worker, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE);
            break;
        }
    }
    give_back(worker);
    return nullptr;
}

static int worker_limit() {
    const char *text = getenv("FX_SHIM_THREADS");
    if (text && atoi(text) > 0) return atoi(text);
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

FX_SHIM_API const char *launch(void (*kernel)(void **args), const unsigned grid[3],
                               const unsigned block[3], size_t shared, void **args, int order) {
    static char refusal[160];
    unsigned long long threads = 1ull * block[0] * block[1] * block[2];
    if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 0x7fffffffu || grid[1] > 65535 ||
        grid[2] > 65535) {
        snprintf(refusal, sizeof refusal, "invalid grid (%u,%u,%u): a GPU takes 1 to (2^31-1, "
                 "65535, 65535) blocks", grid[0], grid[1], grid[2]);
        return refusal;
    }
    if (!threads || threads > max_threads || block[2] > 64) {
        snprintf(refusal, sizeof refusal, "invalid block (%u,%u,%u): a GPU takes 1 to %d threads, "
                 "at most 64 along z", block[0], block[1], block[2], max_threads);
        return refusal;
    }
    if (shared > max_shared) {
        snprintf(refusal, sizeof refusal, "%zu bytes of dynamic shared memory: a block has at most "
                 "%zu", shared, max_shared);
        return refusal;
    }
    Launch task = {kernel, args, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]},
                   shared, order != 0, 1ll * grid[0] * grid[1] * grid[2], 0, nullptr};
    int helpers = worker_limit() - 1;
    if (helpers > 63) helpers = 63;
    if (helpers > task.blocks - 1) helpers = (int)(task.blocks - 1);
    pthread_t others[63];
    int started = 0;
    while (started < helpers &&
           pthread_create(&others[started], nullptr, run_blocks, &task) == 0) ++started;
    run_blocks(&task);
    for (int i = 0; i < started; ++i) pthread_join(others[i], nullptr);
    return task.failed ? task.failed->error : nullptr;
}
#endif  // FX_SHIM_PART != 1

}  // namespace fx_shim

// ---- What host code calls ------------------------------------------------------------------------

typedef int cudaError_t;
typedef void *cudaStream_t;
enum { cudaSuccess = 0, cudaMemcpyDeviceToDevice = 3 };
static inline cudaError_t cudaGetLastError() { return cudaSuccess; }
static inline cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t) {
    memset(to, byte, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int,
                                          cudaStream_t) {
    memmove(to, from, bytes);
    return cudaSuccess;
}

// ---- Keywords and built-in variables ------------------------------------------------------------

#define __global__ __attribute__((visibility("hidden")))
#define __device__ __attribute__((unused))
#define __host__
#define __constant__ static
#define __shared__ thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

#define threadIdx (fx_shim::now.thread_index)
#define blockIdx (fx_shim::now.block_index)
#define blockDim (fx_shim::now.block_size)
#define gridDim (fx_shim::now.grid_size)
#define warpSize 32

#define FX_SHIM_TEXT_(x) #x
#define FX_SHIM_TEXT(x) FX_SHIM_TEXT_(x)
#define FX_SHIM_SITE(name) name " at " __FILE__ ":" FX_SHIM_TEXT(__LINE__)

#define __syncthreads() fx_shim::block_barrier(FX_SHIM_SITE("__syncthreads"))
#define __syncwarp(...) fx_shim::sync_warp(FX_SHIM_SITE("__syncwarp"), ##__VA_ARGS__)
#define __shfl_sync(...) fx_shim::shuffle_index(FX_SHIM_SITE("__shfl_sync"), __VA_ARGS__)
#define __shfl_up_sync(...) fx_shim::shuffle_up(FX_SHIM_SITE("__shfl_up_sync"), __VA_ARGS__)
#define __shfl_down_sync(...) fx_shim::shuffle_down(FX_SHIM_SITE("__shfl_down_sync"), __VA_ARGS__)
#define __shfl_xor_sync(...) fx_shim::shuffle_xor(FX_SHIM_SITE("__shfl_xor_sync"), __VA_ARGS__)
#define __ballot_sync(...) fx_shim::ballot(FX_SHIM_SITE("__ballot_sync"), __VA_ARGS__)
#define __all_sync(...) fx_shim::all(FX_SHIM_SITE("__all_sync"), __VA_ARGS__)
#define __any_sync(...) fx_shim::any(FX_SHIM_SITE("__any_sync"), __VA_ARGS__)
#define __trap() fx_shim::trap(FX_SHIM_SITE("__trap"))

// ---- Built-in functions -------------------------------------------------------------------------

#define __threadfence() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define __threadfence_block() __atomic_thread_fence(__ATOMIC_SEQ_CST)
template <typename T> T __ldg(const T *address) { return *address; }

#define __int_as_float(x) fx_shim::bit_cast<float>((int)(x))
#define __uint_as_float(x) fx_shim::bit_cast<float>((unsigned)(x))
#define __float_as_int(x) fx_shim::bit_cast<int>((float)(x))
#define __float_as_uint(x) fx_shim::bit_cast<unsigned>((float)(x))
#define __longlong_as_double(x) fx_shim::bit_cast<double>((long long)(x))
#define __double_as_longlong(x) fx_shim::bit_cast<long long>((double)(x))

// Atomics: T is int, unsigned, long long, float or double; `update` computes the new value.
template <typename T, typename Update> T fx_shim_atomic(T *address, Update update) {
    T old, fresh;
    __atomic_load(address, &old, __ATOMIC_SEQ_CST);
    do fresh = update(old);
    while (!__atomic_compare_exchange(address, &old, &fresh, false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST));
    return old;
}
#define FX_SHIM_ATOMIC(name, expression)                                                \
    template <typename T, typename U> T name(T *address, U operand) {                   \
        T value = (T)operand;                                                           \
        return fx_shim_atomic(address, [=](T old) { return (T)(expression); });         \
    }
FX_SHIM_ATOMIC(atomicAdd, old + value)
FX_SHIM_ATOMIC(atomicSub, old - value)
FX_SHIM_ATOMIC(atomicExch, value)
FX_SHIM_ATOMIC(fx_shim_atomic_max, old > value ? old : value)
FX_SHIM_ATOMIC(fx_shim_atomic_min, old < value ? old : value)
FX_SHIM_ATOMIC(fx_shim_atomic_and, old & value)
FX_SHIM_ATOMIC(fx_shim_atomic_or, old | value)
FX_SHIM_ATOMIC(fx_shim_atomic_xor, old ^ value)
#undef FX_SHIM_ATOMIC
// CUDA has these for integers only: instantiating them with a float is an error there and here.
#define FX_SHIM_INTEGER_ATOMIC(name, implementation)                                    \
    template <typename T, typename U> T name(T *address, U operand) {                   \
        static_assert((T)0.5 == (T)0, #name " takes integers; see fx_atomic_max/min");  \
        return implementation(address, operand);                                        \
    }
FX_SHIM_INTEGER_ATOMIC(atomicMax, fx_shim_atomic_max)
FX_SHIM_INTEGER_ATOMIC(atomicMin, fx_shim_atomic_min)
FX_SHIM_INTEGER_ATOMIC(atomicAnd, fx_shim_atomic_and)
FX_SHIM_INTEGER_ATOMIC(atomicOr, fx_shim_atomic_or)
FX_SHIM_INTEGER_ATOMIC(atomicXor, fx_shim_atomic_xor)
template <typename T, typename C, typename U> T atomicCAS(T *address, C compare, U operand) {
    static_assert((T)0.5 == (T)0, "atomicCAS takes integers");
    T expected = (T)compare;
    __atomic_compare_exchange_n(address, &expected, (T)operand, false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    return expected;
}
#undef FX_SHIM_INTEGER_ATOMIC

// Arithmetic that must not be contracted into a fused multiply-add: the value goes through memory.
template <typename T> inline T fx_shim_exact(T value) {
    __asm__("" : "+m"(value));
    return value;
}
static inline float __fadd_rn(float a, float b) { return fx_shim_exact(a + b); }
static inline float __fsub_rn(float a, float b) { return fx_shim_exact(a - b); }
static inline float __fmul_rn(float a, float b) { return fx_shim_exact(a * b); }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return fx_shim_exact(a + b); }
static inline double __dsub_rn(double a, double b) { return fx_shim_exact(a - b); }
static inline double __dmul_rn(double a, double b) { return fx_shim_exact(a * b); }
static inline int __float2int_rn(float a) { return (int)rintf(a); }

// What CUDA C has beyond the C library. Fast-math intrinsics are the accurate functions here
// (macros, because glibc declares some of the names itself).
static inline float rsqrtf(float a) { return 1.0f / sqrtf(a); }
static inline double rsqrt(double a) { return 1.0 / sqrt(a); }
static inline float rcbrtf(float a) { return 1.0f / cbrtf(a); }
static inline float normcdff(float a) { return 0.5f * erfcf(a * -0.70710678118654752f); }
static inline float __saturatef(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }
#define __expf expf
#define __exp10f exp10f
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __powf powf
#define __fdividef(a, b) ((float)(a) / (float)(b))

static inline int __popc(unsigned a) { return __builtin_popcount(a); }
static inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
static inline int __clz(int a) { return a ? __builtin_clz((unsigned)a) : 32; }
static inline int __ffs(int a) { return __builtin_ffs(a); }
static inline int __dp4a(int a, int b, int sum) {  // sum + four products of signed bytes, mod 2^32
    int products = 0;
    for (int i = 0; i < 32; i += 8) products += (int8_t)(a >> i) * (int8_t)(b >> i);
    return (int)((unsigned)sum + (unsigned)products);
}
template <typename A, typename B> auto max(A a, B b) -> decltype(true ? A() : B()) {
    return a > b ? a : b;
}
template <typename A, typename B> auto min(A a, B b) -> decltype(true ? A() : B()) {
    return a < b ? a : b;
}
