"""Groups of actors on Iris: one job, a task for each actor, found by their endpoints."""

import contextvars
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from fray.actor import ActorContext, ActorHandle, enter_actor
from fray.backends.iris.actor_handle import (
    ActorRef,
    close_clients,
    forget_cluster,
    handle_of,
    know_cluster,
    public_methods,
    reach_within,
    renew_clients,
)
from fray.backends.iris.actor_main import LEAF
from fray.errors import JobAlreadyExists, JobFailed
from fray.types import ActorConfig
from iris.actor import ActorServer, EndpointFollower, actor_key
from iris.client import EndpointSet, IrisClient
from iris.cluster.types import TaskState
from rigging.errors import AlreadyExists, DeadlineExceeded, InvalidRequest

_LOOK_AT_TASKS_S: Final = 1.0

ACTOR_JOB_PREFIX: Final = "actor-"
"""Actors' jobs have names of their own kind: a job and an actor may share a name."""


class IrisActorGroup:
    """Actors of one class, the tasks of one job.

    Args:
        job_id: The job.
        ref: What its actors have in common.
        count: How many there are.
    """

    def __init__(self, client: IrisClient, job_id: str, ref: ActorRef, count: int) -> None:
        self._client = client
        self._job_id = job_id
        self._ref = ref
        self._count = count
        # All endpoints that count: the prefix that is watched has those of child jobs and of the actors' own, too.
        self._indexes = {f"{job_id}/{LEAF}{index}": index for index in range(count)}
        self._lock = threading.Lock()
        self._discovered: set[int] = set()
        self._follower: EndpointFollower | _Over | None = None

    @property
    def job_id(self) -> str:
        """The job whose tasks the actors are."""
        return self._job_id

    @property
    def name(self) -> str:
        """As its maker called it."""
        return self._ref.group

    @property
    def ready_count(self) -> int:
        return len(self._ready(self._follow().latest))

    def wait_ready(self, count: int | None = None, timeout: float = 300.0) -> list[ActorHandle]:
        """Wait for `count` ready actors (see `ActorGroup.wait_ready`)."""
        wanted = self._count if count is None else count
        if not 0 <= wanted <= self._count:
            raise InvalidRequest(f"actor group {self._ref.group!r} has {self._count} actors, not {wanted}")
        return [self._handle(index) for index in self._wait(wanted, time.monotonic() + timeout, timeout)]

    def only_member(self) -> ActorHandle:
        """The handle of a group of one, once it is ready, however long that takes. Raises JobFailed."""
        self._wait(1, float("inf"), float("inf"))
        return self._handle(0)

    def discover_new(self) -> list[ActorHandle]:
        ready = self._ready(self._follow().latest)
        with self._lock:
            new = [index for index in ready if index not in self._discovered]
            self._discovered.update(new)
        return [self._handle(index) for index in new]

    def is_done(self) -> bool:
        return self._follow().latest.ended

    def shutdown(self) -> None:
        """Stop all of them: what has not begun is refused, what runs has a few seconds."""
        self._client.terminate(self._job_id, "the actor group was shut down")

    def end(self) -> None:
        """Look no more: it is over, and its name may be another group's."""
        with self._lock:
            follower, self._follower = self._follower, _Over()
        if follower is not None:
            follower.close()

    def renew(self) -> None:
        """It is new: what this process knows of earlier actors of its name is of no use."""
        renew_clients([self._ref_of(index) for index in range(self._count)])

    def close(self) -> None:
        """Look no more, and end this process's connections to the actors."""
        self.end()
        close_clients([self._ref_of(index) for index in range(self._count)])

    def _wait(self, wanted: int, end: float, timeout: float) -> list[int]:
        follower = self._follow()
        while True:
            left = end - time.monotonic()
            try:
                found = follower.wait_for(
                    lambda found: found.ended or len(self._ready(found)) >= wanted,
                    max(0.0, min(left, _LOOK_AT_TASKS_S)),
                )
            except DeadlineExceeded:
                self._raise_if_out_of_reach(wanted)
                if left <= _LOOK_AT_TASKS_S:
                    ready = len(self._ready(follower.latest))
                    raise DeadlineExceeded(
                        f"actor group {self._ref.group!r}: {ready} of {wanted} actors ready after {timeout:g} s"
                    ) from None
                continue
            if found.ended:
                self._raise_if_out_of_reach(wanted, found.ended_reason)
            return self._ready(found)

    def _ready(self, found: EndpointSet) -> list[int]:
        names = {endpoint.name for endpoint in found.endpoints}
        return sorted(index for name, index in self._indexes.items() if name in names)

    def _raise_if_out_of_reach(self, wanted: int, ended: str = "") -> None:
        ends = [task for task in self._client.list_tasks(self._job_id) if task.state.is_terminal]
        if self._count - len(ends) >= wanted and not ended:
            return
        failed = next((task.error for task in ends if task.state is TaskState.FAILED and task.error), "")
        raise JobFailed(
            f"actor group {self._ref.group!r}: {len(ends)} of {self._count} actors ended, so {wanted} cannot become "
            f"ready: {failed or ended or 'shut down'} (their log: iris job logs {self._job_id})",
            job_id=self._job_id,
        )

    def _follow(self) -> "EndpointFollower | _Over":
        with self._lock:
            if self._follower is None:
                self._follower = EndpointFollower(self._client, prefix=f"{self._job_id}/{LEAF}")
            return self._follower

    def _ref_of(self, index: int) -> ActorRef:
        return replace(self._ref, name=f"{self._job_id}/{LEAF}{index}", index=index)

    def _handle(self, index: int) -> ActorHandle:
        return handle_of(self._ref_of(index))


class _Over:
    """Stands in for the follower of a group that is over."""

    latest: Final = EndpointSet((), True, "it was shut down")

    def wait_for(self, condition: Callable[[EndpointSet], bool], timeout: float) -> EndpointSet:
        del condition, timeout
        return self.latest

    def close(self) -> None:
        pass


class IrisActors:
    """The actors of one client: those it started as jobs, and those of this process."""

    def __init__(self, client: IrisClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._groups: dict[str, IrisActorGroup] = {}
        self._server: ActorServer | None = None
        self._hosted: list[ActorRef] = []

    def ref(self, cls: type[Any], name: str, config: ActorConfig) -> ActorRef:
        """The reference that the actors of a group have in common."""
        address = self._client.connection.whereabouts().address
        know_cluster(self._client, address)
        return ActorRef(
            controller=address,
            name="",
            address="",
            user=self._client.user,
            group=name,
            index=0,
            class_name=cls.__name__,
            methods=public_methods(cls),
            serial=config.max_concurrency == 1,
            retries=config.max_task_retries or 0,
        )

    def follow(self, job_id: str, ref: ActorRef, count: int) -> IrisActorGroup:
        """The group whose actors are the tasks of a job."""
        group = IrisActorGroup(self._client, job_id, ref, count)
        with self._lock:
            before = self._groups.get(job_id)
            self._groups[job_id] = group
        if before is not None:
            before.end()  # it has ended, or its name would not be free
        group.renew()
        return group

    def host(
        self, cls: type[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str, config: ActorConfig
    ) -> ActorHandle:
        """Make an actor of this process. Raises JobAlreadyExists."""
        with self._lock:
            namesakes = [group for group in self._groups.values() if group.name == name]
        if any(not group.is_done() for group in namesakes):
            raise JobAlreadyExists(f"actor {name!r} exists as a job; choose another name or shut it down first")
        server = self._own_server()
        ref = replace(self.ref(cls, name, config), address=server.address)
        context = contextvars.copy_context()
        context.run(enter_actor, ActorContext(handle_of(ref), 0, name))

        def make() -> None:
            server.register(name, cls(*args, **kwargs), max_concurrency=config.max_concurrency, publish=False)

        try:
            context.run(make)
        except AlreadyExists:
            raise JobAlreadyExists(f"actor {name!r} is hosted by this process already; choose another name") from None
        reach_within(ref, server.own_client(name))
        with self._lock:
            self._hosted.append(ref)
        return handle_of(ref)

    def refuse_hosted(self, name: str) -> None:
        """Raise JobAlreadyExists when an actor of this process has the name."""
        with self._lock:
            if any(ref.group == name for ref in self._hosted):
                raise JobAlreadyExists(f"actor {name!r} is hosted by this process already; choose another name")

    def close(self) -> None:
        """Stop them all, and end this process's connections to them."""
        with self._lock:
            groups, self._groups = list(self._groups.values()), {}
            hosted, self._hosted = self._hosted, []
            server, self._server = self._server, None
        for group in groups:
            group.shutdown()
        for group in groups:
            group.close()
        close_clients(hosted)
        forget_cluster(self._client)
        if server is not None:
            server.stop()

    def _own_server(self) -> ActorServer:
        with self._lock:
            if self._server is None:
                self._server = ActorServer(key=actor_key(self._client, self._client.user))
                self._server.start()
            return self._server
