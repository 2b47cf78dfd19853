"""Older programs import functions for the start of a task from this module path."""
