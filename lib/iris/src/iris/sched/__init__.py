"""The scheduler: which pending task goes to which worker, and why others do not.

Pure: it reads a view, returns a plan, and changes nothing.
"""
