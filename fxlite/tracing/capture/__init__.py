"""Running a program's own functions so that the tracer sees every call in them."""
