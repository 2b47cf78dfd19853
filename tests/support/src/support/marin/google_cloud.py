"""A fake of the Google Compute, TPU, IAM and Resource Manager APIs that Ray's provider calls."""

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import parse_qs, unquote, urlsplit

from rigging.errors import InvalidRequest
from rigging.topology import get_tpu_topology

_Answer = tuple[int, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: re.Match[str]
    query: dict[str, str]
    body: dict[str, Any]


_VM_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_VALUE: Final = re.compile(r"[-_a-z0-9]{0,63}")
_STOCKOUT: Final = {
    "name": "operation-2",
    "done": True,
    "error": {"code": 8, "message": "There is no more capacity in the zone; try another one."},
}
_DONE: Final = {"name": "operation-1", "status": "DONE", "done": True, "response": {}}


@dataclass
class GcpServer:
    """The fake APIs. A created VM or slice is a record, ready immediately.

    Slices are keyed by full name. The first `stockouts` creations fail, a list page has `page` slices, and every answer
    is `failing` unless it is 0.
    """

    machines: dict[str, dict[str, Any]] = field(default_factory=dict)
    slices: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    policy: dict[str, Any] = field(default_factory=lambda: {"bindings": [], "etag": "x"})
    account: dict[str, Any] | None = None
    metadata: dict[str, Any] = field(default_factory=lambda: {"items": []})
    address: str = ""
    addresses: int = 0
    stockouts: int = 0
    page: int = 500
    failing: int = 0

    def __enter__(self) -> Self:
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def preempt(self, name: str) -> None:
        """Preempt a slice: its record stays on the list, like at Google."""
        with self.lock:
            self.slices[name]["state"] = "PREEMPTED"

    def answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> _Answer:
        """Return the answer to a request."""
        with self.lock:
            self.requests.append(f"{method} {path}")
            if self.failing:
                return _error(self.failing, "told to fail")
            for pattern, route in self._routes():
                match = re.fullmatch(pattern, path)
                if match:
                    return route(_Request(method, match, query, body))
        return _error(501, f"the test server does not know {method} {path}")

    def _routes(self) -> list[tuple[str, Callable[[_Request], _Answer]]]:
        return [
            (r"/v1/projects/[^/:]+(:\w+)?", self._project),
            (r"/v1/projects/([^/]+)/serviceAccounts(/.+)?", self._service_account),
            (r"/compute/v1/projects/[^/]+", lambda _: (200, {"name": "p", "commonInstanceMetadata": self.metadata})),
            (r"/compute/v1/projects/[^/]+/setCommonInstanceMetadata", self._set_metadata),
            (r"/compute/v1/projects/[^/]+/regions/([^/]+)/subnetworks", self._subnets),
            (r"/compute/v1/projects/[^/]+/(zones/[^/]+|global)/operations/[^/]+", lambda _: (200, _DONE)),
            (r"/compute/v1/projects/[^/]+/zones/[^/]+/instances(?:/([^/]+))?(?:/(\w+))?", self._instances),
            (r"/v2/projects/[^/]+/locations/[^/]+/operations/stockout", lambda _: (200, _STOCKOUT)),
            (r"/v2/projects/[^/]+/locations/[^/]+/operations/[^/]+", lambda _: (200, _DONE)),
            (r"/v2/(projects/[^/]+/locations/[^/]+)/nodes(?:/([^/]+))?", self._nodes),
        ]

    def _project(self, request: _Request) -> _Answer:
        verb = request.path[1]
        if verb == ":setIamPolicy":
            self.policy = request.body["policy"]
        if verb:
            return 200, self.policy
        return 200, {"projectId": request.path[0].rpartition("/")[2], "lifecycleState": "ACTIVE"}

    def _service_account(self, request: _Request) -> _Answer:
        if request.method == "POST":
            email = f"{request.body['accountId']}@{request.path[1]}.iam.gserviceaccount.com"
            self.account = {"email": email, "projectId": request.path[1]}
        return (200, self.account) if self.account else _error(404, "no such account")

    def _set_metadata(self, request: _Request) -> _Answer:
        self.metadata = request.body
        return 200, _DONE

    def _subnets(self, request: _Request) -> _Answer:
        return 200, {
            "items": [{"name": "default", "selfLink": f"projects/p/regions/{request.path[1]}/subnetworks/default"}]
        }

    def _instances(self, request: _Request) -> _Answer:
        name, verb = request.path[1], request.path[2]
        if name is None and request.method == "GET":
            expression = request.query.get("filter", "")
            wanted = dict(re.findall(r"labels\.([\w-]+) = ([^)\s]+)", expression))
            states = re.findall(r"status = (\w+)", expression)
            return 200, {"items": [each for each in self.machines.values() if _has(each, wanted, states)]}
        if name is None:
            refused = _check(request.body, request.body["name"], _VM_NAME)
            if not refused:
                ip = self._next_address()
                network = {**request.body["networkInterfaces"][0], "networkIP": ip, "accessConfigs": [{"natIP": ip}]}
                made = {**request.body, "status": "RUNNING", "labelFingerprint": "a", "networkInterfaces": [network]}
                self.machines[request.body["name"]] = made
            return refused or (200, _DONE)
        if name not in self.machines:
            return _error(404, f"no instance {name}")
        if verb == "setLabels":
            self.machines[name]["labels"] = request.body["labels"]
        elif request.method == "DELETE":
            del self.machines[name]
            return 200, _DONE
        return 200, _DONE if verb else self.machines[name]

    def _nodes(self, request: _Request) -> _Answer:
        parent, short = request.path[1], request.path[2]
        if short is None and request.method == "GET":
            start = int(request.query.get("pageToken", 0))
            more = {"nextPageToken": str(start + self.page)} if start + self.page < len(self.slices) else {}
            return 200, {"nodes": list(self.slices.values())[start : start + self.page], **more}
        if short is None:
            return self._create_slice(
                f"{parent}/nodes/{request.query['nodeId']}", request.query["nodeId"], request.body
            )
        name = f"{parent}/nodes/{short}"
        if name not in self.slices:
            return _error(404, f"no node {name}")
        if request.method == "GET":
            return 200, self.slices[name]
        if request.method == "PATCH":
            self.slices[name]["labels"] = request.body["labels"]
        else:
            del self.slices[name]
        return 200, {**_DONE, "name": f"{parent}/operations/1"}

    def _create_slice(self, name: str, short: str, body: dict[str, Any]) -> _Answer:
        refused = _check(body, short, _VM_NAME)
        try:
            hosts = get_tpu_topology(body.get("acceleratorType", "")).vm_count
        except InvalidRequest as error:
            refused = _error(400, str(error))
        if refused:
            return refused
        if self.stockouts:
            self.stockouts -= 1
            return 200, {"name": f"{name.partition('/nodes/')[0]}/operations/stockout"}
        ips = [self._next_address() for _ in range(hosts)]
        ends = [{"ipAddress": ip, "accessConfig": {"externalIp": ip}} for ip in ips]
        self.slices[name] = {**body, "name": name, "state": "READY", "networkEndpoints": ends}
        return 200, {**_DONE, "name": f"{name.partition('/nodes/')[0]}/operations/1"}

    def _next_address(self) -> str:
        self.addresses += 1
        return f"10.0.{self.addresses // 250}.{self.addresses % 250 + 1}"


def _handler(server: GcpServer) -> type[BaseHTTPRequestHandler]:
    class ApiHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            status, answer = server.answer(
                self.command, unquote(parts.path), query, json.loads(raw) if raw.startswith(b"{") else {}
            )
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _serve

    return ApiHandler


def _error(code: int, message: str) -> _Answer:
    return code, {"error": {"code": code, "message": message}}


def _check(body: dict[str, Any], name: str, names: re.Pattern[str]) -> _Answer | None:
    if not names.fullmatch(name):
        return _error(400, f"invalid name {name!r}")
    wrong = [value for value in body.get("labels", {}).values() if not _LABEL_VALUE.fullmatch(value)]
    return _error(400, f"invalid labels {wrong}") if wrong else None


def _has(machine: dict[str, Any], wanted: dict[str, str], states: list[str]) -> bool:
    named = all(machine["labels"].get(key) == value for key, value in wanted.items())
    return named and (not states or machine["status"] in states)
