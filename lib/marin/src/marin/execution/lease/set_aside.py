"""Outputs that a run makes again although they exist: set aside meanwhile, and put back unless that succeeds.

An output is beside its path, in `{output path}.forced`, while its step runs. The next run puts back what a killed one
has left there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_SUCCESS
from marin.execution.report.events import RunEvent, StepEnd, StepEnded
from marin.output_files import ERROR_FILE, INFO_FILE, LOCK_FILE, LOG_FILE, STATUS_FILE
from rigging.distributed_lock import lease
from rigging.errors import Conflict
from rigging.filesystem import local_path, url_to_fs
from rigging.filesystem.location import path_in
from rigging.process.parallel import map_in_threads

logger = logging.getLogger(__name__)

# The lease's own files, and those that tell of failed attempts.
_STAY: Final = frozenset({LOCK_FILE, f"{LOCK_FILE}.fence", LOG_FILE, ERROR_FILE})


class ForcedOutputs:
    """The outputs that a run makes again, as an observer of that run.

    Args:
        paths: The output paths.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = frozenset(paths)
        self._aside: set[str] = set()

    @property
    def any(self) -> bool:
        """Whether there is an output to make again, or one aside."""
        return bool(self.paths or self._aside)

    def resume(self, paths: Iterable[str]) -> list[str]:
        """Put back what killed runs have left aside, unless it is to be made again. Return the output paths.

        Args:
            paths: Outputs that runs did not finish.
        """
        found = [path for path in paths if path not in self.paths and _place_of(path).is_aside()]
        self._aside.update(found)
        for path in found:
            self._settle(path, is_made=False)
            if path not in self._aside:
                logger.warning("the earlier output of %s is back: the run that was to replace it was ended", path)
        return found

    def set_aside(self, path: str) -> None:
        """Move an output aside, if it is to be made again. Without one, what was set aside earlier stays.

        Raises:
            Conflict: The output is in use, another step's output is in it, or it is complete without a status file.
        """
        if path not in self.paths:
            return
        self._aside.add(path)
        if StatusFile(path).status != STATUS_SUCCESS:
            return
        with lease(path_in(path, LOCK_FILE)):
            place = _place_of(path)
            inner = place.inner_outputs()
            if inner:
                raise Conflict(f"--force: {path} contains other outputs, which would go with it: {', '.join(inner)}")
            place.move_aside()
            if StatusFile(path).status == STATUS_SUCCESS:
                raise Conflict(f"--force: {path} is complete by {path}.SUCCESS; remove that file to run the step again")

    def on_event(self, event: RunEvent) -> None:
        """Settle an output whose step has ended."""
        if isinstance(event, StepEnded) and event.path in self._aside:
            self._settle(event.path, is_made=event.status in (StepEnd.SUCCEEDED, StepEnd.CACHED))

    def close(self) -> None:
        """Put back every output whose step has not ended. Say where those are that are still in use."""
        for path in sorted(self._aside):
            self._settle(path, is_made=False)
        for path in sorted(self._aside):
            place = _place_of(path)
            if place.is_aside():
                logger.warning("the earlier output of %s is in %s: the next run puts it back", path, place.aside)

    def _settle(self, path: str, *, is_made: bool) -> None:
        place = _place_of(path)
        try:
            with lease(path_in(path, LOCK_FILE)):
                if is_made or StatusFile(path).status == STATUS_SUCCESS:
                    place.drop()
                else:
                    place.put_back()
        # Storage libraries raise errors of many types. What was set aside stays.
        except Exception as error:
            logger.debug("%s is not settled yet: %s", place.aside, error)
        else:
            self._aside.discard(path)


class _LocalPlace:
    """An output on this machine's disks, and where it is aside."""

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        self.aside = f"{self._path}.forced"

    def is_aside(self) -> bool:
        return os.path.isdir(self.aside)

    def inner_outputs(self) -> list[str]:
        return [at for at, _, names in os.walk(self._path) if INFO_FILE in names and at != self._path]

    def move_aside(self) -> None:
        self.drop()
        os.mkdir(self.aside)
        # The status first and back last: what is in part here is never complete.
        for name in sorted(self._names(), key=lambda name: name != STATUS_FILE):
            os.rename(f"{self._path}/{name}", f"{self.aside}/{name}")

    def put_back(self) -> None:
        if not self.is_aside():
            return
        for name in self._names():
            _remove(f"{self._path}/{name}")
        for name in sorted(os.listdir(self.aside), key=lambda name: name == STATUS_FILE):
            os.rename(f"{self.aside}/{name}", f"{self._path}/{name}")
        os.rmdir(self.aside)

    def drop(self) -> None:
        if self.is_aside():
            shutil.rmtree(self.aside)

    def _names(self) -> list[str]:
        return [name for name in os.listdir(self._path) if name not in _STAY]


class _StoredPlace:
    """An output in any other storage. What was copied is complete before anything is removed."""

    def __init__(self, path: str) -> None:
        self.aside = f"{path.rstrip('/')}.forced"
        self._fs, place = url_to_fs(path)
        self._path = str(place).rstrip("/")
        self._aside = f"{self._path}.forced"

    def is_aside(self) -> bool:
        return STATUS_FILE in self._names(self._aside)

    def inner_outputs(self) -> list[str]:
        return [name for name in self._names(self._path) if name.endswith(f"/{INFO_FILE}")]

    def move_aside(self) -> None:
        self.drop()
        names = self._names(self._path)
        self._copy(self._path, self._aside, names)
        self._remove(self._path, names)

    def put_back(self) -> None:
        if not self.is_aside():
            return
        self._remove(self._path, self._names(self._path))
        self._copy(self._aside, self._path, self._names(self._aside))
        self.drop()

    def drop(self) -> None:
        self._remove(self._aside, self._names(self._aside))

    def _names(self, place: str) -> list[str]:
        self._fs.invalidate_cache()
        with contextlib.suppress(FileNotFoundError):
            names = [str(path)[len(place) + 1 :] for path in self._fs.find(place)]
            return [name for name in names if name not in _STAY]
        return []

    def _copy(self, source: str, target: str, names: Sequence[str]) -> None:
        for group in _with_status(names, is_last=True):
            map_in_threads(lambda name: self._fs.cp_file(f"{source}/{name}", f"{target}/{name}"), group)

    def _remove(self, place: str, names: Sequence[str]) -> None:
        for group in _with_status(names, is_last=False):
            map_in_threads(lambda name: self._fs.rm_file(f"{place}/{name}"), group)


def _with_status(names: Sequence[str], *, is_last: bool) -> Iterator[list[str]]:
    groups = [[name for name in names if name == STATUS_FILE], [name for name in names if name != STATUS_FILE]]
    yield from reversed(groups) if is_last else groups


def _place_of(path: str) -> _LocalPlace | _StoredPlace:
    local = local_path(path)
    return _StoredPlace(path) if local is None else _LocalPlace(local)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.remove(path)
