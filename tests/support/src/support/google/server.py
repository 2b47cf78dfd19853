"""The test server of Google's APIs, with which tests arrange what goes wrong."""

import json
import re
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler
from typing import Any, Final, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from support.google import compute, projects, queued, tpu
from support.google.cloud import Call, Cloud, Json, Machine, Refused, Zone
from support.google.masks import masked
from support.google.metadata import serve
from support.google.schemas import Method, load
from support.google.words import BROKEN, UNAUTHENTICATED, Failure, Refusal

_Handler = Callable[[Cloud, Call], Json]
_NODES: Final = "tpu.projects.locations.nodes"
_QUEUED: Final = "tpu.projects.locations.queuedResources"
_HANDLERS: Final[Mapping[str, Mapping[str, _Handler]]] = {
    "tpu.v2": {
        f"{_NODES}.create": tpu.create_node,
        f"{_NODES}.delete": tpu.delete_node,
        f"{_NODES}.get": tpu.get_node,
        f"{_NODES}.list": tpu.list_nodes,
        f"{_NODES}.patch": tpu.patch_node,
        f"{_NODES}.getGuestAttributes": tpu.get_guest_attributes,
        f"{_QUEUED}.create": queued.create,
        f"{_QUEUED}.delete": queued.delete,
        f"{_QUEUED}.get": queued.get,
        f"{_QUEUED}.list": queued.list_queued,
        "tpu.projects.locations.operations.get": tpu.get_operation,
    },
    "compute.v1": {
        "compute.instances.insert": compute.insert,
        "compute.instances.list": compute.list_instances,
        "compute.instances.aggregatedList": compute.aggregated_list,
        "compute.instances.get": compute.get,
        "compute.instances.delete": compute.delete,
        "compute.instances.reset": compute.reset,
        "compute.instances.start": compute.start,
        "compute.instances.setLabels": compute.set_labels,
        "compute.instances.setMetadata": compute.set_metadata,
        "compute.instances.getSerialPortOutput": compute.serial_port,
        "compute.instances.getGuestAttributes": compute.get_guest_attributes,
        "compute.zoneOperations.get": compute.get_operation,
        "compute.zoneOperations.wait": compute.get_operation,
        "compute.globalOperations.get": compute.get_operation,
        "compute.projects.get": projects.get_compute_project,
        "compute.projects.setCommonInstanceMetadata": projects.set_common_metadata,
        "compute.subnetworks.list": projects.list_subnetworks,
    },
    "iam.v1": {
        "iam.projects.serviceAccounts.get": projects.get_account,
        "iam.projects.serviceAccounts.create": projects.create_account,
    },
    "cloudresourcemanager.v1": {
        "cloudresourcemanager.projects.get": projects.get_project,
        "cloudresourcemanager.projects.getIamPolicy": projects.get_policy,
        "cloudresourcemanager.projects.setIamPolicy": projects.set_policy,
    },
}


class Cut(Enum):
    """What becomes of a request's connection."""

    BEFORE = "it breaks, and nothing happens"
    AFTER = "it breaks after the request has had its effect"
    HANGS = "there is no answer until `GoogleServer.release`; the request has no effect"
    ANSWER_HANGS = "there is no answer until `GoogleServer.release`; the request has its effect"


@dataclass
class _Told:
    pattern: re.Pattern[str]
    what: "Refusal | Failure | Cut"
    times: int


class GoogleServer:
    """Google's APIs on loopback, at `address`; a context manager.

    Records are the bodies that it answers with: `cloud.nodes`, `cloud.queued`, `cloud.instances`. Every body that comes
    in or goes out is checked against Google's discovery documents; at the end, what did not fit is an AssertionError,
    unless `defects` was cleared. A path that it does not know is a defect, too, and answered with 501.

    Args:
        clock: Returns seconds since the epoch. What takes time ends at the next request, or `settle`, by that clock.
        operation_s, boot_s, delete_s: How long operations take, machines boot, and deletions take.
        addresses: Returns the address of the machine with a number, from 1.
        listen: Returns the socket of the server.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        *,
        operation_s: float = 0.0,
        boot_s: float = 0.0,
        delete_s: float = 0.0,
        addresses: Callable[[int], str] = lambda number: (
            f"10.{number // 62500}.{number // 250 % 250}.{number % 250 + 1}"
        ),
        listen: Callable[[], socket.socket] = lambda: socket.create_server(("127.0.0.1", 0)),
    ) -> None:
        self.cloud = Cloud(clock, operation_s=operation_s, boot_s=boot_s, delete_s=delete_s, addresses=addresses)
        self.requests: list[str] = []
        self.defects: list[str] = []
        self.on_call: Callable[[Call], None] | None = None  # before a request has an effect
        self.on_boot: Callable[[Machine], None] | None = None
        self.on_stop: Callable[[Machine], None] | None = None
        self.address = ""
        self.token = ""  # what a request must have; none by default
        self._listen = listen
        self._done: dict[tuple[str, str], Json] = {}
        self._told: deque[_Told] = deque()
        self._released = threading.Event()
        self._hooks = threading.RLock()  # a hook may preempt

    def __enter__(self) -> Self:
        self._server = serve(self._listen(), _handler(self))
        self.address = "http://{}:{}".format(*self._server.server_address[:2])
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.release()
        with self.cloud.lock:
            for owner in self.cloud.machines:
                self.cloud.halt(owner)
        self.settle()
        self._server.shutdown()
        self._server.server_close()
        for machines in self.cloud.machines.values():
            for machine in machines:
                machine.metadata.close()
        if kind is None and self.defects:
            raise AssertionError("Google would not have understood:\n" + "\n".join(self.defects))

    def zone(self, name: str) -> Zone:
        """Return a zone, whose fields say what goes wrong there."""
        with self.cloud.lock:
            return self.cloud.zone(name)

    def fail_next(self, request: str, what: "Refusal | Failure | Cut", times: int = 1) -> None:
        """Let the next requests end in a refusal, an operation that fails, or a broken connection.

        Args:
            request: Verb and path; `...` stands for anything: "POST .../nodes".
        """
        pattern = ".*".join(re.escape(part) for part in request.split("..."))
        with self.cloud.lock:
            self._told.append(_Told(re.compile(pattern), what, times))

    @property
    def failures_left(self) -> int:
        """Return how many requests are still to fail."""
        with self.cloud.lock:
            return sum(told.times for told in self._told)

    def release(self) -> None:
        """Let requests that hang break off."""
        self._released.set()
        self._released = threading.Event()

    def settle(self) -> None:
        """Let happen what is due by the clock, and run hooks for machines that start or stop."""
        self.cloud.settle()
        with self._hooks:
            while self.cloud.events:
                kind, machine = self.cloud.events.popleft()
                if kind == "gone":
                    machine.metadata.close()
                elif kind == "boot" and self.on_boot is not None:
                    self.on_boot(machine)
                elif kind == "stop" and self.on_stop is not None:
                    self.on_stop(machine)

    def machines(self, name: str) -> list[Machine]:
        """Return the machines of a node or instance, by its short name."""
        with self.cloud.lock:
            return list(self.cloud.machines[self._full(name)])

    def warn(self, name: str, host: int | None = None) -> None:
        """Let the metadata servers of a node or instance, or of one host, say that it is preempted."""
        for machine in self.machines(name):
            if host in (None, machine.number):
                machine.metadata.preempt()

    def preempt(self, name: str, host: int | None = None) -> None:
        """Take a node or instance, or one host of a node, away. What was preempted stays listed, like at Google."""
        self.warn(name, host)
        with self.cloud.lock:
            full = self._full(name)
            self.cloud.halt(full, host)
            if full in self.cloud.instances:
                self._stop_instance(full)
            elif host is None:
                self.cloud.nodes[full]["state"] = "PREEMPTED"
                tpu.suspend(self.cloud, full, "SERVICE")
            else:  # what Google says of a node that lost one host is not known; this is the nearest that it can say
                self.cloud.nodes[full].update(health="TIMEOUT", healthDescription=f"worker {host} is not reachable")
        self.settle()

    def _stop_instance(self, full: str) -> None:
        instance = self.cloud.instances[full]
        instance["status"] = "TERMINATED"
        if instance.get("scheduling", {}).get("instanceTerminationAction") == "DELETE":
            self.cloud.forget(self.cloud.instances, full)

    def _full(self, name: str) -> str:
        found = [full for full in self.cloud.machines if full == name or full.endswith(f"/{name}")]
        if len(found) != 1:
            raise KeyError(f"{name}: one of {sorted(self.cloud.machines)}")
        return found[0]

    def answer(self, verb: str, path: str, query: dict[str, str], body: Json) -> tuple[int, Json] | None:
        """Return the answer to a request; None breaks the connection."""
        self.cloud.settle()
        with self.cloud.lock:
            self.requests.append(f"{verb} {path}")
            told = self._take(f"{verb} {path}")
            released = self._released
        if told in (Cut.BEFORE, Cut.HANGS):
            if told is Cut.HANGS:
                released.wait()
            return None
        status, answer = self._answer(verb, path, query, body, told)
        if told is Cut.ANSWER_HANGS:
            released.wait()
        return None if isinstance(told, Cut) else (status, answer)

    def _answer(self, verb: str, path: str, query: dict[str, str], body: Json, told: object) -> tuple[int, Json]:
        method, names = _route(verb, path)
        if method is None:
            return self._reject(501, f"the test server does not know {verb} {path}")
        failure = told if isinstance(told, Failure) else None
        call = Call(method, path, names, query, body)
        call = Call(method, path, names, query, body, failure.filled(**call.words) if failure else None)
        wrong = [] if not method.request else method.api.wrong(method.request, body)
        wrong += [f'Unknown name "{key}": Cannot bind query parameter.' for key in query.keys() - method.parameters]
        if wrong:
            return self._reject(400, f"{method.id}: Invalid JSON payload received. " + "; ".join(wrong))
        if self.on_call is not None:
            self.on_call(call)
        with self.cloud.lock:
            try:
                if isinstance(told, Refusal):
                    raise call.refuse(told)
                answer = self._handle(call)
            except Refused as refused:
                return refused.refusal.status, refused.refusal.body()
            answer = json.loads(json.dumps(answer))
        unlike = method.api.wrong(method.response, answer)
        if unlike:
            return self._reject(500, f"{method.id}, answer of the test server: " + "; ".join(unlike))
        return 200, masked(answer, query.get("fields", ""))

    def _handle(self, call: Call) -> Json:
        """Return the answer of a handler; the first one again for a `requestId` that was there before."""
        key = (call.path, call.query.get("requestId", ""))
        if key not in self._done:
            answer = _HANDLERS_BY_ID[call.method.id](self.cloud, call)
            if not key[1]:
                return answer
            self._done[key] = answer
        return self._done[key]

    def _reject(self, status: int, text: str) -> tuple[int, Json]:
        self.defects.append(text)
        return status, Refusal(status, text, BROKEN.google if status >= 500 else "INVALID_ARGUMENT").body()

    def _take(self, request: str) -> "Refusal | Failure | Cut | None":
        for told in self._told:
            if told.pattern.fullmatch(request):
                told.times -= 1
                if not told.times:
                    self._told.remove(told)
                return told.what
        return None


_HANDLERS_BY_ID: Final = {key: handler for handlers in _HANDLERS.values() for key, handler in handlers.items()}


def _route(verb: str, path: str) -> tuple[Method | None, dict[str, str]]:
    for api, handlers in _HANDLERS.items():
        methods = load(api).methods
        for key in handlers:
            match = methods[key].path.fullmatch(path) if methods[key].verb == verb else None
            if match:
                return methods[key], match.groupdict()
    return None, {}


def _handler(server: GoogleServer) -> type[BaseHTTPRequestHandler]:
    class ApiHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet an answer
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _serve(self) -> None:
            try:
                self._answer()
            except OSError:  # the client is gone
                self.close_connection = True
            except Exception:
                server.defects.append(traceback.format_exc())
                raise

        def _answer(self) -> None:
            parts = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            if server.token and self.headers.get("Authorization") != f"Bearer {server.token}":
                answered: tuple[int, Json] | None = (UNAUTHENTICATED.status, UNAUTHENTICATED.body())
            else:
                body = json.loads(raw) if raw.strip() else {}
                answered = server.answer(self.command, unquote(parts.path), query, body)
            if answered is None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            text = json.dumps(answered[1]).encode()
            self.send_response(answered[0])
            self.send_header("Content-Type", "application/json; charset=UTF-8")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            self.wfile.flush()
            server.settle()

        do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _serve

    return ApiHandler
