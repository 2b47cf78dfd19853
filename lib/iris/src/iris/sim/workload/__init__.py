"""A workload on a simulated fleet: the real scheduler on a fake clock, without faults.

Here belong traces, sizes and results; faults are in `iris.sim`.
"""
