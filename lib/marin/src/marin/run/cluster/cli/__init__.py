"""The commands of `python -m marin.run.cluster`.

Only options and printing belong here.
"""
