"""Profiling: where the time of a program goes, measured, and how far that is from the machine's
limits."""
