"""The directories of attempts: each has its own, and nothing is left of them once it has ended."""

import contextlib
import itertools
import logging
import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from iris.worker.bundle import enter_directory, link_top_level
from iris.worker.paths import WorkPaths, safe_name, short_name
from iris.worker.runtime.running import StartFailed
from iris.worker.spare_dirs import SpareDirectories

logger = logging.getLogger(__name__)

_REMOVED_AT_ONCE: Final = 200
"""A directory with more entries, or with directories, is removed outside of the loop."""


class AttemptDirectories:
    """A working directory and a TMPDIR for every attempt.

    Args:
        run_later: Runs a function outside of the loop: removing what a task has left can take minutes.
    """

    def __init__(self, paths: WorkPaths, run_later: Callable[[Callable[[], None]], object]) -> None:
        self._paths = paths
        self._run_later = run_later
        self._spare = SpareDirectories(str(paths.spare))

    def make(self, attempt_id: str, bundle: Path | None, relative: str = "") -> str:
        """Make them; where the attempt begins.

        Args:
            bundle: What the working directory shows.
            relative: Where in the bundle it begins.

        Raises:
            StartFailed: `relative` is a file. OSError: The host cannot make them.
        """
        self._spare.take(self._paths.temporary(attempt_id))
        directory = self._paths.attempt(attempt_id)
        if bundle is None:
            self._spare.take(str(directory))
        else:
            link_top_level(bundle, directory, self._paths.links)
            try:
                return str(enter_directory(directory, relative))
            except (FileExistsError, NotADirectoryError) as error:
                raise StartFailed(f"the working directory {relative!r} is a file of the workspace") from error
        return str(directory)

    def remove(self, attempt_id: str) -> None:
        """Put them out of reach, whatever modes the task gave them, and remove them soon."""
        for path in (str(self._paths.attempt(attempt_id)), self._paths.temporary(attempt_id)):
            if not self._spare.give(path) and not _removed(path):
                self._throw_away(path)

    def keep_only(self, attempt_ids: Iterable[str]) -> None:
        """Remove what no attempt of these has: a former worker left it."""
        kept = {name for attempt_id in attempt_ids for name in (safe_name(attempt_id), short_name(attempt_id))}
        for directory in (self._paths.attempts, self._paths.spare, self._paths.temporaries):
            for name in os.listdir(directory):
                if name not in kept:
                    self._throw_away(f"{directory}/{name}")
        for name in os.listdir(self._paths.trash):
            self._remove_later(f"{self._paths.trash}/{name}")

    def _throw_away(self, path: str) -> None:
        target = f"{self._paths.trash}/{secrets.token_hex(8)}"
        try:
            _move(path, target)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("%s cannot be removed: %s", path, error)
            return
        self._remove_later(target)

    def _remove_later(self, path: str) -> None:
        self._run_later(lambda: remove_tree(path))


def remove_tree(path: str) -> None:
    """Remove a file, or a directory of any depth and with any modes; what cannot be removed is logged and stays.

    Directories are moved beside `path` before they are emptied, so that neither depth nor the length of paths matters.
    """
    if os.path.islink(path) or not os.path.isdir(path):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    waiting = [path]
    names = (f"{path}.{number}" for number in itertools.count())
    while waiting:
        directory = waiting.pop()
        try:
            waiting += _empty(directory, names)
            os.rmdir(directory)
        except FileNotFoundError:
            continue
        except OSError as error:
            logger.warning("%s cannot be removed: %s", directory, error)


def _empty(directory: str, names: Iterable[str]) -> list[str]:
    """Unlink the files of a directory and move its directories to `names`; where these are now."""
    os.chmod(directory, 0o700)
    moved = []
    with os.scandir(directory) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                target = next(iter(names))
                _move(entry.path, target)
                moved.append(target)
            else:
                os.unlink(entry.path)
    return moved


def _move(path: str, target: str) -> None:
    try:
        os.rename(path, target)
    except PermissionError:
        if os.path.islink(path):
            raise
        os.chmod(path, 0o700)  # moving a directory writes to it: to its ".."
        os.rename(path, target)


def _removed(path: str) -> bool:
    """Whether a directory is gone: what has only links and files, and few of them, is removed here and now."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        try:
            with os.scandir(path) as entries:
                found = list(itertools.islice(entries, _REMOVED_AT_ONCE))
            if len(found) == _REMOVED_AT_ONCE or any(not entry.is_symlink() for entry in found):
                return False
            for entry in found:
                os.unlink(entry.path)
            os.rmdir(path)
        except OSError:
            return False
    return True
