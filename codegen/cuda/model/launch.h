/* A grid without blocks is not launched. */
#ifdef FX_CUDA_SHIM
#define LAUNCH(kernel, x, y, z, threads, ...) \
    if ((x) && (y) && (z)) fx_shim::launch_body([&] { kernel(__VA_ARGS__); }, \
        dim3((unsigned)(x), (unsigned)(y), (unsigned)(z)), threads)
#else
#define LAUNCH(kernel, x, y, z, threads, ...) \
    if ((x) && (y) && (z)) \
        kernel<<<dim3((unsigned)(x), (unsigned)(y), (unsigned)(z)), threads, 0, stream>>>( \
            __VA_ARGS__)
#endif
