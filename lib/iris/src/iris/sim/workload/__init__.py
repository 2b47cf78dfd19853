"""A workload on a simulated fleet: the real scheduler on a fake clock, without faults.

Faults are simulated in `iris.sim`.
"""
