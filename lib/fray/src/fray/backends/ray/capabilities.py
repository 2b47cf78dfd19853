"""Capabilities of the Ray backend, in a separate module so that reading them does not import ray."""

from fray.capabilities import BackendCapabilities

CAPABILITIES = BackendCapabilities(
    lends_while_waiting=True,
    separate_processes=True,
    callable_logs=True,
    installs_packages=True,
    enforces_resources=True,
    replicas_retried_together=True,
    free_names=True,
    actors=True,
    actor_restarts=True,
)
