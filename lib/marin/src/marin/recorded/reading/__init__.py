"""Read runs, outputs and leases from storage.

The edge: what records mean is decided in `deciding`.
"""
