"""The `fray` command: see `fray.cli.main`.

Here belong options and printing; clients do the work.
"""
