"""Ray clusters: their files, and their operation by `python -m marin.run.cluster`.

Job submission is in `marin.run.submit`.
"""
