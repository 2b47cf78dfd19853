"""The output of jobs, read while it grows.

Here belongs what backends share; how a backend gets the bytes stays with it.
"""
