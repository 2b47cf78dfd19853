"""Google Cloud on one computer: VMs and TPU slices that its APIs create are machines, and end when they are deleted.

The laptop and all VMs find the APIs under their own names, by TLS, and each VM finds a metadata server that tells it of
itself and has credentials, as on Google's: nothing in Ray or in cluster files has to know.
"""

import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

from marin.testing.google_cloud import GcpServer, serve
from marin.testing.machines import Machine, Machines, missing
from rigging.errors import Unavailable

LAPTOP_VARIABLES: Final = {
    "HTTPLIB2_CA_CERTS": "/srv/ca.pem",
    "GOOGLE_APPLICATION_CREDENTIALS": "/root/service-account.json",
}
_APIS: Final = tuple(
    f"{name}.googleapis.com" for name in ("compute", "tpu", "iam", "cloudresourcemanager", "oauth2", "storage")
)
_METADATA: Final = "169.254.169.254"
_SERVER: Final = "10.77.0.254"


def missing_for_cloud() -> str:
    """Why there can be no such cloud here, and what to do about it; empty if there can."""
    return missing() or ("" if shutil.which("openssl") else "apt-get install openssl")


@contextlib.contextmanager
def running_cloud(folder: Path, checkout: Path) -> Iterator["Cloud"]:
    """A cloud without VMs, and a laptop whose user may do all there.

    Raises:
        Unavailable: A machine or a server does not start.
    """
    hosts = {**dict.fromkeys(_APIS, _SERVER), "metadata.google.internal": _METADATA}
    trusted = {"HTTPLIB2_CA_CERTS": LAPTOP_VARIABLES["HTTPLIB2_CA_CERTS"]}
    with Machines(folder, checkout, {}, hosts, trusted).running() as machines:
        laptop = machines.laptop
        _run("nsenter", *_network(laptop), "ip", "address", "add", f"{_METADATA}/32", "dev", "machines")
        tls = _certificate(machines.shared)
        _write_account(laptop)
        computers = _Computers(machines)
        api = GcpServer(computers, _listen(laptop, _SERVER, 443), tls)
        metadata = serve(_metadata_handler(computers), _listen(laptop, _METADATA, 80))
        thread = threading.Thread(target=metadata.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            with api:
                yield Cloud(machines, api)
        finally:
            with api.lock:  # a head that still runs may be asking for slices
                computers.closed = True
            metadata.shutdown()
            metadata.server_close()
            thread.join(10)


@dataclass(frozen=True, slots=True)
class Cloud:
    """The laptop and the VMs that there are, and the APIs' server."""

    machines: Machines
    api: GcpServer

    def vms(self) -> list[Machine]:
        """Return the VMs that run: those of slices, too."""
        return [machine for machine in list(self.machines.all.values()) if machine is not self.machines.laptop]


class _Computers:
    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self.attributes: dict[str, dict[str, str]] = {}
        self.closed = False

    def start(self, names: Sequence[str], accelerator: str, metadata: dict[str, str]) -> list[str]:
        if self.closed:
            raise Unavailable("this cloud is at its end")
        return [self._start(name, index, accelerator, metadata) for index, name in enumerate(names)]

    def stop(self, names: Sequence[str]) -> None:
        for name in names:
            self._machines.remove(name)

    def _start(self, name: str, index: int, accelerator: str, metadata: dict[str, str]) -> str:
        # Ray tells slices' hosts what they count as; that one has CPUs makes it a worker.
        machine = self._machines.add(name, {"CPU": 1} if accelerator else {})
        # USER:KEY lines, which Google's guest agent puts there.
        keys = [line.partition(":")[2] for line in metadata.get("ssh-keys", "").splitlines()]
        machine.path("/root/.ssh/authorized_keys").write_text("\n".join([*keys, ""]))
        slice_name = name.rpartition("-w-")[0]
        found = {"instance-id": slice_name, "accelerator-type": accelerator, "agent-worker-number": str(index)}
        self.attributes[machine.address] = found if accelerator else {}
        return machine.address


def _metadata_handler(computers: _Computers) -> type[BaseHTTPRequestHandler]:
    class MetadataHandler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            path = self.path.partition("?")[0].removeprefix("/computeMetadata/v1").rstrip("/")
            attributes = computers.attributes.get(self.client_address[0], {})
            known: dict[str, Any] = {
                "": "0.1/",
                "/project/project-id": "the-project",
                "/instance/service-accounts/default": {"email": "vm@test", "scopes": ["cloud-platform"]},
                "/instance/service-accounts/default/token": {"access_token": "t", "expires_in": 3600},
                **{f"/instance/attributes/{key}": value for key, value in attributes.items()},
            }
            found = known.get(path)
            text = found if isinstance(found, str) else json.dumps(found)
            self.send_response(404 if found is None else 200)
            self.send_header("Metadata-Flavor", "Google")
            self.send_header("Content-Type", "application/text" if isinstance(found, str) else "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

    return MetadataHandler


def _certificate(shared: Path) -> ssl.SSLContext:
    """One for all names of Google's, which the machines are told to trust."""
    names = ",".join(f"DNS:{name}" for name in _APIS)
    key, certificate = shared.parent / "tls.key", shared / "ca.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    _run(*words, "-addext", f"subjectAltName={names}", "-keyout", str(key), "-out", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def _write_account(laptop: Machine) -> None:
    key = subprocess.run(["openssl", "genrsa", "2048"], check=True, capture_output=True, text=True).stdout
    account = {
        "type": "service_account",
        "project_id": "the-project",
        "private_key_id": "1",
        "private_key": key,
        "client_email": "me@the-project.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    laptop.path(LAPTOP_VARIABLES["GOOGLE_APPLICATION_CREDENTIALS"]).write_text(json.dumps(account))


_LISTEN: Final = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=128)
socket.send_fds(socket.socket(fileno=0), [b"x"], [listener.fileno()])
"""


def _listen(machine: Machine, address: str, port: int) -> socket.socket:
    """Return a socket of this process that listens in the network of a machine."""
    own, other = socket.socketpair()
    with own, other:
        command = ["nsenter", *_network(machine), sys.executable, "-c", _LISTEN, address, str(port)]
        done = subprocess.run(command, stdin=other.fileno(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"cannot listen at {address}:{port} of {machine.name}: {done.stderr.strip()}")
        _, (handle,), *_ = socket.recv_fds(own, 1, 1)
    return socket.socket(fileno=handle)


def _network(machine: Machine) -> list[str]:
    return ["--target", str(machine.pid), "--net", "--"]


def _run(*words: str) -> None:
    done = subprocess.run(list(words), capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"`{' '.join(words)}` failed: {done.stderr.strip()}")
