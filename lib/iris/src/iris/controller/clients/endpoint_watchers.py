"""Watches of endpoints."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from iris.core.state.view import ClusterView
from iris.domain.effects import Effect, EndpointChanged, JobChanged, JobEnded, JobForgotten
from iris.domain.endpoints import RegisteredEndpoint, full_names, name_of, namespace_of, validate_full_name
from iris.domain.ids import EndpointId, JobId, TaskId, parse_task_id
from rigging.errors import InvalidRequest, NotFound, Unavailable


@dataclass(frozen=True, slots=True)
class EndpointQuery:
    """Selects endpoints: those under a name as seen from a namespace, or those below a prefix.

    `task_id` is the only task that registers the name; None if others may register it.
    """

    names: tuple[str, ...] = ()
    prefix: str = ""
    task_id: TaskId | None = None

    @classmethod
    def named(cls, namespace: JobId, name: str, task_id: TaskId | None = None) -> "EndpointQuery":
        """Return the query for a name. Raise InvalidRequest for an invalid name or task, or for a leaf without a job to
        start from.

        Args:
            namespace: The job to start from for a leaf; empty for none.
            name: The endpoints' name: a leaf, or a full name.
            task_id: The only task whose endpoints count; None for any.
        """
        if task_id is not None:
            parse_task_id(task_id)
        if not name.startswith("/") and not namespace:
            raise InvalidRequest(f"endpoint name {name!r}: outside of a job give the full name, /user/job/{name}")
        return cls(names=full_names(namespace, name), task_id=task_id)

    @classmethod
    def below(cls, prefix: str) -> "EndpointQuery":
        """Return the query for a prefix. Raise InvalidRequest for a prefix outside of any job."""
        validate_full_name(prefix if not prefix.endswith("/") else f"{prefix}x")
        return cls(prefix=prefix)

    @property
    def namespace(self) -> JobId:
        """The job after whose end no endpoints can appear."""
        return namespace_of(self.names[0] if self.names else self.prefix)

    @property
    def jobs(self) -> set[JobId]:
        """Jobs whose end, or whose task's end, must be reported."""
        return {self.namespace} if self.task_id is None else {self.namespace, parse_task_id(self.task_id)[0]}

    def matches(self, name: str) -> bool:
        return name in self.names or bool(self.prefix and name.startswith(self.prefix))

    def find(self, view: ClusterView) -> list[RegisteredEndpoint]:
        """Return the current endpoints of the first name that has any."""
        if self.prefix:
            return view.endpoints.below(self.prefix)
        for name in self.names:
            if found := view.endpoints.named(name):
                return found
        return []


@dataclass(frozen=True, slots=True)
class EndpointsUpdate:
    """Changes since the previous update. The first one contains everything.

    Args:
        ended: Whether the job of the query's namespace, or its task, has ended or never existed; the reason is a
            message about that.
    """

    added: tuple[RegisteredEndpoint, ...]
    removed: tuple[RegisteredEndpoint, ...]
    ended: bool
    ended_reason: str


class EndpointWatchers:
    """Notifies watchers of endpoints as soon as a change is committed."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._watches: dict[EndpointQuery, set[asyncio.Event]] = {}
        self._closed = False

    async def watch(
        self, query: EndpointQuery, settled: Callable[[], Awaitable[None]]
    ) -> AsyncGenerator[EndpointsUpdate, None]:
        """Yield all matching endpoints, then every change. Changes are merged while the reader is slow.

        Raise Unavailable at the controller's end.

        Args:
            query: Selects the endpoints.
            settled: Awaited before the view is read (see `Engine.settled`).
        """
        changed = asyncio.Event()
        changed.set()
        self._watches.setdefault(query, set()).add(changed)
        known: dict[EndpointId, RegisteredEndpoint] = {}
        ended: bool | None = None  # nothing was told yet
        try:
            while True:
                await changed.wait()
                changed.clear()
                await settled()
                if self._closed:
                    raise Unavailable("the controller is shutting down")
                found = {endpoint.endpoint_id: endpoint for endpoint in query.find(self._view)}
                added = tuple(endpoint for name, endpoint in found.items() if known.get(name) != endpoint)
                removed = tuple(endpoint for name, endpoint in known.items() if name not in found)
                reason = self._why_ended(query)
                if added or removed or bool(reason) != ended:
                    yield EndpointsUpdate(added, removed, bool(reason), reason)
                known, ended = found, bool(reason)
        finally:
            self._leave(query, changed)

    def on_effects(self, effects: Sequence[Effect]) -> None:
        if not self._watches:
            return
        names: set[str] = set()
        jobs: set[JobId] = set()
        for effect in effects:
            if isinstance(effect, EndpointChanged):
                names.add(name_of(effect.endpoint_id))
            elif isinstance(effect, JobEnded | JobChanged | JobForgotten):
                jobs.add(effect.job_id)
        if not names and not jobs:
            return
        for query, watches in self._watches.items():
            if not jobs.isdisjoint(query.jobs) or any(query.matches(name) for name in names):
                for changed in watches:
                    changed.set()

    def close(self) -> None:
        """End every watch with Unavailable."""
        self._closed = True
        for watches in self._watches.values():
            for changed in watches:
                changed.set()

    def _why_ended(self, query: EndpointQuery) -> str:
        namespace = query.namespace
        job = self._view.jobs.get(namespace)
        if job is None:
            return f"job {namespace} does not exist"
        if job.state.is_terminal:
            return f"job {namespace} {job.state.word}" + (f": {job.error}" if job.error else "")
        if query.task_id is None:
            return ""
        try:
            task = self._view.task(query.task_id)
        except NotFound as error:
            return str(error)
        if not task.state.is_terminal:
            return ""
        return f"task {query.task_id} {task.state.word}" + (f": {task.error}" if task.error else "")

    def _leave(self, query: EndpointQuery, changed: asyncio.Event) -> None:
        watches = self._watches[query]
        watches.discard(changed)
        if not watches:
            del self._watches[query]
