"""Fetch files into the local prefix. Each copy is made once, atomic, verified, and charged."""

import errno
import logging
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import groupby

from rigging.copying.charges import BudgetReservation
from rigging.copying.copy_lock import copy_lock, stripe
from rigging.copying.local.batch import copy_small_files
from rigging.copying.local.to_local import copy_to_local
from rigging.copying.objects.to_gcs import rewrite_in_gcs, rewrite_small_in_gcs, upload_to_gcs
from rigging.copying.objects.to_other import copy_under_temporary_name
from rigging.copying.objects.to_s3 import copy_in_s3, upload_to_s3
from rigging.copying.request import (
    Check,
    CopyMethod,
    CopyRequest,
    Done,
    Reserve,
    Settings,
    copy_method,
    version_of,
)
from rigging.copying.source import SourceChangedError
from rigging.filesystem.budget import TransferBudget
from rigging.lease.base import LeaseLostError
from rigging.prefixes.paths import is_private
from rigging.prefixes.prefix_store import PrefixStore, StoreKind, local_store, other_stores
from rigging.prefixes.removed import described, read_removal, tombstone
from rigging.prefixes.union import elsewhere, in_parallel

logger = logging.getLogger(__name__)

_ATTEMPTS = 3
#: Files that one worker copies under one lease, before others may have it.
_GROUP_FILES = 128


def fetch(path: str, settings: Settings, budget: TransferBudget | None = None, done: Done | None = None) -> None:
    """Copy a file that the local prefix lacks from the first region that has it.

    Args:
        path: The file, relative to the prefix.
        settings: As in `copy_files`.
        budget: As in `copy_files`.
        done: As in `copy_files`.

    Raises:
        FileNotFoundError: No region has the file, or it was removed here. The message names the prefixes, or who
            removed it and when.
        IsADirectoryError: The path is a directory in that region.
        TransferBudgetExceeded: The budget is too small. Nothing was copied.
    """
    copy_files([locate(path)], local_store(), settings, done, budget=budget)


def fetch_many(
    paths: Iterable[str], settings: Settings, budget: TransferBudget | None = None, done: Done | None = None
) -> None:
    """Copy the files among `paths` that the local prefix lacks, concurrently. Paths that exist nowhere are skipped.

    Args:
        paths: Files, relative to the prefix.
        settings: Sizes, and how many copies run concurrently.
        budget: The budget for bytes that cross regions; None for the current one.
        done: Called after each file.
    """
    local = local_store()
    missing = [path for path in paths if not is_private(path)]
    if len(missing) == 1:
        missing = [path for path in missing if local.info(path) is None]
    elif missing:
        with ThreadPoolExecutor(max_workers=min(len(missing), settings.workers)) as pool:
            known = list(pool.map(local.info, missing))
        missing = [path for path, info in zip(missing, known, strict=True) if info is None]
    if not missing or not other_stores():
        return
    if len(missing) == 1:
        found = [_locate(missing[0])]
    else:
        with ThreadPoolExecutor(max_workers=min(len(missing), settings.workers)) as pool:
            found = list(pool.map(_locate, missing))
    copy_files([request for request in found if request is not None], local, settings, done, budget=budget)


def locate(path: str) -> CopyRequest:
    """Find a file in the other regions. Raise like `fetch`."""
    request = _locate(path)
    if request is None:
        if elsewhere(path) is not None:
            raise IsADirectoryError(errno.EISDIR, "a directory cannot be read as a file", f"mirror://{path}")
        removal = read_removal(local_store(), path)
        if removal is not None:
            raise FileNotFoundError(errno.ENOENT, described(removal), f"mirror://{path}")
        searched = ", ".join(_described(store) for store in (local_store(), *other_stores()))
        raise FileNotFoundError(errno.ENOENT, f"no region has this file (looked in {searched})", f"mirror://{path}")
    return request


def copy_files(
    files: Sequence[CopyRequest],
    destination: PrefixStore,
    settings: Settings,
    done: Done | None = None,
    label: str = "",
    budget: TransferBudget | None = None,
) -> None:
    """Copy files into the local prefix, concurrently. The first failure is raised and cancels copies that have not
    begun.

    Args:
        files: The files to copy. A file that exists by the time its turn comes is skipped.
        destination: The local prefix.
        settings: Sizes, and how many copies run concurrently.
        done: Called after each file, in any thread.
        label: A description of the files, for the error if they exceed the budget.
        budget: The budget to charge; None for the current one.

    Raises:
        TransferBudgetExceeded: The transfer does not fit. Nothing is copied.
    """
    groups = _groups(files, destination)
    with BudgetReservation.of(files, destination, label, budget) as reservation:
        transfer, workers = _Transfer(destination, settings, reservation, done), min(settings.workers, len(groups))
        if workers <= 1:
            for group in groups:
                transfer.copy_group(group)
            return
        with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="mirror-copy") as pool:
            running: list[Future[None]] = [pool.submit(transfer.copy_group, group) for group in groups]
            _, waiting = wait(running, return_when=FIRST_EXCEPTION)
            for future in waiting:
                future.cancel()
        for future in running:
            if not future.cancelled():
                future.result()


def _groups(files: Sequence[CopyRequest], destination: PrefixStore) -> list[list[CopyRequest]]:
    """Split files into work for one worker: all of one stripe, or one file where files are claimed singly."""
    if destination.kind is StoreKind.LOCAL:
        # Between local disks a copy is a few system calls; more threads would only hand the interpreter to and fro.
        return [list(files)] if _all_local(files) else [[request] for request in files]
    by_stripe: dict[str, list[CopyRequest]] = {}
    for request in files:
        by_stripe.setdefault(stripe(request), []).append(request)
    return [
        group[start : start + _GROUP_FILES]
        for group in by_stripe.values()
        for start in range(0, len(group), _GROUP_FILES)
    ]


def _all_local(files: Sequence[CopyRequest]) -> bool:
    return all(request.source.kind is StoreKind.LOCAL for request in files)


@dataclass(frozen=True, slots=True)
class _Transfer:
    """The copies of one call: their destination, settings, charge and callback."""

    destination: PrefixStore
    settings: Settings
    reservation: BudgetReservation
    done: Done | None

    def copy_group(self, group: Sequence[CopyRequest]) -> None:
        if self.destination.kind is StoreKind.LOCAL:
            known: set[str] = set()
            if len(group) > 1:
                group = copy_small_files(group, self.destination, self.reservation, self.done, known)
            for request in group:
                self._copy(request, lambda: None, known)
            return
        finished: set[str] = set()
        here = replace(self, done=self._noting(finished))
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with copy_lock(stripe(group[0]), self.destination, self.settings) as check:
                    for request in here._without_small_objects(group, check):
                        check()
                        here._copy(request, check, set())
                return
            except LeaseLostError as error:
                # A process that was held up is no reason for its reader to fail: the next holder makes the file.
                group = [request for request in group if request.path not in finished]
                if not group:
                    return
                if attempt == _ATTEMPTS:
                    raise
                logger.warning("%s; waiting for it again", error)

    def _noting(self, finished: set[str]) -> Done:
        """Return a callback that reports each file and records its path."""

        def done(request: CopyRequest, moved: int) -> None:
            finished.add(request.path)
            if self.done is not None:
                self.done(request, moved)

        return done

    def _without_small_objects(self, group: Sequence[CopyRequest], check: Check) -> list[CopyRequest]:
        """Copy the files that can be copied in batches, and return the others."""
        if self.destination.kind is not StoreKind.GCS or len(group) == 1:
            return list(group)
        rest: list[CopyRequest] = []
        for source, files in groupby(group, key=lambda request: request.source):
            if copy_method(source, self.destination) is CopyMethod.SERVER_SIDE:
                rest += rewrite_small_in_gcs(list(files), self.destination, self.reservation, check, self.done)
            else:
                rest += files
        return rest

    def _copy(self, request: CopyRequest, check: Check, known: set[str]) -> None:
        charge = self.reservation.charge_for(request)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._move(request, charge.reserve, check, known)
            except SourceChangedError as error:
                charge.cancel()
                if attempt == _ATTEMPTS:
                    raise
                logger.info("%s; starting over", error)
                request = locate(request.path)
                charge = self.reservation.charge_for(request)
            except BaseException:
                charge.cancel()
                raise
            else:
                break
        charge.settle()
        if charge.bytes_moved:
            logger.debug("mirrored %s: %d bytes", request.source_url, charge.bytes_moved)
        if self.done is not None:
            self.done(request, charge.bytes_moved)

    def _move(self, request: CopyRequest, reserve: Reserve, check: Check, known: set[str]) -> None:
        destination, settings = self.destination, self.settings
        how = copy_method(request.source, destination)
        if how is CopyMethod.TO_LOCAL_FILE:
            copy_to_local(request, destination, settings, reserve, known)
        elif how is CopyMethod.SERVER_SIDE:
            # The store itself refuses, at no cost, what is there by now.
            if destination.kind is StoreKind.GCS:
                rewrite_in_gcs(request, destination, reserve, check)
            else:
                copy_in_s3(request, destination, settings, reserve, check)
        elif destination.info(request.path) is not None:
            return
        elif how is CopyMethod.UNDER_TEMPORARY_NAME:
            copy_under_temporary_name(request, destination, settings, reserve, check)
        elif destination.kind is StoreKind.GCS:
            upload_to_gcs(request, destination, settings, reserve, check)
        else:
            upload_to_s3(request, destination, settings, reserve, check)


def _described(store: PrefixStore) -> str:
    """Describe a prefix for the error that no prefix has a file. A prefix that does not exist may be misspelt."""
    is_missing = store.kind is StoreKind.LOCAL and not os.path.isdir(store.path(""))
    return f"{store.prefix.url} [no such directory]" if is_missing else store.prefix.url


def _locate(path: str) -> CopyRequest | None:
    if is_private(path):
        return None
    local, others = local_store(), other_stores()
    if not others:
        return None
    is_removed, *infos = in_parallel(
        lambda store: store.info(tombstone(path) if store is local else path), (local, *others)
    )
    if is_removed is not None:
        return None
    for store, info in zip(others, infos, strict=True):
        if info is not None and info["type"] != "directory":
            return CopyRequest(path, store, version_of(info, store.url(path)))
    return None
