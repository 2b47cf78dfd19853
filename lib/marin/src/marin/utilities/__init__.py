"""Helpers that experiments written for the ancestor import, one module each, thin.

Nothing in marin imports these; new code does not go here.
"""
