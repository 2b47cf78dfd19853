"""Copy many small files between local disks, one directory at a time, at little more than the cost of writing them.

Claiming files one by one (`part`) costs as much as copying small ones. Here one claim covers all files of a directory:
an exclusive kernel lock on the directory, which ends with its process. Single-file claims take the same lock in shared
mode. If a batch does not get its lock immediately, its files are claimed one by one.
"""

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from itertools import groupby

from rigging.copying.charges import BudgetReservation
from rigging.copying.local.part import LOCK_NOT_OFFERED, Watch, make_parents, rename_at
from rigging.copying.request import CopyRequest, Done
from rigging.filesystem.atomic import TEMPORARY_PREFIX
from rigging.prefixes.prefix_store import PrefixStore, StoreKind
from rigging.process.file_lock import try_lock, unlock_and_close

SMALL_BYTES = 2**20
#: How long one waits for a batch that makes no progress. Its files are small, so it is stopped, or not a batch at all.
_STALL_SECONDS = 5.0
_TO_READ = os.O_RDONLY | os.O_CLOEXEC
_TO_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
#: One name is enough for a directory, as it is only used under the lock; what a kill leaves is overwritten.
_TEMPORARY = TEMPORARY_PREFIX + "mirror-batch"
#: How many files are copied before the lock is given up for a moment.
_MOST_FILES = 512


def copy_small_files(
    files: Sequence[CopyRequest],
    destination: PrefixStore,
    reservation: BudgetReservation,
    done: Done | None,
    known: set[str],
) -> list[CopyRequest]:
    """Copy the small files among `files` that are on a local disk. Return the remaining files, including failed ones.

    Args:
        files: Files, best grouped by directory.
        destination: A prefix on a local disk.
        reservation: The budget reservation for all files of the transfer.
        done: Called for each file that now exists.
        known: Directories known to exist. Directories found or created are added.
    """
    rest: list[CopyRequest] = []
    for (parent, source), some in groupby(files, key=lambda request: (request.path.rpartition("/")[0], request.source)):
        small: list[CopyRequest] = []
        for request in some:
            suits = source.kind is StoreKind.LOCAL and request.version.size <= SMALL_BYTES
            (small if suits else rest).append(request)
        for start in range(0, len(small), _MOST_FILES):
            batch = small[start : start + _MOST_FILES]
            rest += _copy_into(destination.path(parent), batch, reservation, done, known) if len(batch) > 1 else batch
    return rest


@contextlib.contextmanager
def no_batch_in(directory: str, stall_timeout: float) -> Iterator[None]:
    """Keep batches out of a directory during the block. Wait for a running batch first.

    Args:
        directory: An existing directory.
        stall_timeout: Seconds without progress after which a batch is ignored.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield  # it may not be read: then no batch can lock it either
        return
    watch = Watch(min(stall_timeout, _STALL_SECONDS))
    try:
        while not _lock(descriptor, shared=True) and watch.wait(descriptor):
            pass
        yield
    finally:
        unlock_and_close(descriptor)


def _copy_into(
    directory: str, files: Sequence[CopyRequest], reservation: BudgetReservation, done: Done | None, known: set[str]
) -> list[CopyRequest]:
    made = make_parents(directory, known)
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return list(files)
    charge = reservation.charge_for(files[0])
    copied, rest = 0, []
    try:
        if not _lock(descriptor):
            return list(files)
        moved = charge.reserve(sum(request.version.size for request in files))
        with os.scandir(descriptor) as entries:
            empty = next(entries, None) is None
        for request in files:
            count = _copy_one(request, descriptor, empty)
            if count is None:
                rest.append(request)
                continue
            copied += 1
            moved(count)
            if done is not None:
                done(request, count)
    finally:
        charge.settle()
        unlock_and_close(descriptor)
        if not copied:
            known.discard(directory)
            for path in reversed(made):
                # Others may have put something into it meanwhile.
                with contextlib.suppress(OSError):
                    os.rmdir(path)
                known.discard(path)
    return rest


def _copy_one(request: CopyRequest, directory: int, is_new: bool) -> int | None:
    """Copy one file under the directory's lock. Return None if it must be claimed separately, 0 if it already
    exists.
    """
    name = request.path.rpartition("/")[2]
    try:
        if not is_new and _exists(name, directory):
            return 0
        data = _read(request)
        if data is None:
            return None
        target = os.open(_TEMPORARY, _TO_WRITE, 0o666, dir_fd=directory)
        try:
            written = os.write(target, data)
        finally:
            os.close(target)
        if written == len(data) and rename_at(directory, _TEMPORARY, name):
            return written
    except OSError:
        # Any error: the claim of the file by itself meets it again, and reports it.
        pass
    with contextlib.suppress(OSError):
        os.unlink(_TEMPORARY, dir_fd=directory)
    return None


def _read(request: CopyRequest) -> bytes | None:
    """Return a file's content; None if it is no longer the requested version."""
    version = request.version
    source = os.open(request.source_path, _TO_READ)
    try:
        # One byte more than expected would show that the file has grown.
        data = os.read(source, version.size + 1)
        status = os.fstat(source)
    finally:
        os.close(source)
    same = len(data) == status.st_size == version.size and str(status.st_mtime) == version.mark
    return data if same and stat.S_ISREG(status.st_mode) else None


def _exists(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _lock(descriptor: int, *, shared: bool = False) -> bool:
    try:
        return try_lock(descriptor, shared=shared)
    except OSError as error:
        if error.errno not in LOCK_NOT_OFFERED:
            raise
        # Then it is offered to no batch either.
        return shared
