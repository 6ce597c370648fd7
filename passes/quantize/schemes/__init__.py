"""How values become integers, described as data: schemes, mappings, observers, parameters."""
