"""A fake of Ray's Jobs API in its own thread, with failures on request."""

import asyncio
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Self

from aiohttp import WSCloseCode, web


@dataclass
class Job:
    """A job on the server, with its output and state."""

    body: dict[str, Any]
    log: str = ""
    status: str = "RUNNING"
    message: str = ""
    exit_code: int | None = None

    def end(self, status: str, exit_code: int | None = None, message: str = "") -> None:
        self.status, self.exit_code, self.message = status, exit_code, message


@dataclass
class JobsServer:
    """Ray's Jobs API, with jobs that the test controls.

    Args:
        tail_limits: For each connection to a log, in order: after how many characters it breaks off, and how: "cut"
            (silently), "close" (orderly), "stall" (no more data). Later connections work.
        failing: Status codes to answer with, by the end of a path; 0 cuts the connection. failure: The text of these
            answers.
        nodes: The dashboard's description of each node; if empty, the page does not exist.
        unready: Number of submissions to refuse before the cluster can start jobs.
    """

    token: str = ""
    on_submit: Callable[[Job], None] = lambda _job: None
    on_package: Callable[[], None] = lambda: None
    tail_limits: list[tuple[int, str]] = field(default_factory=list)
    jobs: dict[str, Job] = field(default_factory=dict)
    packages: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    on_stop: Callable[[Job], None] = lambda job: job.end("STOPPED")
    failing: dict[str, int] = field(default_factory=dict)
    failure: str = "Traceback\nValueError: told to fail"
    nodes: list[dict[str, Any]] = field(default_factory=list)
    submit_seconds: float = 0.0
    package_seconds: float = 0.0
    stop_seconds: float = 0.0
    unready: int = 0
    address: str = ""
    tails: int = 0

    def __enter__(self) -> Self:
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)

    def files(self) -> dict[str, bytes]:
        """Return the files of the only uploaded package."""
        (data,) = self.packages.values()
        with zipfile.ZipFile(BytesIO(data)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    @property
    def job(self) -> Job:
        (job,) = self.jobs.values()
        return job

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        app = web.Application(client_max_size=100 << 20, middlewares=[self._guard])
        app.router.add_get("/api/version", self._version)
        app.router.add_get("/api/packages/gcs/{name}", self._get_package)
        app.router.add_put("/api/packages/gcs/{name}", self._put_package)
        app.router.add_get("/nodes", self._nodes)
        app.router.add_post("/api/jobs/", self._submit)
        app.router.add_get("/api/jobs/", self._list)
        app.router.add_get("/api/jobs/{job}", self._info)
        app.router.add_delete("/api/jobs/{job}", self._delete)
        app.router.add_post("/api/jobs/{job}/stop", self._stop)
        app.router.add_get("/api/jobs/{job}/logs", self._logs)
        app.router.add_get("/api/jobs/{job}/logs/tail", self._tail)
        runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._started.set()
        await self._ended.wait()
        await runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path}")
        for path, status in self.failing.items():
            if request.path.endswith(path) and not status:
                assert request.transport is not None
                request.transport.abort()
            if request.path.endswith(path):
                return web.Response(status=status, text=self.failure)
        sent = request.headers.get("Authorization", "")
        if self.token and not sent:
            return web.Response(status=401, text="Unauthorized: Missing authentication token")
        if self.token and sent != f"Bearer {self.token}":
            return web.Response(status=403, text="Forbidden: Invalid authentication token")
        response: web.StreamResponse = await handler(request)
        return response

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": "4", "ray_version": "2.60.0"})

    async def _nodes(self, _: web.Request) -> web.Response:
        if not self.nodes:
            raise web.HTTPNotFound(text="404: Not Found")
        return web.json_response({"result": True, "data": {"summary": self.nodes}})

    async def _get_package(self, request: web.Request) -> web.Response:
        known = request.match_info["name"] in self.packages
        return web.Response(status=200 if known else 404, text="" if known else "Package does not exist")

    async def _put_package(self, request: web.Request) -> web.Response:
        self.packages[request.match_info["name"]] = await request.read()
        self.on_package()
        await asyncio.sleep(self.package_seconds)
        return web.Response()

    async def _submit(self, request: web.Request) -> web.Response:
        if self.unready > 0:
            self.unready -= 1
            return web.Response(status=500, text="No available agent to submit job, please try again later.")
        body = await request.json()
        job = self.jobs[body["submission_id"]] = Job(body)
        self.on_submit(job)
        await asyncio.sleep(self.submit_seconds)
        return web.json_response({"submission_id": body["submission_id"], "job_id": body["submission_id"]})

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response([_described(job) for job in self.jobs.values()])

    def _find(self, request: web.Request) -> Job:
        name = request.match_info["job"]
        if name not in self.jobs:
            raise web.HTTPNotFound(text=f"Job {name} does not exist")
        return self.jobs[name]

    async def _info(self, request: web.Request) -> web.Response:
        job = self._find(request)
        return web.json_response({"status": job.status, "message": job.message, "driver_exit_code": job.exit_code})

    async def _delete(self, request: web.Request) -> web.Response:
        if self._find(request).status in ("PENDING", "RUNNING"):
            raise web.HTTPInternalServerError(text="RuntimeError: Attempted to delete a job in a non-terminal state")
        del self.jobs[request.match_info["job"]]
        return web.json_response({"deleted": True})

    async def _stop(self, request: web.Request) -> web.Response:
        job = self._find(request)
        self.stops.append(request.match_info["job"])
        runs = job.status in ("PENDING", "RUNNING")
        self.on_stop(job)
        await asyncio.sleep(self.stop_seconds)
        return web.json_response({"stopped": runs})

    async def _logs(self, request: web.Request) -> web.Response:
        return web.json_response({"logs": self._find(request).log})

    async def _tail(self, request: web.Request) -> web.StreamResponse:
        job = self._find(request)
        self.tails += 1
        limit, how = self.tail_limits.pop(0) if self.tail_limits else (1 << 30, "")
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        sent = 0
        while not (job.status in ("SUCCEEDED", "FAILED", "STOPPED") and sent == len(job.log)):
            if sent < min(len(job.log), limit):
                piece = job.log[sent : min(limit, sent + 20)]
                await socket.send_str(piece)
                sent += len(piece)
            elif sent == limit and how:
                break
            else:
                await asyncio.sleep(0.005)
        if how == "cut":
            assert request.transport is not None
            request.transport.abort()
        elif how == "stall":
            await self._ended.wait()
        else:
            await socket.close(code=WSCloseCode.OK)
        return socket


def _described(job: Job) -> dict[str, Any]:
    """Return a job in Ray's list format, without the entrypoint's resources."""
    body = job.body
    return {
        "type": "SUBMISSION", "submission_id": body["submission_id"], "entrypoint": body["entrypoint"],
        "runtime_env": body.get("runtime_env", {}), "metadata": body.get("metadata", {}), "status": job.status,
        "message": job.message,
    }  # fmt: skip
