"""Serve an actor in its task on Iris."""

import contextvars
import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from fray.actor import ActorContext, enter_actor
from fray.backends.common.actors import RefHandle
from fray.backends.iris.actor_handle import IrisActorRef, reach_within
from iris.actor import ActorServer
from iris.client import iris_ctx
from rigging.process.calls import call_to_end

LEAF: Final = "actor-"
"""Endpoint names of a group's members: this and the index, in the namespace of the group's job."""

_GRACE_S: Final = 4.0


def serve_actor(
    ref: IrisActorRef, cls: type[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], max_concurrency: int
) -> None:
    """Create the actor of this task and answer its calls until the task is stopped.

    Args:
        ref: The reference of the group. The task supplies index and name.
        cls: The actor's class.
        args: Positional arguments of the constructor.
        kwargs: Keyword arguments of the constructor.
        max_concurrency: The number of calls it serves concurrently.
    """
    task = iris_ctx()
    index = int(task.task_id.rpartition("/")[2])
    own = replace(ref, controller=task.job.controller_address, name=f"{task.job_id}/{LEAF}{index}", index=index)
    told_to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told_to_end.set())
    contextvars.copy_context().run(_serve, own, cls, args, kwargs, max_concurrency, told_to_end)
    # Threads of the actor's own must not keep a task that was told to end.
    task.mark_returned()
    os._exit(0)


def _serve(
    ref: IrisActorRef,
    cls: type[Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    max_concurrency: int,
    told_to_end: threading.Event,
) -> None:
    enter_actor(ActorContext(RefHandle(ref), ref.index, ref.group, told_to_end))
    server = ActorServer()
    server.start()
    instance = call_to_end(cls, *args, **kwargs)
    server.register(f"{LEAF}{ref.index}", instance, max_concurrency=max_concurrency)
    reach_within(ref, server.own_client(f"{LEAF}{ref.index}"))
    told_to_end.wait()
    server.stop(_GRACE_S)
