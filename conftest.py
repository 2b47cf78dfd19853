"""For all tests of the workspace."""

from fray.testing.ray_harness import RayHarness

# Any test may be the first to import ray, in the process where others start a cluster.
RayHarness.prepare()
