"""The run of a plan or of a stream of specs: order, attempts, failures, interruption.

Decisions about when steps run belong here. Calls of functions are in `jobs`.
"""
