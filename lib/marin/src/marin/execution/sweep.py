"""Sweeps: many targets under one root, claimed by independent workers.

`claim_and_run` passes the target to its function, waits for the other workers and stops at the first failure, as older
experiments expect. `run_sweep` passes the config, skips targets that other workers are running and continues after
failures.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from marin.execution.config.copying import copy_config
from marin.execution.config.step import check_relative_name
from marin.execution.lease.status_file import StatusFile, StepAlreadyDone, making_output
from marin.execution.lease.status_words import STATUS_SUCCESS
from marin.execution.log.metric_log import metrics_kept
from marin.execution.record.target_config import TargetConfig, check_targets
from marin.execution.report.explain_mode import explain_request
from marin.execution.version.paths import check_path_length
from rigging.errors import Conflict, InvalidRequest, StepFailed
from rigging.process.calls import call_to_end

logger = logging.getLogger(__name__)

ConfigT = TypeVar("ConfigT")


@dataclass(frozen=True)
class SweepTarget(Generic[ConfigT]):
    """One point of a sweep.

    Attributes:
        target_id: The target's unique id, and the name of its directory below the sweep's root.
        config: The argument for the sweep's function.
    """

    target_id: str
    config: ConfigT


class _Claim(enum.Enum):
    RAN = enum.auto()
    DONE = enum.auto()
    BUSY = enum.auto()


def claim_and_run(
    sweep_root: str, targets: Iterable[SweepTarget[ConfigT]], run_fn: Callable[[SweepTarget[ConfigT]], Any]
) -> None:
    """Run all targets together with other workers, and return when every target is done. Start any number of workers.

    The lease in `{sweep_root}/{target_id}` claims a target, so one worker at a time runs it. Targets that another
    worker is running come last: this worker waits for them, and runs them itself if that worker failed or died.

    Args:
        sweep_root: The directory of statuses and leases. Every worker uses the same one.
        targets: The sweep, in any order.
        run_fn: Called with each target. The target's config is a copy (see `copy_config`).

    Raises:
        Exception: Raised by `run_fn`. The first failure ends this worker; other workers continue, and the next worker
            to reach the failed target retries it.
        Conflict: Targets that are done or running have another config. Nothing has run.
        InvalidRequest: Two targets have the same id, or an id would lead out of the root.
    """
    checked = _to_run(sweep_root, targets)
    busy = [target for target in checked if _claim(sweep_root, target, run_fn, wait_seconds=0) is _Claim.BUSY]
    for target in busy:
        _claim(sweep_root, target, run_fn, wait_seconds=math.inf)


def run_sweep(sweep_root: str, targets: Iterable[SweepTarget[ConfigT]], run_fn: Callable[[ConfigT], Any]) -> list[str]:
    """Run every target that is neither done nor running in another worker. Start any number of workers.

    The lease in `{sweep_root}/{target_id}` claims a target, so one worker at a time runs it. If that worker dies, the
    target is free again after the lease times out. Targets that failed before are tried again. Return when no target is
    left for this worker; other workers may still be running. `marin table 'ROOT/*'` shows what `marin.metrics.log`
    recorded beside the configs.

    Args:
        sweep_root: The directory of statuses and leases. Every worker uses the same one.
        targets: The sweep, in any order.
        run_fn: Called with a copy of each target's config (see `copy_config`).

    Returns:
        The ids of the targets that succeeded in this worker.

    Raises:
        StepFailed: Targets failed in this worker. The message names all of them; the first is the cause. All other
            targets have run.
        Conflict: Targets that are done or running have another config. Nothing has run.
        InvalidRequest: Two targets have the same id, or an id would lead out of the root.
    """
    done: list[str] = []
    failures: list[tuple[str, BaseException]] = []

    def run(target: SweepTarget[ConfigT]) -> Any:
        return run_fn(target.config)

    for target in _to_run(sweep_root, targets):
        try:
            if _claim(sweep_root, target, run, wait_seconds=0) is _Claim.RAN:
                done.append(target.target_id)
        # Any exception is that target's failure, SystemExit included. Ctrl-C is for the worker.
        except (Exception, SystemExit) as error:
            logger.error("sweep target %s failed: %s", target.target_id, error, exc_info=True)
            failures.append((target.target_id, error))
    if failures:
        lines = [f"  {target_id}: {type(error).__name__}: {error}" for target_id, error in failures]
        raise StepFailed("\n".join([f"{len(failures)} sweep target(s) failed:", *lines])) from failures[0][1]
    return done


def _to_run(sweep_root: str, targets: Iterable[SweepTarget[ConfigT]]) -> list[SweepTarget[ConfigT]]:
    """Check and return the targets. Return none while experiments are only explained."""
    checked = _checked(sweep_root, targets)
    if explain_request() is None:
        paths = {target.target_id: os.path.join(sweep_root, target.target_id) for target in checked}
        check_targets(paths, {target.target_id: target.config for target in checked})
        return checked
    logger.warning("sweep %s: its %d target(s) are skipped, because steps are only explained", sweep_root, len(checked))
    return []


def _checked(sweep_root: str, targets: Iterable[SweepTarget[ConfigT]]) -> list[SweepTarget[ConfigT]]:
    by_id: dict[str, SweepTarget[ConfigT]] = {}
    for target in targets:
        check_relative_name(target.target_id, "sweep target")
        check_path_length(target.target_id, os.path.join(sweep_root, target.target_id), "sweep target")
        if target.target_id in by_id:
            raise InvalidRequest(f"two sweep targets have the id {target.target_id!r}; ids must be unique")
        by_id[target.target_id] = target
    return list(by_id.values())


def _claim(
    sweep_root: str, target: SweepTarget[ConfigT], run: Callable[[SweepTarget[ConfigT]], Any], *, wait_seconds: float
) -> _Claim:
    """Run a target unless it is done, or another worker keeps running it for `wait_seconds`."""
    path = os.path.join(sweep_root, target.target_id)
    if StatusFile(path).status == STATUS_SUCCESS:
        return _Claim.DONE
    with contextlib.ExitStack() as stack:
        try:
            token = stack.enter_context(making_output(path, target.target_id, wait_seconds=wait_seconds))
        except StepAlreadyDone:  # made by the last holder of the lease
            return _Claim.DONE
        except Conflict as error:
            logger.info("sweep target %s: another worker is running it (%s)", target.target_id, error)
            return _Claim.BUSY
        TargetConfig.of(target.config).write(path)
        stack.enter_context(metrics_kept(path, token))
        call_to_end(run, replace(target, config=copy_config(target.config)))
    return _Claim.RAN
