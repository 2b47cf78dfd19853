"""Stores, reads, follows and searches the logs of tasks.

Storage on the controller's disk and in the remote state belongs here. The wire format is `iris.rpc.logformat`.
"""
