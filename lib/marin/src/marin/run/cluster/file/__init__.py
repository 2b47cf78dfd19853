"""Cluster files: the settings they are made from, their checks, the meaning of a change.

Pure, apart from reading and writing the files.
"""
