"""A workload on a simulated fleet: the real scheduler on a fake clock, without faults.

For traces, sizes and results; faults are in `iris.sim`.
"""
