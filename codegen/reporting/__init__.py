"""One page that shows a model: graph, costs, times, memory, source and emitted kernels."""
