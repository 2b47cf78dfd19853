"""The report of a run while it runs: events, progress, log lines, the event log, readable errors.

State comes only from events. Drawing is in `views`.
"""
