"""Prepare attempts: their code, their Python environment, their variables.

Here belongs what happens before a start; nothing here knows the controller.
"""
