"""From a group of nodes to the C function of a template: filling its slots, and listing its choices."""
