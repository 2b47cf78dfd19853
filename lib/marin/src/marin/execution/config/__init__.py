"""A step's config: placeholders, traversal, encoding, copies, instantiation.

Pure, without storage. The package `version` decides what is part of a version.
"""
