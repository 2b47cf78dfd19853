"""A job of `ray_run` from its command line to its end: request, Jobs API, log, exit code.

Operation of clusters is in `marin.run.cluster`.
"""
