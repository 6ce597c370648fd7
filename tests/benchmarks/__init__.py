"""Benchmarks: fxlite beside the run-times people use, on the same weights, in one interleaved run."""
