"""Inspects the worker's machine: resources, address, preemption.

The usage of attempts is measured in `limits`.
"""
