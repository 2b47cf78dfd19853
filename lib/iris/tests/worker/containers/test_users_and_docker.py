"""Containers where tasks have uids of their own, and by docker's command line, which podman plays here."""

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.domain.resources import Device
from iris.rpc.generated import iris_pb2 as pb
from iris.worker.containers.engine import find_engine
from iris.worker.devices.allotment import Chips
from iris.worker.devices.found import find_chips
from support.iris.images import PODMAN, make_image, podman, why_not
from support.iris.user_worker import worker_place
from support.iris.worker_fixtures import FakeController, InProcessWorker, run_command

IMAGE = "localhost/iris-users"
pytestmark = [pytest.mark.process, pytest.mark.skipif(bool(why_not()), reason=why_not())]
# Docker's command line knows neither of these words of podman's.
DOCKER = f"""#!/bin/sh
case " $* " in *" --ignore "* | *:O\\ *) echo "docker: unknown flag" >&2; exit 125 ;; esac
exec {PODMAN} "$@"
"""
SCRIPT = """
while read -r name value rest; do case $name in Uid:|NoNewPrivs:) echo "$name $value";; esac; done < /proc/self/status
cat data.txt; echo; echo mine > own; cat own
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    make_image(IMAGE, tmp_path_factory.mktemp("image"))
    yield IMAGE
    podman("rmi", "--force", IMAGE)


async def test_a_container_of_each_user_has_its_uid_and_its_files(open_path: Path, image: str) -> None:
    async with worker_place(open_path, True, task_users="1900000000-1900000001", containers=PODMAN) as here:
        bundle = here.controller.add_bundle({"data.txt": "as sent"})
        runtime = pb.Runtime(image=image)
        for uid, user in enumerate(("ann", "bob", "ann")):
            output = await here.run("/bin/sh", "-c", SCRIPT, user=user, bundle=bundle, runtime=runtime)
            assert output.splitlines() == [f"Uid: {1_900_000_000 + uid % 2}", "NoNewPrivs: 1", "as sent", "mine"]
        error = 'echo "of bob" > "$IRIS_ERROR_FILE"; cat "$IRIS_TOKEN_FILE" > /dev/null || exit 9; exit 3'
        end = await here.end(here.start("/bin/sh", "-c", error, user="bob", runtime=runtime))
        assert (end.exit_code, end.error) == (3, "of bob")


async def test_a_container_has_the_device_files_of_its_own_chips_only(
    controller: FakeController, image: str, tmp_path: Path
) -> None:
    dev = tmp_path / "dev"
    dev.mkdir()
    for number in range(4):
        os.mknod(dev / f"accel{number}", 0o600 | stat.S_IFCHR, os.makedev(1, 3))  # like /dev/null
    chips = Chips(Device("tpu", "v5litepod-4", 4), find_chips("tpu", dev))
    root, engine = tmp_path / "work", find_engine(PODMAN, str(tmp_path))
    worker = await InProcessWorker.start(root, controller, dict(os.environ), engine=engine, chips=chips)
    await controller.until(lambda: controller.hellos)
    device = pb.Device(kind="tpu", variant="v5litepod-4", count=2)
    script = f'echo "$TPU_VISIBLE_CHIPS" {dev}/*; sleep 60'
    both = run_command(
        "/bin/sh", "-c", script, indexes=(0, 1), runtime=pb.Runtime(image=image),
        resources=pb.Resources(cpu_millis=100, memory_bytes=2**28, device=device),
    )  # fmt: skip
    controller.send(run=[both])
    for index, names in enumerate((("0", "1"), ("2", "3"))):
        task = f"/user/job/{index}:0"
        await controller.until(lambda task=task: controller.output(task), timeout_s=60)
        seen = controller.output(task).decode().split()
        assert seen == [",".join(names), *(f"{dev}/accel{name}" for name in names)]
    await worker.close()


async def test_dockers_command_line_runs_stops_and_removes(
    controller: FakeController, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = tmp_path / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}")
    engine = find_engine(str(docker), str(tmp_path))
    assert engine is not None
    assert engine.kind == "docker"
    root = tmp_path / "work"
    worker = await InProcessWorker.start(root, controller, dict(os.environ), engine=engine)
    await controller.until(lambda: controller.hellos)
    bundle, runtime = controller.add_bundle({"data.txt": "as sent"}), pb.Runtime(image=image)
    changes = "cat data.txt; echo no > data.txt || echo; exit 7"
    waits = "trap 'echo bye; exit 0' TERM; echo up; while true; do sleep 0.1; done"
    runs = [("changes", changes, bundle), ("waits", waits, "")]
    for name, script, digest in runs:
        run = run_command("/bin/sh", "-c", script, job_id=f"/user/{name}", bundle=digest, runtime=runtime)
        controller.send(run=[run])
    (found,) = await controller.until_ended("/user/changes/0:0", timeout_s=60)
    assert found.exit_code == 7
    assert b"Read-only file system" in controller.output("/user/changes/0:0", stderr=True)
    await controller.until(lambda: controller.output("/user/waits/0:0"), timeout_s=60)
    await worker.abandon()
    worker = await InProcessWorker.start(root, controller, dict(os.environ), engine=engine)
    await controller.until(lambda: len(controller.hellos) == 2)
    controller.send(stop=[pb.StopAttempt(attempt_id="/user/waits/0:0", grace_ms=20_000, reason="enough")])
    (found,) = await controller.until_ended("/user/waits/0:0", timeout_s=60)
    assert controller.output("/user/waits/0:0") == b"up\nbye\n"
    await worker.close()
    left = await asyncio.to_thread(podman, "ps", "--all", "--quiet", "--filter", f"label=iris.work-dir={root}")
    assert left == ""
