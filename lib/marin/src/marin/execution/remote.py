"""Functions that run as jobs of their own (see `marin.execution.jobs.remote`)."""

from marin.execution.jobs.remote import RemoteCallable, remote

__all__ = ["RemoteCallable", "remote"]
