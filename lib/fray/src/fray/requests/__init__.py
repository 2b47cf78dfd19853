"""Validated parts of a job's description: devices, sizes, arguments. The description itself is in `fray.types`.

Only pure values and their checks belong here. Nothing here knows a backend.
"""
