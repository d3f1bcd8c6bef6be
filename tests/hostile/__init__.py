"""Hostile files: malicious ones built by hand (`test_attacks`), and damaged ones by the thousand (`campaign`)."""
