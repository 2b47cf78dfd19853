"""Attempts of tasks: admit, prepare, start, observe, end, forget.

`machine` decides (pure), `supervisor` acts.
"""
