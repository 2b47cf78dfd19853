"""Ray clusters: their files, and their operation by `python -m marin.run.cluster`.

Jobs on a cluster are submitted in `marin.run.submit`.
"""
