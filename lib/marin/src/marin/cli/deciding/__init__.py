"""Decisions of individual commands: lint findings, a new project, storage health.

Decisions that the browser pages share are in `marin.recorded.deciding`.
"""
