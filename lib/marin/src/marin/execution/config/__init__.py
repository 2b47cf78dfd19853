"""A step's config: placeholders, the walk through it, encoding, copies, instantiation.

Pure: no storage. What counts in a version is decided in `version`.
"""
