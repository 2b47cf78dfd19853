"""Capabilities of the Ray backend; a module of its own, so that asking does not import ray."""

from fray.capabilities import BackendCapabilities

CAPABILITIES = BackendCapabilities(
    separate_processes=True,
    crash_codes=False,
    callable_logs=True,
    raises_own_exceptions=False,
    installs_packages=True,
    enforces_resources=True,
    replicas_retried_together=True,
    free_names=True,
    shared_names=False,
    children_end_with_parent=False,
    jobs_outlive_client=False,
    forked_client=False,
    actors=True,
    hosted_in_process=False,
    actor_restarts=True,
)
