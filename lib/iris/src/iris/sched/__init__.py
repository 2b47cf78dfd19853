"""The scheduler: assigns pending tasks to workers, and explains why other tasks wait.

Pure: reads a view and returns a plan.
"""
