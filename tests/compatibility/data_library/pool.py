"""Runs datasets by a pool of workers on Iris."""

import queue
from dataclasses import replace

from data_library.coordinator import PipelineFailed
from data_library.dataset import Dataset
from data_library.runs import Outcome, run_plan
from data_library.tasks import run_task
from iris.client import IrisClient
from iris.client.worker_pool import WorkerPool, WorkerPoolConfig


class PoolExecutor:
    """Runs datasets as calls of a `WorkerPool`; a task whose worker was lost is tried again `max_attempts` times."""

    def __init__(self, client: IrisClient, config: WorkerPoolConfig, max_attempts: int = 3) -> None:
        self.client = client
        self.config = config
        self.max_attempts = max_attempts

    def execute(self, dataset: Dataset) -> Outcome:
        """Run a dataset. Raises the error of a user's function, or PipelineFailed."""
        with WorkerPool(self.client, self.config) as pool:
            return run_plan(dataset, self.config.name_prefix, lambda tasks: self._run_stage(pool, tasks))

    def _run_stage(self, pool, tasks):
        ended = queue.SimpleQueue()

        def start(task):
            pool.submit(run_task, task).add_done_callback(lambda future: ended.put((task, future)))

        for task in tasks:
            start(task)
        results = []
        while len(results) < len(tasks):
            task, future = ended.get()
            error = future.exception()
            if error is None:
                result = future.result()
                if result.error is not None:
                    raise result.error
                results.append(result)
            elif task.attempt + 1 < self.max_attempts:
                start(replace(task, attempt=task.attempt + 1))
            else:
                raise PipelineFailed(f"{task.name} failed {self.max_attempts} times") from error
        return results
