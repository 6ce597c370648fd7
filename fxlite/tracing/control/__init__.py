"""Control flow while tracing."""
