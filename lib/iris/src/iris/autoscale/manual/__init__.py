"""Slices on hosts that exist, by ssh."""
