"""A worker: an actor that asks the coordinator for tasks from the moment it is made."""

import logging
import threading
import traceback
import uuid

from data_library.tasks import run_task
from fray import current_actor
from rigging.timing import ExponentialBackoff

logger = logging.getLogger(__name__)


class Worker:
    """Runs tasks, one at a time, until it is shut down or told to stop."""

    def __init__(self, coordinator, heartbeat_seconds):
        me = current_actor()
        self._name = f"{me.group_name}-{me.index}/{uuid.uuid4().hex[:8]}"
        self._coordinator = coordinator
        self._ended = me.shutdown_event
        self._heartbeat_seconds = heartbeat_seconds
        coordinator.register(self._name)
        self._tasks = threading.Thread(target=self._run_tasks, name=f"tasks of {self._name}", daemon=True)
        self._tasks.start()
        threading.Thread(target=self._beat, name=f"heartbeat of {self._name}", daemon=True).start()

    def name(self):
        return self._name

    def _beat(self):
        while self._tasks.is_alive() and not self._ended.wait(self._heartbeat_seconds):
            counters = getattr(self._tasks, "task_counters", None)
            try:
                self._coordinator.heartbeat.remote(self._name, dict(counters or {}))
            except Exception:
                logger.warning("%s: no coordinator for a heartbeat", self._name)

    def _run_tasks(self):
        pause = ExponentialBackoff(initial=0.02, maximum=0.5)
        try:
            while not self._ended.is_set():
                task = self._coordinator.next_task(self._name)
                if task == "stop":
                    break
                if task == "wait":
                    self._ended.wait(pause.next_interval())
                    continue
                pause.reset()
                self._run_one(task)
        except Exception as error:
            # Without its coordinator it has nothing to do.
            logger.warning("%s: the coordinator is gone: %s", self._name, error)
        self._ended.set()

    def _run_one(self, task):
        try:
            result = run_task(task)
        except Exception:
            self._coordinator.report_broken(self._name, task.key, traceback.format_exc())
        else:
            if not self._ended.is_set():
                self._coordinator.report(self._name, task.key, result)
