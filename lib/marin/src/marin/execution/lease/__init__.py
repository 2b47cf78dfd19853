"""The lease and status of an output path: who may write it, whether it is complete, fenced writes.

Lock files, staleness and stores are in `rigging.lease`.
"""
