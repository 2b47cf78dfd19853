"""A scripted worker: it speaks the real session protocol, but runs nothing."""

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from iris.controller.config.controller_config import Address
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.generated import iris_pb2_grpc
from iris.rpc.key_proof import prove, public_bytes
from iris.rpc.protocol import PROTOCOL_VERSION, call_metadata
from support.iris.controller import channel_to

WAIT_S: Final = 10.0
GIB: Final = 1024**3


@dataclass(frozen=True, slots=True)
class Start:
    """An attempt that the controller wants to run; if `prefilled`, after another one ends."""

    attempt_id: str
    launch: pb.Launch
    prefilled: bool = False


Script = Callable[[Sequence[Start]], pb.WorkerMessage | None]
"""Answers a batch of starts immediately; None if the test answers."""


def succeed_at_once(starts: Sequence[Start]) -> pb.WorkerMessage:
    """A worker's script: every attempt succeeds immediately."""
    return pb.WorkerMessage(
        observations=[pb.Observation(attempt_id=start.attempt_id, state=pb.TASK_STATE_SUCCEEDED) for start in starts]
    )


class ScriptedWorker:
    """One session of one worker process. Use it as a context manager. Messages of the controller are in the fields."""

    def __init__(
        self,
        address: Address,
        token: str,
        worker_id: str = "w1",
        instance_id: str = "first",
        *,
        capacity: pb.Resources | None = None,
        attributes: Mapping[str, str] | None = None,
        inventory: Sequence[pb.Observation] = (),
        script: Script | None = None,
        protocol_version: int = PROTOCOL_VERSION,
        ca_pem: bytes | None = None,
        key: Ed25519PrivateKey | None = None,
        shown: bytes | None = None,
    ) -> None:
        self._key = key
        self.worker_id = worker_id
        self.welcome: pb.Welcome | None = None
        self.starts: list[Start] = []
        self.stops: list[pb.StopAttempt] = []
        self.forgotten: list[str] = []
        self.log_acks: dict[str, int] = {}
        self.execs: list[str] = []
        self.exec_ends: list[str] = []
        self.goodbye: pb.Goodbye | None = None
        self.heartbeats = 0
        self.beat_ack = 0
        self.error: grpc.RpcError | None = None
        self.ended = False
        self._script = script
        self._changed = threading.Condition()
        self._requests: queue.SimpleQueue[pb.WorkerMessage | None] = queue.SimpleQueue()
        self._channel = channel_to(address, ca_pem)
        hello = pb.Hello(
            worker_id=worker_id,
            instance_id=instance_id,
            capacity=capacity or pb.Resources(cpu_millis=2000, memory_bytes=8 * GIB, disk_bytes=100 * GIB),
            attributes=attributes or {},
            protocol_version=protocol_version,
            inventory=inventory,
            public_key=shown or (b"" if key is None else public_bytes(key)),
        )
        self.send(pb.WorkerMessage(hello=hello))
        stub = iris_pb2_grpc.WorkerServiceStub(self._channel)
        self._call: Any = stub.Session(
            iter(self._requests.get, None), metadata=call_metadata(token, protocol_version=protocol_version)
        )
        self._thread = threading.Thread(target=self._listen, name=f"worker-{worker_id}", daemon=True)
        self._thread.start()

    def __enter__(self) -> "ScriptedWorker":
        self.wait(lambda: self.welcome is not None or self.ended, "welcome")
        return self

    def __exit__(self, *exc: object) -> None:
        self.disconnect()

    # ---- speaking ----

    def send(self, message: pb.WorkerMessage) -> None:
        self._requests.put(message)

    def observe(self, attempt_id: str, state: "pb.TaskState.ValueType", **fields: Any) -> None:
        """Report the state of an attempt. `fields` are fields of Observation."""
        self.send(pb.WorkerMessage(observations=[pb.Observation(attempt_id=attempt_id, state=state, **fields)]))

    def beat(self, number: int) -> None:
        self.send(pb.WorkerMessage(beat=number))

    def append_log(self, attempt_id: str, offset: int, data: bytes) -> None:
        self.send(pb.WorkerMessage(logs=[pb.LogAppend(attempt_id=attempt_id, offset=offset, data=data)]))

    def disconnect(self) -> None:
        """Break the connection."""
        self._call.cancel()
        self._requests.put(None)
        self._thread.join(WAIT_S)
        self._channel.close()

    # ---- listening ----

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
        """Wait until `condition` holds, checked after every message of the controller."""
        with self._changed:
            if not self._changed.wait_for(condition, timeout_s):
                raise TimeoutError(f"worker {self.worker_id}: no {what} within {timeout_s:g} s")

    def wait_for_start(self, attempt_id: str) -> Start:
        """Wait for the start of this attempt, and return it."""
        self.wait(lambda: any(start.attempt_id == attempt_id for start in self.starts), f"start of {attempt_id}")
        return next(start for start in self.starts if start.attempt_id == attempt_id)

    def wait_for_stop(self, attempt_id: str) -> pb.StopAttempt:
        self.wait(lambda: any(stop.attempt_id == attempt_id for stop in self.stops), f"stop of {attempt_id}")
        return next(stop for stop in self.stops if stop.attempt_id == attempt_id)

    def wait_for_forget(self, attempt_id: str) -> None:
        self.wait(lambda: attempt_id in self.forgotten, f"forget of {attempt_id}")

    def wait_for_log_ack(self, attempt_id: str, offset: int) -> None:
        self.wait(lambda: self.log_acks.get(attempt_id) == offset, f"ack of {offset} bytes of the log of {attempt_id}")

    def wait_for_beat_ack(self, number: int) -> None:
        self.wait(lambda: self.beat_ack == number, f"acknowledgement of beat {number}")

    def wait_for_end(self) -> None:
        self.wait(lambda: self.ended, "end of the session")

    def _listen(self) -> None:
        try:
            for message in self._call:
                with self._changed:
                    self._take(message)
                    self._changed.notify_all()
        except grpc.RpcError as error:
            self.error = error
        with self._changed:
            self.ended = True
            self._changed.notify_all()
        self._requests.put(None)

    def _take(self, message: pb.ControllerMessage) -> None:
        for ack in message.log_acks:
            self.log_acks[ack.attempt_id] = ack.offset
        self.beat_ack = max(self.beat_ack, message.beat_ack)
        self.execs += message.execs
        self.exec_ends += message.exec_ends
        kind = message.WhichOneof("kind")
        if kind == "challenge" and self._key is not None:
            self.send(pb.WorkerMessage(proof=prove(self._key, self.worker_id, message.challenge)))
        elif kind == "welcome":
            self.welcome = message.welcome
        elif kind == "goodbye":
            self.goodbye = message.goodbye
            self._requests.put(None)
        elif kind == "desired":
            starts = list(_starts(message.desired))
            self.starts += starts
            self.stops += message.desired.stop
            self.forgotten += message.desired.forget
            answer = self._script(starts) if self._script and starts else None
            if answer is not None:
                self.send(answer)
        elif not (message.log_acks or message.beat_ack or message.execs or message.exec_ends):
            self.heartbeats += 1


def _starts(desired: pb.Desired) -> Iterator[Start]:
    for run in desired.run:
        for ref in run.attempts:
            yield Start(f"{run.launch.job_id}/{ref.task_index}:{ref.attempt}", run.launch, ref.prefilled)
