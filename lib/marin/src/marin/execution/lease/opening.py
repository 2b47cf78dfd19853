"""Open the lease of an output path with the class for its storage."""

from __future__ import annotations

import functools
from collections.abc import Callable

from marin.execution.lease.status_words import status_path
from marin.execution.lease.step_lease import DEFAULT_TERMS, LeaseTerms, StepLease
from marin.output_files import LOCK_SUFFIX
from rigging.filesystem import local_path
from rigging.lease.buckets import bucket_objects
from rigging.lease.objects import PatientObjects


@functools.cache
def _open_local() -> Callable[[str, str, LeaseTerms, str, bool], StepLease]:
    from marin.execution.lease.file_lease import ExclusiveStepLease, StatusOnDisk
    from rigging.lease.local import LocalLeaseStore

    def open_lease(output_path: str, label: str, terms: LeaseTerms, status: str, is_fresh: bool) -> StepLease:
        store = LocalLeaseStore(status + LOCK_SUFFIX, is_likely_new=is_fresh)
        return ExclusiveStepLease(output_path, label, terms, store, StatusOnDisk(status))

    return open_lease


def open_step_lease(
    output_path: str, label: str, terms: LeaseTerms = DEFAULT_TERMS, *, is_fresh: bool = False
) -> StepLease:
    """Return the lease and status of an output path, without storage access.

    Args:
        output_path: The output path, on any storage.
        label: The step's name in messages.
        terms: The timings of the lease.
        is_fresh: Whether there was no output a moment ago.
    """
    path = status_path(output_path)
    # Most paths are plain; `local_path` takes a while.
    local = path if path.startswith("/") else local_path(path)
    if local is not None:
        return _open_local()(output_path, label, terms, local, is_fresh)
    found = bucket_objects(path)
    if found is not None:
        from marin.execution.lease.object_lease import ObjectStepLease

        objects = PatientObjects(found[0], terms.patience_seconds)
        return ObjectStepLease(output_path, label, terms, objects, found[1])
    from marin.execution.lease.file_lease import ExclusiveStepLease, StatusAtUrl
    from rigging.lease.best_effort import BestEffortLeaseStore

    return ExclusiveStepLease(output_path, label, terms, BestEffortLeaseStore(path + LOCK_SUFFIX), StatusAtUrl(path))
