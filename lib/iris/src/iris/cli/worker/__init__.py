"""`iris worker`: hosts as workers of a cluster."""
