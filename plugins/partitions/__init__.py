"""Who owns which images."""
