"""The user's project: which files a job receives, what its code needs, its environment variables.

Only code that reads a project's folder belongs here. Packing and sending it is in Iris's and Ray's code.
"""
