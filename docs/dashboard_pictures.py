"""Make the pictures of docs/dashboard.md: pages of a small cluster that is played, in the system's Chromium.

uv run --group dev python docs/dashboard_pictures.py [--output docs/images]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sqlite3
import tempfile
import threading
import time
from pathlib import Path
from random import Random

from iris.dashboard.application import make_application
from iris.dashboard.cluster_client import viewer_of
from iris.dashboard.settings import Settings
from iris.rpc.auth import PrincipalKind
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.logformat import encode
from iris.rpc.protocol import call_metadata
from iris.store.damage import DATABASE_NAME
from rigging.web.serving import WebServer, bind
from support.iris.controller import ControllerStubs, RunningController, running_controller
from support.iris.users import User
from support.iris.worker import GIB, ScriptedWorker
from support.rigging.chromium import chromium

JOB, FAILED = "/ada/sweep", "/ada/train-0a1b2c/evaluate"
# Name, page, width, height, colour scheme, selector to wait for.
PICTURES = (
    ("dashboard-overview", "cluster", 1100, 740, "light", ".columns"),
    ("dashboard-job", f"job?id={JOB}", 1100, 760, "light", "#tasks tbody tr"),
    ("dashboard-log", f"logs?id={JOB}/0#L17", 1100, 460, "dark", "#log .hit"),
    ("dashboard-phone", f"job?id={FAILED}", 400, 640, "light", ".failure"),
)
SIZE = pb.Resources(cpu_millis=64_000, memory_bytes=256 * GIB, disk_bytes=1000 * GIB)
HOUR_MS = 3_600_000
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/app/evaluate.py", line 12, in main',
    "ValueError: vocabulary of 32,000, expected 50,257",
)
RUNNING = pb.TASK_STATE_RUNNING


def play(user: User, worker: ScriptedWorker) -> None:
    """Let some jobs run, wait and end."""
    now = int(time.time() * 1000)

    def begin(attempt: str, minutes_ago: float) -> None:
        worker.wait_for_start(attempt)
        started = now - round(60_000 * minutes_ago)
        worker.observe(attempt, RUNNING, started_at_ms=started, at_ms=started)

    def use(attempt: str, minutes_ago: float, cores: float) -> pb.AttemptUsage:
        """Tell what an attempt has used by now."""
        used = pb.AttemptUsage(attempt_id=attempt)
        for minute in range(round(minutes_ago) + 1):
            memory = round((3 + 2 * minute / (minute + 4)) * GIB)
            used = pb.AttemptUsage(
                attempt_id=attempt, at_ms=now - round(60_000 * (minutes_ago - minute)), memory_bytes=memory,
                cpu_ms=round(60_000 * minute * cores), cpu_millis=round(1000 * cores), memory_peak_bytes=memory,
            )  # fmt: skip
            worker.send(pb.WorkerMessage(usage=[used]))
        return used

    def write(attempt: str, *lines: str) -> int:
        data = b"".join(encode("Error" in line, now + 40 * i, line.encode()) for i, line in enumerate(lines))
        worker.append_log(attempt, 0, data)
        worker.wait_for_log_ack(attempt, len(data))
        return len(data)

    memory = {"memory_bytes": 8 * GIB}
    user.submit("/bob/tokenize", replicas=6, cpu_millis=2000, description="tokenise the crawl of May", **memory)
    for index in range(6):
        begin(f"/bob/tokenize/{index}:0", 40)
        worker.observe(f"/bob/tokenize/{index}:0", pb.TASK_STATE_SUCCEEDED)
    user.submit(JOB, replicas=6, cpu_millis=4000, max_retries_failure=1, description="learning rates", **memory)
    for index, minutes in enumerate((31, 30, 29, 28, 27)):
        begin(f"{JOB}/{index}:0", minutes)
        if index != 1:
            use(f"{JOB}/{index}:0", minutes, 3.1 + index / 8)
    used = pb.AttemptUsage(attempt_id=f"{JOB}/1:0", cpu_ms=2_200_000, at_ms=now - 18 * 60_000)
    worker.observe(
        f"{JOB}/1:0", pb.TASK_STATE_FAILED, exit_code=1, error="exit code 1", at_ms=used.at_ms, usage=used
    )  # fmt: skip
    begin(f"{JOB}/1:1", 17.7)
    worker.observe(f"{JOB}/2:0", pb.TASK_STATE_SUCCEEDED, at_ms=now - 16 * 60_000)
    write(f"{JOB}/0:0", *(f"step {i * 50}: loss {3.9 - i / 25:.3f}, 41,8{i:02d} tokens/s" for i in range(24)))
    user.submit(FAILED.rpartition("/")[0], cpu_millis=12_000, description="a small model, to try the mixture", **memory)
    begin(f"{FAILED.rpartition('/')[0]}/0:0", 55)
    user.submit(FAILED, cpu_millis=2000, description="step checkpoints/evaluate-3f2a91", **memory)
    user.submit("/bob/evaluate", cpu_millis=2000, **memory)
    for job, minutes in ((FAILED, 6), ("/bob/evaluate", 9)):
        begin(f"{job}/0:0", minutes)
        error = "ValueError: vocabulary of 32,000, expected 50,257"
        size = write(
            f"{job}/0:0", "Traceback (most recent call last):", '  File "/app/evaluate.py", line 12, in main', error
        )
        worker.observe(
            f"{job}/0:0", pb.TASK_STATE_FAILED, exit_code=1, error="exit code 1", log_size=size,
            usage=use(f"{job}/0:0", minutes, 1.4),
        )  # fmt: skip
    user.submit("/cleo/sweep", replicas=24, cpu_millis=8000, description="learning rates", **memory)
    user.wait("/bob/tokenize", FAILED, "/bob/evaluate")


def write_ledger(state_dir: Path) -> None:
    """Write a day of the ledger, as a controller would over a day."""
    now = int(time.time() * 1000) // HOUR_MS * HOUR_MS
    random = Random(7)
    with contextlib.closing(sqlite3.connect(state_dir / DATABASE_NAME)) as database, database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(ledger)")]
        for hour in range(24):
            for user, share in (("ada", 0.5), ("bob", 0.3), ("cleo", 0.1), ("", 0.1)):
                core_ms = 64 * HOUR_MS * share * random.uniform(0.6, 1)
                row = dict.fromkeys(columns, 0) | {"user": user, "job_id": "", "worker_group": "pool"}
                row |= {"start_ms": now - hour * HOUR_MS, "counted_ms": now - (hour - 1) * HOUR_MS}
                uses = {"productive": 0.8, "lost": 0.06, "restart": 0.02, "waiting": 0.04} if user else {"idle": 1}
                row |= {f"{word}_core_ms": round(core_ms * part) for word, part in uses.items()}
                marks = ", ".join("?" for _ in row)
                database.execute(f"INSERT INTO ledger ({', '.join(row)}) VALUES ({marks})", list(row.values()))


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
            for name, place, width, height, scheme, shown in PICTURES:
                page.set_viewport_size({"width": width, "height": height})
                page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
                page.goto(f"{bound.url}/{place}")
                page.locator(shown).first.wait_for()
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
    with tempfile.TemporaryDirectory() as directory:
        state_dir = Path(directory, "state")
        with running_controller(state_dir):
            pass
        write_ledger(state_dir)
        show(state_dir, output)


def show(state_dir: Path, output: Path) -> None:
    """Write the pictures of a played cluster."""
    with running_controller(state_dir) as controller:
        token = controller.worker_token("host-1")
        admin = controller.token(PrincipalKind.ADMIN, "root")
        stubs = ControllerStubs(controller.address, call_metadata(admin))
        with ScriptedWorker(controller.address, token, "host-1", capacity=SIZE) as worker:
            play(User(stubs), worker)
            take(controller, output)
        stubs.close()


if __name__ == "__main__":
    main()
