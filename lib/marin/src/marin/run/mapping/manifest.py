"""The manifest: a JSON line for each file, written as it goes and whole at the end."""

from __future__ import annotations

import json
import os
import tempfile
import time
from typing import IO

from marin.run.mapping.state import FinishedFile
from rigging.filesystem import local_path, upload_file, url_to_fs

_UPLOAD_SECONDS = 30.0
_UPLOAD_SHARE = 20


class Manifest:
    """Lines of `{"input", "output", "status", "error"}`, in the order in which the files were finished.

    Until `close` they are in a file beside it with `.partial` at its name's end. That grows as it goes where the
    manifest is local; elsewhere it is replaced now and then, so that sending takes a small part of the time.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._path = local_path(url)
        self._sent_at = time.monotonic()
        self._interval = _UPLOAD_SECONDS
        if self._path is None:
            self._stream: IO[str] = tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".jsonl")  # noqa: SIM115
        else:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            self._stream = open(self._path + ".partial", "w", encoding="utf-8")  # noqa: SIM115

    def add(self, files: tuple[FinishedFile, ...]) -> None:
        """Write the lines of these files."""
        for task, status, error, _ in files:
            line = {"input": task.input, "output": task.output, "status": str(status), "error": error or None}
            self._stream.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._stream.flush()
        if self._path is None and time.monotonic() - self._sent_at > self._interval:
            self._send()

    def close(self) -> None:
        """Put the whole manifest in its place."""
        self._stream.flush()
        if self._path is not None:
            os.replace(self._path + ".partial", self._path)
        else:
            upload_file(self._stream.name, self.url)
            fs, partial = url_to_fs(self.url + ".partial")
            if fs.exists(partial):
                fs.rm_file(partial)
        self._stream.close()

    def abandon(self) -> None:
        """Leave what there is under the name of the unfinished one."""
        if self._stream.closed:
            return
        if self._path is None:
            self._send()
        self._stream.close()

    def _send(self) -> None:
        began = time.monotonic()
        upload_file(self._stream.name, self.url + ".partial")
        self._sent_at = time.monotonic()
        self._interval = max(_UPLOAD_SECONDS, _UPLOAD_SHARE * (self._sent_at - began))
