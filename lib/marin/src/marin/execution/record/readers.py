"""Keep a run from replacing an output that steps of other runs read, and let readers wait for the new output.

A step takes its lease, then checks whether a run makes an input again. A run that makes an output again writes its
status, then checks the leases of reading steps. So at least one of the two sees the other.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from marin.execution.lease.set_aside import ForcedOutputs, is_aside, settle
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_SUCCESS
from marin.execution.record.output_state import read_statuses
from marin.execution.version.paths import Places
from marin.output_files import LOCK_FILE
from marin.stored_files import names_in
from rigging.distributed_lock import create_lock
from rigging.errors import Conflict
from rigging.filesystem import local_path, read_bytes_or_none
from rigging.filesystem.location import path_in
from rigging.lease.identity import host_of, process_of
from rigging.process.parallel import map_in_threads

logger = logging.getLogger(__name__)

_FEW: Final = 16
_LOOK_SECONDS: Final = 0.25
_LOOK_SECONDS_REMOTE: Final = 2.0
# Between two attempts of the run that makes the output nobody holds its lease.
_PATIENCE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Reading:
    """A step of a recorded run that reads an output.

    Attributes:
        output: The output's location.
        name: The step's name.
        output_path: The step's own output path.
        record: The name of the run's info file, without its extension.
    """

    output: str
    name: str
    output_path: str
    record: str


class RunningReaders:
    """Finds the running steps that read outputs, in the records of runs.

    Args:
        directory: The directory of run records.
        paths: The output paths.
    """

    def __init__(self, directory: str, paths: Collection[str]) -> None:
        self._directory = directory
        self._names = {_last_part(path) for path in paths}
        self._places = Places()
        # A record's name depends on its steps, and these are all that counts here.
        self._records: dict[str, list[_Reading]] = {}

    def of(self, path: str) -> list[str]:
        """Describe the running steps that read one of the outputs."""
        names = names_in(self._directory)
        new = [name for name in names if name.endswith(".json") and name not in self._records]
        self._records.update(zip(new, map_in_threads(self._read, new), strict=True))
        output = self._places.of(path)
        readings = [reading for found in self._records.values() for reading in found if reading.output == output]
        # Runs of equal steps have one record, and other runs may have the step as well: the lease is one run's.
        steps = {reading.output_path: reading for reading in readings}
        said = map_in_threads(lambda reading: _described(reading, names), list(steps.values()))
        return sorted(words for words in said if words is not None)

    def _read(self, record: str) -> list[_Reading]:
        content = read_bytes_or_none(path_in(self._directory, record)) or b""
        # Most records name none of the outputs, and need not be parsed.
        if not any(name.encode() in content or json.dumps(name)[1:-1].encode() in content for name in self._names):
            return []
        try:
            steps = json.loads(content)["steps"]
            return [
                _Reading(self._places.of(path), step["name"], step["output_path"], record.removesuffix(".json"))
                for step in steps
                for path in step["dependencies"]
                if _last_part(path) in self._names
            ]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            logger.warning("%s is damaged, so the inputs of its steps are unknown", record)
            return []


def forced_outputs(paths: Collection[str], directory: str) -> ForcedOutputs:
    """Return outputs to make again, unless a step of a run recorded in a directory reads them."""
    return ForcedOutputs(paths, RunningReaders(directory, paths).of)


def _last_part(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _described(reading: _Reading, names: Collection[str]) -> str | None:
    """Describe the run that runs a step; None if no run does."""
    lock = create_lock(path_in(reading.output_path, LOCK_FILE))
    holder = lock.holder() if lock.has_active_holder() else None
    if holder is None:
        return None
    pid, host = process_of(holder.worker_id), host_of(holder.worker_id)
    end = f"-{pid}.events.jsonl"
    runs = [name.removesuffix(".events.jsonl") for name in names if name.endswith(end)]
    run = max((run for run in runs if run.startswith(f"{reading.record}-")), default=reading.record)
    who = holder.worker_id if pid is None else f"process {pid} of {host}"
    return f"{reading.name} ({reading.output_path}) of run {run}, {who}"


def await_inputs(
    paths: Collection[str], label: str, wait: Callable[[float], bool], patience_seconds: float = _PATIENCE_SECONDS
) -> None:
    """Wait until no run makes an input of a step again. Restore outputs that a killed run has set aside.

    Args:
        paths: The outputs that the step reads.
        label: The step's name in messages.
        wait: Waits for some seconds, and returns whether the step must end.
        patience_seconds: Seconds without a lease on an input after which its run counts as killed.
    """
    pending = _made_again(paths)
    if pending:
        logger.info("step %s: a run with --force makes its input again; waiting: %s", label, ", ".join(pending))
    pause = _LOOK_SECONDS if all(local_path(path) is not None for path in pending) else _LOOK_SECONDS_REMOTE
    locks = {path: create_lock(path_in(path, LOCK_FILE)) for path in pending}
    free_since: dict[str, float] = {}
    while pending and not wait(pause):
        for path in pending:
            if locks[path].has_active_holder():
                free_since.pop(path, None)
            elif time.monotonic() - free_since.setdefault(path, time.monotonic()) >= patience_seconds:
                with contextlib.suppress(Conflict):
                    settle(path, is_made=False)
        pending = _made_again(pending)


def _made_again(paths: Collection[str]) -> list[str]:
    stored = [path for path in paths if "://" in path and local_path(path) is None]
    # A listing may miss few outputs among many files; each is then asked for anyway.
    statuses = read_statuses(stored) if len(stored) > _FEW else _statuses(stored)
    return [
        path
        for path in paths
        if statuses.get(path) != STATUS_SUCCESS and is_aside(path) and StatusFile(path).status != STATUS_SUCCESS
    ]


def _statuses(paths: Collection[str]) -> dict[str, str | None]:
    return dict(zip(paths, map_in_threads(lambda path: read_statuses([path])[path], paths), strict=True))
