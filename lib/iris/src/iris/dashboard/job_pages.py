"""Pages of jobs: the list, a job with its tasks, stopping one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from iris.dashboard import queries
from iris.dashboard.cluster_client import ClusterClient, Row
from iris.dashboard.failures import failed_log
from iris.dashboard.job_facts import (
    attempts_of,
    command_line,
    figures_of,
    history_of,
    history_of_all,
    in_order,
    is_failed,
    life_of,
    spec_facts,
    tasks_of,
    usage_of,
    word_of,
)
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
_ALL_HISTORY_S = 15.0
MOST_SUMMED = 32
"""Maximum number of tasks whose usage is shown over their whole lives, and whose pending reasons are."""
STEP_OF = re.compile(r"step (\S+)")
"""The description of a job that runs a step of an experiment: `marin.execution` names the step's output."""


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
            write_route("/job/retry", self.retry),
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
        waits = any(row["pending_tasks"] and not row["finished_at_ms"] for row in rows)
        queue = (await self.client.figures(viewer)).queue if waits else ()
        asked = {"q": chosen.text, "state": chosen.state, "user": chosen.user, "parent": chosen.parent}
        given = {name: value for name, value in asked.items() if value}
        return render(
            request,
            "iris/jobs_table.html" if is_fragment(request) else "iris/jobs.html",
            page=page,
            reasons={job.job_id: job.reason for job in queue},
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
        """A job: its state with the reason, what it used, its tasks over time and child jobs."""
        job_id = _asked_job(request)
        viewer = viewer_of(request)
        status = await self.client.job(viewer, job_id)
        states = await self.client.rows(viewer, queries.task_states(job_id))
        below = await self.client.rows(viewer, queries.descendants_of([job_id]))
        (used,) = await self.client.rows(viewer, queries.used_by(job_id))
        (below_it,) = await self.client.rows(viewer, queries.steps_below(job_id))
        failed = None
        if is_failed(status):
            failed = await failed_log(self.client, viewer, job_id, status.replicas, status.deciding_task_id)
        return render(
            request,
            "iris/job_body.html" if is_fragment(request) else "iris/job.html",
            job=status,
            state=word_of(pb.JobState.Name(status.state)),
            states=in_order([(row["state_word"], row["tasks"]) for row in states]),
            below=below,
            below_counts=in_order([(row["state_word"], row["jobs"]) for row in below]),
            figures=figures_of(status, used, int(time.time() * 1000)),
            failed=failed,
            spec=spec_facts(status),
            command=command_line(status.spec),
            runs_steps=below_it["steps"] > 0,
            step=STEP_OF.fullmatch(status.description),
            is_live=not status.finished_at_ms,
            summed=1 < status.replicas <= MOST_SUMMED,
        )

    async def tasks(self, request: Request) -> Response:
        """A page of a job's tasks, over time."""
        job_id, state = _asked_job(request), query_text(request, "state", 40)
        viewer = viewer_of(request)
        status = await self.client.job(viewer, job_id)
        (counted,) = await self.client.rows(viewer, queries.count_tasks(job_id, state))
        number = page_number(asked_page(request.query_params.get("page")), counted["total"], TASKS_PER_PAGE)
        rows = await self.client.rows(
            viewer, queries.list_tasks(job_id, state, (number - 1) * TASKS_PER_PAGE, TASKS_PER_PAGE), TASKS_PER_PAGE
        )
        indexes = [row["task_index"] for row in rows]
        times = await self.client.rows(viewer, queries.attempt_times(job_id, indexes), 100_000) if indexes else []
        reasons: dict[int, pb.TaskStatus] = {}
        if status.replicas <= MOST_SUMMED:
            tasks = await self.client.tasks(viewer, job_id)
            reasons = {int(task.task_id.rpartition("/")[2]): task for task in tasks}
        given = {"id": job_id} | ({"state": state} if state else {})
        return render(
            request,
            "iris/tasks_table.html",
            page=Page(rows, number, counted["total"], TASKS_PER_PAGE),
            job_id=job_id,
            state=state,
            timeline=timeline_of(
                tasks_of(rows, times), int(time.time() * 1000), status.started_at_ms, status.finished_at_ms
            ),
            known=reasons,
            url=lambda number: "/job/tasks?" + urlencode(given | {"page": number}),
            address="/job/tasks?" + urlencode(given | {"page": number}),
        )

    async def usage(self, request: Request) -> Response:
        """A stream of events with the usage of a job's tasks over their lives; of many tasks, the current usage."""
        job_id, viewer = _asked_job(request), viewer_of(request)
        status = await self.client.job(viewer, job_id)

        async def histories() -> AsyncIterator[bytes]:
            while True:
                job = await self.client.job(viewer, job_id)
                names = [f"{job_id}/{index}" for index in range(job.replicas)]
                tasks = await asyncio.gather(*(self.client.task(viewer, name, with_history=True) for name in names))
                life = life_of(job.started_at_ms, job.finished_at_ms or int(time.time() * 1000))
                yield encode_event("history", json.dumps(history_of_all(tasks, job.spec.resources) | life))
                if job.finished_at_ms:
                    break
                await asyncio.sleep(_ALL_HISTORY_S)
            yield encode_event("end", "")

        async def samples() -> AsyncIterator[bytes]:
            # Of very many tasks a look costs the controller more than it tells.
            while status.replicas <= MOST_MEASURED and not (await self.client.job(viewer, job_id)).finished_at_ms:
                running = [
                    task for task in await self.client.tasks(viewer, job_id) if task.state == pb.TASK_STATE_RUNNING
                ]
                yield encode_event("usage", json.dumps(usage_of(running, time.time())))
                await asyncio.sleep(_SAMPLE_S)
            yield encode_event("end", "")

        return event_response(_until_away(histories() if status.replicas <= MOST_SUMMED else samples()))

    async def task_usage(self, request: Request) -> Response:
        """A stream of events with the usage of a task's attempts over their whole lives, until its job has ended."""
        task_id, viewer = query_text(request, "id", 1000), viewer_of(request)
        task = await self.client.task(viewer, task_id, with_history=True)

        async def histories(task: pb.TaskStatus) -> AsyncIterator[bytes]:
            while True:
                job = await self.client.job(viewer, task_id.rpartition("/")[0])
                times = attempts_in_time(task, int(time.time() * 1000))
                life = life_of(times[0].begin_ms, times[-1].end_ms) if times else {}
                yield encode_event("history", json.dumps(history_of(task, job.spec.resources) | life))
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

    async def retry(self, request: Request, form: dict[str, str]) -> Response:
        """Submit an ended job again, as it was."""
        job_id = form.get("id", "")
        if not job_id:
            raise InvalidRequest("the form has no id of a job to run again")
        await self.client.requeue_job(viewer_of(request), job_id)
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


async def _until_away(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    with contextlib.suppress(MarinError):  # the browser connects again
        async for event in events:
            yield event


def _asked_job(request: Request) -> str:
    job_id = query_text(request, "id", 1000)
    if not job_id:
        raise InvalidRequest("the address needs the job's id: /job?id=/user/name")
    return job_id
