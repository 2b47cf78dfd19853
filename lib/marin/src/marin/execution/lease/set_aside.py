"""Set existing outputs aside while a run makes them again, and restore them unless it succeeds.

While its step runs, an old output is in `{output path}.forced`. After a kill, the next run restores it. Before files
move, the status becomes RUNNING, so that no further step starts to read the output. Then current readers are checked
again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from marin.execution.lease.first_generation import is_success
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_RUNNING, STATUS_SUCCESS, status_path
from marin.execution.report.events import RunEvent, StepEnd, StepEnded
from marin.output_files import ASIDE_SUFFIX, ERROR_FILE, INFO_FILE, LOCK_FILE, LOG_FILE, STATUS_FILE
from marin.stored_files import files_added, files_below, shown_names
from rigging.distributed_lock import lease
from rigging.errors import Conflict
from rigging.filesystem import local_path, read_bytes_or_none, url_to_fs, write_bytes_atomic
from rigging.filesystem.location import path_in
from rigging.process.parallel import map_in_threads

logger = logging.getLogger(__name__)

# The lease's own files, and those that tell of failed attempts. The status is written, never moved.
_STAY: Final = frozenset({LOCK_FILE, f"{LOCK_FILE}.fence", LOG_FILE, ERROR_FILE, STATUS_FILE})


class ForcedOutputs:
    """The outputs that a run makes again, as an observer of that run.

    Args:
        paths: The output paths.
        readers: Returns descriptions of the running steps that read an output.
    """

    def __init__(self, paths: Iterable[str], readers: Callable[[str], Sequence[str]] = lambda _: ()) -> None:
        self.paths = frozenset(paths)
        self._readers = readers
        self._aside: set[str] = set()

    @property
    def any(self) -> bool:
        """Whether there is an output to make again, or an output set aside."""
        return bool(self.paths or self._aside)

    def check(self, complete: Iterable[str]) -> None:
        """Check that outputs to make again contain no files of others, and have no readers.

        Args:
            complete: The outputs that exist.

        Raises:
            Conflict: An output contains another step's output or a user's file, or a running step reads it.
        """
        for path in sorted(self.paths.intersection(complete)):
            self._check(path)

    def resume(self, paths: Iterable[str]) -> list[str]:
        """Restore outputs that killed runs left aside, except outputs to make again. Return the output paths.

        Args:
            paths: Outputs that runs did not finish.
        """
        found = [path for path in paths if path not in self.paths and is_aside(path)]
        self._aside.update(found)
        for path in found:
            self._settle(path, is_made=False)
            if path not in self._aside:
                logger.warning(
                    "the earlier output of %s is restored: the run that would have replaced it was killed", path
                )
        return found

    def set_aside(self, path: str) -> None:
        """Move an output aside, if it is to be made again. Without an output, an earlier one set aside stays.

        Raises:
            Conflict: As in `check`, or the output's lease is held.
        """
        if path not in self.paths:
            return
        self._aside.add(path)
        if not _is_complete(path):
            return
        with lease(path_in(path, LOCK_FILE)):
            self._check(path)
            _place_of(path).move_aside(lambda: self._check_readers(path))

    def on_event(self, event: RunEvent) -> None:
        """Discard or restore the old output of a step that has ended."""
        if isinstance(event, StepEnded) and event.path in self._aside:
            self._settle(event.path, is_made=event.status in (StepEnd.SUCCEEDED, StepEnd.CACHED))

    def close(self) -> None:
        """Restore every output whose step has not ended. Log the location of outputs still in use."""
        for path in sorted(self._aside):
            self._settle(path, is_made=False)
        for path in sorted(self._aside):
            if is_aside(path):
                logger.warning("the earlier output of %s is in %s: the next run restores it", path, aside_of(path))

    def _settle(self, path: str, *, is_made: bool) -> None:
        try:
            settle(path, is_made=is_made)
        # Storage libraries raise errors of many types. What was set aside stays.
        except Exception as error:
            logger.debug("%s is not settled yet: %s", aside_of(path), error)
        else:
            self._aside.discard(path)

    def _check(self, path: str) -> None:
        files = list(files_below(path))
        inner = [file.name for file in files if file.name.endswith(f"/{INFO_FILE}")]
        if inner:
            raise Conflict(f"--force: {path} contains other outputs, which would be moved with it: {', '.join(inner)}")
        added = files_added(files)
        if added:
            raise Conflict(
                f"--force: {path}: changed after its step ended, and would be removed with the old output: "
                f"{shown_names(added)}. Move these files elsewhere; if they may go, remove them or, on a disk, "
                f"touch {status_path(path)}"
            )
        self._check_readers(path)

    def _check_readers(self, path: str) -> None:
        readers = self._readers(path)
        if readers:
            raise Conflict(
                f"--force: {path} is being read by {'; '.join(readers)}. Wait until that ends, or stop it, and run "
                "this again"
            )


def aside_of(path: str) -> str:
    """Return the path of an old output while its step runs again."""
    return _place_of(path).aside


def is_aside(path: str) -> bool:
    """Return whether an old output is set aside."""
    return _place_of(path).is_aside()


def settle(path: str, *, is_made: bool) -> None:
    """Remove the old output if the new one exists; restore it otherwise.

    Args:
        path: The output path.
        is_made: Whether the output is known to exist.

    Raises:
        Conflict: The output's lease is held.
    """
    with lease(path_in(path, LOCK_FILE)):
        if is_made or StatusFile(path).status == STATUS_SUCCESS:
            _place_of(path).drop()
        else:
            _place_of(path).put_back()


def _is_complete(path: str) -> bool:
    status = StatusFile(path).status
    return status == STATUS_SUCCESS or (status is None and is_success(path))


class _LocalPlace:
    """An output on this machine's disks, and its place aside.

    If the place aside has a status file, it contains the whole old output, and files in the output are new. Otherwise
    the two places together contain the old output.
    """

    def __init__(self, path: str) -> None:
        # The name beside a link is not beside what it leads to.
        self._path = os.path.realpath(path) if os.path.islink(path) else path
        self.aside = f"{self._path}{ASIDE_SUFFIX}"

    def is_aside(self) -> bool:
        return os.path.isdir(self.aside)

    def move_aside(self, check: Callable[[], None]) -> None:
        self.drop()
        os.mkdir(self.aside)
        _write_status(self._path, STATUS_RUNNING)
        try:
            check()
        except BaseException:
            self.put_back()
            raise
        for name in self._names():
            os.rename(f"{self._path}/{name}", f"{self.aside}/{name}")
        _write_status(self.aside, STATUS_SUCCESS)

    def put_back(self) -> None:
        if not self.is_aside():
            return
        mark = status_path(self.aside)
        if os.path.exists(mark):
            for name in self._names():
                _remove(f"{self._path}/{name}")
            os.remove(mark)
        for name in os.listdir(self.aside):
            os.rename(f"{self.aside}/{name}", f"{self._path}/{name}")
        _write_status(self._path, STATUS_SUCCESS)
        os.rmdir(self.aside)

    def drop(self) -> None:
        if self.is_aside():
            shutil.rmtree(self.aside)

    def _names(self) -> list[str]:
        return [name for name in os.listdir(self._path) if name not in _STAY]


class _StoredPlace:
    """An output in any other storage. The copy has a complete status before the original is removed."""

    def __init__(self, path: str) -> None:
        self._url = path.rstrip("/")
        self.aside = f"{self._url}{ASIDE_SUFFIX}"
        self._fs, place = url_to_fs(path)
        self._path = str(place).rstrip("/")
        self._aside = f"{self._path}{ASIDE_SUFFIX}"

    def is_aside(self) -> bool:
        return read_bytes_or_none(status_path(self.aside)) is not None

    def move_aside(self, check: Callable[[], None]) -> None:
        self.drop()
        names = self._names(self._path)
        self._copy(self._path, self._aside, names)
        _write_status(self.aside, STATUS_SUCCESS)
        _write_status(self._url, STATUS_RUNNING)
        try:
            check()
        except BaseException:
            _write_status(self._url, STATUS_SUCCESS)
            self.drop()
            raise
        self._remove(self._path, names)

    def put_back(self) -> None:
        if not self.is_aside():
            return
        self._remove(self._path, self._names(self._path))
        self._copy(self._aside, self._path, self._names(self._aside))
        _write_status(self._url, STATUS_SUCCESS)
        self.drop()

    def drop(self) -> None:
        if self.is_aside():
            self._fs.rm_file(f"{self._aside}/{STATUS_FILE}")
        self._remove(self._aside, self._names(self._aside))

    def _names(self, place: str) -> list[str]:
        self._fs.invalidate_cache()
        with contextlib.suppress(FileNotFoundError):
            names = [str(path)[len(place) + 1 :] for path in self._fs.find(place)]
            return [name for name in names if name not in _STAY]
        return []

    def _copy(self, source: str, target: str, names: Sequence[str]) -> None:
        map_in_threads(lambda name: self._fs.cp_file(f"{source}/{name}", f"{target}/{name}"), names)

    def _remove(self, place: str, names: Sequence[str]) -> None:
        map_in_threads(lambda name: self._fs.rm_file(f"{place}/{name}"), names)


def _write_status(output: str, status: str) -> None:
    write_bytes_atomic(status_path(output), status.encode())


def _place_of(path: str) -> _LocalPlace | _StoredPlace:
    local = local_path(path)
    return _StoredPlace(path) if local is None else _LocalPlace(local.rstrip("/"))


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.remove(path)
