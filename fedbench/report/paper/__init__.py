"""A paper's numbers beside those that were measured."""
