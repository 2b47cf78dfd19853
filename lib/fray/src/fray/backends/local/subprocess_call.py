"""Callables of the local backend in processes of their own."""

import logging
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

from fray import pickling
from fray.backends.common.processes import OutputFile, ProcessTree
from fray.backends.local import child
from fray.backends.local.fork_server import ForkRequest
from fray.backends.local.forks import ForkServer
from fray.backends.local.scratch import ScratchFolder
from fray.context import CLIENT_ENV
from fray.process_owner import ProcessOwner
from fray.remote_errors import unpack_error
from fray.types import CallableEntrypoint

logger = logging.getLogger(__name__)


class SubprocessCall:
    """A callable, kept as its pickle, and how to run it in a process.

    Args:
        payload: The file with the pickle; removed when this is collected.
        scratch: Where files go.
        forks: Makes its process, where it can.
    """

    def __init__(self, payload: Path, scratch: ScratchFolder, forks: ForkServer) -> None:
        self._payload = payload
        self._scratch = scratch
        self._forks = forks
        ProcessOwner().at_end(self, partial(payload.unlink, missing_ok=True))

    @classmethod
    def prepare(
        cls, entry: CallableEntrypoint, what: str, workspace: str | None, scratch: ScratchFolder, forks: ForkServer
    ) -> "SubprocessCall":
        """Pickle a callable into a file; what becomes of its arguments later changes nothing.

        Args:
            entry: What to call.
            what: Names it in errors.
            workspace: The directory its process will be in; None for this one.
            scratch: Where files go.
            forks: Makes its process, where it can.

        Raises:
            InvalidRequest: It cannot be pickled.
        """
        roots = [os.path.realpath(path) for path in sys.path]
        importable = [os.path.realpath(workspace or os.getcwd()), *roots]
        call = pickling.dumps((entry.callable, entry.args, dict(entry.kwargs)), what, importable)
        payload = scratch.new_path("call")
        child.write_payload(str(payload), call, roots)
        return cls(payload, scratch, forks)

    def new_result(self) -> Path:
        """The file for the exception of one run."""
        return self._scratch.new_path("error")

    def start(self, result: Path, env: Mapping[str, str], cwd: str | None, output: OutputFile) -> ProcessTree:
        """Start the process of one run, in `cwd` and with the variables `env`. Raises OSError.

        Args:
            result: Where its exception goes (see `new_result`).
            env: Its whole environment.
            cwd: Its directory; None for ours.
            output: Where its stdout and stderr go.
        """
        forked = self._forks.start(ForkRequest(str(self._payload), str(result), env), cwd, output)
        if forked is not None:
            return forked
        # -P: files of the workspace must not stand in for our own modules while we start.
        argv = [sys.executable, "-P", "-m", "fray.backends.local.child", str(self._payload), str(result)]
        return ProcessTree.start(argv, env, cwd, output, with_lifeline=True)

    @staticmethod
    def environment(max_threads: int) -> Mapping[str, str]:
        """Variables that make `current_client()` a local client of that process, with processes too."""
        return {CLIENT_ENV: "local://?" + urlencode({"processes": 1, "max_threads": max_threads})}

    @staticmethod
    def raised(result: Path, where: str) -> BaseException | None:
        """Return the exception of a run; None when it ended without one, or without telling which."""
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
