"""Blobs, query processes, and disk space.

The controller's files, except logs and the database, belong here.
"""
