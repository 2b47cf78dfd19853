"""Sessions, waits and watches of clients: notifies them after commits.

Sessions of workers are in `workers`.
"""
