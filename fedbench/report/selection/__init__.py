"""Which lines and columns of a view are wanted, in which order."""
