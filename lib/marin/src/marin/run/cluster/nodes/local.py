"""Ray's record of machines outside any cloud (provider `local`) that an earlier `ray down` stopped."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def expect_workers_again(config: Mapping[str, Any]) -> None:
    """Make the next `ray down` stop each of these machines, even if an earlier one stopped it.

    When a cluster restarts, Ray updates its record on the operator's side only for the head (Ray 2.60). A second `ray
    down` would skip the workers and leave their containers running.
    """
    if config["provider"].get("type") != "local":
        return
    # Here: Ray takes half a second to import. The lock is Ray's own, from one of its dependencies.
    from filelock import FileLock
    from ray.autoscaler._private.local.config import get_lock_path, get_state_path

    name = str(config["cluster_name"])
    record = Path(get_state_path(name))
    if not record.exists():
        return
    with FileLock(get_lock_path(name)):
        nodes = json.loads(record.read_text(encoding="utf-8"))
        for node in nodes.values():
            node.pop("teardown_complete", None)
        record.write_text(json.dumps(nodes), encoding="utf-8")
