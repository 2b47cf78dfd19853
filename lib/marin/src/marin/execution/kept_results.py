"""Storage of the cached results of functions."""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from marin.execution.artifact import Artifact, ArtifactNotFound, DamagedArtifact
from marin.execution.jobs.remote import function_name
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_SUCCESS
from marin.output_files import ARTIFACT_FILE
from rigging.errors import Denied, InvalidRequest
from rigging.filesystem import local_path, read_bytes_or_none, write_bytes_atomic
from rigging.filesystem.location import path_in

SaveFn = Callable[[Any, str], object]
LoadFn = Callable[[str], Any]

logger = logging.getLogger(__name__)

_MISSES_TO_SAY = 3
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_DIGEST_LINE = b"\nsha256:%b\n"
_DIGEST = re.compile(rb"\nsha256:([0-9a-f]{64})\n\Z")

RESULT_FILE = "data.pkl"


class DamagedResult(InvalidRequest):
    """A stored result was changed after it was written, or is missing although its status is SUCCESS."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A stored result; its value may be None."""

    value: Any


class _Misses:
    """Count consecutive calls with equal text, different identities and no stored result."""

    def __init__(self) -> None:
        self._call = ""
        self._paths: set[str] = set()
        self._is_said = False

    def note_hit(self) -> None:
        self._paths.clear()

    def note(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], path: str) -> None:
        try:
            call = _ADDRESS.sub(
                "", ", ".join([*map(repr, args), *(f"{name}={item!r}" for name, item in kwargs.items())])
            )
        except Exception:  # of an argument's own __repr__
            return
        if call != self._call:
            self._call, self._paths = call, set()
        self._paths.add(path)
        if len(self._paths) == _MISSES_TO_SAY and not self._is_said:
            self._is_said = True
            logger.warning(
                "%s(%s): %d calls in a row have equal text but different identities, so each computes its own result: "
                "pass only arguments that matter, or set output_path",
                function_name(fn), call if len(call) <= 200 else call[:200] + "...", _MISSES_TO_SAY,
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ResultStore:
    """Storage of results.

    Attributes:
        own_path: Returns the path of a call's result if no path is given.
    """

    output_path: str | None
    save_fn: SaveFn | None
    load_fn: LoadFn | None
    own_path: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], str]
    misses: _Misses = field(default_factory=_Misses)

    def find(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, Kept | None]:
        """Return the path of a call's result, and the result itself if it is stored and undamaged."""
        path = self.own_path(fn, args, kwargs) if self.output_path is None else self.output_path
        if StatusFile(path).status == STATUS_SUCCESS:
            try:
                kept = Kept(self.load(fn, path))
            except DamagedResult as error:
                self._put_aside(path, error)
            else:
                self.misses.note_hit()
                return path, kept
        if self.output_path is None:
            self.misses.note(fn, args, kwargs, path)
        return path, None

    def _put_aside(self, path: str, error: DamagedResult) -> None:
        """Rename a damaged file, so that the result is computed again."""
        for name in (RESULT_FILE, ARTIFACT_FILE):
            content = read_bytes_or_none(path_in(path, name))
            if content is not None:
                write_bytes_atomic(path_in(path, f"{name}.damaged"), content)
                break
        logger.warning("%s: computed again%s", error, "" if content is None else f"; it is kept as {name}.damaged")
        StatusFile(path).write_status(STATUS_FAILED)

    def save(self, value: Any, path: str) -> None:
        if self.save_fn is None:
            _save(value, path)
            return
        if (local := local_path(path)) is not None:
            os.makedirs(local, exist_ok=True)
        self.save_fn(value, path)

    def load(self, fn: Callable[..., Any], path: str) -> Any:
        """Return the result stored at a path. Raise DamagedResult if it is damaged or missing."""
        if self.load_fn is not None:
            return self.load_fn(path)
        if self.output_path is None:
            _check_own(path_in(path, RESULT_FILE))
        return _load(fn, path)


def _check_own(file: str) -> None:
    """Refuse a local file of another user: by default all users of a machine share one cache directory."""
    local = local_path(file)
    try:
        owner = os.geteuid() if local is None else os.stat(local).st_uid
    except FileNotFoundError:
        return
    if owner not in (os.geteuid(), 0):
        raise Denied(f"{file} belongs to another user, so it is not loaded; set MARIN_PREFIX, or give output_path")


def _save(value: Any, path: str) -> None:
    import cloudpickle

    try:
        content = cloudpickle.dumps(value)
    except Exception as error:
        raise InvalidRequest(
            f"disk_cache: a result of type {type(value).__name__} cannot be pickled ({error}); give save_fn and load_fn"
        ) from error
    # Behind the end of a pickle, where whoever loads it does not look.
    write_bytes_atomic(
        path_in(path, RESULT_FILE), content + _DIGEST_LINE % hashlib.sha256(content).hexdigest().encode()
    )


def _load(fn: Callable[..., Any], path: str) -> Any:
    file = path_in(path, RESULT_FILE)
    stored = read_bytes_or_none(file)
    if stored is None:  # an earlier release made it
        return _load_artifact(fn, path)
    content, digest = stored[: -len(_DIGEST_LINE % (b"0" * 64))], _DIGEST.search(stored)
    if digest is not None and hashlib.sha256(content).hexdigest().encode() != digest[1]:
        raise DamagedResult(f"{file} is damaged: its content does not match its stored digest")
    try:
        return pickle.loads(stored)  # noqa: S301 - from the user's own storage
    except (AttributeError, ImportError):  # a class that is not there any more
        raise
    except Exception as error:
        if digest is not None:
            raise
        raise DamagedResult(f"{file} is damaged or truncated: {type(error).__name__}: {error}") from error


def _load_artifact(fn: Callable[..., Any], path: str) -> Any:
    try:
        annotation = typing.get_type_hints(fn).get("return")
    except (NameError, TypeError):
        annotation = None  # names that only a type checker knows
    try:
        if annotation is None or isinstance(annotation, TypeVar):
            return Artifact.load(path)
        return Artifact.load(path, annotation)
    except ArtifactNotFound as error:
        raise DamagedResult(f"{path_in(path, RESULT_FILE)} is missing, though the status is SUCCESS") from error
    except DamagedArtifact as error:
        raise DamagedResult(str(error)) from error
