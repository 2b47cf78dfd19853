"""Periodic work: retention, usage accounts, shutdown when idle.

Each decides by a pure rule and acts through the engine.
"""
