"""The guardian as a process of its own: what it holds, who may speak with it, and when it ends."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from iris.domain.usage import NO_USAGE, Usage
from iris.rpc.logformat import decode_all
from iris.worker.guardian.client import GuardianClient, attach
from iris.worker.guardian.held import fields_of
from iris.worker.guardian.launch import GuardianPaths
from iris.worker.guardian.protocol import NEWEST_VERSION, OLDEST_VERSION, boot_ms, encode
from iris.worker.processes import CommonSpec, Exit, ProcessSpec, StartFailed, StartFailure
from rigging.errors import Conflict, Unavailable
from rigging.testing import eventually

pytestmark = pytest.mark.e2e


class Seen:
    """Hears of one command."""

    def __init__(self) -> None:
        self.pid: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.end: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.size = 0
        self.usage = NO_USAGE
        self.grew = asyncio.Event()

    def on_started(self, pid: int) -> None:
        self.pid.set_result(pid)

    def on_refused(self, error: StartFailed) -> None:
        self.end.set_exception(error)

    def on_usage(self, usage: Usage) -> None:
        self.usage = usage

    def on_log(self, size: int) -> None:
        self.size = size
        self.grew.set()

    def on_exit(self, exit: Exit) -> None:
        self.end.set_result(exit)


class Bench:
    """One work directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = GuardianPaths(root)
        self.linger_s = 30.0

    async def attach(
        self, versions: tuple[int, int] = (OLDEST_VERSION, NEWEST_VERSION), patience_s: float = 20
    ) -> GuardianClient:
        return await attach(self.paths, versions=versions, linger_s=self.linger_s, patience_s=patience_s)

    def spec(self, name: str, script: str, **options: object) -> ProcessSpec:
        env = {"PATH": os.environ["PATH"], "IRIS_ATTEMPT_ID": name, "IRIS_WORK_DIR": str(self.root)}
        return ProcessSpec(name, ("sh", "-c", script), env, str(self.root), log=self.log(name), **options)  # type: ignore[arg-type]

    def log(self, name: str) -> str:
        return str(self.root / f"{name}.log")

    def words(self, name: str, size: int) -> list[bytes]:
        return [record.data for record in decode_all(Path(self.log(name)).read_bytes()[:size])]

    def proc(self, pid: int, name: str) -> str:
        return Path(f"/proc/{pid}/{name}").read_text()

    def pid(self) -> int:
        return int(self.paths.lock.read_text())


Play = Callable[[Callable[[Bench], Awaitable[None]]], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    # Longer than the 107 bytes that a socket's name may have.
    bench = Bench(tmp_path / ("d" * 120))
    bench.root.mkdir()

    def run(scenario: Callable[[Bench], Awaitable[None]]) -> None:
        try:
            asyncio.run(asyncio.wait_for(scenario(bench), 60))
        finally:
            with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
                os.kill(bench.pid(), signal.SIGCONT)
                os.kill(bench.pid(), signal.SIGTERM)
                eventually(lambda: gone(bench.pid()), "the guardian has ended")

    return run


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end between open and read
        return True


async def soon(condition: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(eventually, condition, what)


def test_output_and_end_of_a_command(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        guardian, seen = await bench.attach(), Seen()
        guardian.start(bench.spec("a", "echo out; echo err >&2; exit 3", tail_bytes=100), seen)
        exit = await seen.end
        assert (exit.code, exit.signal, exit.tail, exit.lost) == (3, 0, b"err\n", "")
        assert sorted(bench.words("a", seen.size)) == [b"err", b"out"]
        assert guardian.live_count == 0
        guardian.forget("a")
        await soon(lambda: not Path(bench.log("a")).exists(), "what is forgotten leaves no log")

    play(scenario)


def test_a_command_that_cannot_start_says_why_in_its_log_too(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        guardian, seen = await bench.attach(), Seen()
        spec = bench.spec("a", "")
        guardian.start(ProcessSpec("a", ("no-such-command",), spec.env, spec.cwd, log=spec.log), seen)
        with pytest.raises(StartFailed, match="command 'no-such-command' not found") as refused:
            await seen.end
        assert (refused.value.exit_code, refused.value.why) == (127, StartFailure.COMMAND)
        assert bench.words("a", seen.size) == [str(refused.value).encode()]

    play(scenario)


def test_requests_that_make_no_sense_cost_nobody_else_anything(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        guardian = await bench.attach()
        good, *bad = Seen(), Seen(), Seen(), Seen()
        guardian.start(bench.spec("good", "exec sleep 1000"), good)
        pid = await good.pid
        odd = {
            "nul": (("a\0b",), {}, "/"),
            "equals": (("true",), {"A=B": "x"}, "/"),
            "cwd": (("/bin/true",), {}, "/no"),
        }
        for (name, (argv, env, cwd)), seen in zip(odd.items(), bad, strict=True):
            guardian.start(ProcessSpec(name, argv, env, cwd), seen)
            with pytest.raises(StartFailed):
                await seen.end
        for nonsense in (("start",), ("start", 7), ("stop", "good"), ("stop", "good", "x"), ("contact", None), (None,)):
            guardian.ask(*nonsense)
        end = Seen()
        guardian.start(bench.spec("last", "true"), end)
        assert (await end.end).succeeded
        assert not gone(pid)

    play(scenario)


@pytest.mark.parametrize("versions", [(1, 1), (1, 2)])
def test_what_commands_have_in_common_is_told_once_to_a_guardian_that_can_hear_it(
    play: Play, versions: tuple[int, int]
) -> None:
    async def scenario(bench: Bench) -> None:
        guardian = await bench.attach(versions)
        told: list[object] = []
        ask = guardian.ask
        guardian.ask = lambda *request: (told.append(request[0]), ask(*request))  # type: ignore[method-assign, func-returns-value]
        script = 'echo "$WHO $OWN $BOTH"; exit ${CODE:-0}'
        env = {"PATH": os.environ["PATH"], "WHO": "all", "BOTH": "all"}
        common = CommonSpec(("sh", "-c", script), env, note={"job": "/u/j", "stop": None})
        ends = [Seen() for _ in range(3)]
        for number, seen in enumerate(ends):
            own = {"OWN": str(number), "BOTH": "own", "IRIS_ATTEMPT_ID": f"a{number}"} | (
                {"CODE": "3"} if number else {}
            )
            spec = ProcessSpec(f"a{number}", (), own, str(bench.root), log=bench.log(f"a{number}"), common=common)
            guardian.start(spec, seen)
        assert [(await seen.end).code for seen in ends] == [0, 3, 3]
        assert [bench.words(f"a{number}", seen.size) for number, seen in enumerate(ends)] == [
            [b"all 0 own"], [b"all 1 own"], [b"all 2 own"]
        ]  # fmt: skip
        assert told == (["common", "run", "run", "run"] if versions[1] > 1 else ["start"] * 3)
        guardian.close()
        held = {one.owner: one for one in (await bench.attach(versions)).held()}
        assert [held[f"a{number}"].note for number in range(3)] == [{"job": "/u/j", "stop": None}] * 3

    play(scenario)


def test_more_in_common_than_a_guardian_is_to_remember_is_told_again(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        guardian = await bench.attach()
        commons = [CommonSpec(("sh", "-c", f"exit {number}"), {"PATH": os.environ["PATH"]}) for number in range(70)]
        ends = [Seen() for _ in range(140)]
        for number, seen in enumerate(ends):
            guardian.start(ProcessSpec(f"a{number}", (), {}, "/", common=commons[number % 70]), seen)
        assert [(await seen.end).code for seen in ends] == [number % 70 for number in range(140)]

    play(scenario)


@pytest.mark.parametrize(
    "details", [(7, "a", "/", "", {}, {}), (1, "a", "/", "", {"X": 3}, {}), (1, "a"), (None, "a", "/", "", {}, {})]
)
def test_a_start_that_is_not_understood_is_refused(play: Play, details: tuple[object, ...]) -> None:
    async def scenario(bench: Bench) -> None:
        guardian, seen = await bench.attach(), Seen()
        guardian.start(ProcessSpec("first", (), {}, "/", common=CommonSpec(("/bin/true",), {})), Seen())
        guardian._listen("a", seen, False)
        guardian.ask("run", *details)
        with pytest.raises(StartFailed, match="not understood"):
            await seen.end

    play(scenario)


def test_an_unfinished_line_is_in_the_log_at_once(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        guardian, seen = await bench.attach(), Seen()
        guardian.start(bench.spec("a", "printf 'continue? '; exec sleep 1000"), seen)
        await seen.pid
        started = asyncio.get_running_loop().time()
        await seen.grew.wait()
        assert bench.words("a", seen.size) == [b"continue? "]
        assert asyncio.get_running_loop().time() - started < 0.6

    play(scenario)


def test_the_next_worker_takes_up_what_runs_and_what_has_ended(play: Play, tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        go = tmp_path / "go"
        os.mkfifo(go)
        first = await bench.attach()
        long, short = Seen(), Seen()
        first.start(bench.spec("long", f"echo one; read x < {go}; echo $x", note={"task": "/u/j/0"}), long)
        first.start(bench.spec("short", "true"), short)
        pid = await long.pid
        await short.end
        first.close()
        await asyncio.sleep(0)
        second = await bench.attach()
        assert second.guardian_id == first.guardian_id
        held = {one.owner: one for one in second.held()}
        assert (held["long"].pid, held["long"].note) == (pid, {"task": "/u/j/0"})
        again, over = Seen(), Seen()
        second.take_up("long", again)
        second.take_up("short", over)
        assert (await over.end).succeeded
        assert second.live_count == 1
        await asyncio.to_thread(go.write_text, "two\n")
        assert (await again.end).succeeded
        assert bench.words("long", again.size) == [b"one", b"two"]

    play(scenario)


def test_a_stop_is_carried_through_although_the_worker_dies_after_it(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        first, seen = await bench.attach(), Seen()
        command = first.start(bench.spec("a", "trap '' TERM; echo ready; while :; do sleep 0.05; done"), seen)
        await seen.grew.wait()
        command.terminate(300, {"stop": ["by user"]})
        await asyncio.sleep(0)
        first.close()
        second = await bench.attach()
        (held,) = second.held()
        assert held.note == {"stop": ["by user"]}
        end = Seen()
        second.take_up("a", end)
        assert (await end.end).signal == signal.SIGKILL

    play(scenario)


def test_a_tool_of_the_worker_ends_with_it(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        first, seen = await bench.attach(), Seen()
        first.start(ProcessSpec("tool", ("sleep", "1000"), dict(os.environ), "/", dies_with_worker=True), seen)
        pid = await seen.pid
        first.close()
        await soon(lambda: gone(pid), "the tool has ended")
        assert (await bench.attach()).held() == []

    play(scenario)


NEXT_RELEASE = """
import sys
from iris.worker.guardian import launch, protocol, server
server.OLDEST_VERSION, server.NEWEST_VERSION = map(int, sys.argv[1:3])
from iris.worker.guardian.__main__ import main
sys.exit(main(["--work-dir", sys.argv[3]]))
"""


@pytest.mark.parametrize(
    ("guardians", "workers", "version"),
    [((1, 2), (1, 1), 1), ((1, 1), (1, 2), 1), ((1, 3), (1, 2), 2), ((1, 2), (2, 3), 2)],
)
def test_a_guardian_of_another_release_is_taken_over_by_the_version_that_both_speak(
    play: Play, guardians: tuple[int, int], workers: tuple[int, int], version: int
) -> None:
    async def scenario(bench: Bench) -> None:
        argv = [sys.executable, "-c", NEXT_RELEASE, *map(str, guardians), str(bench.root)]
        await asyncio.to_thread(subprocess.run, argv, check=True)
        first, seen = await bench.attach(guardians), Seen()
        first.start(bench.spec("a", "echo one; exec sleep 1000"), seen)
        await seen.grew.wait()
        first.close()
        second, again = await bench.attach(workers), Seen()
        assert second.version == version
        second.take_up("a", again)
        second.ask("a verb of a later release", {"x": 1})
        second.ask("start", {"id": "no argv"})
        second.ask("stop", "a", 0, None)
        assert (await again.end).signal == signal.SIGTERM
        assert bench.words("a", again.size) == [b"one"]

    play(scenario)


def test_a_release_without_a_common_version_is_refused_and_nothing_ends(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        first, seen = await bench.attach(), Seen()
        first.start(bench.spec("a", "exec sleep 1000"), seen)
        pid = await seen.pid
        first.close()
        with pytest.raises(Conflict, match="it speaks versions 7 to 9 of the protocol, this one 1 to 2"):
            await bench.attach((7, 9))
        assert not gone(pid)

    play(scenario)


def test_garbage_and_a_second_worker_disturb_nothing(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        guardian, seen = await bench.attach(), Seen()
        guardian.start(bench.spec("a", "read x < /dev/null; sleep 0.2; echo done"), seen)
        assert os.stat(bench.paths.socket).st_mode & 0o777 == 0o600
        garbage = [b"\xff" * 1000, b"\0\0\0\3{{{", b"GET / HTTP/1.0\r\n\r\n", encode({"hello": 3}), encode({})]
        with contextlib.ExitStack() as held:
            for data in (*garbage, b"", b"\0\0"):
                stream = held.enter_context(socket.socket(socket.AF_UNIX))
                with bench.paths.short_name() as name:
                    stream.connect(name)
                stream.sendall(data)
                if data in garbage:
                    stream.settimeout(10)
                    while stream.recv(1000):
                        pass
            with pytest.raises(Unavailable, match=f"process {os.getpid()} is its worker"):
                await bench.attach(patience_s=0.2)
            assert (await seen.end).succeeded
        assert bench.words("a", seen.size) == [b"done"]

    play(scenario)


def test_a_worker_that_does_not_listen_holds_nothing_up(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        # As one that was stopped by SIGSTOP: it asks for much, and reads nothing.
        (await bench.attach()).close()
        await asyncio.sleep(0)
        stream = await asyncio.to_thread(frozen_worker, bench)
        await soon(lambda: (bench.root / "last").exists(), "all have run")
        stream.close()
        second = await bench.attach()
        ends = [Seen() for _ in second.held()]
        for held, seen in zip(second.held(), ends, strict=True):
            second.take_up(held.owner, seen)
        assert [(await seen.end).code for seen in ends] == [4] * 300 + [0]
        assert len((await ends[0].end).tail) == 4000

    play(scenario)


def frozen_worker(bench: Bench) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX)
    with bench.paths.short_name() as name:
        stream.connect(name)
    stream.sendall(encode({"hello": {"versions": [1, 1], "pid": os.getpid(), "role": "worker"}}))
    stream.recv(1)
    script = "head -c 4000 /dev/zero | tr '\\\\0' x >&2; exit 4"
    specs = [bench.spec(f"a{number}", script, tail_bytes=4000) for number in range(300)]
    last = bench.spec("z", f"sleep 0.1; touch {bench.root}/last")
    stream.sendall(encode({"do": [["start", fields_of(spec)] for spec in (*specs, last)]}))
    return stream


def test_a_full_disk_does_not_touch_the_ends(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        guardian, seen = await bench.attach(), Seen()
        spec = bench.spec("a", "echo lost; exit 5")
        guardian.start(ProcessSpec("a", spec.argv, spec.env, spec.cwd, log="/dev/full"), seen)
        exit = await seen.end
        assert exit.code == 5
        assert exit.lost == "5 bytes of output lost: no space left on the worker's disk"
        assert exit.unmarked == exit.lost, "where nothing can be written the log cannot say it either"

    play(scenario)


def test_without_worker_and_tasks_it_ends_after_its_time_and_not_before_the_last_task(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.linger_s = 0.2
        guardian, seen = await bench.attach(), Seen()
        guardian.start(bench.spec("a", f"sleep 0.6; touch {bench.root}/over"), seen)
        await seen.pid
        pid = bench.pid()
        guardian.close()
        await soon(lambda: gone(pid), "the guardian has ended")
        assert (bench.root / "over").exists()
        assert not bench.paths.socket.exists()

    play(scenario)


def test_sigterm_ends_it_with_all_its_tasks(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        guardian, seen = await bench.attach(), Seen()
        daemon = "env -i setsid sleep 1000 >/dev/null 2>&1 & echo $!"
        guardian.start(bench.spec("a", f"trap '' TERM; {daemon}; while :; do sleep 0.05; done"), seen)
        await seen.grew.wait()
        (stray,) = map(int, bench.words("a", seen.size))
        pid = await seen.pid
        os.kill(bench.pid(), signal.SIGTERM)
        await guardian.lost
        await soon(lambda: gone(bench.pid()), "the guardian has ended")
        assert all(map(gone, (pid, stray)))

    play(scenario)


def test_signals_at_its_end_are_no_error(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.attach()
        pid = bench.pid()

        def pester() -> bool:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            return gone(pid)

        await soon(pester, "it has ended")
        assert "Exception" not in bench.paths.log.read_text()

    play(scenario)


def test_what_a_killed_guardian_left_is_killed_by_the_next(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        guardian, seen = await bench.attach(), Seen()
        guardian.start(bench.spec("a", "env -i setsid sleep 1000 >/dev/null 2>&1 & echo $!; exec sleep 1000"), seen)
        await seen.grew.wait()
        (stray,) = map(int, bench.words("a", seen.size))
        pid = await seen.pid
        os.kill(bench.pid(), signal.SIGKILL)
        await guardian.lost
        assert not gone(stray)
        assert (await bench.attach()).guardian_id != guardian.guardian_id
        await soon(lambda: gone(pid) and gone(stray), "nothing is left")

    play(scenario)


def test_an_exclusive_command_is_killed_when_contact_is_too_old_and_not_started_then(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        guardian = await bench.attach()
        never, fenced, other = Seen(), Seen(), Seen()
        guardian.start(bench.spec("never", "true", fence_ms=1000), never)
        with pytest.raises(StartFailed, match="no contact with the controller for 1 s") as refused:
            await never.end
        assert refused.value.why is StartFailure.FENCED
        guardian.contact(boot_ms() + 10**9)  # of the future: counts as now
        begun = boot_ms()
        guardian.start(bench.spec("fenced", "exec sleep 1000", fence_ms=700), fenced)
        guardian.start(bench.spec("other", "exec sleep 1000"), other)
        await fenced.pid
        guardian.contact(boot_ms())
        guardian.close()  # it needs no worker for that
        await soon(lambda: gone(fenced.pid.result()), "it was fenced")
        assert 700 <= boot_ms() - begun < 3000
        second, again = await bench.attach(), Seen()
        second.take_up("fenced", again)
        exit = await again.end
        assert (exit.signal, exit.fenced[:35]) == (signal.SIGKILL, "there was no contact with the contr")
        assert not gone(await other.pid)

    play(scenario)


def test_what_is_beyond_its_fence_when_the_host_wakes_is_not_saved_by_a_contact(play: Play) -> None:
    """Asleep until then, it may have been started elsewhere; the worker is sometimes quicker than the fence's timer."""

    async def scenario(bench: Bench) -> None:
        guardian, seen = await bench.attach(), Seen()
        guardian.contact(boot_ms())
        guardian.start(bench.spec("a", "exec sleep 1000", fence_ms=500), seen)
        await seen.pid
        os.kill(bench.pid(), signal.SIGSTOP)
        began = boot_ms()
        await soon(lambda: boot_ms() - began > 700, "the fence is over")
        guardian.contact(boot_ms())
        os.kill(bench.pid(), signal.SIGCONT)
        assert (await seen.end).fenced

    play(scenario)


def test_a_suspended_guardian_is_noticed_until_it_goes_on(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris.worker.guardian.client.SILENCE_S", 0.1)

    async def scenario(bench: Bench) -> None:
        guardian, seen = await bench.attach(), Seen()
        os.kill(bench.pid(), signal.SIGSTOP)
        guardian.start(bench.spec("a", "echo begun"), seen)
        assert guardian.trouble() == ""
        await soon(lambda: guardian.trouble(), "it is noticed")
        assert (
            guardian.trouble() == f"the process that starts its tasks (guardian, process {bench.pid()}) does not answer"
        )
        os.kill(bench.pid(), signal.SIGCONT)
        assert (await seen.end).succeeded
        assert guardian.trouble() == ""

    play(scenario)


def test_a_suspended_guardian_is_named_to_the_next_worker(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        (await bench.attach()).close()
        os.kill(bench.pid(), signal.SIGSTOP)
        with pytest.raises(Unavailable, match="does not take this worker: it does not answer"):
            await attach(bench.paths, patience_s=0.2)
        os.kill(bench.pid(), signal.SIGCONT)

    play(scenario)


def test_acknowledged_beats_put_the_fence_off(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        guardian, seen = await bench.attach(), Seen()
        guardian.contact(boot_ms())
        guardian.start(bench.spec("a", "sleep 1.2; echo whole", fence_ms=600), seen)
        while not seen.end.done():
            guardian.contact(boot_ms())
            await asyncio.sleep(0.05)
        assert (await seen.end).succeeded

    play(scenario)


def test_it_is_small_and_its_tasks_see_nothing_of_the_workers_environment(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")

    async def scenario(bench: Bench) -> None:
        guardian, seen = await bench.attach(), Seen()
        guardian.start(bench.spec("a", "cat /proc/$PPID/environ"), seen)
        await seen.end
        assert not any(b"s3cret" in record for record in bench.words("a", seen.size))
        maps = bench.proc(guardian.pid, "maps")
        assert "grpc" not in maps
        assert "_asyncio" not in maps
        assert int(bench.proc(guardian.pid, "status").split("VmRSS:")[1].split()[0]) < 30_000

    play(scenario)
