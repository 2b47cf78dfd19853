"""What a worker makes of messages."""

from dataclasses import replace

from iris.domain.resources import Device, Resources
from iris.domain.runtime import TaskRuntime
from iris.domain.states import FailureKind, TaskState
from iris.rpc.generated import iris_pb2 as pb
from iris.worker.connection.wire import (
    desired_from_wire,
    hello,
    launch_from_wire,
    observation_to_wire,
    observations_to_wire,
)
from iris.worker.limits.plan import LimitRequest
from iris.worker.types import Launch, Observation, StopRequest
from iris.worker.watch.rules import WatchRules


def desired(index: int, env: dict[str, str], replicas: int = 9) -> pb.Desired:
    launch = pb.Launch(job_id="/ann/a", replicas=replicas, environment=pb.Environment(env_vars=env))
    return pb.Desired(run=[pb.RunAttempts(launch=launch, attempts=[pb.AttemptRef(task_index=index)])])


def test_tasks_of_an_array_share_what_they_need_to_start_and_single_ones_stops_and_forgets_are_understood() -> None:
    first, second = (desired_from_wire(desired(index, {"B": "1", "A": "2"})).start[0] for index in (0, 1))
    assert first.launch is second.launch
    assert (first.attempt_id, second.attempt_id) == ("/ann/a/0:0", "/ann/a/1:0")
    other = desired_from_wire(desired(0, {"A": "3"})).start[0]  # the name was used again
    assert dict(other.launch.env_vars) == {"A": "3"}
    message = desired(2, {}, replicas=1)
    message.run[0].attempts[0].attempt = 4
    message.run[0].attempts.append(pb.AttemptRef(task_index=3, prefilled=True))
    message.revision = 9
    message.stop.append(pb.StopAttempt(attempt_id="/ann/b/0:0", grace_ms=50, reason="enough", preemption="drain"))
    message.forget.extend(["/ann/c/0:0", "/ann/d/0:0"])
    message.withdraw.append("/ann/e/0:1")
    change = desired_from_wire(message)
    start, prefilled = change.start
    assert (start.attempt_id, start.task_id, start.task_index) == ("/ann/a/2:4", "/ann/a/2", 2)
    assert (start.prefilled, prefilled.prefilled) == (False, True)
    assert change.stop == (StopRequest("/ann/b/0:0", 50, "enough", "drain"),)
    assert (change.revision, change.forget) == (9, ("/ann/c/0:0", "/ann/d/0:0"))
    assert change.withdraw == ("/ann/e/0:1",)


def test_all_that_a_launch_says_is_understood() -> None:
    message = pb.Launch(
        job_id="/ann/a",
        entrypoint=pb.Entrypoint(command=pb.Command(argv=["python", "a.py"])),
        environment=pb.Environment(extras=["gpu"], pip_packages=["six"], env_vars={"A": "1"}),
        bundle_digest="b1",
        ports=["http"],
        replicas=3,
        job_token="secret",
        resources=pb.Resources(cpu_millis=1, memory_bytes=2, disk_bytes=3, device=pb.Device(kind="gpu")),
        exclusive=True,
        fence_after_ms=7000,
        grace_ms=9000,
        enforced="disk,cpu",
        health_cmd="true",
        health_interval_ms=1000,
        health_timeout_ms=2000,
        health_retries=3,
        stall_timeout_ms=4000,
        runtime=pb.Runtime(working_dir="a/b", project_dir="a", python="3.12", interpreter="/bin/p"),
    )
    assert launch_from_wire(message) == Launch(
        job_id="/ann/a",
        argv=("python", "a.py"),
        extras=("gpu",),
        pip_packages=("six",),
        env_vars={"A": "1"},
        bundle_digest="b1",
        ports=("http",),
        replicas=3,
        token="secret",
        watch=WatchRules("true", 1, 2, 3, 4),
        has_accelerator=True,
        resources=Resources(1, 2, 3, Device("gpu")),
        limits=LimitRequest(disk_bytes=3, cpu_millis=1, cpu_quota=True),
        runtime=TaskRuntime(working_dir="a/b", project_dir="a", python="3.12", interpreter="/bin/p"),
        exclusive=True,
        fence_after_ms=7000,
        grace_ms=9000,
    )
    call = pb.Entrypoint(callable=pb.Callable(payload_digest="p1"))
    called = launch_from_wire(pb.Launch(entrypoint=call, replicas=1))
    assert (called.argv, called.payload_digest, called.has_accelerator, called.exclusive) == ((), "p1", False, False)
    for kind, has_one in (("", False), ("cpu", False), ("gpu", True), ("tpu", True)):
        launch = pb.Launch(resources=pb.Resources(device=pb.Device(kind=kind)))
        assert launch_from_wire(launch).has_accelerator is has_one


SEEN = Observation("/ann/a/0:0", TaskState.FAILED, 123, 3, 9, "why", FailureKind.OOM, 77, 4711, 99)


def test_all_that_was_seen_of_an_attempt_is_told_and_exceptions_as_far_as_there_is_room() -> None:
    assert observation_to_wire(SEEN) == pb.Observation(
        attempt_id="/ann/a/0:0",
        state=int(TaskState.FAILED),  # type: ignore[arg-type]
        at_ms=123,
        exit_code=3,
        exit_signal=9,
        error="why",
        failure=int(FailureKind.OOM),  # type: ignore[arg-type]
        log_size=77,
        pid=4711,
        started_at_ms=99,
    )
    large = bytes(64 * 1024)
    seen = [replace(SEEN, attempt_id=f"/ann/a/{index}:0", exception=large) for index in range(65)]
    told = observations_to_wire([*seen, replace(SEEN, exception=b"small")])
    assert [message.exception == large for message in told] == [True] * 64 + [False] * 2
    inventory = hello("w1", "i1", 2, Resources(1), {}, seen[:1]).hello.inventory
    assert [message.exception for message in inventory] == [large]


def test_a_worker_says_who_it_is_what_it_has_and_what_it_knows_of() -> None:
    capacity = Resources(4000, 16, 100, Device("gpu", "H100", 8, ("H200",)))
    said = hello("w1", "i1", 2, capacity, {"zone": "a"}, [SEEN], leaving=True, sent_at_ms=5)
    assert (said.hello.worker_id, said.hello.instance_id, said.hello.protocol_version) == ("w1", "i1", 2)
    have = said.hello.capacity
    assert (have.cpu_millis, have.memory_bytes, have.disk_bytes) == (4000, 16, 100)
    assert (have.device.kind, have.device.variant, have.device.count) == ("gpu", "H100", 8)
    assert list(have.device.alternatives) == ["H200"]
    assert dict(said.hello.attributes) == {"zone": "a"}
    assert list(said.hello.inventory) == [observation_to_wire(SEEN)]
    assert (said.leaving, said.sent_at_ms) == (True, 5)
    plain = hello("w1", "i1", 2, Resources(1), {}, [])
    assert not plain.leaving
    assert not plain.hello.capacity.HasField("device")
