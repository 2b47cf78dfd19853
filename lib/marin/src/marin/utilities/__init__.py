"""Thin helper modules for experiments written for marin's predecessor.

Nothing in marin imports these. New code does not belong here.
"""
