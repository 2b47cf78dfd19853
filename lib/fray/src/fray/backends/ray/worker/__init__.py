"""Code that runs inside Ray's worker processes.

Keep imports few: they delay the first job of each worker.
"""
