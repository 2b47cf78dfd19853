"""The scheduler: which pending task goes to which worker, and why not.

Pure: reads a view, returns a plan, changes nothing.
"""
