"""What a run tells while it goes on: events, log lines, a live view, a file for programs, errors for people."""
