"""Attempts of tasks: accept, prepare, start, observe, end, forget.

`machine` decides (pure), `supervisor` acts.
"""
