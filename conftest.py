"""For all tests of the workspace."""

import signal

from fray.testing.ray_harness import RayHarness

# A script for clusters, which has no tests of its own (they are in lib/marin/tests/run/test_documents_on_ray.py).
collect_ignore = ["tests/test_ray_cluster.py"]

# A shell's background jobs are born deaf to Ctrl-C, and so would be all that the tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Any test may be the first to import ray, in the process where others start a cluster.
RayHarness.prepare()
