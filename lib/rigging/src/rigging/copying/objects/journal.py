"""The progress of a copy into an object store. It is stored beside the mirror's locks, so that a kill loses nothing."""

import contextlib
import hashlib
import json
import os

from rigging.copying.request import CopyRequest
from rigging.prefixes.paths import PRIVATE_DIRECTORY
from rigging.prefixes.prefix_store import PrefixStore


class Journal:
    """A small object with the name of an unfinished upload or rewrite of one file version."""

    __slots__ = ("_destination", "_path", "directory")

    def __init__(self, request: CopyRequest, destination: PrefixStore) -> None:
        key = f"{request.path}|{request.source.prefix.url}|{request.version.fingerprint()}"
        name = hashlib.sha256(os.fsencode(key)).hexdigest()[:32]
        self._destination = destination
        self._path = destination.path(f"{PRIVATE_DIRECTORY}/copies/{name}.json")
        self.directory = destination.path(f"{PRIVATE_DIRECTORY}/copies/{name}")

    def read(self) -> str:
        """Return the stored name; "" if there is none."""
        try:
            parsed = json.loads(self._destination.fs.cat_file(self._path))
        except (FileNotFoundError, ValueError):
            return ""
        return str(parsed.get("resume", "")) if isinstance(parsed, dict) else ""

    def write(self, resume: str) -> None:
        """Store `resume` for the copier that continues after a kill."""
        self._destination.fs.pipe_file(self._path, json.dumps({"resume": resume}).encode())

    def clear(self) -> None:
        """Delete the object."""
        with contextlib.suppress(FileNotFoundError):
            self._destination.fs.rm_file(self._path)
