"""Blobs, query processes, and the disk space that all files share.

Here belong files of the controller that are not logs and not the database.
"""
