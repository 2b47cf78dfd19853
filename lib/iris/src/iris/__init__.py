"""A gRPC cluster scheduler for TPU, GPU and CPU jobs."""
