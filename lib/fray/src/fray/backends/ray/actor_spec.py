"""The description of a group of actors on Ray, on the side of its maker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fray.backends.ray.actor import RayActorHandle
from fray.backends.ray.payload import ActorSpec
from fray.pickling import dumps
from fray.types import ActorConfig
from rigging.errors import InvalidRequest
from rigging.filesystem.budget import budget_environment


@dataclass(frozen=True, slots=True)
class ActorGroupSpec:
    """Actors of one class with one name.

    Args:
        namespace: Ray namespace of their client.
        address: Of the cluster.
    """

    cls: type[Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str
    config: ActorConfig
    namespace: str
    address: str

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods that handles can call."""
        names = (name for name in dir(self.cls) if not name.startswith("_"))
        return tuple(name for name in names if callable(getattr(self.cls, name, None)))

    def payloads(self, count: int) -> list[bytes]:
        """The pickled argument of `ActorHost`, one for each of `count` actors. Raises InvalidRequest."""
        if count < 1:
            raise InvalidRequest(f"actor group {self.name!r}: count must be at least 1, not {count}")
        methods, variables = self.methods, budget_environment()
        specs = (
            ActorSpec(self.cls, self.args, self.kwargs, self.namespace, self.address, self.name, index,
                  self.config, methods, variables)
            for index in range(count)
        )  # fmt: skip
        return [dumps(spec, f"actor {self.name!r}") for spec in specs]

    def handles(self, ray_names: Sequence[str]) -> list[RayActorHandle]:
        """Handles of actors that were started under these names."""
        methods, concurrency = self.methods, self.config.max_concurrency
        return [
            RayActorHandle(ray_name, self.namespace, self.name, index, self.cls.__name__, methods, concurrency)
            for index, ray_name in enumerate(ray_names)
        ]
