"""Who else may hear of a run while it is at work."""
