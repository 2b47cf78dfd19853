"""The accelerators of a worker's host.

Import names from the modules.
"""
