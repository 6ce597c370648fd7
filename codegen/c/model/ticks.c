#if __STDC_VERSION__ >= 201112L
#define FX_THREAD _Thread_local
#else
#define FX_THREAD __thread
#endif
static FX_THREAD int64_t fx_ticks[COUNT];
static FX_THREAD int fx_tick_count;

const int64_t *MODEL_ticks(void) { return fx_ticks; }

static void fx_tick(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    fx_ticks[fx_tick_count++] = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}
