"""Bringing files into the local prefix: once each, whole, verified, and paid for."""

import errno
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from itertools import groupby

from rigging.filesystem.budget import TransferBudget
from rigging.filesystem.mirror.batch import copy_small_files
from rigging.filesystem.mirror.bill import Bill, Purse
from rigging.filesystem.mirror.paths import is_private
from rigging.filesystem.mirror.plan import Settings, Wanted, Way, version_of, way
from rigging.filesystem.mirror.root import Root, Store, local_root, other_roots
from rigging.filesystem.mirror.single_flight import only_copier, stripe
from rigging.filesystem.mirror.to_gcs import rewrite_in_gcs, rewrite_small_in_gcs, upload_to_gcs
from rigging.filesystem.mirror.to_local import SourceChangedError, copy_to_local
from rigging.filesystem.mirror.to_other import copy_under_temporary_name
from rigging.filesystem.mirror.to_s3 import copy_in_s3, upload_to_s3
from rigging.filesystem.mirror.union import elsewhere, in_parallel

logger = logging.getLogger(__name__)

_ATTEMPTS = 3
#: Files that one worker copies under one lease, before others may have it.
_GROUP_FILES = 128

#: Told of each file that is there, and how many bytes have moved for it.
Done = Callable[[Wanted, int], None]


def bring(path: str, settings: Settings, budget: TransferBudget | None = None, done: Done | None = None) -> None:
    """Copy a file that the local prefix does not have from the first region that has it.

    Raises:
        FileNotFoundError: No region has it; the message names the prefixes.
        IsADirectoryError: It is a directory there.
        TransferBudgetExceeded: The budget does not allow it; nothing was copied.
    """
    copy_files([locate(path)], local_root(), settings, done, budget=budget)


def bring_many(
    paths: Iterable[str], settings: Settings, budget: TransferBudget | None = None, done: Done | None = None
) -> None:
    """Copy what the local prefix does not have of several files, many at once; what exists nowhere is passed over."""
    local = local_root()
    missing = [path for path in paths if not is_private(path)]
    if len(missing) == 1:
        missing = [path for path in missing if local.info(path) is None]
    elif missing:
        with ThreadPoolExecutor(max_workers=min(len(missing), settings.workers)) as pool:
            known = list(pool.map(local.info, missing))
        missing = [path for path, info in zip(missing, known, strict=True) if info is None]
    if not missing or not other_roots():
        return
    if len(missing) == 1:
        found = [_locate(missing[0])]
    else:
        with ThreadPoolExecutor(max_workers=min(len(missing), settings.workers)) as pool:
            found = list(pool.map(_locate, missing))
    copy_files([wanted for wanted in found if wanted is not None], local, settings, done, budget=budget)


def locate(path: str) -> Wanted:
    """Find a file in the other regions; errors as for `bring`."""
    wanted = _locate(path)
    if wanted is None:
        if elsewhere(path) is not None:
            raise IsADirectoryError(errno.EISDIR, "a directory cannot be read as a file", f"mirror://{path}")
        searched = ", ".join(root.prefix.url for root in (local_root(), *other_roots()))
        raise FileNotFoundError(errno.ENOENT, f"no region has this file (looked in {searched})", f"mirror://{path}")
    return wanted


def copy_files(
    files: Sequence[Wanted],
    destination: Root,
    settings: Settings,
    done: Done | None = None,
    label: str = "",
    budget: TransferBudget | None = None,
) -> None:
    """Copy files into the local prefix, many at once; the first failure stops what has not begun, and is raised.

    Args:
        files: What to copy. What is there by the time its turn comes is not copied again.
        destination: The local prefix.
        settings: How.
        done: Called in any thread after each file.
        label: What the files are, for the message that they do not fit into the budget.
        budget: What they are charged to; None for the budget in force.

    Raises:
        TransferBudgetExceeded: Not all of it fits; then nothing is copied.
    """
    groups = _groups(files, destination)
    with Purse.of(files, destination, label, budget) as purse:

        def work(group: Sequence[Wanted]) -> None:
            _copy_group(group, destination, settings, purse, done)

        if min(settings.workers, len(groups)) <= 1:
            for group in groups:
                work(group)
            return
        with ThreadPoolExecutor(
            max_workers=min(settings.workers, len(groups)), thread_name_prefix="mirror-copy"
        ) as pool:
            running: list[Future[None]] = [pool.submit(work, group) for group in groups]
            _, waiting = wait(running, return_when=FIRST_EXCEPTION)
            for future in waiting:
                future.cancel()
        for future in running:
            if not future.cancelled():
                future.result()


def _groups(files: Sequence[Wanted], destination: Root) -> list[list[Wanted]]:
    """Divide files into what one worker copies in one go: of one stripe, or one file where files are claimed singly."""
    if destination.store is Store.LOCAL:
        # Between local disks a copy is a few system calls; more threads would only hand the interpreter to and fro.
        return [list(files)] if _all_local(files) else [[wanted] for wanted in files]
    by_stripe: dict[str, list[Wanted]] = {}
    for wanted in files:
        by_stripe.setdefault(stripe(wanted), []).append(wanted)
    return [
        group[start : start + _GROUP_FILES]
        for group in by_stripe.values()
        for start in range(0, len(group), _GROUP_FILES)
    ]


def _all_local(files: Sequence[Wanted]) -> bool:
    return all(wanted.source.store is Store.LOCAL for wanted in files)


def _copy_group(
    group: Sequence[Wanted], destination: Root, settings: Settings, purse: Purse, done: Done | None
) -> None:
    if destination.store is Store.LOCAL:
        known: set[str] = set()
        for wanted in copy_small_files(group, destination, purse, done, known) if len(group) > 1 else group:
            _copy(wanted, destination, settings, purse, lambda: None, done, known)
        return
    with only_copier(stripe(group[0]), destination, settings) as check:
        for wanted in _together(group, destination, purse, check, done):
            check()
            _copy(wanted, destination, settings, purse, check, done, set())


def _together(
    group: Sequence[Wanted], destination: Root, purse: Purse, check: Callable[[], None], done: Done | None
) -> list[Wanted]:
    """Copy those files at once for which there is a way to; return the others."""
    if destination.store is not Store.GCS or len(group) == 1:
        return list(group)
    rest: list[Wanted] = []
    for source, files in groupby(group, key=lambda wanted: wanted.source):
        if way(source, destination) is Way.SERVER_SIDE:
            rest += rewrite_small_in_gcs(list(files), destination, purse, check, done)
        else:
            rest += files
    return rest


def _copy(
    wanted: Wanted,
    destination: Root,
    settings: Settings,
    purse: Purse,
    check: Callable[[], None],
    done: Done | None,
    known: set[str],
) -> None:
    bill = purse.bill(wanted)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _transfer(wanted, destination, settings, bill, check, known)
        except SourceChangedError as error:
            bill.cancel()
            if attempt == _ATTEMPTS:
                raise
            logger.info("%s; starting over", error)
            wanted = locate(wanted.path)
            bill = purse.bill(wanted)
        except BaseException:
            bill.cancel()
            raise
        else:
            break
    bill.pay()
    if bill.bytes_moved:
        logger.debug("mirrored %s: %d bytes", wanted.source_url, bill.bytes_moved)
    if done is not None:
        done(wanted, bill.bytes_moved)


def _transfer(
    wanted: Wanted, destination: Root, settings: Settings, bill: Bill, check: Callable[[], None], known: set[str]
) -> None:
    how = way(wanted.source, destination)
    if how is Way.TO_LOCAL_FILE:
        copy_to_local(wanted, destination, settings, bill.charge, known)
    elif how is Way.SERVER_SIDE:
        # The store itself refuses, at no cost, what is there by now.
        if destination.store is Store.GCS:
            rewrite_in_gcs(wanted, destination, bill.charge, check)
        else:
            copy_in_s3(wanted, destination, settings, bill.charge, check)
    elif destination.info(wanted.path) is not None:
        return
    elif how is Way.UNDER_TEMPORARY_NAME:
        copy_under_temporary_name(wanted, destination, settings, bill.charge, check)
    elif destination.store is Store.GCS:
        upload_to_gcs(wanted, destination, settings, bill.charge, check)
    else:
        upload_to_s3(wanted, destination, settings, bill.charge, check)


def _locate(path: str) -> Wanted | None:
    if is_private(path):
        return None
    others = other_roots()
    for root, info in zip(others, in_parallel(lambda root: root.info(path), others), strict=True):
        if info is not None and info["type"] != "directory":
            return Wanted(path, root, version_of(info, root.url(path)))
    return None
