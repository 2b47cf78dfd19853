"""The output path of a step."""

from __future__ import annotations

import logging
import os
import re
from typing import Any, Final

from marin.execution.config.prefix import prefix_or_default, under_prefix
from marin.execution.config.step import ExecutorStep
from marin.execution.version.step_version import Step, StepVersion, VersionCache
from rigging.errors import InvalidRequest
from rigging.filesystem import local_path
from rigging.filesystem.location import path_in

logger = logging.getLogger(__name__)

# Bytes: NAME_MAX and PATH_MAX of Linux; keys of GCS and S3; the executor's own files in an output, temporary ones too.
_MOST_OF_A_NAME: Final = 255
_MOST_ON_DISKS: Final = 4095
_MOST_IN_BUCKETS: Final = 1024
_ROOM_FOR_FILES: Final = 64
_SLASHES: Final = re.compile("/{2,}")
_BUCKETS: Final = ("gs", "gcs", "s3", "s3a")


def output_path_for(step: Step, version: StepVersion, prefix: str) -> str:
    """Return the output path of a step. Warn if an override differs from the computed path.

    Args:
        step: The step.
        version: Its version.
        prefix: The storage root.
    """
    computed = path_in(prefix, version.hashed_name)
    if step.override_output_path is None:
        return computed
    override = under_prefix(prefix, step.override_output_path)
    if override.rstrip("/") != computed:
        logger.warning(
            "step %r: output path %s is fixed by override_output_path; its version would be at %s",
            step.name,
            override,
            computed,
        )
    return override


def tagged_path(output_path: str, tag: str) -> str:
    """Return the path of an output that `rerun_changed` makes beside the one at `output_path`."""
    return f"{output_path.rstrip('/')}@{tag}"


class Places:
    """The location of each output path. All spellings, such as `PREFIX//a` and symlinked folders, have the same
    location.
    """

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}
        self._known: dict[str, str] = {}

    def of(self, path: str) -> str:
        """Return a path's location, cached from its first lookup."""
        place = self._known.get(path)
        if place is None:
            place = self._known[path] = self.resolve(path)
        return place

    def resolve(self, path: str) -> str:
        """Return a path's current location without caching it. Its folder's location is cached."""
        local = local_path(path)
        if local is None:
            scheme, separator, rest = path.partition("://")
            return scheme + separator + _SLASHES.sub("/", rest).rstrip("/")
        folder, _, name = local.rstrip("/").rpartition("/")
        real = self._folders.get(folder)
        if real is None:
            real = self._folders[folder] = os.path.realpath(folder or "/")
        if os.path.islink(local):
            return os.path.realpath(local)
        return f"{real}/{name}"


def check_path_length(name: str, output_path: str, what: str = "step") -> None:
    """Check that files can be created in an output path.

    Args:
        name: The step's name.
        output_path: Its output path.
        what: The kind of path, for the message.

    Raises:
        InvalidRequest: The path is longer than its storage allows.
    """
    if len(output_path) <= _MOST_OF_A_NAME and output_path.isascii():
        return  # as nearly always: no part of it can be too long
    local = local_path(output_path)
    scheme, _, rest = output_path.partition("://")
    if local is not None:
        path, kind, most = local, "a path on a disk", _MOST_ON_DISKS
    elif scheme in _BUCKETS:
        path, kind, most = rest.partition("/")[2], "a key in a bucket", _MOST_IN_BUCKETS
    else:
        return
    if (size := _size(path)) > most - _ROOM_FOR_FILES:
        raise InvalidRequest(
            f"{what} {name!r}: its output path has {size} bytes, of at most {most - _ROOM_FOR_FILES} ({kind} may have "
            f"{most}, files in it need {_ROOM_FOR_FILES}); give it a shorter name or prefix: {output_path}"
        )
    longest = max(path.split("/"), key=_size)
    if local is not None and (size := _size(longest)) > _MOST_OF_A_NAME:
        raise InvalidRequest(
            f"{what} {name!r}: a part of its output path has {size} bytes, of at most {_MOST_OF_A_NAME} for a name on "
            f"a disk; give the {what} a shorter name, or divide it by '/': {longest}"
        )


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def compute_output_path(
    name: str, config: Any, *, override_output_path: str | None = None, prefix: str | None = None
) -> str:
    """Return the output path of a step with this name and config.

    Args:
        name: The step's name.
        config: Its config, including placeholders.
        override_output_path: A fixed path to use instead, joined to the prefix when relative.
        prefix: The storage root. Defaults to the process's own prefix.

    Raises:
        InvalidRequest: The name would leave the prefix, or a versioned value has no stable encoding.
    """
    step = ExecutorStep[Any](name=name, fn=None, config=config, override_output_path=override_output_path)
    return output_path_for(step, VersionCache().version_of(step), prefix_or_default(prefix))
