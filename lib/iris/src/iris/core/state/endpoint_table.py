"""The endpoints of the view, by id, attempt and namespace."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from iris.domain.endpoints import RegisteredEndpoint, namespace_of
from iris.domain.ids import AttemptId, EndpointId, JobId

Key = TypeVar("Key")
Value = TypeVar("Value")


class EndpointTable:
    """The registered endpoints. Any code may read them; only the view calls `apply`."""

    def __init__(self) -> None:
        self._all: dict[EndpointId, RegisteredEndpoint] = {}
        self._of_attempt: dict[AttemptId, dict[EndpointId, None]] = {}
        self._of_namespace: dict[JobId, dict[EndpointId, RegisteredEndpoint]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def get(self, endpoint_id: EndpointId) -> RegisteredEndpoint | None:
        return self._all.get(endpoint_id)

    def all(self) -> Iterable[RegisteredEndpoint]:
        """Return every endpoint, in order of registration."""
        return self._all.values()

    def of_attempt(self, attempt: AttemptId) -> tuple[EndpointId, ...]:
        """Return the endpoints that an attempt registered."""
        return tuple(self._of_attempt.get(attempt, ()))

    def named(self, name: str) -> list[RegisteredEndpoint]:
        """Return all endpoints with a full name, in order of registration."""
        return [
            endpoint for endpoint in self._of_namespace.get(namespace_of(name), {}).values() if endpoint.name == name
        ]

    def below(self, prefix: str) -> list[RegisteredEndpoint]:
        """Return all endpoints whose full names begin with `prefix`, in order of registration within a namespace."""
        # A prefix that goes beyond a namespace's last "/" lies within that namespace or below it.
        own = self._of_namespace.get(namespace_of(prefix), {}).values()
        found = [endpoint for endpoint in own if endpoint.name.startswith(prefix)]
        for namespace, endpoints in self._of_namespace.items():
            if namespace.startswith(prefix) and namespace != namespace_of(prefix):
                found += endpoints.values()
        return found

    def apply(self, changes: Mapping[EndpointId, RegisteredEndpoint | None]) -> None:
        """Write (a record) or remove (None) an endpoint."""
        for endpoint_id, endpoint in changes.items():
            self._remove(endpoint_id)
            if endpoint is not None:
                self._all[endpoint_id] = endpoint
                self._of_attempt.setdefault(endpoint.attempt_id, {})[endpoint_id] = None
                self._of_namespace.setdefault(namespace_of(endpoint.name), {})[endpoint_id] = endpoint

    def _remove(self, endpoint_id: EndpointId) -> None:
        old = self._all.pop(endpoint_id, None)
        if old is None:
            return
        _drop(self._of_attempt, old.attempt_id, endpoint_id)
        _drop(self._of_namespace, namespace_of(old.name), endpoint_id)


def _drop(index: dict[Key, dict[EndpointId, Value]], key: Key, endpoint_id: EndpointId) -> None:
    entries = index[key]
    del entries[endpoint_id]
    if not entries:
        del index[key]
