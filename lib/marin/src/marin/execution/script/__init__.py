"""The command line of an experiment script, and the explanation of what it would run.

Here belong options and printing; runs are made by `run`.
"""
