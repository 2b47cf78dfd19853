"""A real controller in a thread of the test's process, on a free port."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import grpc

from iris.autoscale.book import SliceRows
from iris.autoscale.runtime import Autoscaler
from iris.controller.access.credentials import Credentials
from iris.controller.app import Address, ControllerConfig, serve
from iris.rpc.auth import PrincipalKind, attempt_token, load_or_create_secret, make_token
from iris.rpc.generated import access_pb2_grpc, dashboard_pb2_grpc, iris_pb2_grpc
from iris.rpc.protocol import CHANNEL_OPTIONS
from iris.tls.certificates import SERVER_NAME

MakeAutoscaler = Callable[[SliceRows, Credentials], Autoscaler]
START_TIMEOUT_S: Final = 20.0

_RESERVE_BYTES: Final = 1024 * 1024  # each test has a state directory of its own


class RunningController:
    """A controller that serves until `stop`, `crash`, or its own end."""

    def __init__(self, config: ControllerConfig, autoscaler: MakeAutoscaler | None = None) -> None:
        self.config = config
        self._autoscaler = autoscaler
        self.workers_seen: list[str] = []
        self._ready: Future[Address] = Future()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="controller", daemon=True)
        self._thread.start()
        self.address = self._ready.result(START_TIMEOUT_S)
        self.secret = load_or_create_secret(config.state_dir / "secret")

    def token(self, kind: PrincipalKind, name: str) -> str:
        return make_token(self.secret, kind, name)

    def attempt_token(self, attempt_id: str) -> str:
        """Return the token that a worker gives to an attempt."""
        job_id = attempt_id.rpartition("/")[0]
        return attempt_token(self.token(PrincipalKind.JOB, job_id), attempt_id)

    @property
    def admin_token(self) -> str:
        return self.token(PrincipalKind.ADMIN, "root")

    @property
    def user_token(self) -> str:
        return self.token(PrincipalKind.USER, "ann")

    def worker_token(self, worker_id: str) -> str:
        return self.token(PrincipalKind.WORKER, worker_id)

    def stop(self) -> None:
        """Stop the controller in order. Workers learn that it will come back."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self.join()

    def crash(self) -> None:
        """Stop the controller without notice, like a crash."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._cancel)
        self.join()

    def join(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait for the controller's end. Raise its error."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"the controller did not end within {timeout_s:g} s")
        if self._error is not None:
            raise self._error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        finally:
            self._loop.close()

    async def _main(self) -> None:
        self._task = asyncio.ensure_future(
            serve(
                self.config,
                self._ready.set_result,
                self._stop,
                self.workers_seen.append,
                autoscaler=self._autoscaler,
            )
        )
        try:
            await self._task
        except asyncio.CancelledError:
            pass
        except Exception as error:
            if self._ready.done():
                self._error = error
            else:
                self._ready.set_exception(error)


def channel_to(address: Address, ca_pem: bytes | None = None) -> grpc.Channel:
    """Return a channel to a controller, with TLS when its authority is given."""
    if ca_pem is None:
        return grpc.insecure_channel(str(address), options=CHANNEL_OPTIONS)
    credentials = grpc.ssl_channel_credentials(ca_pem)
    options = (*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", SERVER_NAME))
    return grpc.secure_channel(str(address), credentials, options=options)


class ControllerStubs:
    """The services of a controller for one caller. Calls carry the caller's token; errors are grpc's own."""

    def __init__(self, address: Address, metadata: tuple[tuple[str, str], ...], ca_pem: bytes | None = None) -> None:
        self._channel = channel_to(address, ca_pem)
        channel = grpc.intercept_channel(self._channel, _WithMetadata(metadata))
        self.jobs = iris_pb2_grpc.JobServiceStub(channel)
        self.blobs = iris_pb2_grpc.BlobServiceStub(channel)
        self.cluster = iris_pb2_grpc.ClusterServiceStub(channel)
        self.access = access_pb2_grpc.AccessServiceStub(channel)
        self.workers = iris_pb2_grpc.WorkerServiceStub(channel)
        self.dashboard = dashboard_pb2_grpc.DashboardServiceStub(channel)

    def close(self) -> None:
        self._channel.close()


class _Details(grpc.ClientCallDetails):
    def __init__(self, base: Any, metadata: list[tuple[str, str]]) -> None:
        self.method = base.method
        self.timeout = base.timeout
        self.metadata = tuple(metadata)
        self.credentials = base.credentials
        self.wait_for_ready = base.wait_for_ready
        self.compression = base.compression


class _WithMetadata(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    def __init__(self, metadata: tuple[tuple[str, str], ...]) -> None:
        self._metadata = metadata

    def _call(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(_Details(details, [*(details.metadata or ()), *self._metadata]), request)

    intercept_unary_unary: Any = _call
    intercept_unary_stream: Any = _call
    intercept_stream_unary: Any = _call
    intercept_stream_stream: Any = _call


@contextmanager
def running_controller(state_dir: Path, **settings: Any) -> Iterator[RunningController]:
    """Run a controller in this process, and stop it at the end of the block. `settings` are fields of its config."""
    config = replace(ControllerConfig(state_dir=state_dir, disk_reserve_bytes=_RESERVE_BYTES), **settings)
    controller = RunningController(config)
    try:
        yield controller
    finally:
        if controller.running:
            controller.stop()
