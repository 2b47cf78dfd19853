"""The commands, one file each: options, reads and output.

Decisions are in `deciding` and `marin.recorded.deciding`.
"""
