"""The report of a running run: events, progress, log lines, the event log, readable errors.

State comes only from events. Drawing is in `views`.
"""
