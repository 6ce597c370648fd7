"""The foundation of all other modules: errors, places in source files, text from outside, files."""
