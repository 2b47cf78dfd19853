"""Decisions of single commands: lint findings, a new project, storage health.

What pages decide too is in `marin.recorded.deciding`.
"""
