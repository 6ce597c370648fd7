"""From a group of nodes to the C function of a template: the slots filled, the choices listed."""
