"""Logs of tasks: store with a limit, follow, search, read.

Here belong bytes on the controller's disk and beyond; the format that travels is `iris.rpc.logformat`.
"""
