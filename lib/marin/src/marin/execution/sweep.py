"""Sweeps: many targets under one root, divided among independent workers."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from marin.execution.config.copying import copy_config
from marin.execution.config.step import check_relative_name
from marin.execution.lease.status_file import LockedStatus, StatusFile
from marin.execution.lease.status_words import LOCK_SUFFIX, STATUS_FAILED, STATUS_RUNNING, STATUS_SUCCESS, status_path
from rigging.calls import call_to_end
from rigging.distributed_lock import lease
from rigging.errors import Conflict, InvalidRequest, StepFailed

logger = logging.getLogger(__name__)

ConfigT = TypeVar("ConfigT")


@dataclass(frozen=True)
class SweepTarget(Generic[ConfigT]):
    """One point of a sweep.

    Attributes:
        target_id: Its name in the sweep, and its directory below the sweep's root.
        config: The argument of the sweep's function.
    """

    target_id: str
    config: ConfigT


def claim_and_run(
    sweep_root: str, targets: Iterable[SweepTarget[ConfigT]], run_fn: Callable[[ConfigT], Any]
) -> list[str]:
    """Run every target that is neither done nor running in another worker; any number of workers may call this.

    A target is claimed by the lease in `{sweep_root}/{target_id}`, so one worker at a time runs it; when that worker
    dies, it is free again after the lease's timeout. Targets that failed before are tried again. Returns when no target
    is left for this worker; others may still be running theirs.

    Args:
        sweep_root: The directory of statuses and leases; the same for every worker.
        targets: The sweep, in any order.
        run_fn: Called with each target's config, a copy of its own (see `copy_config`).

    Returns:
        The ids of the targets that this worker ran to success.

    Raises:
        StepFailed: Targets failed in this worker; all are named, the first is the cause. The others have run.
        InvalidRequest: Two targets have one id, or an id would leave the root.
    """
    done: list[str] = []
    failures: list[tuple[str, BaseException]] = []
    for target in _checked(targets):
        try:
            if _run_one(os.path.join(sweep_root, target.target_id), target, run_fn):
                done.append(target.target_id)
        # Any exception is that target's failure, SystemExit included. Ctrl-C is for the worker.
        except (Exception, SystemExit) as error:
            logger.error("sweep target %s failed: %s", target.target_id, error, exc_info=True)
            failures.append((target.target_id, error))
    if failures:
        lines = [f"  {target_id}: {type(error).__name__}: {error}" for target_id, error in failures]
        raise StepFailed("\n".join([f"{len(failures)} sweep target(s) failed:", *lines])) from failures[0][1]
    return done


def _checked(targets: Iterable[SweepTarget[ConfigT]]) -> list[SweepTarget[ConfigT]]:
    by_id: dict[str, SweepTarget[ConfigT]] = {}
    for target in targets:
        check_relative_name(target.target_id, "sweep target")
        if target.target_id in by_id:
            raise InvalidRequest(f"two sweep targets are called {target.target_id!r}; each needs an id of its own")
        by_id[target.target_id] = target
    return list(by_id.values())


def _run_one(path: str, target: SweepTarget[ConfigT], run_fn: Callable[[ConfigT], Any]) -> bool:
    """Run a target if it is free; True if it ran."""
    if StatusFile(path).status == STATUS_SUCCESS:
        return False
    with contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(lease(status_path(path) + LOCK_SUFFIX))
        except Conflict as error:
            logger.info("sweep target %s: another worker is at work on it (%s)", target.target_id, error)
            return False
        status = LockedStatus(path, held)
        if status.status == STATUS_SUCCESS:  # certain only while the lease is held
            return False
        status.write_status(STATUS_RUNNING)
        try:
            call_to_end(run_fn, copy_config(target.config))
        except BaseException:
            status.write_status(STATUS_FAILED)
            raise
        status.write_status(STATUS_SUCCESS)
    return True
