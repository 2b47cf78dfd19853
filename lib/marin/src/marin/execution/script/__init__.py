"""The command line of an experiment script, and the explanation of what it would run.

Options and printing belong here. Runs are made in `run`.
"""
