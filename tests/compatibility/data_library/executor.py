"""Runs datasets by a group of actors, on whatever fray's client is of."""

import logging
import threading
import uuid
from collections.abc import Callable
from typing import Any

from data_library.coordinator import Coordinator, PipelineFailed, Progress
from data_library.dataset import Dataset
from data_library.runs import Outcome, run_plan
from data_library.worker import Worker
from fray import ActorConfig, Client, ResourceConfig, current_client

logger = logging.getLogger(__name__)

__all__ = ["Executor", "PipelineFailed", "Progress"]


class Executor:
    """Runs datasets by `workers` actors and a coordinator in this process.

    Args:
        workers: How many there are to be.
        ready: How many must be there before work begins.
        resources: Of each.
        name: Begins the actors' names.
        heartbeat_seconds: Between two signs of life.
        heartbeat_timeout: Seconds of silence after which a worker is taken for lost.
        max_attempts: How often a task is tried when its workers are lost.
        max_restarts: How often a worker that died is started again.
        on_progress: Told from time to time how far a stage is.
        client: Of fray; None for the current one.
    """

    def __init__(
        self,
        workers: int = 2,
        ready: int = 1,
        resources: ResourceConfig | None = None,
        name: str = "pipeline",
        heartbeat_seconds: float = 0.5,
        heartbeat_timeout: float = 10.0,
        max_attempts: int = 3,
        max_restarts: int = 3,
        on_progress: Callable[[Progress], Any] | None = None,
        client: Client | None = None,
    ) -> None:
        self.workers = workers
        self.ready = ready
        self.resources = resources or ResourceConfig.with_cpu()
        self.name = name
        self.heartbeat_seconds = heartbeat_seconds
        self.heartbeat_timeout = heartbeat_timeout
        self.max_attempts = max_attempts
        self.max_restarts = max_restarts
        self.on_progress = on_progress
        self.client = client

    def execute(self, dataset: Dataset) -> Outcome:
        """Run a dataset. Raises the error of a user's function, or PipelineFailed."""
        if not dataset.sources:
            return run_plan(dataset, self.name, lambda _: [])
        client = self.client or current_client()
        name = f"{self.name}-{uuid.uuid4().hex[:8]}"
        hosted = client.host_actor(
            Coordinator,
            self.heartbeat_timeout,
            self.max_attempts,
            name=f"{name}-coordinator",
            actor_config=ActorConfig(max_concurrency=self.workers * 2 + 4),
        )
        group = None
        try:
            group = client.create_actor_group(
                Worker,
                hosted.handle,
                self.heartbeat_seconds,
                name=f"{name}-workers",
                count=self.workers,
                resources=self.resources,
                actor_config=ActorConfig(max_restarts=self.max_restarts),
            )
            ready = group.wait_ready(count=self.ready, timeout=300)
            logger.info("%s: working with %s", name, [worker.name() for worker in ready])
            return run_plan(dataset, name, lambda tasks: self._run_stage(hosted.handle, group, tasks))
        finally:
            hosted.handle.finish()
            if group is not None:
                group.shutdown()
            hosted.shutdown()

    def _run_stage(self, coordinator, group, tasks):
        ended = threading.Event()
        future = coordinator.run_stage.submit(tasks)
        future.add_done_callback(lambda _: ended.set())
        while not ended.wait(self.heartbeat_seconds):
            if self.on_progress is not None:
                self.on_progress(coordinator.progress())
            if group.is_done():
                raise PipelineFailed(f"all {self.workers} workers have ended")
        if self.on_progress is not None:
            self.on_progress(coordinator.progress())
        return future.result()
