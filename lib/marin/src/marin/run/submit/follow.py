"""Follow a submitted job: its complete log, its status, and signals meanwhile."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from marin.run.submit.jobs_api import JobInfo, JobsApi, NotText, stop_quietly
from marin.run.submit.log_file import TailBroken
from marin.run.submit.shown_log import Rereader, ShownLog
from rigging.errors import Conflict, Denied, NotFound, Unavailable
from rigging.redaction import redact_string

GONE: Final = 6
"""Exit code: contact with the cluster, or its record of the job, was lost; the job's end is unknown."""

_LARGEST_CHECKED: Final = 32 << 20
_MOST_SILENCE: Final = 600.0
_LONGEST_RECONNECT: Final = 15.0
BY_SIGNAL: Final = 128
"""Exit codes of processes ended by signal N are this plus N."""
# What Ray says of a job that it remembers and whose process it does not find, and of one that went under its eyes.
_LOST: Final = ("failed to get job supervisor", "Job supervisor actor died")


@dataclass(frozen=True, slots=True)
class FollowTimes:
    """Timings of a follower, in seconds.

    Args:
        poll: Interval between two status requests.
        reconnect: Delay before the log is requested again after a broken connection.
        silence: Time without a new line before the log is requested again: a stalled connection looks like a silent
            job.
        grace: Time for the log to end by itself after the job's end.
        give_up: Maximum time without an answer from the cluster.
        stopping: Maximum time for a stopped job to end.
        answer: Timeout of one status request.
        told: Time without an answer before the user gets a message.
        node: Interval between two checks of the job's node. node_gone: Maximum time for a job on a dead node to end.
    """

    poll: float = 1.0
    reconnect: float = 1.0
    silence: float = 30.0
    grace: float = 5.0
    give_up: float = 300.0
    stopping: float = 60.0
    answer: float = 10.0
    told: float = 8.0
    node: float = 10.0
    node_gone: float = 90.0


@dataclass(slots=True)
class _Silence:
    """The messages already shown about an unresponsive cluster or a dead node."""

    is_told: bool = False
    next_look: float = 0.0
    node_dead_since: float = 0.0


class Follower:
    """Follow one job.

    Args:
        write: Receives the job's output.
        say: Prints messages for the user.
        auto_stop: Whether to stop the job at any end of this command, not only after Ctrl-C.
    """

    def __init__(
        self,
        api: JobsApi,
        job_id: str,
        *,
        write: Callable[[str], None],
        say: Callable[[str], None],
        auto_stop: bool = False,
        times: FollowTimes | None = None,
    ) -> None:
        self._api = api
        self._job_id = job_id
        self._say = say
        self._auto_stop = auto_stop
        self._times = times or FollowTimes()
        self._shown = ShownLog(write)
        self._signal = 0
        self._signalled = asyncio.Event()
        self._leaving = False
        self._ended = False
        self._tail_is_whole = False
        self._main: asyncio.Task[object] | None = None

    @property
    def stop_line(self) -> str:
        """The command that stops the job."""
        return f"`ray job stop --address {self._api.shown_address} {self._job_id}`"

    async def run(self) -> int:
        """Follow the job to its end and return this command's exit code."""
        self._main = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # What is ignored stays ignored: nohup, and jobs that a shell runs in the background, rely on it.
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._on_signal, number)
        tail = asyncio.create_task(self._tail())
        try:
            return await self._follow(tail)
        except asyncio.CancelledError:
            if not self._leaving:
                raise
            still = "has ended" if self._ended else f"may still run: {self.stop_line} stops it"
            self._say(f"left; job {self._job_id} {still}")
            return BY_SIGNAL + self._signal
        finally:
            tail.cancel()

    def _on_signal(self, number: int) -> None:
        again = bool(self._signal) and number == signal.SIGINT
        self._signal = self._signal or number
        if again or self._ended or not (number == signal.SIGINT or self._auto_stop):
            self._leaving = True
            assert self._main is not None
            self._main.cancel()
        self._signalled.set()

    async def _follow(self, tail: asyncio.Task[None]) -> int:
        info = await self._wait()
        if info is None:
            return GONE
        self._ended = True
        await asyncio.wait([tail], timeout=self._times.grace)
        tail.cancel()
        await asyncio.wait([tail])
        if not tail.cancelled() and (error := tail.exception()) is not None:
            self._say(f"the log could not be followed: {error!r}")
        await self._complete_log()
        self._say(describe_end(self._job_id, info))
        return exit_code(info, self._signal)

    async def _wait(self) -> JobInfo | None:
        """Wait for the job's end and return how it ended; None if that is unknown."""
        loop = asyncio.get_running_loop()
        heard = loop.time()
        silence = _Silence()
        stop_by: float | None = None
        message = ""
        while True:
            if self._signal and stop_by is None:
                self._say(f"stopping job {self._job_id} (Ctrl-C again: exit at once)")
                stop_by = loop.time() + self._times.stopping
                await self._ask_to_stop(stop_by)
            if stop_by is not None and loop.time() > stop_by:
                self._say(f"job {self._job_id} was asked to stop {self._times.stopping:g} s ago and still runs")
                stop_by = float("inf")
            try:
                info = await self._api.info(self._job_id, self._times.answer)
                heard = loop.time()
                if silence.is_told:
                    silence.is_told = False
                    self._say("the cluster answers again")
            except NotFound:
                self._say(f"the cluster no longer knows job {self._job_id}: was its head restarted?")
                return None
            except (Unavailable, Conflict, Denied) as error:
                silent = loop.time() - heard
                if silent > self._times.give_up:
                    self._say(f"{error}")
                    self._say(f"job {self._job_id} may continue; its result is unknown here")
                    return None
                if silent > self._times.told and not silence.is_told:
                    silence.is_told = True
                    left = max(self._times.give_up - silent, 0)
                    self._say(
                        f"{await self._api.who_is_silent()} has not answered for {silent:.0f} s; this command waits "
                        f"another {left:.0f} s for it, then exits with code {GONE}; job {self._job_id} may continue"
                    )
            else:
                if info.ended:
                    return info
                if await self._is_lost_with_its_node(info, silence):
                    return None
                if info.status == "PENDING" and info.message != message:
                    message = info.message
                    self._say(f"job {self._job_id} is pending: {message}")
            self._signalled.clear()
            if stop_by is not None or not self._signal:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._signalled.wait(), self._times.poll)

    async def _is_lost_with_its_node(self, info: JobInfo, silence: "_Silence") -> bool:
        """Return True if the job's node is dead and Ray does not report the job's end in time."""
        now = asyncio.get_running_loop().time()
        if not info.node_id or now < silence.next_look:
            return False
        silence.next_look = now + self._times.node
        if not await self._api.is_node_dead(info.node_id, self._times.answer):
            silence.node_dead_since = 0.0
            return False
        if not silence.node_dead_since:
            silence.node_dead_since = now
            self._say(
                f"the node that runs job {self._job_id} is dead: its raylet does not answer; this command waits "
                f"{self._times.node_gone:.0f} s for Ray to report the job's end, then exits with code {GONE}"
            )
        if now - silence.node_dead_since < self._times.node_gone:
            return False
        self._say(f"job {self._job_id} was lost with its node, but Ray still reports it as running")
        return True

    async def _ask_to_stop(self, deadline: float) -> None:
        """Request the stop until the cluster has received it."""
        loop = asyncio.get_running_loop()
        told = False
        while reason := await stop_quietly(self._api, self._job_id):
            if not told:
                self._say(f"the cluster could not be asked to stop it: {reason}")
            told = True
            if loop.time() > deadline:
                return
            await asyncio.sleep(self._times.reconnect)

    async def _tail(self) -> None:
        """Show the log as it grows, across connection failures."""
        silence = self._times.silence
        silent = False
        pause = 0.0
        while True:
            reader = Rereader(self._shown)
            try:
                async for text in self._api.tail(self._job_id, silence):
                    if not reader.feed(text):
                        continue
                    pause = 0.0
                    if silent:
                        # Missed or only late: a silent job looks like a stalled connection.
                        silent, silence = False, self._times.silence
                if await self._has_ended():
                    self._tail_is_whole = not reader.is_short and not reader.differs
                    return
                # Ray ends it so at a byte that is no UTF-8, too. To look costs the whole log.
                if await self._api.needs_file(self._job_id):
                    continue
                reason = "before the job's end"
            except TailBroken as error:
                if error.silent:
                    # Each look costs the whole log once more.
                    silence = min(2 * silence, _MOST_SILENCE) if silent else silence
                    silent = True
                    continue
                reason = f"({error})"
            if not pause:
                # Once, also where it is in vain for hours: the cluster is away, or the node that has the log.
                self._say(f"the log broke off {reason}; connecting again")
            pause = min(2 * pause, _LONGEST_RECONNECT) if pause else self._times.reconnect
            await asyncio.sleep(pause)

    async def _has_ended(self) -> bool:
        try:
            return (await self._api.info(self._job_id)).ended
        except (Unavailable, Conflict, Denied, NotFound):
            return False

    async def _complete_log(self) -> None:
        """Compare the shown output with the cluster's complete log, and show the rest."""
        if self._tail_is_whole and self._shown.length > _LARGEST_CHECKED:
            return
        all_of_it = f"`ray job logs --address {self._api.shown_address} {self._job_id}`"
        try:
            text = await self._api.logs(self._job_id)
        except NotText as error:
            place = await self._api.log_place(self._job_id)
            self._say(f"the log is shown up to a byte that is not UTF-8 ({error}); full log: {place}")
            return
        except (Unavailable, Conflict, Denied, NotFound) as error:
            if not self._tail_is_whole:
                self._say(f"the log may lack its last lines ({error}); full log: {all_of_it}")
            return
        reader = Rereader(self._shown)
        missed = reader.feed(text)
        if reader.is_short or reader.differs:
            self._say(f"the cluster's log differs from the output above; full log: {all_of_it}")
        elif missed:
            self._say(f"the log ended early: its last {missed} characters were fetched after the job's end")


def describe_end(job_id: str, info: JobInfo) -> str:
    """Describe the job's end: in one line, or several for a job that never started."""
    if info.status == "SUCCEEDED":
        return f"job {job_id} succeeded"
    if info.status == "STOPPED":
        return f"job {job_id} was stopped"
    if info.exit_code is None:
        lost = any(words in info.message for words in _LOST)
        why = "it was lost with its node or with the cluster's head; Ray says: " if lost else ""
        return f"job {job_id} failed: {why}{redact_string(info.message) or 'no reason was given'}"
    return f"job {job_id} failed: {_describe_code(info.exit_code)}"


def exit_code(info: JobInfo, stopped_by: int = 0) -> int:
    """Return the job's exit code; 128 + n if signal n ended the job, or made this command stop it; 1 if unknown."""
    if info.status == "SUCCEEDED":
        return 0
    if info.status == "STOPPED":
        return BY_SIGNAL + stopped_by if stopped_by else 1
    if info.exit_code:
        return info.exit_code if info.exit_code > 0 else BY_SIGNAL - info.exit_code
    return 1


def _describe_code(code: int) -> str:
    if code < 0:
        return f"was killed by {_signal_name(-code)}"
    # As shells tell it, and Ray has one start the command.
    known = code > BY_SIGNAL and code - BY_SIGNAL in {each.value for each in signal.Signals}
    return f"exit code {code} ({BY_SIGNAL} + {_signal_name(code - BY_SIGNAL)})" if known else f"exit code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def say(text: str) -> None:
    """Print a note on stderr. A closed stderr does not end the command."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write("".join(f"ray_run: {line}\n" for line in text.splitlines()))
        sys.stderr.flush()
