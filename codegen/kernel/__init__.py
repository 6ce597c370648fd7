"""One kernel: the loop tree, how a group becomes one, and how it is printed."""
