"""A step's version: what it consists of, its hash, and its output path.

Pure and stable: a change here gives every output a new path.
"""
