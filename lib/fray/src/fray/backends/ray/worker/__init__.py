"""Code that runs inside Ray's worker processes.

Imports are few, because each worker pays for them at its first job.
"""
