"""Devices: which there are, which size of a method each can hold, and how long a round takes there."""
