"""From a float graph to an integer graph: prepare, calibrate, convert, simulate."""
