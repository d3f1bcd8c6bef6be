"""Running again what a page or a results folder tells of, and whether it comes out the same."""
