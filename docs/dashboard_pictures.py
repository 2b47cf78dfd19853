"""Make the pictures of docs/dashboard.md: pages of a small cluster that is played, in the system's Chromium.

uv run --group dev python docs/dashboard_pictures.py [--output docs/images]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
import time
from pathlib import Path

from iris.dashboard.application import make_application
from iris.dashboard.cluster_client import viewer_of
from iris.dashboard.settings import Settings
from iris.rpc.auth import PrincipalKind
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.logformat import encode
from iris.rpc.protocol import call_metadata
from rigging.web.serving import WebServer, bind
from support.iris.controller import ControllerStubs, RunningController, running_controller
from support.iris.users import User
from support.iris.worker import GIB, ScriptedWorker
from support.rigging.chromium import chromium

JOB = "/ada/train-0a1b2c"
# Name, page, width, height, colour scheme.
PICTURES = (
    ("dashboard-jobs", "jobs", 1100, 420, "light"),
    ("dashboard-job", f"job?id={JOB}", 1100, 640, "light"),
    ("dashboard-log", f"logs?id={JOB}", 1100, 460, "dark"),
    ("dashboard-phone", "workers", 400, 460, "dark"),
)
SIZE = pb.Resources(cpu_millis=64_000, memory_bytes=256 * GIB, disk_bytes=1000 * GIB)


def play(user: User, worker: ScriptedWorker) -> None:
    """Let some jobs run, wait and end."""

    def run(job: str, *states: tuple[int, str], replicas: int = 1, cpu: int = 4000, **fields: str) -> None:
        user.submit(job, replicas=replicas, cpu_millis=cpu, **fields)
        for index in range(replicas):
            attempt = f"{job}/{index}:0"
            worker.wait_for_start(attempt)
            for state, error in states:
                worker.observe(attempt, state, error=error, exit_code=1 if error else 0)  # type: ignore[arg-type]

    running, done, failed = pb.TASK_STATE_RUNNING, pb.TASK_STATE_SUCCEEDED, pb.TASK_STATE_FAILED
    run("/bob/tokenize", (running, ""), (done, ""), replicas=6, description="tokenise the crawl of May")
    run("/bob/evaluate", (running, ""), (failed, "ValueError: vocabulary of 32,000, expected 50,257"))
    run(JOB, (running, ""), replicas=4, cpu=12_000, description="a small model, to try the mixture")
    run(f"{JOB}/evaluate-1000", (running, ""))
    user.submit("/cleo/sweep", replicas=24, cpu_millis=8000, description="learning rates")
    user.wait("/bob/tokenize", "/bob/evaluate")
    now = int(time.time() * 1000)
    lines = [f"step {step * 50}: loss {3.9 - step / 25:.3f}, 41,8{step:02d} tokens/s" for step in range(24)]
    data = b"".join(encode(False, now + 40 * i, line.encode()) for i, line in enumerate(lines))
    worker.append_log(f"{JOB}/0:0", 0, data)
    worker.wait_for_log_ack(f"{JOB}/0:0", len(data))


def take(controller: RunningController, output: Path) -> None:
    """Write the pictures of a controller's pages."""
    app, live = make_application(
        Settings(str(controller.address), controller.secret.hex(), "00" * 32, cluster_name="lab"), others=()
    )
    bound = bind(0)
    server = WebServer(app, bound, live.broadcaster.close)
    thread = threading.Thread(target=lambda: asyncio.run(server.run()))
    thread.start()
    try:
        with chromium() as browser:
            page = browser.new_page()
            page.goto(bound.url + app.state.web.login_path(viewer_of("ada", is_admin=True, may_write=True)))
            page.wait_for_url("**/cluster")
            for name, place, width, height, scheme in PICTURES:
                page.set_viewport_size({"width": width, "height": height})
                page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
                page.goto(f"{bound.url}/{place}")
                page.locator("h1").wait_for()
                if name == "dashboard-job":
                    page.locator("#tasks tbody tr").first.wait_for()
                page.screenshot(path=str(output / f"{name}.png"))
                print(output / f"{name}.png")
    finally:
        server.stop()
        thread.join()


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "images")
    output: Path = parser.parse_args().output
    with tempfile.TemporaryDirectory() as directory, running_controller(Path(directory, "state")) as controller:
        token = controller.worker_token("tpu-host-1")
        admin = controller.token(PrincipalKind.ADMIN, "root")
        stubs = ControllerStubs(controller.address, call_metadata(admin))
        with ScriptedWorker(controller.address, token, "tpu-host-1", capacity=SIZE) as worker:
            play(User(stubs), worker)
            take(controller, output)
        stubs.close()


if __name__ == "__main__":
    main()
