"""Arguments of `IrisClient.submit` as programs written for iris's ancestor give them, in the words of today."""

import logging
from typing import Final

from iris.cluster.types import ExistingJobPolicy
from rigging.timing import Duration

logger = logging.getLogger(__name__)

Seconds = float | Duration
"""A length of time: seconds, or a Duration."""

_POLICIES: Final = {
    "unspecified": ExistingJobPolicy.FAIL,
    "error": ExistingJobPolicy.FAIL,
    "keep": ExistingJobPolicy.ADOPT,
    "recreate": ExistingJobPolicy.REPLACE,
}


def seconds_of(length: Seconds | None) -> float | None:
    """Return a length of time in seconds."""
    return length.to_seconds() if isinstance(length, Duration) else length


def policy_of(policy: ExistingJobPolicy | str | None, existing: ExistingJobPolicy | str) -> ExistingJobPolicy | str:
    """Return an `existing_job_policy` ("error", "keep", "recreate", or a policy of today) as one of today.

    Args:
        policy: The older argument; None: it was not given.
        existing: The argument of today, which holds then.
    """
    if policy is None:
        return existing
    if isinstance(policy, ExistingJobPolicy):
        return policy
    return _POLICIES.get(policy.lower().removeprefix("existing_job_policy_"), policy)


def warn_of_unused(image: str | None, preemption_policy: object) -> None:
    """Say what of a submission is not done.

    Args:
        image: Tasks have none: they run from the workspace.
        preemption_policy: Child jobs go on when a task of their parent starts again ("preserve_children"), whatever
            this says; only the opposite is worth a word.
    """
    if image is not None:
        logger.warning("task_image %r is not used: tasks run from the workspace, without images", image)
    if "terminate" in str(preemption_policy).lower():
        logger.warning(
            "preemption_policy %r is not used: child jobs go on when a task of their parent is lost and starts again; "
            "they end with the job",
            preemption_policy,
        )
