"""The run of a plan or of a stream of specs: order, attempts, failures, interruption.

Decisions about when something runs belong here. How one function is called is in `jobs`.
"""
