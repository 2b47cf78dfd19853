"""The agent on one host: starts the attempts that the controller wants and reports their outcome.

One folder per subject. The worker does not start tasks itself: `guardian` does.
"""
