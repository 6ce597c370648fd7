"""How values become integers, said as data: schemes, mappings, observers, parameters."""
