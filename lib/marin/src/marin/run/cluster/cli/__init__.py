"""The commands of `python -m marin.run.cluster`.

Options and printing only.
"""
