"""Cells whose clients are real: what crosses the wire, the server, the nodes, and federations of Flower."""
