"""The graph: nodes, their types, edits and checks, and the module that runs it."""
