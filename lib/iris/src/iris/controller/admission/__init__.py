"""Checks of a submitted job, before anything changes."""
