"""Thin helper modules for experiments written for marin's predecessor.

Nothing in marin imports these modules. New code does not belong here.
"""
