"""How much of its clients' images a split-learning server can rebuild from what they send it: a probe, no proof.

The server is honest but curious: it keeps to the protocol and computes on what it has anyhow. See docs/privacy.md.
"""
