"""For all tests of the workspace."""

from fray.testing.ray_harness import RayHarness

# A script for clusters, which has no tests of its own (they are in lib/marin/tests/run/test_documents_on_ray.py).
collect_ignore = ["tests/test_ray_cluster.py"]

# Any test may be the first to import ray, in the process where others start a cluster.
RayHarness.prepare()
