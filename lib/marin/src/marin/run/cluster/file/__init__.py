"""Cluster files: the settings that generate them, their validation, the effects of a change.

Pure, apart from reading and writing the files.
"""
