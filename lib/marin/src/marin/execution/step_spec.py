"""A step without a config: a name, plain attributes that identify its output, and a function of the output path."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from marin.execution.paths import prefix_or_default, under_prefix
from marin.execution.step import check_relative_name, is_absolute
from rigging.errors import InvalidRequest

if TYPE_CHECKING:
    from fray.types import ResourceConfig

HASH_DIGITS = 8


@dataclass(frozen=True, eq=False)
class StepSpec:
    """A step whose output path is `{prefix}/{name}_{hash}`.

    Attributes:
        name: The output path's first part.
        output_path_prefix: The storage root; the process's own prefix by default.
        deps: Steps whose output must be there first.
        hash_attrs: What identifies the output beside the name and the deps; plain JSON.
        override_output_path: A fixed output path (joined to the prefix when relative).
        fn: Called with the output path.
        resources: When given, the function runs as a job of its own.
    """

    name: str
    output_path_prefix: str | None = None
    deps: Sequence[StepSpec] = field(default_factory=list)
    hash_attrs: Mapping[str, Any] = field(default_factory=dict)
    override_output_path: str | None = None
    fn: Callable[[str], Any] | None = None
    resources: ResourceConfig | None = None

    def __post_init__(self) -> None:
        check_relative_name(self.name, "step name")
        override = self.override_output_path
        if override is not None and not is_absolute(override):
            check_relative_name(override, f"step {self.name!r}: override_output_path")

    @cached_property
    def hash_id(self) -> str:
        """The digits that stand in the output path: 8 hex of SHA-256 of name, attributes and the deps' names.

        Raises:
            InvalidRequest: `hash_attrs` is not plain JSON.
        """
        content = {"name": self.name, "attrs": self.hash_attrs, "deps": sorted(self.dep_names)}
        try:
            text = json.dumps(content, sort_keys=True)
        except (TypeError, ValueError) as error:
            raise InvalidRequest(
                f"step {self.name!r}: hash_attrs {self.hash_attrs!r} is not plain JSON: {error}"
            ) from None
        return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]

    @property
    def name_with_hash(self) -> str:
        """The output path below the prefix."""
        return f"{self.name}_{self.hash_id}"

    @cached_property
    def output_path(self) -> str:
        """Where the output goes."""
        prefix = prefix_or_default(self.output_path_prefix)
        if self.override_output_path is not None:
            return under_prefix(prefix, self.override_output_path)
        return os.path.join(prefix, self.name_with_hash)

    @property
    def dep_paths(self) -> list[str]:
        """Output paths of the deps."""
        return [dep.output_path for dep in self.deps]

    @property
    def dep_names(self) -> list[str]:
        """Names of the deps, with hashes."""
        return [dep.name_with_hash for dep in self.deps]
