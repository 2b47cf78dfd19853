"""`iris worker`: hosts as workers of a cluster. One file a command; the worker itself is `iris.worker`."""
