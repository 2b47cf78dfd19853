"""The commands of `python -m marin.run.cluster`."""
