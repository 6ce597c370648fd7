"""Benchmarks: fxlite beside the run-times people use: the same weights, one interleaved run."""
