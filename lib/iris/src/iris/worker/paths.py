"""The paths of a worker's files, below its work directory."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_LONGEST_NAME: Final = 180
_DIRECTORIES: Final = (
    *("blobs", "bundles", "compiled", "envs", "errors", "layers", "logs", "scratch"),
    *("sites", "slots", "tokens", "trash"),
)
_CACHES: Final = frozenset({"blobs", "bundles", "compiled", "envs", "sites"})
_FOR_ROOT: Final = frozenset({"logs", "trash"})
_FOR_USER: Final = ("errors", "home")
_RESULT: Final = ".value"

_NOTICE: Final = ".notice"

OWN_ERRORS: Final = ".d"
"""Ending of the directory in which a container has the files of `errors`."""

ENV_FILE: Final = ".env"
"""Ending of the file with a container's variables."""


class WorkPaths:
    """Paths of files and directories below `root`.

    Args:
        root: The work directory.
        uid: The uid of tasks with separate directories: their caches are below `caches`, read-only for tasks, and all
            other files except logs below `users`. Root owns both; tasks write only to their own directories in them,
            which no task can replace. 0 for tasks that run as the worker's user.
    """

    def __init__(self, root: Path, uid: int = 0) -> None:
        self.root = root
        self.uid = uid
        own = self._own = root / "users" / str(uid) if uid else root
        caches = self._caches = root / "caches" / str(uid) if uid else root
        self.blobs = caches / "blobs"
        self.bundles = caches / "bundles"
        self.compiled = caches / "compiled"
        self.envs = caches / "envs"
        self.errors = own / "errors"
        self.home = own / "home"
        """Home directory of a separate uid."""
        self.layers = own / "layers"
        self.logs = root / "logs"
        self.scratch = own / "scratch"
        self.sites = caches / "sites"
        self.slots = own / "slots"
        self.tokens = own / "tokens"
        self.trash = own / "trash"
        self.lock = root / "worker.lock"
        self._logs = str(self.logs)
        self._tokens = str(self.tokens)
        self._errors = str(self.errors)

    def make(self) -> None:
        """Create the directories, readable only by their owner; also repair directories that a task removed or made
        inaccessible.
        """
        if self.uid:
            self._make_for_user()
            return
        for directory in (self.root, *(self.root / name for name in _DIRECTORIES)):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if directory.stat().st_mode & 0o700 != 0o700:
                directory.chmod(0o700)  # a task has taken the rights away

    def _make_for_user(self) -> None:
        for directory in (self.root, self._own.parent, self._caches.parent):
            directory.mkdir(exist_ok=True, mode=0o711)
            directory.chmod(0o711)
        for directory in (self._own, self._caches):
            directory.mkdir(exist_ok=True, mode=0o700)
            os.chown(directory, 0, self.uid)
            directory.chmod(0o710)  # others do not get as far as what is below
        for name in _DIRECTORIES:
            directory = (self.root if name == "logs" else self._caches if name in _CACHES else self._own) / name
            directory.mkdir(exist_ok=True, mode=0o700 if name in _FOR_ROOT else 0o755)
        for name in _FOR_USER:
            directory = self._own / name
            directory.mkdir(exist_ok=True, mode=0o700)
            directory.chmod(0o700)
            os.chown(directory, self.uid, self.uid)

    def clear_attempts(self, kept: Iterable[tuple[str, str]]) -> None:
        """Remove the files of an earlier worker's attempts, except those still running.

        Args:
            kept: The ids of the running attempts and their jobs.
        """
        from iris.worker.host.removal import remove_tree

        names = {safe_name(name) for pair in kept for name in pair}
        names |= {name + ending for name in names for ending in (_RESULT, _NOTICE, OWN_ERRORS, ENV_FILE)}
        for directory in (self.errors, self.logs, self.tokens):
            for path in directory.iterdir():
                if path.name not in names:
                    remove_tree(str(path))

    def layer(self, attempt_id: str) -> str:
        """Return the directory of an attempt's layers over its bundle and environment, or of its copies."""
        return f"{self.layers}/{short_name(attempt_id)}"

    # These are asked for by every attempt, so they are plain strings: a Path costs ten times as much.

    def log(self, attempt_id: str) -> str:
        return f"{self._logs}/{safe_name(attempt_id)}"

    def error(self, attempt_id: str) -> str:
        return f"{self._errors}/{safe_name(attempt_id)}"

    def result(self, attempt_id: str) -> str:
        """Return the file for a callable's return value (`callable_main.write_result`)."""
        return self.error(attempt_id) + _RESULT

    def notice(self, attempt_id: str, is_contained: bool = False) -> str:
        """Return the file by which an attempt asks for notices and gets one (`iris.preemption`)."""
        path = self.error(attempt_id)
        return f"{path}{OWN_ERRORS}/{safe_name(attempt_id)}{_NOTICE}" if is_contained else path + _NOTICE

    def bundle_of(self, path: Path) -> Path:
        """Return the directory of the whole bundle that contains `path`."""
        return self.bundles / path.relative_to(self.bundles).parts[0]

    def token(self, holder: str) -> str:
        """Return the token file of an attempt, or of a job whose attempts share it."""
        return f"{self._tokens}/{safe_name(holder)}"


def safe_name(identifier: str) -> str:
    """Return a unique file name for an id; long ones end in a digest."""
    # Id parts hold neither "~" nor ":", so no two ids meet.
    name = identifier.strip("/").replace("/", "~").replace(":", "~~")
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}~~~{hashlib.sha256(identifier.encode()).hexdigest()[:24]}"


def short_name(identifier: str) -> str:
    """Return a name of ten letters for an id, unique among the ids in use."""
    return hashlib.blake2b(identifier.encode(), digest_size=5).hexdigest()
