"""Pictures of results, drawn by matplotlib: one kind a file, each a pure function from results to a Figure."""
