"""The lease and the status of an output path: who may write it, whether it is complete, fenced writes.

Records, staleness and stores are `rigging.lease`'s.
"""
