"""Outputs that appear whole or not at all, written by functions that take a path."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator

from rigging.errors import JobFailed
from rigging.filesystem import TEMPORARY_PREFIX, local_path, upload_file, url_to_fs


class OutputWriter:
    """Gives functions local paths to write to, and moves what they wrote into place.

    A local output is written in a folder of the writer's own beside it, and renamed; any other in a temporary folder of
    this machine, and sent by one put. The file has the output's own name there, whose extension may matter.
    """

    def __init__(self) -> None:
        self._name = f"{TEMPORARY_PREFIX}{uuid.uuid4().hex[:12]}"
        self._beside: dict[str, str] = {}
        self._scratch: str | None = None

    def __enter__(self) -> OutputWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for folder in (*self._beside.values(), self._scratch):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    def exists(self, output: str) -> bool:
        """Whether the output is there already."""
        path = local_path(output)
        if path is not None:
            return os.path.isfile(path)
        fs, remote = url_to_fs(output)
        return bool(fs.isfile(remote))

    @contextlib.contextmanager
    def writing(self, output: str) -> Iterator[str]:
        """A path to write to; the file is in its place after the block, and nowhere if that raises.

        Raises:
            JobFailed: No file was written to that path.
        """
        path = local_path(output)
        folder = self._scratch_folder() if path is None else self._folder_beside(path)
        place = os.path.join(folder, os.path.basename(output if path is None else path))
        try:
            yield place
            if not os.path.isfile(place):
                raise JobFailed(f"the function wrote no file to its output path {place}")
            if path is None:
                upload_file(place, output)
            else:
                os.replace(place, path)
        finally:
            _remove(place)

    def _folder_beside(self, path: str) -> str:
        directory = os.path.dirname(path)
        folder = self._beside.get(directory)
        if folder is None:
            folder = os.path.join(directory, self._name)
            os.makedirs(folder, exist_ok=True)
            self._beside[directory] = folder
        return folder

    def _scratch_folder(self) -> str:
        if self._scratch is None:
            self._scratch = tempfile.mkdtemp(prefix="marin-map-files-")
        return self._scratch


def _remove(place: str) -> None:
    """What a failed function has left, file or folder; nothing after a success."""
    try:
        os.unlink(place)
    except FileNotFoundError:
        pass
    except OSError:
        shutil.rmtree(place, ignore_errors=True)
