"""What a fleet would do with a workload: the real scheduler on a fake clock, without faults."""
