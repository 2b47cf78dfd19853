"""Groups of actors on Iris: one job with a task for each actor. Endpoints locate the actors."""

import contextlib
import contextvars
import math
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from fray.actor import ActorContext, ActorHandle, HostedActor, ShutdownEvent, enter_actor
from fray.backends.common.actors import ActorRequest, Ended, RefGroup, RefHandle, public_methods
from fray.backends.iris.actor_handle import (
    IrisActorRef,
    close_clients,
    dumps,
    forget_cluster,
    know_cluster,
    know_workspace,
    reach_within,
    renew_clients,
)
from fray.backends.iris.actor_main import LEAF
from fray.errors import JobAlreadyExists
from iris.actor import ActorServer, EndpointFollower, actor_key
from iris.client import EndpointSet, IrisClient
from iris.cluster.types import TaskState
from rigging.errors import AlreadyExists, DeadlineExceeded

_LOOK_AT_TASKS_S: Final = 1.0

ACTOR_JOB_PREFIX: Final = "actor-"
"""Prefix of the names of actors' jobs, so that a job and an actor may have the same name."""


class IrisActorGroup(RefGroup):
    """Actors of one class: the tasks of one job.

    Args:
        job_id: The job.
        ref: The part of the reference that all actors share.
        count: The number of actors.
    """

    def __init__(self, client: IrisClient, job_id: str, ref: IrisActorRef, count: int) -> None:
        super().__init__(ref.group, count)
        self._client = client
        self._job_id = job_id
        self._ref = ref
        # All endpoints that count: the prefix that is watched has those of child jobs and of the actors' own, too.
        self._indexes = {f"{job_id}/{LEAF}{index}": index for index in range(count)}
        self._lock = threading.Lock()
        self._follower: EndpointFollower | _Over | None = None

    @property
    def job_id(self) -> str:
        """The job whose tasks are the actors."""
        return self._job_id

    def only_member(self) -> ActorHandle:
        """Wait for the only actor of the group and return its handle. Raise JobFailed if it fails."""
        return self.wait_ready(1, math.inf)[0]

    def is_done(self) -> bool:
        return self._follow().latest.ended

    def shutdown(self) -> None:
        """Stop all actors. Calls that have not begun are refused; running calls have a few seconds to finish."""
        self._client.terminate(self._job_id, "the actor group was shut down")

    def end(self) -> None:
        """Stop following the endpoints: the group has ended, and another may reuse its name."""
        with self._lock:
            follower, self._follower = self._follower, _Over()
        if follower is not None:
            follower.close()

    def renew(self) -> None:
        """Forget earlier actors of the group's name."""
        renew_clients([self._ref_of(index) for index in range(self._size)])

    def close(self) -> None:
        """Stop following the endpoints, and close this process's connections to the actors."""
        self.end()
        close_clients([self._ref_of(index) for index in range(self._size)])

    def _ready(self) -> list[int]:
        return self._members_of(self._follow().latest)

    def _members_of(self, found: EndpointSet) -> list[int]:
        names = {endpoint.name for endpoint in found.endpoints}
        return sorted(index for name, index in self._indexes.items() if name in names)

    def _wait_for(self, wanted: int, seconds: float) -> None:
        with contextlib.suppress(DeadlineExceeded):
            self._follow().wait_for(
                lambda found: found.ended or len(self._members_of(found)) >= wanted, min(seconds, _LOOK_AT_TASKS_S)
            )

    def _ended(self) -> Ended:
        found = self._follow().latest
        ends = [task for task in self._client.list_tasks(self._job_id) if task.state.is_terminal]
        failed = next((task.error for task in ends if task.state is TaskState.FAILED and task.error), "")
        reason = f"{failed or found.ended_reason or 'shut down'} (their log: iris job logs {self._job_id})"
        return Ended(len(ends), reason, job_id=self._job_id, all=found.ended)

    def _follow(self) -> "EndpointFollower | _Over":
        with self._lock:
            if self._follower is None:
                self._follower = EndpointFollower(self._client, prefix=f"{self._job_id}/{LEAF}")
            return self._follower

    def _ref_of(self, index: int) -> IrisActorRef:
        return replace(self._ref, name=f"{self._job_id}/{LEAF}{index}", index=index)

    def _handle(self, index: int) -> ActorHandle:
        return RefHandle(self._ref_of(index))


class _Over:
    """Placeholder for the follower of a group that has ended."""

    latest: Final = EndpointSet((), True, "it was shut down")

    def wait_for(self, condition: Callable[[EndpointSet], bool], timeout: float) -> EndpointSet:
        del condition, timeout
        return self.latest

    def close(self) -> None:
        pass


class IrisActors:
    """The actors of one client: those it started as jobs, and those in this process."""

    def __init__(self, client: IrisClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._groups: dict[str, IrisActorGroup] = {}
        self._server: ActorServer | None = None
        self._hosted: list[IrisActorRef] = []

    def ref(self, request: ActorRequest) -> IrisActorRef:
        """Return the reference that all actors of a group share."""
        address = self._client.connection.controller_address().address
        know_cluster(self._client, address)
        with contextlib.suppress(FileNotFoundError):  # the current directory may have been removed
            know_workspace(self._client, os.getcwd())
        return IrisActorRef(
            controller=address,
            name="",
            address="",
            user=self._client.user,
            group=request.name,
            index=0,
            class_name=request.cls.__name__,
            methods=public_methods(request.cls),
            serial=request.config.max_concurrency == 1,
            retries=request.config.max_task_retries or 0,
        )

    def follow(self, job_id: str, ref: IrisActorRef, count: int) -> IrisActorGroup:
        """Return the group whose actors are the tasks of a job.

        Args:
            job_id: The job.
            ref: The part of the reference that all actors share.
            count: The number of actors.
        """
        group = IrisActorGroup(self._client, job_id, ref, count)
        with self._lock:
            before = self._groups.get(job_id)
            self._groups[job_id] = group
        if before is not None:
            before.end()  # it has ended, or its name would not be free
        group.renew()
        return group

    def host(self, request: ActorRequest) -> HostedActor:
        """Create an actor in this process. Raise JobAlreadyExists."""
        name = request.name
        with self._lock:
            namesakes = [group for group in self._groups.values() if group.name == name]
        if any(not group.is_done() for group in namesakes):
            raise JobAlreadyExists(
                f"actor {name!r} exists as a job; choose another name or shut it down first", job_name=name
            )
        server = self._own_server()
        ref = replace(self.ref(request), address=server.address)
        context = contextvars.copy_context()

        def end() -> None:
            with self._lock:
                if ref not in self._hosted:
                    return  # shut down before, or with the client
                self._hosted.remove(ref)
            shutdown_event.set()
            close_clients([ref])
            server.unregister(name)

        shutdown_event = ShutdownEvent(end)
        context.run(enter_actor, ActorContext(RefHandle(ref), 0, name, shutdown_event))

        def make() -> None:
            instance = request.cls(*request.args, **request.kwargs)
            server.register(name, instance, max_concurrency=request.config.max_concurrency, publish=False)

        try:
            context.run(make)
        except AlreadyExists:
            raise _hosted_already(name) from None
        reach_within(ref, server.own_client(name))
        with self._lock:
            self._hosted.append(ref)
        return HostedActor(RefHandle(ref), end)

    def refuse_hosted(self, name: str) -> None:
        """Raise JobAlreadyExists if an actor of this process has the name."""
        with self._lock:
            if any(ref.group == name for ref in self._hosted):
                raise _hosted_already(name)

    def close(self) -> None:
        """Stop all actors, and close this process's connections to them."""
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
                self._server = ActorServer(key=actor_key(self._client, self._client.user), dumps=dumps)
                self._server.start()
            return self._server


def _hosted_already(name: str) -> JobAlreadyExists:
    return JobAlreadyExists(f"actor {name!r} is already hosted by this process; choose another name", job_name=name)
