"""A job from the command line of `ray_run` to its end: request, Jobs API, log, exit code.

Operation of clusters is `marin.run.cluster`.
"""
