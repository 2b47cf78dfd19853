"""The process of one host of a slice, and the file that describes its worker."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from iris.domain.resources import Device, Resources
from iris.local.fleet.slices import FakeHost
from iris.local.start import daemon_environment, log_size, open_log
from iris.local.state import HostPaths, LocalPaths, host_worker_id, read_record
from iris.local.worker_keeper import WorkerStart
from rigging.errors import MarinError, Unavailable
from rigging.filesystem import write_bytes_atomic

StartHost = Callable[[LocalPaths, FakeHost], WorkerStart]
_PRIVATE: Final = 0o700


def describe_host(paths: HostPaths, host: FakeHost) -> None:
    """Write the resources and attributes of a host's worker."""
    paths.worker_dir.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    content = {"capacity": asdict(host.capacity), "attributes": dict(host.attributes)}
    write_bytes_atomic(str(paths.description), json.dumps(content).encode())


def read_host(paths: HostPaths) -> FakeHost | None:
    """Read the file of `describe_host`; None if the file is missing (the host is not wanted) or damaged."""
    try:
        content = json.loads(paths.description.read_text())
        fields = dict(content["capacity"])
        device = fields.pop("device")
        if device is not None:
            device = Device(**{**device, "alternatives": tuple(device["alternatives"])})
        return FakeHost(paths.name, Resources(**fields, device=device), tuple(sorted(content["attributes"].items())))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def start_host_process(paths: LocalPaths, host: FakeHost) -> WorkerStart:
    """Start the process of a host in a separate session, so that it outlives the controller."""
    files = paths.host(host.name)
    describe_host(files, host)
    words, writer = os.pipe()
    try:
        with open_log(files.worker_log) as log:
            start_of_log = log_size(files.worker_log)
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "iris.local.daemon", "host"),
                    *("--state-dir", str(paths.root), "--name", host.name, "--words-fd", str(writer)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writer,),
                start_new_session=True,
                cwd=paths.root,
                env=daemon_environment(os.environ, paths),
            )
    finally:
        os.close(writer)
    process.wait()  # it forks itself off
    return WorkerStart(words, start_of_log)


def run_host_process(paths: LocalPaths, name: str, say: Callable[[str], None]) -> int:
    """Run the worker of one host until the controller or a signal ends it; return the exit code.

    Args:
        paths: The files of the local cluster.
        name: The host.
        say: Called with the reason of a failure.
    """
    from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
    from iris.rpc.controller_address import ControllerAddress
    from iris.worker.app import WorkerConfig, run_worker
    from rigging.log_setup import configure_logging

    configure_logging(logging.INFO)
    files = paths.host(name)
    host = read_host(files)
    if host is None:
        say(f"cannot read {files.description}")
        return 1
    worker_id = host_worker_id(name)

    def resolve() -> ControllerAddress:
        record = read_record(paths)
        if record is None:
            raise Unavailable(f"there is no {paths.record}")
        token = make_token(load_or_create_secret(paths.root / "secret"), PrincipalKind.WORKER, worker_id)
        return ControllerAddress(record.address, token, str(paths.socket))

    config = WorkerConfig(files.worker_dir, worker_id, host.capacity, dict(host.attributes))
    try:
        return run_worker(config, resolve)
    except (MarinError, OSError) as error:
        why = str(error) if isinstance(error, MarinError) else f"{error.filename or name}: {error.strerror or error}"
        say(" ".join(why.split()))
        logging.getLogger(__name__).error("host %s ends: %s", name, why)
        return 1
