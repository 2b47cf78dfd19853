"""Who waits for the chips of a host, and for how long."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

from iris.domain.resources import Device, Resources
from iris.domain.states import FailureKind, TaskState
from iris.worker.devices.allotment import Chips
from iris.worker.devices.found import find_chips
from iris.worker.devices.holders import tpu_holders
from iris.worker.processes import Exit, InheritedAttempt

from .conftest import COMMAND, Bench, settle


def chips_of(dev: Path, number: int) -> Chips:
    for index in range(number):
        (dev / f"accel{index}").touch()
    return Chips(Device("tpu", "v5litepod-8", number), find_chips("tpu", dev))


async def test_the_second_tenant_of_a_chip_never_sees_it_busy(runner: asyncio.Runner, tmp_path: Path) -> None:
    chips = replace(chips_of(tmp_path, 1), holders=tpu_holders, patience_s=3600)
    bench = Bench(tmp_path / "work", chips=chips)
    launch = replace(COMMAND, resources=Resources(device=Device("tpu", count=1)))
    with (tmp_path / "accel0").open():  # what the first leaves behind: this process stands for it
        second = bench.ask(0, launch=launch)
        await settle()
        assert not bench.runtime.commands
        (waiting,) = bench.said()
        why = r".*/accel0 is in use by process \d+ \(.*\), which no live attempt here owns"
        assert re.fullmatch(why, waiting.waits_for)
    third = bench.ask(1, launch=launch)
    await settle()
    command = bench.runtime.commands[third]
    assert command.spec.note["chips"] == ("0",)
    command.listener.on_started(1)
    command.listener.on_exit(Exit(0, 0))
    await settle()
    assert second in bench.runtime.commands, "an end lets it try again"


async def test_a_chip_that_stays_busy_is_the_hosts_fault(runner: asyncio.Runner, tmp_path: Path) -> None:
    chips = replace(chips_of(tmp_path, 1), holders=lambda found: {found[0].node: "process 1 (x)"}, patience_s=0)
    bench = Bench(tmp_path / "work", chips=chips)
    bench.ask(launch=replace(COMMAND, resources=Resources(device=Device("tpu", count=1))))
    ended, _ = await bench.failure()
    assert (ended.state, ended.failure, ended.started_at_ms) == (TaskState.FAILED, FailureKind.DEVICE, 0)
    assert ended.error.endswith("accel0 is in use by process 1 (x), which no live attempt here owns; it waited 0 s")


async def test_a_later_worker_process_knows_the_chips_of_what_it_adopts(runner: asyncio.Runner, tmp_path: Path) -> None:
    note = {"task": "/u/job/0", "job": "/u/job", "chips": ["0"]}
    held = InheritedAttempt("/u/job/0:0", 7, str(tmp_path / "log"), 0, 1, note)
    bench = Bench(tmp_path / "work", [held], chips_of(tmp_path, 2))
    assert bench.allotment.take("new", Device("tpu", count=1)) == ("1",)
