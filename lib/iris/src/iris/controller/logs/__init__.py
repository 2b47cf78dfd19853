"""Logs of tasks: storage with a limit, following, searching, reading.

Storage on the controller's disk and in the remote state belongs here. The wire format is `iris.rpc.logformat`.
"""
