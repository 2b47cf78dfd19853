"""The output of the Iris task that runs in this process. Loads nothing of the client."""

from iris.cluster.own_log import own_log as own_output

__all__ = ["own_output"]
