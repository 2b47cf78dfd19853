"""The user's project: which files go along with a job, what its code needs, its environment variables.

Here belongs what reads a project's folder; what packs or sends it is Iris's or Ray's.
"""
