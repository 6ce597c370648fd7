#define MODEL_run fx_MODEL_run
#include "MODEL_model.h"
#undef MODEL_run
int64_t MODEL_workspace_bytes(int n_threads) {
    (void)n_threads;
    return SIZE_OF_ARENA;
}
HEAD
    (void)weights, (void)workspace, (void)n_threads;
    error->code = 0;
    fx_MODEL_run(GIVEN);
    return error->code;
}
