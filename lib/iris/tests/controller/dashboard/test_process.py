"""The process that serves the pages: started when it is asked for, again after its end, ended with the controller."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from iris.controller.config.controller_config import Address
from iris.controller.dashboard.process import PORT_FILE, DashboardProcess, DashboardSettings
from rigging.errors import InvalidRequest, Unavailable

# Plays the process: says what it was told in each link.
PLAYED = """
import json, sys
settings = json.loads(sys.stdin.readline())
assert set(settings) == {"controller", "secret", "key", "port", "ca_sha256", "cluster_name", "task_pages_domain"}
url, note = f"http://127.0.0.1:{settings['port'] or 8123}", "" if settings["port"] else "any"
print(json.dumps({"url": url, "note": note}), flush=True)
for line in sys.stdin:
    link = json.loads(line)["link"]
    if link["user"] == "breaks":
        sys.exit(1)
    words = [link["user"], str(link["admin"]), str(link["may_write"]), settings["controller"]]
    print(json.dumps({"path": "/login?" + "-".join(words)}), flush=True)
"""
# Hangs at a link that is asked for while there is no mark.
HANGS_ONCE = """
import json, pathlib, sys, time
sys.stdin.readline()
print(json.dumps({"url": "http://127.0.0.1:8123", "note": ""}), flush=True)
for line in sys.stdin:
    if not pathlib.Path("MARK").exists():
        pathlib.Path("MARK").touch()
        time.sleep(600)
    print(json.dumps({"path": "/login"}), flush=True)
"""
# Does not say that it serves before it is told to.
SLOW = """
import json, os, pathlib, sys, time
sys.stdin.readline()
with pathlib.Path("MARK").open("a") as file:
    file.write(f"{os.getpid()}\\n")
while not pathlib.Path("MARK.go").exists():
    time.sleep(0.01)
print(json.dumps({"url": "http://127.0.0.1:8123", "note": ""}), flush=True)
for line in sys.stdin:
    print(json.dumps({"path": "/login"}), flush=True)
"""
REFUSES = 'import sys; sys.stdin.readline(); print(\'{"error": "no port is free"}\', flush=True)'


@asynccontextmanager
async def begun(
    state: Path, code: str = PLAYED, port: int = 0, for_good: bool = True, answer_s: float = 60.0
) -> AsyncIterator[DashboardProcess]:
    command = (sys.executable, "-c", code.replace("MARK", str(state / "mark")))
    settings = DashboardSettings(state, b"s" * 32, port, "mine", command=command, answer_s=answer_s)
    process = DashboardProcess(settings)
    await process.begin(Address("0.0.0.0", 7000))
    try:
        yield process
    finally:
        await process.close(for_good=for_good)


async def test_it_is_started_by_the_first_link_and_serves_the_next(tmp_path: Path) -> None:
    async with begun(tmp_path) as process:
        assert not (tmp_path / PORT_FILE).exists()
        first = await process.link("ann", is_admin=False)
        assert (first.url, first.note) == ("http://127.0.0.1:8123/login?ann-False-False-127.0.0.1:7000", "any")
        second = await process.link("bob", is_admin=True, may_write=True)
        assert (second.url.partition("?")[2], second.note) == ("bob-True-True-127.0.0.1:7000", "")
        assert (tmp_path / PORT_FILE).read_text() == "8123"
    assert not (tmp_path / PORT_FILE).exists(), "the cluster is over"


async def test_links_that_are_asked_for_at_once_start_one(tmp_path: Path) -> None:
    async with begun(tmp_path) as process:
        links = await asyncio.gather(*(process.link(f"u{i}", is_admin=False) for i in range(5)))
    assert sorted(link.url.partition("?")[2].partition("-")[0] for link in links) == [f"u{i}" for i in range(5)]
    assert sum(link.note == "any" for link in links) == 1


async def test_the_port_stays_also_for_the_next_controller_and_who_asks_for_another_is_told(tmp_path: Path) -> None:
    async with begun(tmp_path, for_good=False) as process:
        await process.link("ann", is_admin=False, port=8200)
        other = await process.link("ann", is_admin=False, port=8300)
        assert other.url.startswith("http://127.0.0.1:8200/")
        assert other.note == "the pages are served at port 8200 already, not at 8300"
        assert (await process.link("ann", is_admin=False, port=8200)).note == ""
    async with begun(tmp_path) as process:
        link = await process.link("ann", is_admin=False)
        assert (link.url.partition("/login")[0], link.note) == ("http://127.0.0.1:8200", "")


async def test_one_that_ended_is_started_again(tmp_path: Path) -> None:
    async with begun(tmp_path, port=8300) as process:
        with pytest.raises(Unavailable, match="has ended"):
            await process.link("breaks", is_admin=False)
        assert (await process.link("ann", is_admin=False)).url


async def test_one_that_is_killed_serves_again_without_being_asked(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "mark.go").touch()
    async with begun(tmp_path, SLOW) as process:
        await process.link("ann", is_admin=False)
        os.kill(int(mark.read_text()), signal.SIGKILL)
        await asyncio.to_thread(eventually, lambda: mark.read_text().count("\n") == 2, "another is started")
        pids = mark.read_text().split()
        assert (await process.link("ann", is_admin=False)).url == "http://127.0.0.1:8123/login"
        assert mark.read_text().split() == pids, "the one that was started is asked"


async def test_who_does_not_wait_for_a_slow_start_does_not_end_it(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with begun(tmp_path, SLOW) as process:
        hasty = asyncio.create_task(process.link("ann", is_admin=False))
        await asyncio.to_thread(eventually, lambda: mark.exists() and mark.stat().st_size > 0, "it begins")
        hasty.cancel()
        await asyncio.gather(hasty, return_exceptions=True)
        (tmp_path / "mark.go").touch()
        assert (await process.link("ann", is_admin=False)).url == "http://127.0.0.1:8123/login"
        assert len(mark.read_text().split()) == 1


@pytest.mark.process
async def test_another_takes_the_place_of_one_that_hangs(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    mark.touch()
    async with begun(tmp_path, HANGS_ONCE, answer_s=1.0) as process:
        await process.link("ann", is_admin=False)
        mark.unlink()
        assert (await process.link("ann", is_admin=False)).url == "http://127.0.0.1:8123/login"
        assert mark.exists(), "the first has hung"


async def test_one_that_does_not_start_holds_up_no_controller_and_says_why(tmp_path: Path) -> None:
    async with begun(tmp_path, REFUSES, port=8400) as process:
        with pytest.raises(Unavailable, match="no port is free"):
            await process.link("ann", is_admin=False)
        with pytest.raises(InvalidRequest, match="70000"):
            await process.link("ann", is_admin=False, port=70000)
