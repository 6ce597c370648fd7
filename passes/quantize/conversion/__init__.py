"""From a float graph to one of integers: prepare, calibrate, convert, simulate."""
