"""The commands, one file each: its options, what it reads, what it prints.

Decisions are in `deciding` and `marin.recorded.deciding`.
"""
