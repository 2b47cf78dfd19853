"""Looks at running processes: status, log, thread dumps and profiles. Used by workers and controllers."""
