"""The directories of attempts: created before an attempt starts, removed after it ends."""

import asyncio
import contextlib
import logging
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from iris.worker.attempts.slots import Slot, Slots
from iris.worker.host.removal import move_away, remove_tree
from iris.worker.isolation.layers import remove_unused_layers
from iris.worker.isolation.plan import IsolationMode, Mount, bundle_layer, mounts_of, private_copy
from iris.worker.isolation.seals import copy_tree, own_tree
from iris.worker.paths import WorkPaths, short_name
from iris.worker.prepare.task_env import PreparedEnvironment, worker_environment
from iris.worker.processes import StartFailed

logger = logging.getLogger(__name__)


class AttemptDirectories:
    """Creates each attempt's working directory, TMPDIR, and private parts of the bundle and the environment.

    An attempt with a workspace starts in its own view of the bundle, at the path of the bundle; others start in an
    empty directory.

    Args:
        mode: How attempts are isolated.
        run_later: Runs a function outside the loop, because removing a task's files can take minutes.
        compiled: Returns the directory with a `python`'s compiled files for a source directory; empty if there is none.
    """

    def __init__(
        self,
        paths: WorkPaths,
        mode: IsolationMode,
        run_later: Callable[[Callable[[], None]], object],
        compiled: Callable[[Path, str], str] = lambda tree, python: "",  # noqa: ARG005
    ) -> None:
        self._paths = paths
        self._mode = mode
        self._run_later = run_later
        self._compiled = compiled
        self._slots = Slots(str(paths.slots), self._throw_away, owner=paths.uid)
        self._taken: dict[str, Slot] = {}
        self._keys: dict[str, tuple[str, str]] = {}
        self._plain: set[str] = set()  # attempts with nothing of their own besides
        self._own_environment = worker_environment().virtual_env

    def needs_copy(self, prepared: PreparedEnvironment) -> bool:
        """Return whether the attempt needs `copy` before its start."""
        return self._mode is not IsolationMode.OVERLAY and prepared.bundle_dir is not None

    async def copy(self, attempt_id: str, prepared: PreparedEnvironment) -> PreparedEnvironment:
        """Copy the bundle for one attempt; return the environment with the path of the copy. Raises OSError."""
        if prepared.bundle_dir is None or not self.needs_copy(prepared):
            return prepared
        bundle = self._paths.bundle_of(prepared.bundle_dir)
        directory = self._paths.layer(attempt_id)
        given_up = threading.Event()
        try:
            await asyncio.to_thread(_copy_unless, given_up, bundle, directory, self._paths.uid)
        except asyncio.CancelledError:
            given_up.set()
            raise
        if self._mode is IsolationMode.BIND:
            return prepared
        return _moved(prepared, str(bundle), private_copy(directory))

    def mounts(self, attempt_id: str, prepared: PreparedEnvironment) -> tuple[Mount, ...]:
        """Return the attempt's mounts over shared directories; call `make` first. Raises OSError."""
        if self._mode is IsolationMode.COPY:
            if prepared.bundle_dir is None:
                self._plain.add(attempt_id)
            return ()
        bundle = "" if prepared.bundle_dir is None else str(self._paths.bundle_of(prepared.bundle_dir))
        # The worker's own environment cannot be written anyway; a job without files needs no namespace for that.
        environment = prepared.virtual_env if bundle or prepared.virtual_env != self._own_environment else ""
        if self._paths.uid and Path(environment).parent != self._paths.envs:
            # It cannot write there, as whoever it is. And what is elsewhere may become a link while root mounts it.
            environment = ""
        layered = self._mode is IsolationMode.OVERLAY
        directory = self._taken[attempt_id].own if layered else self._paths.layer(attempt_id)
        mounts = mounts_of(self._mode, bundle, environment, directory, partial(self._compiled_of, prepared))
        if not mounts:
            self._plain.add(attempt_id)
        elif layered:
            self._slots.put_on(self._taken[attempt_id], mounts)
        return mounts

    def bundle_place(self, attempt_id: str, prepared: PreparedEnvironment) -> tuple[str, str] | None:
        """Return the path of an attempt's workspace, and of its own copy if it has one; None for no workspace."""
        if prepared.bundle_dir is None:
            return None
        if self._mode is IsolationMode.OVERLAY:
            return str(self._paths.bundle_of(prepared.bundle_dir)), ""
        copy = private_copy(self._paths.layer(attempt_id))
        return (str(self._paths.bundle_of(prepared.bundle_dir)) if self._mode is IsolationMode.BIND else copy), copy

    def _compiled_of(self, prepared: PreparedEnvironment, tree: str) -> str:
        is_ours = Path(tree).parent in (self._paths.bundles, self._paths.envs)
        return self._compiled(Path(tree), f"{prepared.bin_dirs[0]}/python") if is_ours and prepared.bin_dirs else ""

    def make(self, attempt_id: str, prepared: PreparedEnvironment, relative: str = "") -> str:
        """Create the attempt's directories; return its working directory as seen through its mounts.

        Args:
            attempt_id: The attempt.
            prepared: The environment of the attempt.
            relative: Its working directory in the workspace; created if missing, because bundles contain no empty
                directories.

        Raises:
            StartFailed: `relative` is a file.
            OSError: The host cannot create them.
        """
        place = os.path.join(prepared.bundle_dir, relative) if prepared.bundle_dir is not None else ""
        try:
            is_directory = not place or stat.S_ISDIR(os.stat(place).st_mode)
            is_there = True
        except NotADirectoryError:
            is_directory, is_there = False, True
        except FileNotFoundError:
            is_directory, is_there = True, False
        key = _key(prepared)
        slot = self._taken[attempt_id] = self._slots.take(key if is_there else None)
        self._keys[attempt_id] = key
        if not is_there:
            slot.has_own = True
            self._make_own(attempt_id, prepared, os.path.realpath(place))
        if not is_directory:
            raise StartFailed(f"the working directory {relative!r} is a file in the workspace")
        return place or slot.working

    def _make_own(self, attempt_id: str, prepared: PreparedEnvironment, path: str) -> None:
        """Create a directory in the attempt's private part of the bundle. Raises StartFailed, OSError."""
        own = private_copy(self._paths.layer(attempt_id))
        bundle = own if self._mode is IsolationMode.COPY else str(self._paths.bundle_of(prepared.bundle_dir or Path()))
        relative = os.path.relpath(path, os.path.realpath(bundle))
        if relative.split("/")[0] == "..":
            raise StartFailed(f"the working directory {path} does not exist on the host or in the workspace")
        if self._mode is IsolationMode.OVERLAY:
            place = self._taken[attempt_id].own
            own = bundle_layer(place)
            for directory, mode in ((place, 0o700), (own, 0o755)):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(directory, mode)
        make_below(own, relative, self._paths.uid)

    def remove(self, attempt_id: str) -> None:
        """Move the attempt's directories away, whatever their modes, and schedule their removal."""
        slot = self._taken.pop(attempt_id, None)
        key = self._keys.pop(attempt_id, ("", ""))
        if slot is not None:
            self._slots.give(slot, key)
        if attempt_id in self._plain:
            self._plain.remove(attempt_id)
        elif not remove_unused_layers(layers := self._paths.layer(attempt_id)):
            self._throw_away(layers)

    def temporary(self, attempt_id: str) -> str:
        """Return the TMPDIR that was created for an attempt."""
        return self._taken[attempt_id].temporary

    def slot(self, attempt_id: str) -> str:
        """Return the directory of the attempt's slot, for `adopt` in the next worker process."""
        return self._taken[attempt_id].path

    def places(self, attempt_id: str) -> tuple[str, ...]:
        """Return the directories that contain all the attempt's writes to its workspace and TMPDIR."""
        slot = self._taken[attempt_id].path
        return (slot,) if self._mode is IsolationMode.OVERLAY else (slot, self._paths.layer(attempt_id))

    def adopt(self, attempt_id: str, slot: str) -> None:
        """Assign this slot, recorded by an earlier worker process, to an attempt that is still running."""
        self._taken[attempt_id] = Slot(slot, has_own=True, owner=self._paths.uid)

    def keep_only(self, attempt_ids: Iterable[str]) -> None:
        """Remove the directories of an earlier worker's attempts, except these attempts."""
        self._slots.keep_only(self._taken.values())
        kept = set(map(short_name, attempt_ids))
        for name in os.listdir(self._paths.layers):
            if name not in kept:
                self._throw_away(f"{self._paths.layers}/{name}")
        for name in os.listdir(self._paths.trash):
            self._remove_later(f"{self._paths.trash}/{name}")

    def _throw_away(self, path: str) -> None:
        target = f"{self._paths.trash}/{secrets.token_hex(8)}"
        try:
            move_away(path, target)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("%s cannot be removed: %s", path, error)
            return
        self._remove_later(target)

    def _remove_later(self, path: str) -> None:
        self._run_later(lambda: remove_tree(path))


def _key(prepared: PreparedEnvironment) -> tuple[str, str]:
    """Return the key of the bundle and environment below an attempt's layers."""
    return ("" if prepared.bundle_dir is None else str(prepared.bundle_dir), prepared.virtual_env)


def make_below(directory: str, relative: str, owner: int) -> None:
    """Create directories, without following links, where another process may write. Raises OSError.

    Args:
        directory: The existing directory.
        relative: Path below `directory`; existing directories are not changed.
        owner: The uid of the created directories; 0 for this process's.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    at = os.open(directory, flags)
    try:
        for name in filter(None, relative.split("/")):
            made = False
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=at)
                made = True
            above, at = at, os.open(name, flags, dir_fd=at)
            os.close(above)
            if made and owner:
                os.fchown(at, owner, owner)
    finally:
        os.close(at)


def _copy_unless(given_up: threading.Event, bundle: Path, directory: str, owner: int) -> None:
    """Copy a bundle, and remove the copy if the operation was cancelled. Raises OSError."""
    if not given_up.is_set():
        os.mkdir(directory, 0o700)
        copy_tree(bundle, Path(private_copy(directory)))
        if owner:
            own_tree(Path(private_copy(directory)), owner)
            os.chmod(directory, 0o755)
    if given_up.is_set():
        remove_tree(directory)


def _moved(prepared: PreparedEnvironment, bundle: str, copy: str) -> PreparedEnvironment:
    """Return the environment with a copy of the bundle in place of the bundle."""

    def moved(path: str) -> str:
        return copy + path[len(bundle) :] if path == bundle or path.startswith(f"{bundle}/") else path

    return replace(
        prepared,
        bin_dirs=tuple(map(moved, prepared.bin_dirs)),
        python_path=tuple(map(moved, prepared.python_path)),
        bundle_dir=None if prepared.bundle_dir is None else Path(moved(str(prepared.bundle_dir))),
    )
