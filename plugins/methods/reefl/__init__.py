"""ReeFL (Lee et al., ICML 2024): its model, and the method."""
