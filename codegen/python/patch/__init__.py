"""The changes that passes made to a program, as a patch on the user's own files."""
