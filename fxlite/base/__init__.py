"""What everything else stands on: errors, places in source files, text from outside, containers."""
