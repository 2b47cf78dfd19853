"""Helpers that experiments written for the ancestor import, one module each as there; thin, over what marin has."""
