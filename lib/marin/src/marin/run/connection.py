"""A connection to a cluster's Jobs API, through a tunnel if needed."""

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlsplit

from marin.run.cluster_target import DASHBOARD_PORT, ClusterTarget
from rigging.errors import Unavailable
from rigging.extras import MissingExtra, install_extra

TUNNEL_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1
_END_SECONDS: Final = 5.0
_WRAPPER: Final = Path(__file__).with_name("die_with_parent.py")


@contextlib.contextmanager
def open_connection(
    target: ClusterTarget, *, seconds: float = TUNNEL_SECONDS, port: int | None = None
) -> Iterator[str]:
    """Context manager: yield the URL of a cluster's Jobs API. For a cluster file, open a tunnel with `ray dashboard`.

    Args:
        target: The cluster.
        seconds: Timeout for the tunnel.
        port: The tunnel's local port. Defaults to a free one.

    Raises:
        Unavailable: Ray cannot resolve the address, or the tunnel does not open in time. The message ends with Ray's
            last output.
    """
    if target.file is not None:
        with _tunnel(target.file, seconds, port) as url:
            yield url
    elif target.bootstrap:
        yield _ask_ray(target)
    else:
        yield target.address


def _ask_ray(target: ClusterTarget) -> str:
    host = urlsplit(target.address if "://" in target.address else f"//{target.address}")
    if host.port is not None:
        try:
            socket.create_connection((host.hostname or "", host.port), timeout=5).close()
        except OSError as error:
            raise Unavailable(
                f"no Ray cluster answers at {target.address} ({target.origin}): {error.strerror or error}; "
                "give the URL of its dashboard, e.g. http://HOST:8265"
            ) from None
    try:
        from ray.dashboard.utils import get_address_for_submission_client
    except ImportError as error:
        raise Unavailable(
            f"{target.origin}: only Ray can look up {target.address}, and it is missing: {error}"
        ) from None
    try:
        return str(get_address_for_submission_client(target.address))
    except Exception as error:  # Ray's own kinds, by its version
        raise Unavailable(f"Ray cannot look up {target.address} ({target.origin}): {error}") from None


@contextlib.contextmanager
def _tunnel(file: Path, seconds: float, wanted: int | None) -> Iterator[str]:
    port = _free_port(wanted)
    ray = find_ray()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryDirectory() as folder:
        dashboard = [ray, "dashboard", "--port", str(port), "--remote-port", str(DASHBOARD_PORT), str(file)]
        process = subprocess.Popen(
            [sys.executable, "-I", str(_WRAPPER), *dashboard],
            stdin=subprocess.PIPE,  # its end is the tunnel's, also when this process is killed
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the job; the tunnel is needed to stop it
            env=_without_shared_connections(Path(folder)),
        )
        try:
            _await_tunnel(process, port, file, output, time.monotonic() + seconds)
            yield f"http://127.0.0.1:{port}"
        finally:
            _end(process)


def find_ray() -> str:
    """Return the `ray` program of this environment, or else of PATH. Raise MissingExtra."""
    ray = shutil.which("ray", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if ray is None:
        raise MissingExtra(f"cluster files need the `ray` command: {install_extra('ray')}")
    return ray


def _without_shared_connections(folder: Path) -> dict[str, str]:
    """Return an environment in which ssh ends with the process that started it.

    By default Ray makes ssh share one connection, which stays in the background for a while and keeps the tunnel open.
    """
    ssh = shutil.which("ssh")
    if ssh is None:
        return dict(os.environ)
    program = folder / "ssh"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(ssh)} -o ControlMaster=no -o ControlPath=none "$@"\n')
    program.chmod(0o700)
    return {**os.environ, "PATH": os.pathsep.join([str(folder), os.environ.get("PATH", "")])}


def _await_tunnel(process: subprocess.Popen[bytes], port: int, file: Path, output: IO[bytes], deadline: float) -> None:
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            output.seek(0)
            said = output.read().decode(errors="replace").strip()[-2000:]
            how = "ended" if process.poll() is not None else "did not open a tunnel in time"
            raise Unavailable(f"`ray dashboard {file}` {how}; its output:\n{said or 'nothing'}")
        time.sleep(_LOOK_SECONDS)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the tunnel and its child processes, even if interrupted."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
                break
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        assert process.stdin is not None
        process.stdin.close()


def _free_port(wanted: int | None) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted or 0))
        except OSError as error:
            raise Unavailable(
                f"port {wanted} of this machine: {error.strerror}; another tunnel is open, or the cluster's head is "
                f"this machine, whose dashboard needs none: http://127.0.0.1:{wanted}"
            ) from None
        port: int = probe.getsockname()[1]
        return port
