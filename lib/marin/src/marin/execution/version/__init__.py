"""A step's version: what it is made of, its hash, and the output path that follows from it."""
