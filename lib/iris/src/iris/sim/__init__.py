"""Simulations on a fake clock: faults for the real controller, workloads for the real scheduler.

No other package imports this one.
"""
