"""Copies into object stores and other filesystems, one file a target.

Each takes its charge from a function that it is given; local disks are `local`.
"""
