"""The agent on one host: starts the attempts that the controller wants and reports their outcome.

The guardian, not the worker, starts the processes of tasks.
"""
