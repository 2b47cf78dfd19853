"""The parts of a client that all backends share: requests for actors, and shutdown at the end of a `with` block."""

import threading
from abc import ABC, abstractmethod
from typing import Any, Self, TypeVar

from fray.actor import ActorGroup, ActorHandle, HostedActor
from fray.backends.common.actors import ActorRequest, RefGroup
from fray.backends.common.process_owner import ProcessOwner
from fray.types import ActorConfig, ResourceConfig

T = TypeVar("T")


class BaseClient(ABC):
    """A client of one backend (see `fray.client.Client`)."""

    def __init__(self) -> None:
        self._owner = ProcessOwner()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        self.shutdown(wait=exc_type is None)

    def host_actor(
        self, actor_class: type[T], *args: Any, name: str, actor_config: ActorConfig | None = None, **kwargs: Any
    ) -> HostedActor:
        """Create an actor that lives as long as this process (see `Client.host_actor`)."""
        return self._host_actor(ActorRequest(actor_class, args, kwargs, name, config=actor_config or ActorConfig()))

    def create_actor(
        self,
        actor_class: type[T],
        *args: Any,
        name: str,
        resources: ResourceConfig | None = None,
        actor_config: ActorConfig | None = None,
        **kwargs: Any,
    ) -> ActorHandle:
        """Start an actor and wait until it is ready (see `Client.create_actor`)."""
        request = ActorRequest(actor_class, args, kwargs, name, 1, resources, actor_config or ActorConfig())
        return self._start_actors(request).only_member()

    def create_actor_group(
        self,
        actor_class: type[T],
        *args: Any,
        name: str,
        count: int,
        resources: ResourceConfig | None = None,
        actor_config: ActorConfig | None = None,
        **kwargs: Any,
    ) -> ActorGroup:
        """Start `count` actors of one class (see `Client.create_actor_group`)."""
        return self._start_actors(
            ActorRequest(actor_class, args, kwargs, name, count, resources, actor_config or ActorConfig())
        )

    @abstractmethod
    def shutdown(self, wait: bool = True) -> None: ...

    @abstractmethod
    def _start_actors(self, request: ActorRequest) -> RefGroup:
        """Start actors in separate processes or threads, and return immediately.

        Raises:
            JobAlreadyExists: The name is taken.
        """

    @abstractmethod
    def _host_actor(self, request: ActorRequest) -> HostedActor:
        """Create an actor that ends with this process.

        Raises:
            JobAlreadyExists: The name is taken.
        """
