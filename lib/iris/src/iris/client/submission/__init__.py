"""Submission of jobs: the request, the workspace's bundle, the requested Python and packages.

The client's checks before the call belong here. The controller validates again.
"""
