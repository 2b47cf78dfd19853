"""Pages of the cluster: workers, users, the queue, endpoints, the controller's health, SQL."""

from __future__ import annotations

import asyncio
import csv
import io
import time
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from iris.dashboard import queries
from iris.dashboard.cluster_client import ClusterClient, Row, user_of, value_of
from iris.dashboard.cluster_client import viewer_of as make_viewer
from iris.dashboard.endpoint_rules import is_http
from iris.dashboard.failures import FailedLog, failed_log
from iris.dashboard.metrics import metrics_text
from iris.dashboard.overview import DAY_MS, HOUR_MS, USES, capacities, columns_of, quantile
from rigging.errors import InvalidRequest, MarinError
from rigging.web.context import is_fragment, render, viewer_of
from rigging.web.login import Viewer
from rigging.web.pages import query_text
from rigging.web.paging import asked_page, page_of
from rigging.web.writes import write_route

_MOST_ROWS = 1000
_BANDS = dict(enumerate(("", "production", "interactive", "batch")))
_USERS_DAYS = 7
_MOST_FAILURES = 5


@dataclass(slots=True)
class ClusterPages:
    """Serves the pages of the cluster.

    Args:
        client: The controller.
        task_port: Port for pages of tasks; 0 for none.
    """

    client: ClusterClient
    task_port: int = 0

    def routes(self) -> list[BaseRoute]:
        """Return the routes of these pages."""
        return [
            Route("/cluster", self.overview),
            Route("/workers", self.workers),
            Route("/worker", self.worker),
            write_route("/worker/cordon", self.cordon),
            Route("/users", self.users),
            Route("/queue", self.queue),
            Route("/endpoints", self.endpoints),
            Route("/controller", self.controller),
            Route("/sql", self.sql),
            Route("/sql.csv", self.sql_csv),
            Route("/metrics", self.metrics),
            Route("/health", self.health),
            Route("/ready", self.ready),
        ]

    async def overview(self, request: Request) -> Response:
        """Capacity, what failed, use over time and by user, the queue, scale groups."""
        viewer, now_ms = viewer_of(request), int(time.time() * 1000)
        is_month = query_text(request, "span", 10) == "month"
        step_ms, count = (DAY_MS, 30) if is_month else (HOUR_MS, 24)
        begin_ms = (now_ms // step_ms - count + 1) * step_ms
        status, figures = await self.client.status(viewer), await self.client.figures(viewer)
        used = await self.client.rows(viewer, queries.used_over_time(begin_ms, step_ms), count * len(USES))
        waits = await self.client.rows(viewer, queries.waits_since(begin_ms), 10_000)
        seconds = [max(row["wait_ms"], 0) / 1000 for row in waits]
        charts = [
            (f"{of}-hours", columns_of(used, f"{of}_seconds", begin_ms, step_ms, count)) for of in ("core", "chip")
        ]
        return render(
            request,
            "iris/overview_body.html" if is_fragment(request) else "iris/overview.html",
            cluster=status,
            figures=figures,
            capacities=capacities(status.workers),
            charts=[item for item in charts if item[1].columns],
            fills=USES,
            users=await self.client.rows(viewer, queries.used_by_users(begin_ms)),
            failures=await self._failures(viewer, begin_ms),
            waits=(len(seconds), quantile(seconds, 0.5), quantile(seconds, 0.95)),
            is_month=is_month,
            begin_ms=begin_ms,
            bands=_BANDS,
        )

    async def _failures(self, viewer: Viewer, begin_ms: int) -> list[tuple[Row, FailedLog | None]]:
        """Return the root jobs that failed last, each with the end of its log."""
        rows = await self.client.rows(viewer, queries.failed_since(begin_ms, _MOST_FAILURES))
        logs = (
            failed_log(self.client, viewer, row["job_id"], row["replicas"], row["deciding_task_id"] or "")
            for row in rows
        )
        return list(zip(rows, await asyncio.gather(*logs), strict=True))

    async def workers(self, request: Request) -> Response:
        """All workers with their load."""
        status = await self.client.status(viewer_of(request))
        text = query_text(request, "q", 200).strip().lower()
        found = [
            worker for worker in status.workers if text in worker.worker_id.lower() or text in worker.address.lower()
        ]
        found.sort(key=lambda worker: (not worker.connected, worker.worker_id))
        return render(
            request,
            "iris/workers_table.html" if is_fragment(request) else "iris/workers.html",
            page=page_of(found, asked_page(request.query_params.get("page")), 100),
            cluster=status,
            text=text,
        )

    async def worker(self, request: Request) -> Response:
        """A worker: its resources and its tasks."""
        worker_id = query_text(request, "id", 300)
        viewer = viewer_of(request)
        status = await self.client.status(viewer)
        found = next((worker for worker in status.workers if worker.worker_id == worker_id), None)
        if found is None:
            return render(
                request, "web/error.html", 404, code=404, title="Not Found", words=f"There is no worker {worker_id!r}."
            )
        tasks = await self.client.rows(viewer, queries.tasks_on(worker_id))
        return render(request, "iris/worker.html", worker=found, tasks=tasks)

    async def cordon(self, request: Request, form: dict[str, str]) -> Response:
        """Cordon or uncordon a worker."""
        worker_id = form.get("id", "")
        reason = form.get("reason", "").strip()[:300]
        if form.get("do") == "cordon" and not reason:
            raise InvalidRequest("a reason is required to cordon a worker; users see it")
        await self.client.cordon(viewer_of(request), worker_id, reason if form.get("do") == "cordon" else "")
        return RedirectResponse("/workers", 303)

    async def users(self, request: Request) -> Response:
        """Users with their jobs, limits and usage."""
        viewer = viewer_of(request)
        budgets = {item.user: item for item in await self.client.budgets(viewer)}
        rows = await self.client.rows(viewer, queries.users())
        since_ms = int(time.time() * 1000) - _USERS_DAYS * DAY_MS
        used = {row["user"]: row for row in await self.client.rows(viewer, queries.used_by_users(since_ms))}
        known = {row["user"] for row in rows}
        rows += [{"user": user} for user in budgets if user not in known]
        return render(
            request,
            "iris/users.html",
            users=[(row, budgets.get(row["user"]), used.get(row["user"])) for row in rows],
            days=_USERS_DAYS,
            bands=_BANDS,
        )

    async def queue(self, request: Request) -> Response:
        """Pending jobs in scheduling order."""
        figures = await self.client.figures(viewer_of(request))
        return render(
            request,
            "iris/queue_table.html" if is_fragment(request) else "iris/queue.html",
            page=page_of(figures.queue, asked_page(request.query_params.get("page")), 100),
            queued=figures.queued_jobs,
            bands=_BANDS,
        )

    async def endpoints(self, request: Request) -> Response:
        """Endpoints of live attempts."""
        viewer = viewer_of(request)
        rows = await self.client.rows(viewer, queries.endpoints())
        mine = f"/{user_of(viewer)}/"
        return render(
            request,
            "iris/endpoints_table.html" if is_fragment(request) else "iris/endpoints.html",
            endpoints=[(row, row["name"].startswith(mine) and is_http(row["metadata"])) for row in rows],
            task_port=self.task_port,
        )

    async def controller(self, request: Request) -> Response:
        """The controller's health."""
        viewer = viewer_of(request)
        status, figures = await self.client.status(viewer), await self.client.figures(viewer)
        return render(
            request,
            "iris/controller_body.html" if is_fragment(request) else "iris/controller.html",
            cluster=status,
            figures=figures,
        )

    async def sql(self, request: Request) -> Response:
        """An SQL query and its result."""
        asked = query_text(request, "q", 20_000).strip()
        problem, answer = "", None
        if asked:
            try:
                answer = await self.client.query(viewer_of(request), asked, _MOST_ROWS)
            except MarinError as error:
                problem = str(error)
        rows = [[value_of(value) for value in row.values] for row in answer.rows] if answer is not None else []
        return render(
            request, "iris/sql.html", asked=asked, problem=problem, answer=answer, rows=rows, saved=queries.SAVED
        )

    async def sql_csv(self, request: Request) -> Response:
        """The result as CSV, whose last row says if rows are missing."""
        answer = await self.client.query(viewer_of(request), query_text(request, "q", 20_000), 100_000)
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(map(csv_cell, answer.columns))
        writer.writerows([csv_cell(value_of(value)) for value in row.values] for row in answer.rows)
        if answer.truncated:
            cut = f"INCOMPLETE: only the first {len(answer.rows)} rows; select fewer, e.g. by LIMIT and OFFSET"
            writer.writerow([cut])
        headers = {"content-disposition": 'attachment; filename="query.csv"'}
        return PlainTextResponse(text.getvalue(), headers=headers, media_type="text/csv; charset=utf-8")

    async def metrics(self, request: Request) -> Response:
        """The controller's metrics for Prometheus."""
        del request
        try:
            viewer = make_viewer("", is_admin=True, may_write=False)
            status, figures = await self.client.status(viewer), await self.client.figures(viewer)
        except MarinError:
            status, figures = None, None
        return PlainTextResponse(metrics_text(status, figures), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def health(self, request: Request) -> Response:
        """Reports that this server answers."""
        del request
        return PlainTextResponse("ok\n")

    async def ready(self, request: Request) -> Response:
        """Reports that the controller answers and can write."""
        del request
        try:
            figures = await self.client.figures(make_viewer("", is_admin=True, may_write=False))
        except MarinError:
            return PlainTextResponse("the controller is away\n", 503)
        return PlainTextResponse(f"{figures.stalled}\n" if figures.stalled else "ok\n", 503 if figures.stalled else 200)


def csv_cell(value: Any) -> Any:
    """Return a value as a cell of a CSV file, with "'" before text that spreadsheets would run as a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
