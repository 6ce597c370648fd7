"""Memory layouts of images: which part of a program is computed channels-last."""
