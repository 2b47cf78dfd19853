"""Limits and usage of attempts: memory, processors, disk, processes.

Decisions are pure; `probe`, `groups`, `processes` and `disk` inspect the host.
"""
