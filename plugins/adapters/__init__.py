"""Adapters, which are trained next to the frozen weights: one kind a file."""
