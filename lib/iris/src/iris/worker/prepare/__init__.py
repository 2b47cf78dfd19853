"""Prepares attempts: code, Python environment, variables. Does not use the controller."""
