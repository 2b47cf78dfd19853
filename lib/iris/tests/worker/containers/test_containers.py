"""Attempts in containers behave like attempts without: the same suite for both, on Debian's podman with runc."""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest

from iris.domain.states import FailureKind, TaskState
from iris.rpc.generated import iris_pb2 as pb
from iris.worker.containers.engine import Engine, container_name, find_engine
from rigging.results import unpack_result
from support.iris.images import PODMAN, make_image, podman, why_not
from support.iris.worker_fixtures import FakeController, InProcessWorker, run_command

IMAGE = "localhost/iris-suite"
pytestmark = [pytest.mark.process, pytest.mark.skipif(bool(why_not()), reason=why_not())]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    make_image(IMAGE, tmp_path_factory.mktemp("image"))
    yield IMAGE
    podman("rmi", "--force", IMAGE)


@pytest.fixture
def engine() -> Engine:
    found = find_engine(PODMAN, "/w")
    assert found is not None
    return found


@pytest.fixture(params=["process", "container"])
def runtime(request: pytest.FixtureRequest, image: str) -> pb.Runtime | None:
    return pb.Runtime(image=image) if request.param == "container" else None


@pytest.fixture
def worker(
    runner: asyncio.Runner, controller: FakeController, engine: Engine, tmp_path: Path
) -> Iterator[InProcessWorker]:
    start = InProcessWorker.start(tmp_path / "work", controller, dict(os.environ), engine=engine)
    worker = runner.run(start)
    runner.run(controller.until(lambda: controller.hellos))
    yield worker
    runner.run(worker.close())
    assert podman("ps", "--all", "--quiet", "--filter", f"label=iris.work-dir={worker.paths.root}") == ""


async def ended(controller: FakeController, run: pb.RunAttempts) -> pb.Observation:
    controller.send(run=[run])
    name = f"{run.launch.job_id}/0:{run.attempts[0].attempt}"
    (found,) = await controller.until_ended(name, timeout_s=60)
    return found


async def test_output_and_exit_code_come_through(
    controller: FakeController, worker: InProcessWorker, runtime: pb.Runtime | None
) -> None:
    script = "echo out; echo err >&2; exit 7"
    found = await ended(controller, run_command("/bin/sh", "-c", script, runtime=runtime))
    assert (found.exit_code, TaskState(found.state)) == (7, TaskState.FAILED)
    assert controller.output("/user/job/0:0") == b"out\n"
    assert controller.output("/user/job/0:0", stderr=True) == b"err\n"


async def test_files_and_variables_are_the_images_and_the_jobs(
    controller: FakeController, worker: InProcessWorker, image: str
) -> None:
    environment = pb.Environment(env_vars={"MINE": "a b=c"})
    script = "cat /etc/image; echo; echo $FROM_IMAGE/$MINE/$IRIS_TASK_ID; test -d /root || echo nothing of the host"
    run = run_command("/bin/sh", "-c", script, environment=environment, runtime=pb.Runtime(image=image))
    assert (await ended(controller, run)).exit_code == 0
    assert controller.output("/user/job/0:0").decode().splitlines() == [
        "of the image",
        "yes/a b=c//user/job/0",
        "nothing of the host",
    ]


async def test_a_workspace_can_be_changed_and_the_next_attempt_has_it_as_it_was(
    controller: FakeController, worker: InProcessWorker, runtime: pb.Runtime | None
) -> None:
    bundle = controller.add_bundle({"data/a.txt": "as sent"})
    script = "cat data/a.txt && echo changed > data/a.txt && cat data/a.txt && echo > new.txt"
    for attempt in range(2):
        run = run_command("/bin/sh", "-c", script, bundle=bundle, attempt=attempt, runtime=runtime)
        assert (await ended(controller, run)).exit_code == 0
        assert controller.output(f"/user/job/0:{attempt}").decode() == "as sentchanged\n"


def total(numbers: list[int]) -> dict[str, object]:
    if not numbers:
        raise ValueError("nothing to add")
    return {"sum": sum(numbers), "in": Path("/etc/image").exists()}


async def test_a_callable_returns_its_value_or_its_exception(
    controller: FakeController, worker: InProcessWorker, runtime: pb.Runtime | None
) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    payloads = [controller.add_blob(cloudpickle.dumps((total, (numbers,), {}))) for numbers in ([1, 2, 3], [])]
    good = await ended(controller, run_command(payload=payloads[0], runtime=runtime))
    assert TaskState(good.state) is TaskState.SUCCEEDED, good.error
    assert unpack_result(good.result, "it") == {"sum": 6, "in": runtime is not None}
    bad = await ended(controller, run_command(payload=payloads[1], attempt=1, runtime=runtime))
    assert bad.error.startswith("ValueError: nothing to add")


@pytest.mark.parametrize(("trap", "code"), [("trap 'echo bye; exit 0' TERM", b"bye\n"), ("trap '' TERM", b"")])
async def test_a_stop_is_first_asked_and_then_forced(
    controller: FakeController, worker: InProcessWorker, runtime: pb.Runtime | None, trap: str, code: bytes
) -> None:
    script = f"{trap}; echo up; while true; do sleep 0.1; done"
    controller.send(run=[run_command("/bin/sh", "-c", script, runtime=runtime)])
    await controller.until(lambda: controller.output("/user/job/0:0"), timeout_s=60)
    grace_ms = 20_000 if code else 300
    controller.send(stop=[pb.StopAttempt(attempt_id="/user/job/0:0", grace_ms=grace_ms, reason="enough")])
    (found,) = await controller.until_ended("/user/job/0:0", timeout_s=60)
    assert (TaskState(found.state), found.error) == (TaskState.KILLED, "enough")
    assert controller.output("/user/job/0:0") == b"up\n" + code


async def test_a_notice_comes_before_the_signal(
    controller: FakeController, worker: InProcessWorker, runtime: pb.Runtime | None
) -> None:
    """The file is what `iris.preemption` makes and reads; an image of another language can do the same."""
    asks = ': > "$IRIS_ERROR_FILE.notice"; trap "echo TERM; exit" TERM; echo up'
    script = (
        f'{asks}; until test -s "$IRIS_ERROR_FILE.notice"; do sleep 0.05; done; cat "$IRIS_ERROR_FILE.notice"; exit 3'
    )
    controller.send(run=[run_command("/bin/sh", "-c", script, runtime=runtime)])
    await controller.until(lambda: controller.output("/user/job/0:0"), timeout_s=60)
    stop = pb.StopAttempt(attempt_id="/user/job/0:0", grace_ms=20_000, reason="drained", preemption="drain")
    controller.send(stop=[stop])
    await controller.until_ended("/user/job/0:0", timeout_s=60)
    first, reason, deadline = controller.output("/user/job/0:0").decode().split()
    assert (first, reason) == ("up", "drain")
    assert 0 < float(deadline) - time.time() <= 20


async def test_too_much_memory_is_told_as_such(
    controller: FakeController, worker: InProcessWorker, runtime: pb.Runtime | None
) -> None:
    payload = controller.add_blob(cloudpickle.dumps((bytearray, (400 * 2**20,), {})))
    resources = pb.Resources(cpu_millis=100, memory_bytes=150 * 2**20)
    run = run_command(payload=payload, runtime=runtime, resources=resources, enforced="memory")
    found = await ended(controller, run)
    assert FailureKind(found.failure) is FailureKind.OOM, found
    assert "memory" in found.error


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_container_that_somebody_removed_was_not_out_of_memory(
    controller: FakeController, engine: Engine, image: str, tmp_path: Path, is_killed: bool
) -> None:
    """Also after another worker process has adopted it."""
    root = tmp_path / "work"
    worker = await InProcessWorker.start(root, controller, dict(os.environ), engine=engine)
    script = "echo up; : > here; while ! test -e go; do sleep 0.1; done; x=12345678; while true; do x=$x$x; done"
    limit = pb.Resources(cpu_millis=100, memory_bytes=150 * 2**20)
    await controller.until(lambda: controller.hellos)
    run = run_command(
        "/bin/sh", "-c", script, runtime=pb.Runtime(image=image), resources=limit, enforced="memory"
    )  # fmt: skip
    controller.send(run=[run])
    await controller.until(lambda: controller.output("/user/job/0:0"), timeout_s=60)
    await worker.abandon()
    worker = await InProcessWorker.start(root, controller, dict(os.environ), engine=engine)
    if is_killed:
        podman("kill", container_name(root, "/user/job/0:0"))
    else:
        (next(root.rglob("here")).parent / "go").touch()
    (found,) = await controller.until_ended("/user/job/0:0", timeout_s=60)
    await worker.close()
    memory = "out of memory: killed in a container with a limit of 150 MiB"
    assert (found.exit_code, found.error) == (137, "exit code 137" if is_killed else memory)


async def test_a_health_command_runs_in_the_container(
    controller: FakeController, worker: InProcessWorker, image: str
) -> None:
    run = run_command("/bin/sh", "-c", "sleep 600", runtime=pb.Runtime(image=image))
    health = 'echo "$FROM_IMAGE $IRIS_TASK_ID $(cat /etc/image)"; false'
    rules = pb.Launch(health_cmd=health, health_interval_ms=50, health_timeout_ms=20_000, health_retries=2)
    run.launch.MergeFrom(rules)
    found = await ended(controller, run)
    assert found.error.endswith("last with output: yes /user/job/0 of the image")


async def test_another_worker_process_adopts_it_and_removes_only_what_nobody_runs(
    controller: FakeController, runtime: pb.Runtime | None, engine: Engine, image: str, tmp_path: Path
) -> None:
    root = tmp_path / "work"
    worker = await InProcessWorker.start(root, controller, dict(os.environ), engine=engine)
    await controller.until(lambda: controller.hellos)
    others = [
        (container_name(root, "/user/old/0:0"), f"iris.work-dir={root}"),
        (container_name(root, "/user/other/0:0") + "x", "iris.work-dir=/elsewhere"),
    ]
    for name, label in others:
        podman("create", "--name", name, "--label", label, image, "x")
    script = "echo one; while ! test -e /tmp/never && test $((n=n+1)) -lt 40; do sleep 0.1; done; echo two"
    controller.send(run=[run_command("/bin/sh", "-c", script, runtime=runtime)])
    await controller.until(lambda: controller.output("/user/job/0:0"), timeout_s=60)
    await worker.abandon()
    next_worker = await InProcessWorker.start(root, controller, dict(os.environ), engine=engine)
    try:
        (found,) = await controller.until_ended("/user/job/0:0", timeout_s=60)
        assert (found.exit_code, controller.output("/user/job/0:0")) == (0, b"one\ntwo\n")
    finally:
        await next_worker.close()
    left = podman("ps", "--all", "--format", "{{.Names}}").split()
    assert [name for name, _ in others if name in left] == [others[1][0]]
    podman("rm", others[1][0])


@pytest.mark.parametrize(
    ("argv", "variables", "code", "error"),
    [
        (("no-such-program",), {}, 127, "the command did not start: No such file or directory"),
        (("/etc/image",), {}, 126, "the command did not start: Permission denied"),
        (("/bin/sh", "-c", "exit 125"), {}, 125, "exit code 125"),
        (("/bin/true",), {"IRIS_RUN_COMMAND": "x\ny", "MINE": "x\ny"}, 126, "the variable MINE has a line break"),
        (("/bin/true",), {"MINE": "x" * 66_000}, 126, "the variable MINE is longer than 65,000 bytes"),
    ],
)  # fmt: skip
async def test_what_did_not_start_is_told_from_what_ended(
    controller: FakeController, worker: InProcessWorker, image: str, argv: tuple[str, ...], variables: dict[str, str],
    code: int, error: str,
) -> None:  # fmt: skip
    run = run_command(*argv, environment=pb.Environment(env_vars=variables), runtime=pb.Runtime(image=image))
    found = await ended(controller, run)
    assert (found.exit_code, found.error[: len(error)]) == (code, error)


async def test_an_image_that_is_not_there_is_told_by_the_engine(
    controller: FakeController, worker: InProcessWorker
) -> None:
    run = run_command("/bin/true", runtime=pb.Runtime(image="localhost/no-such-image"))
    found = await ended(controller, run)
    assert found.exit_code == 125
    assert b"no-such-image" in controller.output("/user/job/0:0", stderr=True)
    assert found.error.startswith("the container did not start: Error: ")
    assert FailureKind(found.failure) is FailureKind.START
