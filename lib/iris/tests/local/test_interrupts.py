"""Ctrl-C in the terminal of a cluster's process: the first ends it in order, a second leaves at once; both say so."""

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

IN_A_LOOP = """
import asyncio
from iris.local.interrupts import stop_on_signals

async def serve():
    stop = asyncio.Event()
    stop_on_signals(asyncio.get_running_loop(), stop, lambda: "a task")
    print("serves", flush=True)
    await stop.wait()
    print("stops", flush=True)
    await asyncio.sleep(STOPPING)

asyncio.run(serve())
print("stopped")
"""
WITHOUT_A_LOOP = """
import time
from iris.local.interrupts import leaving_at_interrupt

with leaving_at_interrupt("a task"):
    print("stops", flush=True)
    time.sleep(60)
"""


def interrupted(program: str, *after: str, number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
    """Signal a program after each of these lines; its exit code, and what it said on stderr."""
    command = [
        sys.executable,
        "-c",
        f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n{program}",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in after:
            assert process.stdout.readline() == f"{line}\n"
            process.send_signal(number)
        _, words = process.communicate(timeout=30)
    return process.returncode, words


def test_the_first_stops_in_order_and_says_so() -> None:
    program, told = IN_A_LOOP.replace("STOPPING", "0"), "iris: stopping; Ctrl-C again leaves at once\n"
    assert interrupted(program, "serves") == (0, told)
    assert interrupted(program, "serves", number=signal.SIGTERM) == (0, ""), "nobody sits at a terminal"


@pytest.mark.parametrize("program", [IN_A_LOOP.replace("STOPPING", "60"), WITHOUT_A_LOOP])
def test_a_second_leaves_at_once_and_says_what_goes_on(program: str) -> None:
    lines = ("serves", "stops") if "serves" in program else ("stops",)
    code, words = interrupted(program, *lines)
    assert code == 130
    assert words.splitlines()[-1] == "iris: left at once: a task"
