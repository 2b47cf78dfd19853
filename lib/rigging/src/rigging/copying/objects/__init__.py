"""Copies into object stores and other filesystems, one module per target.

Callers pass in the function that reserves the charge. Local disks are in `local`.
"""
