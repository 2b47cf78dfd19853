"""Names derived from checkpoint paths."""

from __future__ import annotations

import re

from marin.execution.config.step import InputName
from rigging.errors import InvalidRequest

_STEP = re.compile(r"step-(\d+)")
_CHECKPOINTS = re.compile(r"(?:^|/)checkpoints/[^/]+/checkpoints(?:/|$)")


def ckpt_path_to_step_name(path: object) -> str:
    """Return a short name for steps that use a checkpoint.

    Args:
        path: `org/model` gives "model", `.../{run}/checkpoints/step-{n}` gives "{run}-{n}", any other path its last
            part. An input gives the last part of its step's name, with "-{n}" for a checkpoint, or the last part of its
            own path.

    Raises:
        InvalidRequest: The path lacks the step number of a checkpoint, or `path` is neither a path nor an input.
    """
    if isinstance(path, str):
        return _name_of_path(path)
    if isinstance(path, InputName) and path.step is not None:
        return _name_of_input(path.step.name.rpartition("/")[2], path.name)
    raise InvalidRequest(f"Unknown type of checkpoint {path!r}: expected a path, or an input made from a step")


def _name_of_path(path: str) -> str:
    if re.fullmatch(r"[^/]+/[^/]+", path):
        return path.rpartition("/")[2]
    parts = path.removesuffix("/").split("/")
    number = _STEP.fullmatch(parts[-1])
    if number is not None and len(parts) >= 3:
        return f"{parts[-3]}-{number[1]}"
    if parts[-1].startswith("step-") or _CHECKPOINTS.search(path.removesuffix("/")):
        raise InvalidRequest(
            f"Invalid path {path!r}: no checkpoint of a run; expected .../{{run}}/checkpoints/step-{{number}}"
        )
    return parts[-1]


def _name_of_input(step_name: str, name: str | None) -> str:
    if not name:
        return step_name
    parts = name.removesuffix("/").split("/")
    number = _STEP.fullmatch(parts[-1])
    if number is not None:
        return f"{step_name}-{number[1]}"
    if parts[-1].startswith("step-") or parts[-2:-1] == ["checkpoints"]:
        raise InvalidRequest(f"Invalid path {name!r} below step {step_name!r}: expected checkpoints/step-{{number}}")
    return parts[-1]
