"""Periodic work: retention, usage accounts, exit when idle.

Each decides by a pure rule and acts through the engine.
"""
