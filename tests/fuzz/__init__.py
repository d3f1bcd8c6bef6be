"""Hostile input: whatever is in a file that fedbench reads, it answers or refuses with a message, in time.

Every input is a function of its kind and its number, so that a fault can be had again:
`python -m fuzz.campaign KIND NUMBER` in `tests/` runs that one alone and shows the traceback.
"""
