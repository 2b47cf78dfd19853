"""Functions that run as separate jobs (see `marin.execution.jobs.remote`)."""

from marin.execution.jobs.remote import RemoteCallable, remote, sanitize_job_name

__all__ = ["RemoteCallable", "remote", "sanitize_job_name"]

# Older experiments import it by this name.
_sanitize_job_name = sanitize_job_name
