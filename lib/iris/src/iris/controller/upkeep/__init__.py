"""Periodic work: retention, usage accounts, exit when idle.

Each decides with a pure rule and acts through the engine.
"""
