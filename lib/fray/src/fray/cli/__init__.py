"""The `fray` command: see `fray.cli.main`.

Only options and printing belong here. Clients do the work.
"""
