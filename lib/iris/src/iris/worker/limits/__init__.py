"""Limits and usage of attempts: memory, processors, disk, processes.

`probe`, `groups`, `processes` and `disk` access the host; the other modules are pure.
"""
