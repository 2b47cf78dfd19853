"""Translates arguments of `IrisClient.submit` from the form of iris's predecessor."""

import logging
from typing import Final

from iris.cluster.types import ExistingJobPolicy
from rigging.timing import Duration

logger = logging.getLogger(__name__)

Seconds = float | Duration
"""A duration: seconds, or a Duration."""

_POLICIES: Final = {
    "unspecified": ExistingJobPolicy.FAIL,
    "error": ExistingJobPolicy.FAIL,
    "keep": ExistingJobPolicy.ADOPT,
    "recreate": ExistingJobPolicy.REPLACE,
}


def seconds_of(length: Seconds | None) -> float | None:
    """Return a duration in seconds."""
    return length.to_seconds() if isinstance(length, Duration) else length


def policy_of(policy: ExistingJobPolicy | str | None, existing: ExistingJobPolicy | str) -> ExistingJobPolicy | str:
    """Translate an `existing_job_policy` ("error", "keep", "recreate", or a present policy).

    Args:
        policy: The older argument; None if it was not given.
        existing: The present argument, used if `policy` is None.
    """
    if policy is None:
        return existing
    if isinstance(policy, ExistingJobPolicy):
        return policy
    return _POLICIES.get(policy.lower().removeprefix("existing_job_policy_"), policy)


def warn_of_unused(preemption_policy: object) -> None:
    """Warn about arguments of a submission that have no effect.

    Args:
        preemption_policy: Child jobs always continue when a task of their parent restarts ("preserve_children"). Any
            other policy causes a warning.
    """
    if "terminate" in str(preemption_policy).lower():
        logger.warning(
            "preemption_policy %r has no effect: child jobs continue when a task of their parent is lost and "
            "restarts; they end with the job",
            preemption_policy,
        )
