"""The trace doctor: all problems of a program in one run, each with a ready fix."""
