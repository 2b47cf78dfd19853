"""Prepares attempts: their code, their Python environment, their variables.

For what happens before a start; does not use the controller.
"""
