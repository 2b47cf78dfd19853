"""Serving as the controller of a local cluster: the same controller as everywhere, told to others by cluster.json."""

import asyncio
import contextlib
import dataclasses
import importlib.metadata
import logging
import os
import signal
import time
from collections.abc import Callable
from typing import Final

from iris.client import IrisClient
from iris.client.names import default_user
from iris.controller.app import Address, ControllerConfig, serve
from iris.local import WORKER_ID
from iris.local.state import ClusterRecord, LocalPaths, read_record, write_record
from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
from iris.rpc.protocol import PROTOCOL_VERSION
from rigging.errors import Conflict
from rigging.log_setup import configure_logging

logger = logging.getLogger(__name__)

_WORKER_CHECK_SECONDS: Final = 0.01
"""Pause between two looks for the worker, in this process and only while it starts."""


def serve_local(
    paths: LocalPaths, idle_exit_seconds: float, *, on_listening: Callable[[], None], on_ready: Callable[[], None]
) -> None:
    """Serve until the controller leaves.

    Args:
        on_listening: Called when cluster.json tells where the controller is.
        on_ready: Called when the worker has joined, too.

    Raises:
        MarinError: The state directory is damaged or no port is free.
    """
    configure_logging(logging.INFO)
    # A controller that comes back where the former was is found by tasks that know only the address.
    former = read_record(paths)
    port = _port_of(former.address) if former is not None else 0
    run = _Run(paths, idle_exit_seconds, on_listening, on_ready)
    try:
        asyncio.run(run.serve(port))
    except Conflict as error:
        if not port or run.listened:
            raise
        logger.warning("%s; taking another port", error)
        asyncio.run(run.serve(0))
    with contextlib.suppress(FileNotFoundError):
        paths.record.unlink()


class _Run:
    def __init__(
        self,
        paths: LocalPaths,
        idle_exit_seconds: float,
        on_listening: Callable[[], None],
        on_ready: Callable[[], None],
    ) -> None:
        self._paths = paths
        self._idle_exit_seconds = idle_exit_seconds
        self._on_listening = on_listening
        self._on_ready = on_ready
        self._watch: asyncio.Task[None] | None = None
        self.listened = False

    async def serve(self, port: int) -> None:
        """One try, on one port (0: any)."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        config = ControllerConfig(state_dir=self._paths.root, port=port, idle_exit_s=self._idle_exit_seconds)
        try:
            await serve(config, self._tell, stop)
        finally:
            if self._watch is not None:
                self._watch.cancel()
                await asyncio.wait((self._watch,))

    def _tell(self, address: Address) -> None:
        """Called by the controller once it answers."""
        self.listened = True
        secret = load_or_create_secret(self._paths.root / "secret")
        record = ClusterRecord(
            pid=os.getpid(),
            address=str(address),
            token=make_token(secret, PrincipalKind.USER, default_user()),
            worker_token=make_token(secret, PrincipalKind.WORKER, WORKER_ID),
            protocol_version=PROTOCOL_VERSION,
            version=importlib.metadata.version("marin-iris"),
            started_at_ms=time.time_ns() // 1_000_000,
            idle_exit_seconds=self._idle_exit_seconds,
            ready=False,
        )
        write_record(self._paths, record)
        self._on_listening()
        self._watch = asyncio.create_task(self._when_worker_joins(record))

    async def _when_worker_joins(self, record: ClusterRecord) -> None:
        with IrisClient.remote(record.address, token=record.token) as client:
            # The controller has no event for this yet; commands wait for `on_ready` all the same.
            while not (await asyncio.to_thread(client.cluster_status)).has_workers:  # noqa: ASYNC110
                await asyncio.sleep(_WORKER_CHECK_SECONDS)
        write_record(self._paths, dataclasses.replace(record, ready=True))
        self._on_ready()


def _port_of(address: str) -> int:
    port = address.rpartition(":")[2]
    return int(port) if port.isdigit() else 0
