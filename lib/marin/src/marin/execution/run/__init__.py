"""The run of a plan or of a stream of specs: order, attempts, failures, interruption.

Here belongs when something runs; how one function is called is `jobs`.
"""
