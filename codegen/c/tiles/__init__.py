"""The C text that emitted programs share, and what finds the parts of it that one needs."""
