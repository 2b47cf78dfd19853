"""Sessions, waits and watches of clients, notified of ends and changes after the commit.

Sessions of workers are in `workers`.
"""
