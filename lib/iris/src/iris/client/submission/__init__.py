"""Submission of jobs: the request, the workspace's bundle, the requested Python and packages.

The client's decisions before the call belong here. The controller validates them again.
"""
