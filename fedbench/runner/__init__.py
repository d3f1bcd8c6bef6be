"""Many cells: what is to be computed, who computes it, and how long that takes."""
