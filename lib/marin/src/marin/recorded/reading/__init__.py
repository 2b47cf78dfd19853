"""Read runs, outputs and leases from storage.

This is the edge: `deciding` interprets the records.
"""
