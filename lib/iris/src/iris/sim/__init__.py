"""Simulations on a fake clock: faults that strike the real controller, and workloads that the real scheduler serves."""
