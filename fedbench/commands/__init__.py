"""The commands of `fedbench`, one a file, named after it. Heavy imports stand inside the functions."""
