"""What passes made of a program, as a patch on the user's own files."""
