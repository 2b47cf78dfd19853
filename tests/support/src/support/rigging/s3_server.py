"""An S3 server for tests: moto's implementation behind a front end with faults and traffic counters.

with S3Server() as server:
    server.create_bucket("a-bucket")
    os.environ.update(server.environment())

It runs one request at a time, so that conditional writes and deletes are atomic like on S3. Needs aiohttp (a dependency
of s3fs) and moto[server].
"""

import asyncio
import io
import re
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any
from urllib.parse import unquote

from support.rigging.serving import Answer, Door, Request, TestServer, TrafficCounters, serve

_PATH = re.compile(r"/([^/]+)(?:/(.+))?")
_NOT_PASSED_ON = frozenset({"connection", "date", "server", "transfer-encoding"})

ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]
WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class S3Server(TestServer):
    """The server, in a separate process that ends with this one; a context manager."""

    def __init__(self) -> None:
        super().__init__(__name__)

    def environment(self) -> dict[str, str]:
        """Return the environment in which s3fs and botocore use this server."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def create_bucket(self, name: str) -> None:
        """Create a bucket, with a name of at least 3 letters."""
        request = urllib.request.Request(f"{self.url}/{name}", data=b"", method="PUT")
        with urllib.request.urlopen(request, timeout=30):
            pass


class MotoApi:
    """Answers S3 requests with moto's WSGI application, one at a time."""

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import create_backend_app

        self.traffic = TrafficCounters()
        self._application: WsgiApplication = create_backend_app("s3")
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="moto")

    async def handle(self, request: Request) -> Answer:
        answer = await asyncio.get_running_loop().run_in_executor(self._worker, self._run, request)
        match = _PATH.match(request.raw_path)
        if match is not None:
            traffic = self.traffic.of(unquote(match[1]))
            traffic.requests[f"{request.method} {'object' if match[2] else 'bucket'}"] += 1
            traffic.bytes_in += len(request.body) if match[2] and request.method == "PUT" else 0
            traffic.bytes_out += len(answer.body) if match[2] and request.method == "GET" and answer.status < 300 else 0
        return answer

    def _run(self, request: Request) -> Answer:
        status, headers = "", list[tuple[str, str]]()

        def start(
            line: str, fields: list[tuple[str, str]], _failure: ExceptionInfo | None = None
        ) -> Callable[..., Any]:
            nonlocal status, headers
            status, headers = line, fields
            return lambda _data: None

        body = b"".join(self._application(_environ(request), start))
        kept = {name: value for name, value in headers if name.lower() not in _NOT_PASSED_ON}
        if request.method != "HEAD":
            kept = {name: value for name, value in kept.items() if name.lower() != "content-length"}
        return Answer(int(status.split()[0]), body, kept)


def _environ(request: Request) -> dict[str, Any]:
    host = request.base_url.removeprefix("http://")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        # WSGI carries bytes as latin-1 text.
        "PATH_INFO": unquote(request.raw_path, encoding="latin-1"),
        "RAW_URI": request.raw_path + ("?" + request.raw_query if request.raw_query else ""),
        "REQUEST_URI": request.raw_path + ("?" + request.raw_query if request.raw_query else ""),
        "QUERY_STRING": request.raw_query,
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(len(request.body)),
        "SERVER_NAME": host.partition(":")[0],
        "SERVER_PORT": host.partition(":")[2] or "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(request.body),
        "wsgi.input_terminated": True,
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in request.headers.items():
        if name.lower() not in ("content-type", "content-length", "transfer-encoding"):
            environ["HTTP_" + name.upper().replace("-", "_")] = value
    return environ


if __name__ == "__main__":
    api = MotoApi()
    serve(Door(api.handle, api.traffic))
