"""`iris worker`: runs hosts as workers of a cluster. The worker itself is in `iris.worker`."""
