"""Submitting jobs: the request, the bundle of the workspace, the Python and packages that it asks for."""
