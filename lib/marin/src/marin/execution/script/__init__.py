"""The command line of an experiment script, and explanations of the steps it would run.

Options and printing belong here. The package `run` runs steps.
"""
