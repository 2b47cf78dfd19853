"""The report of a run while it runs: events, progress, log lines, the event log, errors for people.

State comes from events alone; drawing is `views`.
"""
