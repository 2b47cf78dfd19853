"""Start the nodes of a test cluster with a minimal dashboard and longer timeouts.

Ray has no options for this, so its functions are replaced in the process that starts the nodes.
"""

import time
from typing import Any, Final

_NODE_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.2


def limit_dashboard(jobs_api: bool) -> None:
    """Limit the dashboard of nodes started from now on to the Jobs API, or turn it off.

    A full dashboard has nine processes, and each node an agent for its requests. On a busy machine they cost more than
    the rest of Ray.
    """
    from ray._private import services, utils

    if not jobs_api:
        absent = ImportError("this cluster has no dashboard")
        utils.get_dashboard_dependency_error = lambda: absent
        return
    start: Any = services.start_ray_process

    def start_with_jobs_only(command: list[str], process_type: str, *args: Any, **kwargs: Any) -> Any:
        if any(word.endswith("dashboard.py") for word in command):
            # Jobs begin on the head node, which one of them has to know.
            command = [*command, "--modules-to-load=UsageStatsHead,JobHead,NodeHead,StateHead"]
        return start(command, process_type, *args, **kwargs)

    services.start_ray_process = start_with_jobs_only


def wait_for_slow_nodes() -> None:
    """Give a node two minutes to register instead of Ray's 30 s, which is too short for a busy machine to load its
    agent.
    """
    from ray._private import services

    get_node: Any = services.get_node

    def get_node_in_time(gcs_address: str, node_id: str) -> Any:
        deadline = time.monotonic() + _NODE_SECONDS
        while True:
            try:
                return get_node(gcs_address, node_id)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_SECONDS)

    services.get_node = get_node_in_time
