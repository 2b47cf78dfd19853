"""A step's version: its content, its hash, and its output path.

Pure and stable: a change here gives every output a new path.
"""
