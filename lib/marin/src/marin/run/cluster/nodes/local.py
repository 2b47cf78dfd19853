"""Ray's record of machines that are no cloud's (provider `local`): which of them an earlier `ray down` has stopped."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def expect_workers_again(config: Mapping[str, Any]) -> None:
    """Let the next `ray down` of these machines stop each of them, whatever an earlier one has stopped.

    Ray's record at the operator's side learns only of the head that the cluster was started again (Ray 2.60), so a
    second `ray down` would pass over the workers, and their containers would stay.
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
