"""The commands, one file each: options, what they read, what they print.

Decisions are in `deciding` and `marin.recorded.deciding`.
"""
