"""The directory, Python and container image of a job's tasks."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Final

from iris.domain.python_version import is_python_request
from rigging.errors import InvalidRequest

NO_IMAGE: Final = "none"
"""The image of a job that runs without one, even if its cluster has a default."""

_LONGEST_PATH: Final = 4096
_LONGEST_IMAGE: Final = 512
_PART: Final = "[a-zA-Z0-9][a-zA-Z0-9._+-]*"
_IMAGE: Final = re.compile(
    # Podman reads "dir:x", "oci-archive:/x" and the like as files of the host.
    r"(?!(?:atomic|containers-storage|dir|docker-archive|docker-daemon|oci|oci-archive|ostree|sif|tarball):)"
    rf"(?:{_PART}(?::[0-9]+)?/)?(?:{_PART}/)*{_PART}(?::[a-zA-Z0-9_][a-zA-Z0-9._-]*)?(?:@[a-z0-9]+:[0-9a-f]+)?"
)


class PackageSource(IntEnum):
    """The source of a job's packages."""

    UNSPECIFIED = 0  # as releases before this field: uv.lock, else the worker's own environment
    LOCK = 1  # the project's uv.lock
    REQUIREMENTS = 2  # the project's requirements.txt
    SUBMITTER = 3  # the submitter's own environment, on the same machine
    NONE = 4  # a bare Python


@dataclass(frozen=True, slots=True)
class TaskRuntime:
    """The directory, Python and container image of a job's tasks.

    Args:
        working_dir: Relative to the project; empty for the project's own directory.
        project_dir: The project's directory in the bundle; empty for the bundle's root.
        python: A version ("3.12") or specifiers (">=3.11,<3.13"); empty for the worker's.
        packages: The source of the packages.
        environment_path: The environment's directory, if `packages` is SUBMITTER.
        interpreter: The submitter's interpreter, which a worker on the same machine prefers.
        image: The container image, e.g. "docker.io/library/python:3.11"; empty for the
            cluster's default, NO_IMAGE for none.
    """

    working_dir: str = ""
    project_dir: str = ""
    python: str = ""
    packages: PackageSource = PackageSource.UNSPECIFIED
    environment_path: str = ""
    interpreter: str = ""
    image: str = ""


DEFAULT_RUNTIME: Final = TaskRuntime()


@lru_cache(maxsize=256)
def validate_runtime(runtime: TaskRuntime) -> None:
    """Validate a runtime. Raise InvalidRequest naming the field, the value and the allowed values."""
    for name in ("working_dir", "project_dir"):
        check_relative_dir(getattr(runtime, name), name)
    for name in ("environment_path", "interpreter"):
        path = getattr(runtime, name)
        if path and (not path.startswith("/") or "\0" in path or len(path) > _LONGEST_PATH):
            raise InvalidRequest(f"{name} is {path!r}; it must be an absolute path")
    if bool(runtime.environment_path) != (runtime.packages is PackageSource.SUBMITTER):
        raise InvalidRequest(
            f"environment_path is {runtime.environment_path!r} and packages {runtime.packages.name}; "
            "a path belongs to SUBMITTER, and to nothing else"
        )
    if runtime.image and (len(runtime.image) > _LONGEST_IMAGE or not _IMAGE.fullmatch(runtime.image)):
        raise InvalidRequest(
            f"image is {runtime.image[:200]!r}; write a reference such as 'docker.io/library/python:3.11'"
        )
    if runtime.python and not is_python_request(runtime.python):
        raise InvalidRequest(f"python is {runtime.python!r}; write a version or specifiers, e.g. '3.12' or '>=3.11'")


def check_relative_dir(path: str, what: str) -> None:
    """Raise InvalidRequest unless `path` is empty or a plain relative path: no "..", no "/" at the ends."""
    if not path:
        return
    if len(path) > _LONGEST_PATH or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise InvalidRequest(f"{what} is {path[:200]!r}; it must be a relative path without '..', such as 'sub/folder'")


@lru_cache(maxsize=256)  # jobs of a day differ little, and each is written twice
def runtime_to_json(runtime: TaskRuntime) -> Mapping[str, object]:
    """Return the fields that differ from their defaults."""
    return {name: value for name, value in asdict(runtime).items() if value}


@lru_cache(maxsize=256)
def runtime_text(runtime: TaskRuntime) -> str:
    """Return the JSON text for `parse_runtime`."""
    return json.dumps(runtime_to_json(runtime))


def runtime_from_json(fields: object) -> TaskRuntime:
    """Return the runtime from the result of `runtime_to_json`. Raise ValueError or TypeError for other values."""
    if not isinstance(fields, dict):
        raise TypeError(f"{fields!r} does not describe a runtime")
    known = dict(fields)
    packages = PackageSource(int(str(known.pop("packages", 0))))
    if not all(isinstance(value, str) for value in known.values()):
        raise ValueError(f"{fields!r} does not describe a runtime")
    return TaskRuntime(packages=packages, **known)


def parse_runtime(text: str, what: str) -> TaskRuntime:
    """Return a runtime from JSON text. Raise InvalidRequest, which names `what`."""
    if not text:
        return DEFAULT_RUNTIME
    try:
        return runtime_from_json(json.loads(text))
    except (ValueError, TypeError, AttributeError):
        raise InvalidRequest(f"{what}={text!r} does not describe a runtime") from None
