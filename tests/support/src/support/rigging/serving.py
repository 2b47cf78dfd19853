"""Common parts of the test servers: the separate process, faults, and traffic counters."""

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

from support.rigging.faults import Fault, FaultKind, FaultPlan

if TYPE_CHECKING:
    from aiohttp import web

_ADMIN = "/_admin/"
_STREAM_CHUNK_BYTES = 2**20
_MAX_BODY_BYTES = 2**33


@dataclass(slots=True)
class BucketTraffic:
    """Requests to one bucket since the last reset, by operation ("objects.get", "GET object"), and payload bytes."""

    requests: Counter[str] = field(default_factory=Counter)
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_copied: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of a server: status, payload and headers."""

    status: int = 200
    body: bytes | bytearray | memoryview = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_json(cls, value: object, status: int = 200) -> "Answer":
        return cls(status, json.dumps(value).encode(), {"Content-Type": "application/json; charset=UTF-8"})


@dataclass(frozen=True, slots=True)
class Request:
    """A request: the path as sent (still percent-encoded), the query as sent, headers and the whole body."""

    method: str
    raw_path: str
    raw_query: str
    headers: Mapping[str, str]
    body: bytes
    base_url: str


class TrafficCounters:
    """Traffic by bucket."""

    def __init__(self) -> None:
        self.by_bucket: dict[str, BucketTraffic] = {}

    def of(self, bucket: str) -> BucketTraffic:
        return self.by_bucket.setdefault(bucket, BucketTraffic())

    def to_json(self) -> dict[str, Any]:
        return {
            name: {"requests": dict(t.requests), "in": t.bytes_in, "out": t.bytes_out, "copied": t.bytes_copied}
            for name, t in self.by_bucket.items()
        }


class TestServer:
    """A test server (`python -m module`, which calls `serve`) that ends with this process; a context manager."""

    __test__ = False  # pytest: this is no test class

    def __init__(self, module: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        address = self._process.stdout.readline().strip()
        if not address:
            raise RuntimeError(f"{module} did not start: exit {self._process.wait()}")
        self.url = f"http://{address}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self, patience_s: float = 10.0) -> None:
        """Stop the server; may be called twice. After `patience_s` seconds it is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:  # it is busy, or the machine is: nothing of a test's server is to be kept
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def inject(self, fault: Fault) -> None:
        """Activate `fault`, after those already active."""
        self._admin("POST", "faults", fault.to_json())

    def clear_faults(self) -> None:
        self._admin("DELETE", "faults")

    def traffic(self) -> dict[str, BucketTraffic]:
        """Return the requests by bucket since the start or the last reset, including failed ones."""
        return {
            name: BucketTraffic(Counter(t["requests"]), t["in"], t["out"], t["copied"])
            for name, t in self._admin("GET", "traffic").items()
        }

    def reset_traffic(self) -> None:
        self._admin("DELETE", "traffic")

    def _admin(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + _ADMIN + path, data=data, method=method)
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.loads(response.read() or b"null")


class Door:
    """Passes requests to `handle`, after applying the active faults."""

    def __init__(self, handle: Callable[[Request], Awaitable[Answer]], traffic: TrafficCounters) -> None:
        self._handle = handle
        self._traffic = traffic
        self._faults = FaultPlan()

    async def enter(self, request: "web.Request") -> "web.StreamResponse":
        raw_path, _, raw_query = request.raw_path.partition("?")
        if raw_path.startswith(_ADMIN):
            return await self._send(request, self._administer(request.method, raw_path, await request.read()))
        body = await request.read()
        faults = self._faults.befalling(f"{request.method} {unquote(request.raw_path)}")
        await asyncio.sleep(sum(fault.seconds for fault in faults))
        fault = next((f for f in faults if f.kind is not FaultKind.LATENCY), None)
        if fault is None or fault.kind in (FaultKind.APPLIED_ERROR, FaultKind.APPLIED_DROP):
            base_url = f"http://{request.headers.get('Host', '')}"
            asked = Request(request.method, raw_path, raw_query, request.headers, body, base_url)
            answer = await self._handle(asked)
            if fault is None:
                return await self._send(request, answer)
        if fault.kind in (FaultKind.DROP, FaultKind.APPLIED_DROP):
            assert request.transport is not None
            request.transport.abort()
        error = {"code": fault.status, "message": "injected fault"}
        return await self._send(request, Answer.of_json({"error": error}, fault.status))

    def _administer(self, method: str, path: str, body: bytes) -> Answer:
        match method, path.removeprefix(_ADMIN):
            case "POST", "faults":
                self._faults.add(Fault.from_json(json.loads(body)))
            case "DELETE", "faults":
                self._faults.clear()
            case "GET", "traffic":
                return Answer.of_json(self._traffic.to_json())
            case "DELETE", "traffic":
                self._traffic.by_bucket.clear()
            case _:
                return Answer.of_json({"error": f"no {method} {path}"}, 404)
        return Answer.of_json({})

    async def _send(self, request: "web.Request", answer: Answer) -> "web.StreamResponse":
        from aiohttp import web

        # A HEAD answer names the length of a body that it does not carry.
        if len(answer.body) <= _STREAM_CHUNK_BYTES and "Content-Length" not in answer.headers:
            return web.Response(status=answer.status, body=bytes(answer.body), headers=answer.headers)
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        if "Content-Length" not in answer.headers:
            response.content_length = len(answer.body)
        await response.prepare(request)
        view = memoryview(answer.body)
        if request.method != "HEAD":
            for start in range(0, len(view), _STREAM_CHUNK_BYTES):
                await response.write(bytes(view[start : start + _STREAM_CHUNK_BYTES]))
        await response.write_eof()
        return response


def serve(door: Door) -> None:
    """Serve on a free loopback port, print "host:port", and return when standard input ends."""
    asyncio.run(_serve(door))


async def _serve(door: Door) -> None:
    from aiohttp import web

    application = web.Application(client_max_size=_MAX_BODY_BYTES)
    application.router.add_route("*", "/{path:.*}", door.enter)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    host, port = runner.addresses[0][:2]
    print(f"{host}:{port}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()
