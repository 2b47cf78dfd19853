"""Logs of tasks: stored in files with a limit, followed, and read."""
