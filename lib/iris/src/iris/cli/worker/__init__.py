"""`iris worker`: run hosts as workers of a cluster. One file per command; the worker itself is `iris.worker`."""
