"""Older programs import information about the current task from this module path."""
