"""The way back from regenerated Python that somebody edited to a graph."""
