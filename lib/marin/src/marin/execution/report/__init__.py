"""The report of a run while it goes on: events, log lines, a live view, a file for programs, errors for people."""
