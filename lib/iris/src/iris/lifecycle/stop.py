"""Deletes all machines of a cluster, and verifies that by listing."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from iris.autoscale.model import Answer, Outcome
from iris.autoscale.port import Phase
from iris.lifecycle.machines import Found, Machine, Machines

_LOOK_S: Final = 5.0
_DEADLINE_S: Final = 900.0
_EMPTY_LISTS: Final = 2
"""A list may lag behind, and a controller may just have created something."""
_UNLISTED_LISTS: Final = 4
"""So many lists are tried where a place cannot be listed and nothing else is left."""
_FOR_GOOD: Final = (Outcome.PERMISSION, Outcome.CONFIG)
_AGAIN_S: Final = 60.0
_DONE: Final = Answer(Outcome.DONE)


@dataclass(frozen=True, slots=True)
class Left:
    """The machines that `delete_all` could not delete.

    Args:
        machines: Machines that are still listed, each with the reason.
        unlisted: Places that could not be listed.
    """

    machines: Mapping[Machine, str]
    unlisted: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.machines or self.unlisted)


async def delete_all(
    machines: Machines,
    found: Found,
    on_left: Callable[[int], None],
    *,
    look_s: float = _LOOK_S,
    deadline_s: float = _DEADLINE_S,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> Left:
    """Delete the machines that were found, all at the same time, and look until none is listed.

    A machine that a controller creates meanwhile, or whose deletion was refused, is deleted at the next look.

    Args:
        machines: The platform.
        found: The machines.
        on_left: Called at each look with the number of machines that are still listed.
        look_s: Interval between looks.
        deadline_s: How long to look.
        sleep: Waits for some seconds.

    Returns:
        What is left at the deadline.
    """
    answers: dict[str, Answer] = {}
    asked_s: dict[str, float] = {}
    waited_s, empty = 0.0, _EMPTY_LISTS - 1
    while True:
        empty = 0 if found.machines else empty + 1
        if empty >= (_UNLISTED_LISTS if found.unlisted else _EMPTY_LISTS):
            break
        wanted = [each for each in found.machines if _is_due(each, answers, waited_s - asked_s.get(each.name, 0))]
        done = await machines.delete(wanted)
        answers |= {each.name: answer for each, answer in done.items()}
        asked_s |= {each.name: waited_s for each in wanted}
        left = [answers[each.name].outcome for each in found.machines]
        if waited_s >= deadline_s or (left and all(outcome in _FOR_GOOD for outcome in left)):
            break
        on_left(len(found.machines))
        await sleep(look_s)
        waited_s += look_s
        found = await machines.find()
    return Left({each: _why(each, answers.get(each.name, _DONE)) for each in found.machines}, found.unlisted)


def _why(machine: Machine, answer: Answer) -> str:
    if answer.outcome is Outcome.DONE:
        return f"its deletion has begun, but it is still listed as {machine.state}"
    return f"{answer.outcome}: {answer.words}"


def _is_due(machine: Machine, answers: Mapping[str, Answer], since_s: float) -> bool:
    """Return whether to ask for a deletion: not yet asked, refused, or accepted for long without effect."""
    if answers.get(machine.name) != _DONE:
        return True
    return machine.phase is not Phase.DELETING and since_s >= _AGAIN_S
