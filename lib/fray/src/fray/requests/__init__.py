"""Checked parts of a job's description: devices, sizes, arguments. `fray.types` has the description itself.

Here belong pure values and their checks; nothing here knows a backend.
"""
