"""The manifest: a JSON line for each file, written during the run and completed at the end."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import time
from typing import IO

from marin.run.mapping.state import FinishedFile
from rigging.errors import Conflict, InvalidRequest
from rigging.filesystem import local_path, upload_file, url_to_fs

UNFINISHED = ".partial"
"""The suffix of a manifest's name until all its files are finished."""

_UPLOAD_SECONDS = 30.0
_UPLOAD_SHARE = 20


class Manifest:
    """Lines of `{"input", "output", "status", "error"}`, in the order in which the files finished.

    Until `close` they are in a file beside it that ends with `.partial`. A local file grows continuously. A remote file
    is replaced now and then, to limit the time of uploads.

    Raises:
        InvalidRequest: (on creation) The manifest names no file, or cannot be created.
        Conflict: (on creation) Another process is writing the manifest.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.url = _checked(url)
        self._path = local_path(self.url)
        self._sent_at = time.monotonic()
        self._interval = _UPLOAD_SECONDS
        if self._path is None:
            self._stream: IO[str] = tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".jsonl")  # noqa: SIM115
            try:
                # That it cannot be written is to be known before the work, not after it.
                self._send()
            except Exception as error:
                cause = f"{type(error).__name__}: {error}"
                raise InvalidRequest(f"map_files: manifest {self.url!r} cannot be written: {cause}") from error
        else:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            self._stream = _open_alone(self._path + UNFINISHED, self.url)

    def add(self, files: tuple[FinishedFile, ...]) -> None:
        """Write the lines of these files."""
        for task, status, error, _ in files:
            line = {"input": task.input, "output": task.output, "status": str(status), "error": error or None}
            self._stream.write(_as_json(line) + "\n")
        self._stream.flush()
        if self._path is None and time.monotonic() - self._sent_at > self._interval:
            self._send()

    def close(self) -> None:
        """Give the complete manifest its final name."""
        self._stream.flush()
        if self._path is not None:
            os.replace(self._path + UNFINISHED, self._path)
        else:
            upload_file(self._stream.name, self.url)
            fs, partial = url_to_fs(self.url + UNFINISHED)
            if fs.exists(partial):
                fs.rm_file(partial)
        self._stream.close()

    def abandon(self) -> None:
        """Leave the incomplete file under its temporary name."""
        if self._stream.closed:
            return
        if self._path is None:
            self._send()
        self._stream.close()

    def _send(self) -> None:
        began = time.monotonic()
        upload_file(self._stream.name, self.url + UNFINISHED)
        self._sent_at = time.monotonic()
        self._interval = max(_UPLOAD_SECONDS, _UPLOAD_SHARE * (self._sent_at - began))


def _checked(url: str | os.PathLike[str]) -> str:
    text = os.fspath(url) if isinstance(url, os.PathLike) else url
    if not isinstance(text, str) or not text:
        raise InvalidRequest(f"map_files: manifest {url!r} is not a path")
    path = local_path(text)
    if text.endswith("/") or (path is not None and os.path.isdir(path)):
        raise InvalidRequest(f"map_files: manifest {text!r} is a folder; it must be the path of a file")
    return text


def _open_alone(path: str, url: str) -> IO[str]:
    """Open and truncate a file for writing. Refuse if another process has it open for writing."""
    stream = open(path, "a", encoding="utf-8")  # noqa: SIM115
    try:
        # Not flock: that is held by all that this process forks.
        fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(stream.fileno()).st_ino != os.stat(path).st_ino:
            raise BlockingIOError
    except (BlockingIOError, FileNotFoundError):
        stream.close()
        raise Conflict(f"map_files: manifest {url!r} is being written by another run; wait for its end") from None
    except OSError:
        # A filesystem without locks.
        pass
    stream.truncate(0)
    return stream


def _as_json(line: dict[str, str | None]) -> str:
    text = json.dumps(line, ensure_ascii=False)
    # Names of files may be no text, of which Python makes what UTF-8 has no way to write.
    return text if _is_utf8(text) else json.dumps(line)


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
