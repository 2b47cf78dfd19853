"""The output of the Iris task that runs in this process. Does not import the client."""

from iris.cluster.own_log import own_log as own_output

__all__ = ["own_output"]
