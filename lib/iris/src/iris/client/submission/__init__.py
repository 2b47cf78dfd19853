"""Submit jobs: the request, the bundle of the workspace, the requested Python and packages.

Here belongs what the client decides before the call; the controller checks it again.
"""
