"""Progress of a copy into an object store, kept beside the mirror's locks so that a kill loses nothing."""

import contextlib
import hashlib
import json
import os

from rigging.copying.request import CopyRequest
from rigging.prefixes.paths import PRIVATE_DIRECTORY
from rigging.prefixes.prefix_store import PrefixStore


class Journal:
    """A small object with the name of an upload or rewrite under way, for one file version."""

    __slots__ = ("_destination", "_path", "directory")

    def __init__(self, request: CopyRequest, destination: PrefixStore) -> None:
        key = f"{request.path}|{request.source.prefix.url}|{request.version.fingerprint()}"
        name = hashlib.sha256(os.fsencode(key)).hexdigest()[:32]
        self._destination = destination
        self._path = destination.path(f"{PRIVATE_DIRECTORY}/copies/{name}.json")
        self.directory = destination.path(f"{PRIVATE_DIRECTORY}/copies/{name}")

    def read(self) -> str:
        """Return what was remembered, "" when nothing was."""
        try:
            parsed = json.loads(self._destination.fs.cat_file(self._path))
        except (FileNotFoundError, ValueError):
            return ""
        return str(parsed.get("resume", "")) if isinstance(parsed, dict) else ""

    def write(self, resume: str) -> None:
        """Remember `resume` for the copier that goes on after a kill."""
        self._destination.fs.pipe_file(self._path, json.dumps({"resume": resume}).encode())

    def clear(self) -> None:
        """Forget it."""
        with contextlib.suppress(FileNotFoundError):
            self._destination.fs.rm_file(self._path)
