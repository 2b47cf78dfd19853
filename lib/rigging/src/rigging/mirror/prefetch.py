"""Mirror files and directories ahead of use."""

import errno
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rigging.copying.charges import bytes_charged
from rigging.copying.fetch import copy_files
from rigging.copying.request import CopyRequest, Settings, version_of
from rigging.errors import InvalidRequest
from rigging.prefixes.paths import relative_path, without_hidden
from rigging.prefixes.prefix_store import PrefixStore, local_store, other_stores
from rigging.prefixes.removed import described, read_removal, removed_files
from rigging.prefixes.union import in_parallel


@dataclass(frozen=True, slots=True)
class PrefetchPlan:
    """The files that a prefetch would copy.

    Args:
        files: Files that the local prefix lacks, with their sources.
        present: The number of files that already exist.
        bytes_total: The total bytes to copy.
        bytes_charged: The bytes that count against the transfer budget.
        destination: The local prefix.
    """

    files: tuple[CopyRequest, ...]
    present: int
    bytes_total: int
    bytes_charged: int
    destination: PrefixStore


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a prefetch.

    Args:
        path: The file that was just finished, relative to the prefix.
        files_done: Finished files, of `files_total`.
        files_total: The number of files to copy.
        bytes_done: Finished bytes, of `bytes_total`.
        bytes_total: The number of bytes to copy.
        bytes_moved: Bytes that this process moved. Others may have copied some of the files meanwhile.
    """

    path: str
    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int
    bytes_moved: int


def mirror_plan(*paths: str) -> PrefetchPlan:
    """Return which of these files and directories the local prefix lacks, without copying anything.

    Raises:
        FileNotFoundError: No region has one of the paths, or it was removed here.
        InvalidRequest: A path leads out of the prefix, or none is given.
    """
    if not paths:
        raise InvalidRequest("nothing to mirror: give at least one path")
    local, others = local_store(), other_stores()
    present: set[str] = set()
    requests: dict[str, CopyRequest] = {}
    for path in paths:
        relative = relative_path(path)
        stores: Sequence[PrefixStore] = (local, *others)
        here, *elsewhere = in_parallel(lambda store, below=relative: store.find(below), stores)  # type: ignore[misc]
        removed = removed_files(local, relative) if others else set()
        if not here and relative in removed:
            removal = read_removal(local, relative)
            reason = "it was removed here" if removal is None else described(removal)
            raise FileNotFoundError(errno.ENOENT, reason, f"mirror://{relative}")
        if not here and not any(elsewhere) and all(store.info(relative) is None for store in stores):
            searched = ", ".join(store.prefix.url for store in stores)
            raise FileNotFoundError(errno.ENOENT, f"no region has it (looked in {searched})", f"mirror://{relative}")
        found = [*here, *(name for entries in elsewhere for name in entries if name not in removed)]
        seen = set(without_hidden(found))
        present.update(seen.intersection(here))
        for store, entries in zip(others, elsewhere, strict=True):
            for name, info in entries.items():
                if name in seen and name not in here and name not in requests:
                    requests[name] = CopyRequest(name, store, version_of(info, store.url(name)))
    files = tuple(requests[name] for name in sorted(requests))
    total = sum(file.version.size for file in files)
    return PrefetchPlan(files, len(present), total, bytes_charged(files, local), local)


def mirror_prefetch(
    *paths: str, progress: Callable[[Progress], None] | None = None, settings: Settings | None = None
) -> PrefetchPlan:
    """Copy files and directories into the local prefix ahead of use, concurrently.

    Args:
        paths: Paths as in `mirror://`, relative to the prefix. Directories include everything below them.
        progress: Called after each file, from several threads but never concurrently.
        settings: Settings for the copies.

    Returns:
        The files that this process, or meanwhile another, copied.

    Raises:
        TransferBudgetExceeded: The transfer does not fit into the budget. Nothing is copied.
        FileNotFoundError: No region has one of the paths.
    """
    plan = mirror_plan(*paths)
    reporter = None if progress is None else _Reporter(plan, progress)
    copy_files(plan.files, plan.destination, settings or Settings(), reporter, ", ".join(paths))
    return plan


class _Reporter:
    """Count finished files and report each."""

    def __init__(self, plan: PrefetchPlan, progress: Callable[[Progress], None]) -> None:
        self._plan = plan
        self._progress = progress
        self._guard = threading.Lock()
        self._files = self._bytes = self._moved = 0

    def __call__(self, request: CopyRequest, moved: int) -> None:
        with self._guard:
            self._files += 1
            self._bytes += request.version.size
            self._moved += moved
            files, total = len(self._plan.files), self._plan.bytes_total
            self._progress(Progress(request.path, self._files, files, self._bytes, total, self._moved))
