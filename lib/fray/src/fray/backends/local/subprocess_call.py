"""Run callables of the local backend in separate processes."""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from fray.backends.common import child
from fray.backends.common.process_owner import ProcessOwner
from fray.backends.common.processes import OutputFile, ProcessTree
from fray.backends.local.fork_server import ForkRequest
from fray.backends.local.forks import ForkServer
from fray.backends.local.scratch import ScratchFolder
from fray.context import CLIENT_ENV
from fray.sending import pickling
from fray.sending.remote_errors import unpack_error
from fray.types import CallableEntrypoint
from rigging.results import ResultUnavailable, unpack_result

logger = logging.getLogger(__name__)

_SMALL_BYTES = 64 << 10


class CallFolders(NamedTuple):
    """The folders for the files of a client's calls.

    Args:
        scratch: For files to remove at the client's shutdown.
        results: For large return values, which exist as long as the handles of their jobs.
    """

    scratch: ScratchFolder
    results: ScratchFolder


class _ValueFile:
    """A large return value. Its file is removed when this object is collected."""

    def __init__(self, path: Path, folder: ScratchFolder, what: str) -> None:
        self._path = path
        self._folder = folder  # goes when nobody needs it
        self._what = what
        ProcessOwner().at_end(self, partial(path.unlink, missing_ok=True))

    def __call__(self) -> Any:
        try:
            packed = self._path.read_bytes()
        except OSError as error:
            raise ResultUnavailable(f"the result of {self._what} cannot be read: {error}") from error
        return unpack_result(packed, self._what)


class SubprocessCall:
    """A pickled callable, and how to run it in a process.

    Args:
        payload: The file with the pickle, removed when this object is collected.
        folders: The folders for its files.
        forks: Forks its process, where possible.
    """

    def __init__(self, payload: Path, folders: CallFolders, forks: ForkServer) -> None:
        self._payload = payload
        self._folders = folders
        self._forks = forks
        ProcessOwner().at_end(self, partial(payload.unlink, missing_ok=True))

    @classmethod
    def prepare(
        cls, entry: CallableEntrypoint, what: str, workspace: str | None, folders: CallFolders, forks: ForkServer
    ) -> "SubprocessCall":
        """Pickle a callable to a file. Later changes to its arguments have no effect.

        Args:
            entry: The callable entry point.
            what: The callable's name in errors.
            workspace: The working directory of the process; None for the caller's.
            folders: The folders for its files.
            forks: Forks its process, where possible.

        Raises:
            InvalidRequest: The callable cannot be pickled.
        """
        roots = [os.path.realpath(path) for path in sys.path]
        importable = [os.path.realpath(workspace or os.getcwd()), *roots]
        call = pickling.dumps((entry.callable, entry.args, dict(entry.kwargs)), what, importable)
        payload = folders.scratch.new_path("call")
        child.write_payload(str(payload), call, roots)
        return cls(payload, folders, forks)

    def new_result(self) -> Path:
        """Return the path for the exception of one run. The path for its value is derived from it."""
        return self._folders.scratch.new_path("error")

    def start(self, result: Path, env: Mapping[str, str], cwd: str | None, output: OutputFile) -> ProcessTree:
        """Start the process of one run, in `cwd` and with the variables `env`. Raise OSError.

        Args:
            result: The path for its exception (see `new_result`).
            env: The complete environment.
            cwd: The working directory; None for the caller's.
            output: The file for its stdout and stderr.
        """
        forked = self._forks.start(ForkRequest(str(self._payload), str(result), env), cwd, output)
        if forked is not None:
            return forked
        # -P: files of the workspace must not stand in for our own modules while we start.
        argv = [sys.executable, "-P", "-m", "fray.backends.common.child", str(self._payload), str(result)]
        return ProcessTree.start(argv, env, cwd, output, with_lifeline=True)

    @staticmethod
    def environment(max_threads: int) -> Mapping[str, str]:
        """Return variables that make `current_client()` in that process a local client with processes."""
        return {CLIENT_ENV: "local://?" + urlencode({"processes": 1, "max_threads": max_threads})}

    def returned(self, result: Path, what: str) -> Callable[[], Any] | None:
        """Return a loader for a run's return value; None if the run did not return.

        Args:
            result: The argument of `start`.
            what: Names the job in errors.

        Returns:
            The loader returns the value, or raises like `unpack_result`.
        """
        file = result.with_name(result.name + child.VALUE)
        file.with_name(file.name + ".part").unlink(missing_ok=True)
        try:
            if file.stat().st_size > _SMALL_BYTES:
                # Small ones need no file; a large one outlives the client's shutdown, as its job's handle does.
                return _ValueFile(file.rename(self._folders.results.new_path("value")), self._folders.results, what)
            packed = file.read_bytes()
        except FileNotFoundError:
            return None
        file.unlink()
        return partial(unpack_result, packed, what)

    @staticmethod
    def raised(result: Path, where: str) -> BaseException | None:
        """Return the exception of a run; None if there was none, or it was not reported."""
        result.with_name(result.name + ".part").unlink(missing_ok=True)
        try:
            packed = result.read_bytes()
        except FileNotFoundError:
            return None
        result.unlink()
        try:
            return unpack_error(packed, where)
        except Exception:  # whatever a file that was tampered with does when it is unpickled
            logger.exception("%s: cannot read its exception", where)
            return None
