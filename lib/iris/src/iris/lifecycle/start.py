"""Creates the controller's machine of a cluster, or finds it, and waits until the controller answers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from iris.autoscale.model import Outcome
from iris.autoscale.port import Phase
from iris.lifecycle.machines import Found, Machine, Machines
from rigging.errors import Conflict, MarinError, Unavailable

PHASE: Final = "phase"
FAILED: Final = "failed"
_LOOK_S: Final = 3.0
_DEADLINE_S: Final = 900.0
_FAILED_S: Final = 120.0
_QUIET_S: Final = 60.0
_TAIL_LINES: Final = 20
_LOOKS_UNTIL_GONE: Final = 3
"""A machine is gone when so many looks in turn lack it: a list may lag behind."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """How `await_controller` waits.

    Args:
        trouble: Returns why the controller on a machine does not answer; empty if it does.
        tell: Shows a phase.
        look_s: Interval between looks. deadline_s: How long to look.
        failed_s: How long in all a host may say that its start failed; it tries again.
        sleep: Waits for some seconds.
    """

    trouble: Callable[[Machine], Awaitable[str]]
    tell: Callable[[str], None]
    look_s: float = _LOOK_S
    deadline_s: float = _DEADLINE_S
    failed_s: float = _FAILED_S
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep


async def start_controller(machines: Machines, script: str, waiting: Waiting) -> Machine:
    """Return the controller's machine once its controller answers. Create the machine if there is none, and restart one
    that is stopped or whose controller has failed.

    Args:
        machines: The platform.
        script: Its startup script.
        waiting: How to wait.

    Raises:
        Unavailable: The platform refuses, or the controller does not answer by the deadline.
    """
    found = await _without_leaving(machines, waiting)
    machine = found.controller
    if machine is None:
        if found.unlisted:
            raise Unavailable(f"it is not known whether the cluster runs already: {'; '.join(found.unlisted)}")
        waiting.tell("creating the controller's machine")
        answer = await machines.create_controller(script)
        if answer.outcome is not Outcome.DONE:
            raise Unavailable(f"the controller's machine cannot be created: {answer.outcome}: {answer.words}")
    elif machine.phase is Phase.BROKEN or (await _phase(machines, machine)).startswith(FAILED):
        await restart_controller(machines, machine, script, waiting.tell)
    return await await_controller(machines, waiting)


async def restart_controller(machines: Machines, machine: Machine, script: str, tell: Callable[[str], None]) -> None:
    """Restart the controller's machine with a startup script. Raise Unavailable."""
    tell(f"restarting {machine.name} ({machine.state})")
    answer = await machines.restart_controller(machine, script)
    if answer.outcome is not Outcome.DONE:
        raise Unavailable(f"{machine} cannot be restarted: {answer.outcome}: {answer.words}")


async def await_controller(machines: Machines, waiting: Waiting) -> Machine:
    """Return the controller's machine once its controller answers, and tell its phases until then.

    Raises:
        Unavailable: It does not answer by the deadline; with its last phase, and the end of its console.
        Conflict: The machine is gone.
    """
    waited_s, failed_s, told, trouble = 0.0, 0.0, "", "it does not run yet"
    missing = -1  # not seen yet
    while True:
        found = await machines.find()
        machine = found.controller
        if machine is not None or found.unlisted:
            missing = 0 if machine is not None else missing
        elif missing >= 0:
            missing += 1
        if machine is not None and machine.phase is Phase.READY:
            trouble = await waiting.trouble(machine)
            if not trouble:
                return machine
            if waited_s >= _QUIET_S > waited_s - waiting.look_s:
                waiting.tell(f"{machine} does not answer yet: {trouble}")
        phase = await _phase(machines, machine) if machine is not None else ""
        if phase and phase != told:
            waiting.tell(f"{machine}: {phase}")
            told = phase
        if phase.startswith(FAILED):  # it tries again and again, with other phases between
            failed_s += waiting.look_s
        if waited_s >= waiting.deadline_s or failed_s > waiting.failed_s or missing >= _LOOKS_UNTIL_GONE:
            if machine is None:
                raise Conflict("the controller's machine is gone: another command may have stopped the cluster")
            raise Unavailable(await _why_not(machines, machine, phase, f"after {waited_s:g} s: {trouble}"))
        await waiting.sleep(waiting.look_s)
        waited_s += waiting.look_s


async def _without_leaving(machines: Machines, waiting: Waiting) -> Found:
    """Return the machines once a controller's machine that is being deleted is gone."""
    waited_s = 0.0
    while True:
        found = await machines.find()
        machine = found.controller
        if machine is None or machine.phase is not Phase.DELETING or waited_s >= waiting.deadline_s:
            return found
        waiting.tell(f"waiting for the deletion of {machine.name}")
        await waiting.sleep(waiting.look_s)
        waited_s += waiting.look_s


async def _phase(machines: Machines, machine: Machine) -> str:
    try:
        hosts = await machines.phases(machine)
    except MarinError:
        return ""  # it is asked again
    return hosts[0].get(PHASE, "") if hosts else ""


async def _why_not(machines: Machines, machine: Machine, phase: str, trouble: str) -> str:
    where = f"{machine} ({machine.state}, {', '.join(machine.external) or 'no external address'})"
    try:
        console, _ = await machines.console(machine)
    except MarinError as error:
        console = str(error)
    tail = "\n".join(f"  {line}" for line in console.splitlines()[-_TAIL_LINES:]) or "  nothing"
    return (
        f"{where} does not answer {trouble}; its phase: {phase or 'none yet'}. "
        f"`iris cluster start` goes on waiting. Its console ends with:\n{tail}"
    )
