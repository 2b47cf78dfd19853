"""Pages of jobs: the list, a job with its tasks, stopping one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from iris.dashboard import queries
from iris.dashboard.cluster_client import ClusterClient, Row
from iris.dashboard.timeline import attempts_in_time, timeline_of
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import InvalidRequest, MarinError
from rigging.web.context import is_fragment, render, viewer_of
from rigging.web.events import encode_event, event_response
from rigging.web.pages import query_text
from rigging.web.paging import Page, asked_page, page_number
from rigging.web.writes import write_route

TASKS_PER_PAGE = 100
_JOBS_PER_PAGE = 50
_UNFOLDED = 100
_MOST_UNFOLDED = 20
MOST_MEASURED = 256
_SAMPLE_S = 2.0
_HISTORY_S = 5.0
_SIDE_BY_SIDE = 32
"""Maximum number of gang members to show side by side."""


@dataclass(frozen=True, slots=True)
class _Children:
    """The first children of a job, and the number of all."""

    parent: str
    rows: list[Row]
    total: int


@dataclass(slots=True)
class JobPages:
    """Serves the pages of jobs.

    Args:
        client: The controller.
    """

    client: ClusterClient

    def routes(self) -> list[BaseRoute]:
        """Return the routes of these pages."""
        return [
            Route("/jobs", self.jobs),
            Route("/jobs/children", self.children),
            Route("/job", self.job),
            Route("/job/tasks", self.tasks),
            Route("/job/usage", self.usage),
            Route("/task", self.task),
            Route("/task/usage", self.task_usage),
            write_route("/job/stop", self.stop),
        ]

    async def jobs(self, request: Request) -> Response:
        """The list of jobs: roots as trees, or all jobs that match a filter."""
        chosen = queries.JobFilter(
            text=query_text(request, "q", 300).strip(),
            state=query_text(request, "state", 40),
            user=query_text(request, "user", 100),
            parent=query_text(request, "parent", 1000),
        )
        viewer = viewer_of(request)
        (counted,) = await self.client.rows(viewer, queries.count_jobs(chosen))
        number = page_number(asked_page(request.query_params.get("page")), counted["total"], _JOBS_PER_PAGE)
        rows = await self.client.rows(
            viewer, queries.list_jobs(chosen, (number - 1) * _JOBS_PER_PAGE, _JOBS_PER_PAGE), _JOBS_PER_PAGE
        )
        await self._count_below(request, rows, set(request.query_params.getlist("open")[:_MOST_UNFOLDED]))
        page = Page(rows, number, counted["total"], _JOBS_PER_PAGE)
        asked = {"q": chosen.text, "state": chosen.state, "user": chosen.user, "parent": chosen.parent}
        given = {name: value for name, value in asked.items() if value}
        return render(
            request,
            "iris/jobs_table.html" if is_fragment(request) else "iris/jobs.html",
            page=page,
            chosen=chosen,
            states=queries.STATES,
            url=lambda number: "/jobs?" + urlencode(given | {"page": number}),
            address="/jobs?" + urlencode(given | {"page": number}),
        )

    async def children(self, request: Request) -> Response:
        """The rows of a job's first children, for the tree; failed ones first."""
        depth = min(asked_page(request.query_params.get("depth")), 20)
        found = await self._children(request, query_text(request, "parent", 1000), set())
        return render(request, "iris/jobs_rows.html", jobs=found.rows, depth=depth, more=found)

    async def job(self, request: Request) -> Response:
        """A job: its state with the reason, its tasks, usage and child jobs."""
        job_id = _asked_job(request)
        viewer = viewer_of(request)
        status = await self.client.job(viewer, job_id)
        states = await self.client.rows(viewer, queries.task_states(job_id))
        below = await self.client.rows(viewer, queries.descendants_of([job_id]))
        members: list[pb.TaskStatus] = []
        if status.replicas <= _SIDE_BY_SIDE:
            members = await self.client.tasks(viewer, job_id)
        timeline = timeline_of(members, int(time.time() * 1000))
        template = "iris/job_body.html" if is_fragment(request) else "iris/job.html"
        return render(
            request,
            template,
            job=status,
            state=word_of(pb.JobState.Name(status.state)),
            states=states,
            below=below,
            members=[(task, word_of(pb.TaskState.Name(task.state))) for task in members if status.replicas > 1],
            # Of a single task that ran once it tells nothing.
            timeline=timeline if status.replicas > 1 or any(bar.earlier for bar in timeline) else [],
            spec=spec_facts(status),
            is_live=not status.finished_at_ms,
        )

    async def tasks(self, request: Request) -> Response:
        """A page of a job's tasks."""
        job_id, state = _asked_job(request), query_text(request, "state", 40)
        viewer = viewer_of(request)
        (counted,) = await self.client.rows(viewer, queries.count_tasks(job_id, state))
        number = page_number(asked_page(request.query_params.get("page")), counted["total"], TASKS_PER_PAGE)
        rows = await self.client.rows(
            viewer, queries.list_tasks(job_id, state, (number - 1) * TASKS_PER_PAGE, TASKS_PER_PAGE), TASKS_PER_PAGE
        )
        given = {"id": job_id} | ({"state": state} if state else {})
        return render(
            request,
            "iris/tasks_table.html",
            page=Page(rows, number, counted["total"], TASKS_PER_PAGE),
            job_id=job_id,
            url=lambda number: "/job/tasks?" + urlencode(given | {"page": number}),
            address="/job/tasks?" + urlencode(given | {"page": number}),
        )

    async def usage(self, request: Request) -> Response:
        """A stream of events with the usage of a job's running tasks, every two seconds."""
        job_id, viewer = _asked_job(request), viewer_of(request)
        status = await self.client.job(viewer, job_id)

        async def samples() -> AsyncIterator[bytes]:
            # Of very many tasks a look costs the controller more than it tells.
            while status.replicas <= MOST_MEASURED and not (await self.client.job(viewer, job_id)).finished_at_ms:
                running = [
                    task for task in await self.client.tasks(viewer, job_id) if task.state == pb.TASK_STATE_RUNNING
                ]
                yield encode_event("usage", json.dumps(usage_of(running, time.time())))
                await asyncio.sleep(_SAMPLE_S)
            yield encode_event("end", "")

        return event_response(_until_away(samples()))

    async def task_usage(self, request: Request) -> Response:
        """A stream of events with the usage of a task's attempts over their whole lives, until its job has ended."""
        task_id, viewer = query_text(request, "id", 1000), viewer_of(request)
        task = await self.client.task(viewer, task_id, with_history=True)

        async def histories(task: pb.TaskStatus) -> AsyncIterator[bytes]:
            while True:
                job = await self.client.job(viewer, task_id.rpartition("/")[0])
                yield encode_event("history", json.dumps(history_of(task, job.spec.resources)))
                if job.finished_at_ms:
                    break
                await asyncio.sleep(_HISTORY_S)
                task = await self.client.task(viewer, task_id, with_history=True)
            yield encode_event("end", "")

        return event_response(_until_away(histories(task)))

    async def task(self, request: Request) -> Response:
        """A task: its attempts, the cause of each end, and their usage."""
        task_id = query_text(request, "id", 1000)
        task = await self.client.task(viewer_of(request), task_id)
        template = "iris/task_body.html" if is_fragment(request) else "iris/task.html"
        return render(
            request,
            template,
            task=task,
            job_id=task_id.rpartition("/")[0],
            state=word_of(pb.TaskState.Name(task.state)),
            attempts=attempts_of(task, int(time.time() * 1000)),
        )

    async def stop(self, request: Request, form: dict[str, str]) -> Response:
        """Stop a job and its descendants."""
        job_id = form.get("id", "")
        if not job_id:
            raise InvalidRequest("the form has no id of a job to stop")
        viewer = viewer_of(request)
        await self.client.stop_job(viewer, job_id, f"stopped by {viewer.name} in the dashboard")
        return RedirectResponse(f"/job?id={quote(job_id)}", 303)

    async def _children(self, request: Request, parent: str, unfolded: set[str]) -> _Children:
        viewer, chosen = viewer_of(request), queries.JobFilter(parent=parent)
        (counted,) = await self.client.rows(viewer, queries.count_jobs(chosen))
        rows = await self.client.rows(viewer, queries.list_jobs(chosen, 0, _UNFOLDED))
        await self._count_below(request, rows, unfolded)
        return _Children(parent, rows, counted["total"])

    async def _count_below(self, request: Request, rows: list[Row], unfolded: set[str]) -> None:
        """Add to each row its numbers of children and of descendants by state, and its children if it is unfolded."""
        if not rows:
            return
        sql = queries.descendants_of([row["job_id"] for row in rows])
        found = await self.client.rows(viewer_of(request), sql, len(rows) * len(queries.STATES))
        for row in rows:
            row["below"] = [item for item in found if item["job_id"] == row["job_id"]]
            row["children"] = sum(item["children"] for item in row["below"])
            is_unfolded = row["children"] and row["job_id"] in unfolded
            row["unfolded"] = await self._children(request, row["job_id"], unfolded) if is_unfolded else None


def usage_of(tasks: Sequence[pb.TaskStatus], now: float) -> dict[str, float]:
    """Return the total usage of running tasks: tasks, cores, bytes of memory.

    Args:
        tasks: The running tasks.
        now: Seconds since the epoch.
    """
    latest = [task.usage[-1] for task in tasks if task.usage]
    cores, memory = sum(item.cpu_millis for item in latest) / 1000, sum(item.memory_bytes for item in latest)
    return {"at": now, "tasks": len(latest), "cpu": cores, "memory": memory}


def history_of(task: pb.TaskStatus, asked: pb.Resources) -> dict[str, list[float | None]]:
    """Return the usage of a task's attempts as columns of a chart, with a gap between two attempts.

    Args:
        task: The task with its history.
        asked: What the task requested.
    """
    rows: list[tuple[float | None, ...]] = []
    for use in task.usage:
        if rows and use.history:
            rows.append((rows[-1][0], None, None, None, None))
        for number, point in enumerate(use.history):
            cores = point.cpu_ms / max(point.until_ms - point.from_ms, 1)
            memory = point.memory_bytes or point.memory_peak_bytes
            values = (cores, max(point.cpu_peak_millis / 1000, cores), memory, point.memory_peak_bytes)
            rows += [(at_ms / 1000, *values) for at_ms in (point.from_ms, point.until_ms)[number > 0 :]]
    names = ("at", "cpu", "cpu_peak", "memory", "memory_peak")
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    limits = {"cpu_asked": asked.cpu_millis / 1000, "memory_asked": asked.memory_bytes}
    return columns | {name: [limit] * len(rows) for name, limit in limits.items() if limit}


async def _until_away(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    with contextlib.suppress(MarinError):  # the browser connects again
        async for event in events:
            yield event


def _asked_job(request: Request) -> str:
    job_id = query_text(request, "id", 1000)
    if not job_id:
        raise InvalidRequest("the address needs the job's id: /job?id=/user/name")
    return job_id


def word_of(name: str) -> str:
    """Return a state's name: `JOB_STATE_RUNNING` is "running"."""
    return name.split("_STATE_")[-1].lower()


def attempts_of(task: pb.TaskStatus, now_ms: int) -> list[dict[str, Any]]:
    """Return the attempts of a task, newest first: number, reason of the end ("" if running), usage and times or None.

    Args:
        task: The task.
        now_ms: Unix time.
    """
    times = {each.number: each for each in attempts_in_time(task, now_ms)}
    usage = {item.attempt_id.rpartition(":")[2]: item for item in task.usage}
    found = []
    for number in range(task.attempt + 1):
        cause = task.causes[number] if number < len(task.causes) else ""
        found.append({"number": number, "cause": cause, "usage": usage.get(str(number)), "times": times.get(number)})
    return found[::-1]


def spec_facts(status: pb.JobStatus) -> list[tuple[str, str]]:
    """Return a job's request as labels and values.

    Args:
        status: The job's status with its spec.
    """
    spec, resources = status.spec, status.spec.resources
    facts = [("cpu", f"{resources.cpu_millis / 1000:g}")]
    if resources.memory_bytes:
        facts.append(("memory", f"{resources.memory_bytes / 2**30:.3g} GiB"))
    if resources.disk_bytes:
        facts.append(("disk", f"{resources.disk_bytes / 2**30:.3g} GiB"))
    if resources.device.kind:
        facts.append(("device", f"{resources.device.kind} {resources.device.variant} × {resources.device.count}"))
    facts.append(("band", word_of(pb.PriorityBand.Name(spec.band).replace("PRIORITY_BAND_", "_STATE_"))))
    facts.append(
        ("retries", f"{spec.max_retries_failure} after failures, {spec.max_retries_preemption} after preemptions")
    )
    for constraint in spec.constraints:
        facts.append(("constraint", json.dumps(str(constraint).strip().replace("\n", ", "))[1:-1].replace('\\"', '"')))
    return facts
