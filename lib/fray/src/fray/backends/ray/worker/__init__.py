"""Code that runs inside Ray's worker processes.

Imports stay few: each worker pays for them at its first job.
"""
