"""Writes to objects: on which evidence, how many at once, and what an answer means (protocol 6.3)."""
