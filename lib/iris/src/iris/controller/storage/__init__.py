"""Blobs, query processes, and the disk space that all files share.

The controller's files other than logs and the database belong here.
"""
