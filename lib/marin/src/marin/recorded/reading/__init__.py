"""Read runs, outputs and leases from storage.

`deciding` interprets the records.
"""
