"""A gRPC cluster scheduler for TPU, GPU and CPU jobs."""

import os

# gRPC reads this when it is imported. By default it starts its threads again in every forked child of a process that
# uses it, there to read from the parent's own connections; now and then such a child crashed before its first line.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
